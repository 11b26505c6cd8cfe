"""Compiled programs: one compilation per (model, settings, shapes), kept for the next call and the next process.

XLA compiles in threads of its own: tracing needs Python's lock, compiling does not, so one stage of a fit is traced
while the one before it compiles. Programs run in threads too, so that an interrupt is heard while they compile or run.
"""

import collections
import contextlib
import dataclasses
import functools
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import numpy as np

from sdefit import _jax
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.programs import disk, executable, keys

_LARGEST = 64  # programs in memory; a compiled program takes a few megabytes
_FEWEST = 16  # that stay where memory mappings are short; one fit with its intervals has some six
_SMALL = 20_000  # numbers among the inputs of a program; one of more takes longer to run than to compile well
_COMPILERS = 2  # programs that compile at the same time

OnCompile = Callable[[SDE, Any, Pool, Any], None]
Rows = Callable[[np.ndarray], tuple[Any, ...]]


class Run(NamedTuple):
    """What a program returned, as NumPy arrays, with the seconds it ran and the seconds it took to compile."""

    value: Any
    seconds: float
    compile_seconds: float


@dataclasses.dataclass(frozen=True)
class Compilation:
    """How programs are compiled.

    - `quick`: with little optimisation, for programs that run once. Most of a first fit is compilation: it takes half
      as long without the costly passes, and one fit runs for some tenths of a second more.
    - `on_compile`: called with a fit's model, method, data and the shapes of its estimate while its programs compile.
    """

    quick: bool = False
    on_compile: OnCompile | None = None


_USUAL = Compilation()
_COMPILATION: ContextVar[Compilation] = ContextVar("compilation", default=_USUAL)


@contextlib.contextmanager
def compilation(*, quick: bool = False, on_compile: OnCompile | None = None) -> Iterator[None]:
    """Within it, what this thread asks for is compiled so: see `Compilation`."""
    before = _COMPILATION.set(Compilation(quick, on_compile))
    try:
        yield
    finally:
        _COMPILATION.reset(before)


class _Program(NamedTuple):
    """A program on its way, and the shapes of what it will return."""

    compiled: Future[Any]
    returns: Any


