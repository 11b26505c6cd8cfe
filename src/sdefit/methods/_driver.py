"""Runs methods as compiled programs: one compilation per (model, settings, shapes), kept for the next call.

Start values are inputs of a program, not part of it, so changing them compiles nothing. A batch is
the same program vmapped over its leading axis.
"""

import collections
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float, Int, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.methods._base import Method
from sdefit.methods._kept import kept
from sdefit.result import Code, Estimate

_LARGEST = 64  # programs kept; a compiled program takes a few megabytes
_LANES = 4  # fits that one core runs side by side
_GENERATOR = "threefry2x32"  # the random numbers of programs that are kept on disk: JAX's own default
_RANK = 1e-12  # below this share, a direction of θ moves the drift by no more than rounding does


class Answer(eqx.Module):
    """A method's estimate as it gave it, and the same in the user's units."""

    estimate: Estimate
    G: Float[Array, "state state"]
    noise: Float[Array, "state"]
    mean: Float[Array, "series times state"]
    std: Float[Array, "series times state"]


class Run(NamedTuple):
    """What a program returned, as NumPy arrays, with the seconds it ran and the seconds it took to compile."""

    value: Any
    seconds: float
    compile_seconds: float


class Programs:
    """Compiled programs by what they depend on, the least recently used one dropped first."""

    def __init__(self, largest: int = _LARGEST) -> None:
        self.compilations = 0
        self.folder: Path | None = None  # where traced programs outlive the process; the command line sets it
        self._largest = largest
        self._kept: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def run(self, function: Callable[..., Any], model: SDE, method: Method, *inputs: Any) -> Run:
        """`function(model, method, *inputs)`, compiled at most once for these shapes."""
        with jax.enable_x64(True):
            model = without_starts(model)
            leaves, tree = jax.tree.flatten(inputs)
            shapes = tuple((a.shape, str(a.dtype)) for a in leaves)
            asked = (function, model, type(method), method, tree, shapes, str(jax.config.jax_default_device))
            compile_seconds = 0.0
            if asked not in self._kept:
                begin = time.perf_counter()
                self._kept[asked] = self._traced(function, model, method, inputs).lower(*inputs).compile()
                compile_seconds = time.perf_counter() - begin
                self.compilations += 1
                if len(self._kept) > self._largest:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(asked)
            begin = time.perf_counter()
            value = jax.device_get(self._kept[asked](*inputs))
            return Run(value, time.perf_counter() - begin, compile_seconds)

    def _traced(self, function: Callable[..., Any], model: SDE, method: Method, inputs: tuple[Any, ...]) -> Any:
        if self.folder is not None and function is _plain_answer:
            found = kept(self.folder, function, model, method, inputs)
            if found is not None:
                return found
        return jax.jit(lambda *a: function(model, method, *a))


PROGRAMS = Programs()


def estimate(model: SDE, method: Method, pool: Pool, start: np.ndarray, key: Key) -> Run:
    """The `Answer` of one fit."""
    pool = _arrays(pool)
    if str(jax.random.key_impl(key)) != _GENERATOR:
        return PROGRAMS.run(_answer, model, method, pool, np.asarray(start, np.float64), key)
    bits = np.asarray(jax.random.key_data(key))
    run = PROGRAMS.run(_plain_answer, model, method, _fields(pool), np.asarray(start, np.float64), bits)
    with jax.enable_x64(True):
        arrays = jax.tree.map(jnp.asarray, run.value)
        answer = Answer(**(arrays | {"estimate": Estimate(**arrays["estimate"])}))
    return run._replace(value=jax.device_get(answer))


def estimate_each(model: SDE, method: Method, pools: Pool, starts: np.ndarray, key: Key, batch: int) -> Run:
    """The `Answer`s of many fits along a leading axis, `batch` of them at a time in one program.

    The i-th fit uses `jax.random.fold_in(key, i)`. A last batch that is not full repeats its first
    fit, so that it runs the program of the others.
    """
    pools, count = _arrays(pools), len(starts)
    size = min(batch, count)
    runs = []
    for first in range(0, count, size):
        rows = np.arange(first, first + size)
        rows = np.where(rows < count, rows, first)
        chunk = jax.tree.map(lambda a, rows=rows: a[rows], pools)
        runs.append(PROGRAMS.run(_answers, model, method, chunk, starts[rows], rows.astype(np.int32), key))
    value = jax.tree.map(lambda *a: np.concatenate(a)[:count], *(run.value for run in runs))
    return Run(value, sum(run.seconds for run in runs), sum(run.compile_seconds for run in runs))


