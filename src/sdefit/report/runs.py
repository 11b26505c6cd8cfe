"""A results folder as a report reads it: the plan, the problems, every row, and one whole fit of each kind."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdefit.errors import FileError
from sdefit.store import Record, Results


@dataclasses.dataclass(frozen=True)
class Run:
    """What a results folder holds. Rows are text as it is stored; `column` makes numbers of them."""

    plan: Mapping[str, Any]
    problems: Mapping[str, Record]
    rows: Sequence[Mapping[str, str]]
    fits: Mapping[tuple[str, str], Record]

    def of(self, system: str, method: str) -> list[Mapping[str, str]]:
        """The rows of one system and method, by realization."""
        rows = [row for row in self.rows if (row["setup"], row["method"]) == (system, method)]
        return sorted(rows, key=lambda row: int(row["realization"]))

    @property
    def systems(self) -> list[str]:
        """The systems that have rows, in the order of the plan."""
        return [name for name in self.plan["systems"] if name in self.problems and self.methods(name)]

    def methods(self, system: str) -> list[str]:
        """The methods that have rows for a system, in the order of the plan."""
        return [name for name in self.plan["methods"] if self.of(system, name)]

    def title(self, method: str) -> str:
        """A method's name as people write it."""
        return str(self.plan["about"].get(method, {}).get("short", method))


def column(rows: Sequence[Mapping[str, str]], name: str) -> np.ndarray:
    """A column of numbers, NaN where a row has none."""
    try:
        return np.array([float(row.get(name) or "nan") for row in rows])
    except ValueError:
        raise FileError(f"the column {name} of the rows must hold numbers") from None


def _numbers(plan: Mapping[str, Any]) -> set[str]:
    return {str(i) for i in range(plan["realizations"])}


def read_run(folder: str | os.PathLike[str]) -> Run:
    """All that a results folder holds, for the rows that its plan asks for."""
    results = Results(folder)
    plan = results.plan()
    rows = results.rows()
    known = {"setup": plan["systems"], "method": plan["methods"], "realization": _numbers(plan), "status": None}
    for row in rows:
        for name, values in known.items():
            if name not in row or (values is not None and row[name] not in values):
                raise FileError(
                    f"{results.folder / 'rows'} holds a row whose {name} is not one of its plan: {row.get(name)!r}"
                )
    problems = {name: results.read("problems", name) for name in plan["systems"]}
    kinds = {
        (s, m): results.read("fits", f"{s}-{m.replace(':', '_')}") for s in plan["systems"] for m in plan["methods"]
    }
    return Run(
        plan,
        {name: record for name, record in problems.items() if record is not None},
        rows,
        {kind: record for kind, record in kinds.items() if record is not None},
    )


def labels(problem: Record) -> dict[str, str]:
    """The quantities of a problem's tables with the names that people read: its parameters, then matrix entries."""
    facts = problem.facts
    named = {name: f"{name} (θ{i})" for i, name in enumerate(facts["params"])}
    single = len(facts["states"]) == 1
    for name in facts["matrix"]:
        word = name.replace("GGt", "GGᵀ")
        named[name] = "H = G²" if single and name == "H11" else "G (scalar)" if facts["matrix"] == ["G11"] else word
    return named
