"""Runs methods as compiled programs (see `programs`) and judges what they return.

Start values are inputs of a program, not part of it, so changing them compiles nothing. A batch is
the same program over a leading axis: see `vmap_series`.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float, Int, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.inference.drift_facts import DriftFacts, drift_facts
from sdefit.inference.residuals import Residuals, residuals_of
from sdefit.methods.interface import Method
from sdefit.programs import PROGRAMS, Run
from sdefit.result import Code, Estimate


class Answer(eqx.Module):
    """A method's estimate as it gave it, the same in the user's units, and what its status follows from."""

    estimate: Estimate
    G: Float[Array, "state state"]
    noise: Float[Array, "state"]
    mean: Float[Array, "series times state"]
    std: Float[Array, "series times state"]
    at_bound: Bool[Array, "params"]
    residuals: Residuals


def estimate(model: SDE, method: Method, pool: Pool, start: np.ndarray, key: Key) -> Run:
    """The `Answer` of one fit."""
    inputs = _arrays(pool), np.asarray(start, np.float64), key
    stages = [_Stage(i) for i in range(len(method.stages()))]
    begin, before = time.perf_counter(), PROGRAMS.compilations
    found: Any = None
    for stage in stages:
        found = PROGRAMS.start(stage, model, method, *inputs, found)
    if PROGRAMS.compilations > before:
        PROGRAMS.tell(model, method, inputs[0], found.estimate)
    run = Run(None, 0.0, time.perf_counter() - begin if PROGRAMS.compilations > before else 0.0)
    for stage in stages:
        run = _joined(run, PROGRAMS.run(stage, model, method, *inputs, run.value))
    return run


def _joined(one: Run, other: Run) -> Run:
    """What the later of two runs returned, and what both took."""
    return Run(other.value, one.seconds + other.seconds, one.compile_seconds + other.compile_seconds)


def estimate_each(model: SDE, method: Method, pools: Pool, starts: np.ndarray, key: Key, batch: int) -> Run:
    """The `Answer`s of many fits along a leading axis; the i-th uses `jax.random.fold_in(key, i)`."""
    pools = _arrays(pools)

    def rows(index: np.ndarray) -> tuple[Any, ...]:
        return jax.tree.map(lambda a: a[index], pools), starts[index], index, key

    return PROGRAMS.run_each(_answers, model, method, rows, len(starts), batch)


def smooth(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> Run:
    """Mean and standard deviation of the states at every time of `pool`, in the user's units."""
    return PROGRAMS.run(_smooth, model, method, _arrays(pool), estimate)


def field(model: SDE, method: Method, pool: Pool, estimate: Estimate, x: np.ndarray) -> Run:
    """Mean and standard deviation of a learned drift at the rows of x, all in the user's units."""
    return PROGRAMS.run(_field, model, method, _arrays(pool), estimate, np.asarray(x, np.float64))


def _arrays(pool: Pool) -> Pool:
    return jax.tree.map(lambda a: np.asarray(a) if np.asarray(a).dtype == bool else np.asarray(a, np.float64), pool)


def _answers(model: SDE, method: Method, pools: Pool, starts: Array, index: Int[Array, "fits"], key: Key) -> Answer:
    def one(pool, start, i):
        return _answer(model, method, pool, start, jax.random.fold_in(key, i))

    return vmap_series(one, pools, starts, index)


def vmap_series(one: Callable[..., Any], *rows: Any) -> Any:
    """`one` of each row, inside a program: side by side on a GPU, one after the other on a CPU.

    Lanes wait for the slowest of their searches. A GPU hides that. On a CPU two lanes take longer than two runs.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda row: one(*row), rows)
    return jax.vmap(one)(*rows)


@dataclasses.dataclass(frozen=True)
class _Stage:
    """One stage of a method as a program; the last one's answer is judged and put in the user's units."""

    number: int

    def __call__(self, model: SDE, method: Method, pool: Pool, start: Theta, key: Key, found: Any) -> Any:
        result = method.stages()[self.number](model, pool, start, key, found)
        return _judged(model, pool, result) if isinstance(result, Estimate) else result


def _answer(model: SDE, method: Method, pool: Pool, start: Theta, key: Key) -> Answer:
    return _judged(model, pool, method.estimate(model, pool, start, key))


def _judged(model: SDE, pool: Pool, found: Estimate) -> Answer:
    along = drift_facts(model, pool, found.theta, found.mean)
    found = eqx.tree_at(lambda e: e.code, found, _verdict(found, along))
    return Answer(
        found,
        pool.unstandardise_diffusion(found.G),
        pool.unstandardise_std(found.noise),
        pool.unstandardise_path(found.mean),
        pool.unstandardise_std(found.std),
        along.at_bound,
        residuals_of(model, pool, found),
    )


def _smooth(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
    mean, std = method.smooth(model, pool, estimate)
    return pool.unstandardise_path(mean), pool.unstandardise_std(std)


def _field(model: SDE, method: Any, pool: Pool, estimate: Estimate, x: Array) -> tuple[Array, Array]:
    mean, std = method.field(estimate, (x - pool.center[None, :]) / pool.scale[None, :])
    return pool.unstandardise_std(mean) / pool.time_scale, pool.unstandardise_std(std) / pool.time_scale


def _verdict(found: Estimate, along: DriftFacts) -> Int[Array, ""]:
    """The method's own status code, unless the drift along its path shows a plainer reason to doubt."""
    parts = (found.theta, found.G, found.noise, found.mean, found.std)
    finite = jnp.stack([jnp.all(jnp.isfinite(part)) for part in parts]).all()
    code = jnp.asarray(found.code, jnp.int32)
    code = jnp.where(finite, code, Code.NOT_FINITE)
    code = jnp.where(jnp.all(along.separable), code, Code.UNIDENTIFIABLE)
    code = jnp.where(along.finite, code, Code.DRIFT_NOT_FINITE)
    vague = jnp.array([Code.OK, Code.NOT_CONVERGED, Code.NOT_FINITE, Code.DEAD_CRITIC])
    own = jnp.all(found.code != vague)
    return jnp.where(own, found.code, code).astype(jnp.int32)