def smooth(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> Run:
    """Mean and standard deviation of the states at every time of `pool`, in the user's units."""
    return PROGRAMS.run(_smooth, model, method, _arrays(pool), estimate)


def field(model: SDE, method: Method, pool: Pool, estimate: Estimate, x: np.ndarray) -> Run:
    """Mean and standard deviation of a learned drift at the rows of x, all in the user's units."""
    return PROGRAMS.run(_field, model, method, _arrays(pool), estimate, np.asarray(x, np.float64))


def without_starts(model: SDE) -> SDE:
    """The model without the start values of its parameters, which no program depends on."""
    bare = {name: dataclasses.replace(parameter, start=None) for name, parameter in model.parameters}
    return SDE(model.drift, model.states, bare, model.diffusion, model.name, model.inputs, model.hold)


def _arrays(pool: Pool) -> Pool:
    return jax.tree.map(lambda a: np.asarray(a) if np.asarray(a).dtype == bool else np.asarray(a, np.float64), pool)


def _answers(model: SDE, method: Method, pools: Pool, starts: Array, index: Int[Array, "fits"], key: Key) -> Answer:
    def one(pool, start, i):
        return _answer(model, method, pool, start, jax.random.fold_in(key, i))

    # A program runs until the slowest of its lanes is done. A GPU hides that; on a CPU a few lanes fill the vector
    # units, and more of them only wait for each other.
    lanes = _LANES if jax.default_backend() == "cpu" else index.size
    if index.size <= lanes:
        return jax.vmap(one)(pools, starts, index)
    short = -index.size % lanes
    rows = jax.tree.map(lambda a: _in_rows(a, lanes, short), (pools, starts, index))
    found = jax.lax.map(lambda row: jax.vmap(one)(*row), rows)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[: index.size], found)


def _in_rows(a: Array, lanes: int, short: int) -> Array:
    """An array of many in rows of `lanes`, the last one filled up with the first of all."""
    return jnp.concatenate([a, jnp.repeat(a[:1], short, axis=0)]).reshape(-1, lanes, *a.shape[1:])


def _plain_answer(model: SDE, method: Method, pool: dict[str, Any], start: Theta, bits: Array) -> dict[str, Any]:
    """An `Answer` in plain dicts, from a pool in one and a key in bits: a program that can be kept on disk."""
    answer = _answer(model, method, Pool(**pool), start, jax.random.wrap_key_data(bits, impl=_GENERATOR))
    return _fields(answer) | {"estimate": _fields(answer.estimate)}


def _fields(module: eqx.Module) -> dict[str, Any]:
    return {field.name: getattr(module, field.name) for field in dataclasses.fields(module)}


def _answer(model: SDE, method: Method, pool: Pool, start: Theta, key: Key) -> Answer:
    found = method.estimate(model, pool, start, key)
    found = eqx.tree_at(lambda e: e.code, found, _verdict(model, pool, found))
    return Answer(
        found,
        pool.diffusion_out(found.G),
        pool.spread_out(found.noise),
        pool.path_out(found.mean),
        pool.spread_out(found.std),
    )


def _smooth(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
    mean, std = method.smooth(model, pool, estimate)
    return pool.path_out(mean), pool.spread_out(std)


def _field(model: SDE, method: Any, pool: Pool, estimate: Estimate, x: Array) -> tuple[Array, Array]:
    mean, std = method.field(estimate, (x - pool.center[None, :]) / pool.scale[None, :])
    return pool.spread_out(mean) / pool.time_scale, pool.spread_out(std) / pool.time_scale


def _verdict(model: SDE, pool: Pool, found: Estimate) -> Int[Array, ""]:
    """The method's own status code, unless the drift along its path shows a plainer reason to doubt."""
    parts = (found.theta, found.G, found.noise, found.mean, found.std)
    finite = jnp.stack([jnp.all(jnp.isfinite(part)) for part in parts]).all()
    drift_finite, told = _drift_facts(model, pool, found)
    code = jnp.asarray(found.code, jnp.int32)
    code = jnp.where(finite, code, Code.NOT_FINITE)
    code = jnp.where(told, code, Code.NOT_TOLD)
    code = jnp.where(drift_finite, code, Code.DRIFT_NOT_FINITE)
    vague = jnp.array([Code.OK, Code.NOT_CONVERGED, Code.NOT_FINITE, Code.DEAD_CRITIC])
    own = jnp.all(found.code != vague)
    return jnp.where(own, found.code, code).astype(jnp.int32)


def _drift_facts(model: SDE, pool: Pool, found: Estimate) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Whether the drift is finite along the path, and whether it moves with every direction of θ."""
    middle = model.bounds.constrain(jnp.full(len(model.free), 0.1))
    theta = jnp.where(jnp.isfinite(found.theta), found.theta, middle)
    states = pool.path_out(jnp.where(jnp.isfinite(found.mean), found.mean, pool.values))
    rows = jnp.any(pool.observed, axis=-1)

    def both(t, x, origin):
        t = pool.moment(t, origin)
        return model.f(t, x, theta), jax.jacfwd(model.f, argnums=2)(t, x, theta)

    f, slope = jax.vmap(jax.vmap(both, (0, 0, None)))(pool.times, states, pool.origins)
    drift_finite = jnp.all(jnp.isfinite(f) | ~rows[..., None])
    if not theta.size:
        return drift_finite, jnp.array(True)
    usable = rows[..., None, None] & jnp.isfinite(slope)
    columns = jnp.where(usable, slope / pool.scale[None, None, :, None], 0.0).reshape(-1, theta.size)
    return drift_finite, _full_rank(columns)


def _full_rank(columns: Float[Array, "rows params"]) -> Bool[Array, ""]:
    """Whether no combination of the columns, each scaled to length one, vanishes."""
    columns = columns / jnp.max(jnp.abs(columns), axis=0, initial=1e-300)[None, :]
    columns = columns / jnp.maximum(jnp.linalg.norm(columns, axis=0), 1e-300)[None, :]
    return jnp.linalg.eigvalsh(columns.T @ columns)[0] > _RANK
