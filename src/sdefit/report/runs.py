"""A results folder as a report reads it: the plan, the problems, every row, and one whole fit of each kind."""

import dataclasses
import os
import re
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

    def slug(self, system: str) -> str:
        """The system's name as part of an id and of a file's name; a number stands for one that cannot be."""
        plain = re.fullmatch(r"[A-Za-z0-9_]{1,40}", system)
        return system if plain else f"system-{self.plan['systems'].index(system)}"

    def title(self, method: str) -> str:
        """A method's name as people write it."""
        return str(self.plan["about"].get(method, {}).get("short", method))


def column(rows: Sequence[Mapping[str, str]], name: str) -> np.ndarray:
    """A column of numbers, NaN where a row has none."""
    try:
        return np.array([float(row.get(name) or "nan") for row in rows])
    except ValueError:
        raise FileError(f"the column {name} of the rows must hold numbers") from None


def read_run(folder: str | os.PathLike[str]) -> Run:
    """All that a results folder holds, for the rows that its plan asks for."""
    results = Results(folder)
    plan = results.plan()
    found = {name: results.read("problems", name) for name in plan["systems"]}
    problems = {name: record for name, record in found.items() if record is not None}
    pairs = [(system, method) for system in problems for method in plan["methods"]]
    kinds = {(s, m): results.read("fits", f"{s}-{m.replace(':', '_')}") for s, m in pairs}
    run = Run(plan, problems, results.rows(), {kind: record for kind, record in kinds.items() if record is not None})
    _check(run, os.fspath(folder))
    return run


def _check(run: Run, folder: str) -> None:
    """Refuse rows and fits that are not of the plan and its problems."""
    numbers = {str(i) for i in range(run.plan["realizations"])}
    known = {"setup": run.plan["systems"], "method": run.plan["methods"], "realization": numbers}
    for row in run.rows:
        wrong = [name for name, values in known.items() if row.get(name) not in values]
        if wrong or not {"status", "reason"} <= row.keys():
            raise FileError(f"{folder} holds a row whose {wrong[0] if wrong else 'status'} is not one of its plan")
    for (system, method), record in run.fits.items():
        if record.facts["states"] != run.problems[system].facts["states"]:
            raise FileError(f"{folder} holds a fit of {system} by {method} whose states are not those of its problem")


def labels(problem: Record) -> dict[str, str]:
    """The quantities of a problem's tables with the names that people read: its parameters, then matrix entries."""
    facts = problem.facts
    named = {name: f"{name} (θ{i})" for i, name in enumerate(facts["params"])}
    single = len(facts["states"]) == 1
    for name in facts["matrix"]:
        word = name.replace("GGt", "GGᵀ")
        named[name] = "H = G²" if single and name == "H11" else "G (scalar)" if facts["matrix"] == ["G11"] else word
    return named