class Programs:
    """Compiled programs by what they depend on, the least recently used one dropped first."""

    def __init__(self, largest: int = _LARGEST) -> None:
        self.compilations = 0
        self._largest = largest
        self._known: collections.OrderedDict[Any, Future[_Program]] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._compilers = ThreadPoolExecutor(_COMPILERS, "compiler")

    @functools.cached_property
    def _runners(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(cores(), "runner")

    def start(self, function: Callable[..., Any], model: SDE, method: Hashable, *inputs: Any) -> Any:
        """Trace `function(model, method, *inputs)`, have it compiled, and tell the shapes of what it returns.

        Inputs may be shapes. What was asked for before is not made again.
        """
        return self._program(function, model, method, inputs).returns

    def tell(self, model: SDE, method: Hashable, pool: Pool, estimate: Any) -> None:
        """Give whoever waits for a fit the shapes of its estimate, while its programs compile."""
        if on_compile := _COMPILATION.get().on_compile:
            on_compile(model, method, pool, estimate)

    def run(self, function: Callable[..., Any], model: SDE, method: Hashable, *inputs: Any) -> Run:
        """`function(model, method, *inputs)`, compiled at most once for these shapes."""
        begin = time.perf_counter()
        before = self.compilations
        program = self._program(function, model, method, inputs)
        waits = self.compilations > before or not program.compiled.done()
        compiled = program.compiled.result()
        ready = time.perf_counter()
        value = self._runners.submit(_call, compiled, inputs).result()
        return Run(value, time.perf_counter() - ready, ready - begin if waits else 0.0)

    def run_each(
        self, function: Callable[..., Any], model: SDE, method: Hashable, rows: Rows, count: int, batch: int
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
        values = list(self._runners.map(functools.partial(_call, compiled), many))
        value = jax.tree.map(lambda *a: np.concatenate(a)[:count], *values)
        return Run(value, time.perf_counter() - ready, ready - begin if self.compilations > before else 0.0)

    def _program(self, function: Callable[..., Any], model: SDE, method: Hashable, inputs: tuple[Any, ...]) -> _Program:
        """The program, made by the first thread that asks for it; the others wait for that one."""
        _jax.check_usable(inputs)
        with _jax.settings():
            model = without_starts(model)
            leaves, tree = jax.tree.flatten(inputs)
            shapes = tuple((a.shape, str(a.dtype)) for a in leaves)
            settings = keys.jax_settings()
            quick = _COMPILATION.get().quick and sum(a.size for a in leaves) <= _SMALL
            asked = (function, model, type(method), method, tree, shapes, settings, quick)
            mine: Future[_Program] = Future()
            with self._lock:
                known = self._known.setdefault(asked, mine)
                self._known.move_to_end(asked)
                if known is mine:
                    self.compilations += 1
                    self._make_room()
            if known is mine:
                try:
                    mine.set_result(self._made(function, model, method, inputs, quick))
                except BaseException as trouble:
                    with self._lock:
                        self._known.pop(asked, None)
                    mine.set_exception(trouble)
            return known.result()

    def _make_room(self) -> None:
        """Drop the least recently used programs where there are too many."""
        while len(self._known) > self._largest or (len(self._known) > _FEWEST and crowded()):
            self._known.popitem(last=False)

    def _made(
        self, function: Callable[..., Any], model: SDE, method: Hashable, inputs: tuple[Any, ...], quick: bool
    ) -> _Program:
        """The program from the folder of those that outlive their process, or a new one."""
        folder = None if jax.config.jax_default_device is not None else disk.folder()
        key = folder and keys.of_request(function, model, method, inputs, quick)
        stored = executable.unpack(disk.read(folder, key)) if folder and key else None

        def lower() -> tuple[Any, Any]:
            traced = jax.jit(lambda *a: function(model, method, *a), keep_unused=True).trace(*inputs)
            returns = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), traced.out_info)
            return traced.lower(), returns

        def load(stored: executable.Stored) -> Any:
            with _jax.settings():
                try:
                    return executable.load(stored)
                except Exception:  # of another make after all
                    return _compile(lower()[0], quick)

        if stored is not None:
            return _Program(self._compilers.submit(load, stored), stored.returns)
        lowered, returns = lower()
        by_text = None if key or not folder else keys.of_lowered(lowered, returns, quick)

        def make() -> Any:
            if folder and by_text and (found := executable.unpack(disk.read(folder, by_text))):
                return load(found)
            compiled = _compile(lowered, quick)
            name = key or by_text
            data = executable.pack(compiled, returns) if folder and name else None
            if folder and name and data is not None:
                self._compilers.submit(disk.write, folder, name, data)
            return compiled

        return _Program(self._compilers.submit(make), returns)


def _call(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    with _jax.settings():  # waited for first: JAX ends the process where what it had no memory for is read
        return jax.device_get(jax.block_until_ready(compiled(*inputs)))


def _compile(lowered: Any, quick: bool) -> Any:
    """The program, with whole loops in one piece where they can be: see `linalg`."""
    options: dict[str, Any] = {"xla_backend_optimization_level": 0} if quick else {}
    if jax.default_backend() == "cpu":
        # Library calls for sums would break loops up. An XLA without that option has no such calls either.
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            return lowered.compile(compiler_options=options | {"xla_cpu_experimental_ynn_fusion_type": ""})
    return lowered.compile(compiler_options=options)


PROGRAMS = Programs()  # a memo: it holds nothing that a caller sets


def crowded() -> bool:
    """Whether half of the memory mappings are taken that Linux lets a process have.

    A program takes some six hundred of 65,530. Where none is left the compiler ends the process without a word.
    """
    try:
        with open("/proc/self/maps", "rb") as taken, open("/proc/sys/vm/max_map_count", "rb") as most:
            return 2 * sum(1 for _ in taken) > int(most.read())
    except (OSError, ValueError):  # no such limit here
        return False


def cores() -> int:
    """How many programs can run side by side: one for each core that we may use, or one on a GPU."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def without_starts(model: SDE) -> SDE:
    """The model without the start values of its parameters, which no program depends on."""
    bare = {name: dataclasses.replace(parameter, start=None) for name, parameter in model.parameters}
    return SDE(model.drift, model.states, bare, model.diffusion, model.name, model.inputs, model.hold)
