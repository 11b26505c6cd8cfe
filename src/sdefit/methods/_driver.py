"""Runs methods as compiled programs: one compilation per (model, settings, shapes), kept for the next call.

Start values are inputs of a program, not part of it, so changing them compiles nothing. A batch is
the same program over a leading axis: see `each`. XLA compiles in threads of its own: tracing needs Python's lock,
compiling does not, so one stage of a fit is traced while the one before it compiles.
"""

import collections
import dataclasses
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float, Int, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.methods import _kept
from sdefit.methods._base import Method, Stage, Staged
from sdefit.methods._drift_facts import DriftFacts, drift_facts
from sdefit.methods._residuals import Residuals, residuals_of
from sdefit.result import Code, Estimate

_LARGEST = 64  # programs kept; a compiled program takes a few megabytes
_COMPILERS = 2  # programs that compile at the same time


Follow = Callable[[SDE, Method, Pool, Any], None]
Rows = Callable[[np.ndarray], tuple[Any, ...]]


class Answer(eqx.Module):
    """A method's estimate as it gave it, the same in the user's units, and what its status follows from."""

    estimate: Estimate
    G: Float[Array, "state state"]
    noise: Float[Array, "state"]
    mean: Float[Array, "series times state"]
    std: Float[Array, "series times state"]
    at_bound: Bool[Array, "params"]
    residuals: Residuals


class Run(NamedTuple):
    """What a program returned, as NumPy arrays, with the seconds it ran and the seconds it took to compile."""

    value: Any
    seconds: float
    compile_seconds: float


class _Program(NamedTuple):
    """A program on its way, and the shapes of what it will return."""

    compiled: Future[Any]
    returns: Any


