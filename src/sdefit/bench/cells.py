"""One cell to its rows: a batch of fits, one row for each realization, and a whole fit for the figures."""

import dataclasses
from typing import Any

import jax
import numpy as np

from sdefit.bench import plan, problems, provenance
from sdefit.bench.plan import Cell
from sdefit.bench.problems import Problem
from sdefit.data import Series
from sdefit.errors import SdefitError
from sdefit.fitting import Fit, fit_each
from sdefit.methods.interface import Method
from sdefit.store import Record

NO_DATA = "the simulated path left the finite numbers"


@dataclasses.dataclass(frozen=True)
class Task:
    """A cell with its data: all that another machine needs."""

    cell: Cell
    seed: int
    data: str
    series: list[Series | None]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The rows of a cell, and the fit of realization 0 where the cell holds it."""

    rows: list[dict[str, Any]]
    record: Record | None = None

    @property
    def failures(self) -> int:
        return sum(row["status"] != "ok" for row in self.rows)


def run(task: Task, method: Method | None = None) -> Outcome:
    """Fit every realization of a cell. What fails is a row with its reason; only an interrupt ends a run.

    `method` has the settings; without it they are those of the plan.
    """
    problem, method = problems.get(task.cell.system), method or plan.settings(task.cell.system, task.cell.method)
    there = [i for i, one in enumerate(task.series) if one is not None]
    missing = dict.fromkeys(range(task.cell.count), (NO_DATA, "no_data"))
    try:
        fits = dict(zip(there, _fits(problem, method, task, there), strict=True))
    except Exception as trouble:
        fits, reason = {}, f"{type(trouble).__name__}: {' '.join(str(trouble).split())[:300]}"
        kind = "refused" if isinstance(trouble, SdefitError) else "error"
        missing |= dict.fromkeys(there, (reason, kind))
    rows = [_row(problem, task, method, i, fits.get(i), *missing[i]) for i in range(task.cell.count)]
    first = fits.get(0) if task.cell.first == 0 else None
    return Outcome(rows, first.record(_truth(problem)) if first else None)


def _fits(problem: Problem, method: Method, task: Task, there: list[int]) -> list[Fit]:
    """The fits in one batch, or in smaller ones where the device has too little memory for that."""
    if not there:
        return []
    cell, batch = task.cell, len(there)
    series = [one for one in task.series if one is not None]
    starts = [start_of(problem, cell.method, task.seed, cell.first + i) for i in there]
    key = problems.key_of(task.seed, "fit", cell.name)
    while True:
        try:
            return fit_each(problem.setup.model, series, method, key=key, start=starts, batch=batch)
        except Exception as trouble:
            if "RESOURCE_EXHAUSTED" not in str(trouble) or batch == 1:
                raise
            batch = -(-batch // 2)


def start_of(problem: Problem, method: str, seed: int, realization: int) -> dict[str, float] | None:
    """Start values for θ; None for a recipe of the paper, which draws its own, |N(0, 1)|."""
    return None if plan.is_recipe(method) else random_start(problem, seed, realization)


def random_start(problem: Problem, seed: int, realization: int) -> dict[str, float]:
    """Start values for θ: within a factor 3 of the truth for even realizations, |N(0, 1)| for odd ones."""
    truth = problem.setup.params
    rng = np.random.default_rng([seed, realization, *problem.name.encode()])
    if realization % 2:
        values = np.abs(rng.normal(size=len(truth)))
    else:
        values = np.array(list(truth.values())) * 3.0 ** rng.uniform(-1.0, 1.0, len(truth))
    return dict(zip(truth, values.tolist(), strict=True))


def _truth(problem: Problem) -> dict[str, Any]:
    setup = problem.setup
    return {"params": dict(setup.params), "G": setup.G.tolist(), "noise": setup.noise}


def _row(
    problem: Problem, task: Task, method: Method, i: int, found: Fit | None, reason: str, failure: str
) -> dict[str, Any]:
    """What was run, what came out, what it cost, and what made it."""
    what = {
        "setup": task.cell.system,
        "system": problem.setup.model.name,
        "data": task.data,
        "method": task.cell.method,
        "settings": plan.settings_text(method),
        "realization": task.cell.first + i,
    }
    if found is None:
        names = [*problem.truth(), *(f"noise_{state}" for state in problem.setup.model.states)]
        out = {"status": failure, "reason": reason} | dict.fromkeys(names, np.nan)
        cost = {"seconds": np.nan, "compile_seconds": np.nan, "key": ""}
    else:
        out = {
            "status": "ok" if found.status.ok else found.status.name,
            "reason": "" if found.status.ok else found.status.message,
        }
        out |= found.params | problems.matrices(found.G)
        out |= {f"noise_{state}": value for state, value in zip(found.model.states, found.noise, strict=True)}
        key = ":".join(map(str, jax.random.key_data(found.key).tolist()))
        cost = {"seconds": found.seconds, "compile_seconds": found.compile_seconds, "key": key}
    return what | out | cost | provenance.facts()