class Programs:
    """Compiled programs by what they depend on, the least recently used one dropped first."""

    def __init__(self, largest: int = _LARGEST) -> None:
        self.compilations = 0
        self.folder: Path | None = None  # where programs outlive the process; the command line sets it
        self.follow: Follow | None = None  # what to do while a single fit compiles; the command line sets it
        self._largest = largest
        self._kept: collections.OrderedDict[Any, _Program] = collections.OrderedDict()
        self._compilers = ThreadPoolExecutor(_COMPILERS, "compiler")

    def start(self, function: Callable[..., Any], model: SDE, method: Method, *inputs: Any) -> Any:
        """Trace `function(model, method, *inputs)`, have it compiled, and tell the shapes of what it returns.

        Inputs may be shapes. What was asked for before is not made again.
        """
        return self._program(function, model, method, inputs).returns

    def run(self, function: Callable[..., Any], model: SDE, method: Method, *inputs: Any) -> Run:
        """`function(model, method, *inputs)`, compiled at most once for these shapes."""
        begin = time.perf_counter()
        before = self.compilations
        program = self._program(function, model, method, inputs)
        waits = self.compilations > before or not program.compiled.done()
        compiled = program.compiled.result()
        ready = time.perf_counter()
        with jax.enable_x64(True):
            value = jax.device_get(compiled(*inputs))
        return Run(value, time.perf_counter() - ready, ready - begin if waits else 0.0)

    def run_each(
        self, function: Callable[..., Any], model: SDE, method: Method, rows: Rows, count: int, batch: int
    ) -> Run:
        """`function` of `count` rows, at most `batch` in one run of its program, every core of a CPU at a run.

        `rows(index)` are the inputs of the rows so numbered. A last run that is not full repeats its first row, so
        that it is of the same program.
        """
        size = min(batch, -(-count // cores()))
        index = np.arange(-(-count // size) * size).reshape(-1, size)
        many = [rows(np.where(some < count, some, some[0]).astype(np.int32)) for some in index]
        begin, before = time.perf_counter(), self.compilations
        compiled = self._program(function, model, method, many[0]).compiled.result()
        ready = time.perf_counter()

        def one(inputs: tuple[Any, ...]) -> Any:
            with jax.enable_x64(True):
                return jax.device_get(compiled(*inputs))

        with ThreadPoolExecutor(cores(), "runner") as runners:
            values = list(runners.map(one, many))
        value = jax.tree.map(lambda *a: np.concatenate(a)[:count], *values)
        return Run(value, time.perf_counter() - ready, ready - begin if self.compilations > before else 0.0)

    def _program(self, function: Callable[..., Any], model: SDE, method: Method, inputs: tuple[Any, ...]) -> _Program:
        with jax.enable_x64(True):
            model = without_starts(model)
            leaves, tree = jax.tree.flatten(inputs)
            shapes = tuple((a.shape, str(a.dtype)) for a in leaves)
            asked = (function, model, type(method), method, tree, shapes, str(jax.config.jax_default_device))
            if asked not in self._kept:
                self._kept[asked] = self._made(function, model, method, inputs)
                self.compilations += 1
                if len(self._kept) > self._largest:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(asked)
            return self._kept[asked]

    def _made(self, function: Callable[..., Any], model: SDE, method: Method, inputs: tuple[Any, ...]) -> _Program:
        """The program from the folder of kept ones, or a new one."""
        file = None if self.folder is None else _kept.place(self.folder, function, model, method, inputs)
        kept = None if file is None else _kept.read(file)

        def trace() -> Any:
            return jax.jit(lambda *a: function(model, method, *a)).trace(*inputs)

        def load(found: _kept.Kept) -> Any:
            try:
                return found.load(inputs)
            except Exception:  # of another make after all
                with jax.enable_x64(True):
                    return _compile(trace().lower())

        if kept is not None:
            return _Program(self._compilers.submit(load, kept), kept.returns)
        traced = trace()
        returns = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), traced.out_info)
        lowered = traced.lower()

        def make() -> Any:
            compiled = _compile(lowered)
            data = None if file is None else _kept.packed(compiled, returns)
            if file is not None and data is not None:
                self._compilers.submit(_kept.write, file, data)
            return compiled

        return _Program(self._compilers.submit(make), returns)


def _compile(lowered: Any) -> Any:
    """The program, with whole loops in one piece where they can be: see `linalg`."""
    if jax.default_backend() != "cpu":
        return lowered.compile()
    try:  # library calls for sums would break loops up
        return lowered.compile(compiler_options={"xla_cpu_experimental_ynn_fusion_type": ""})
    except jax.errors.JaxRuntimeError:  # an XLA without that option has no such calls either
        return lowered.compile()


PROGRAMS = Programs()


def cores() -> int:
    """How many programs can run side by side: one for each core that we may use, or one on a GPU."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def estimate(model: SDE, method: Method, pool: Pool, start: np.ndarray, key: Key) -> Run:
    """The `Answer` of one fit."""
    inputs = _arrays(pool), np.asarray(start, np.float64), key
    stages = [_Stage(i) for i in range(len(stages_of(method)))]
    begin, before = time.perf_counter(), PROGRAMS.compilations
    found: Any = None
    for stage in stages:
        found = PROGRAMS.start(stage, model, method, *inputs, found)
    if PROGRAMS.follow is not None and PROGRAMS.compilations > before:
        PROGRAMS.follow(model, method, inputs[0], found.estimate)
    run = Run(None, 0.0, time.perf_counter() - begin if PROGRAMS.compilations > before else 0.0)
    for stage in stages:
        run = _after(run, PROGRAMS.run(stage, model, method, *inputs, run.value))
    return run


def _after(one: Run, other: Run) -> Run:
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


def without_starts(model: SDE) -> SDE:
    """The model without the start values of its parameters, which no program depends on."""
    bare = {name: dataclasses.replace(parameter, start=None) for name, parameter in model.parameters}
    return SDE(model.drift, model.states, bare, model.diffusion, model.name, model.inputs, model.hold)


def _arrays(pool: Pool) -> Pool:
    return jax.tree.map(lambda a: np.asarray(a) if np.asarray(a).dtype == bool else np.asarray(a, np.float64), pool)


def _answers(model: SDE, method: Method, pools: Pool, starts: Array, index: Int[Array, "fits"], key: Key) -> Answer:
    def one(pool, start, i):
        return _answer(model, method, pool, start, jax.random.fold_in(key, i))

    return each(one, pools, starts, index)


def each(one: Callable[..., Any], *rows: Any) -> Any:
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
        told = stages_of(method)[self.number](model, pool, start, key, found)
        return _judged(model, pool, told) if isinstance(told, Estimate) else told


def stages_of(method: Method) -> tuple[Stage, ...]:
    """The stages of a method; one alone for a method that has none."""
    if isinstance(method, Staged):
        return method.stages()
    return (lambda model, pool, start, key, found: method.estimate(model, pool, start, key),)


def _answer(model: SDE, method: Method, pool: Pool, start: Theta, key: Key) -> Answer:
    return _judged(model, pool, method.estimate(model, pool, start, key))


def _judged(model: SDE, pool: Pool, found: Estimate) -> Answer:
    along = drift_facts(model, pool, found.theta, found.mean)
    found = eqx.tree_at(lambda e: e.code, found, _verdict(found, along))
    return Answer(
        found,
        pool.diffusion_out(found.G),
        pool.spread_out(found.noise),
        pool.path_out(found.mean),
        pool.spread_out(found.std),
        along.at_bound,
        residuals_of(model, pool, found),
    )


def _smooth(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
    mean, std = method.smooth(model, pool, estimate)
    return pool.path_out(mean), pool.spread_out(std)


def _field(model: SDE, method: Any, pool: Pool, estimate: Estimate, x: Array) -> tuple[Array, Array]:
    mean, std = method.field(estimate, (x - pool.center[None, :]) / pool.scale[None, :])
    return pool.spread_out(mean) / pool.time_scale, pool.spread_out(std) / pool.time_scale


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
