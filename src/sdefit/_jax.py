"""The settings of JAX under which sdefit computes, and where it cannot compute."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import jax
from jax._src import core, xla_bridge

from sdefit.errors import InputError

TRACED = (
    "sdefit compiles programs of its own and needs numbers, not traced arrays; call it outside jax.jit, jax.grad and"
    " jax.vmap"
)
_FORKED = threading.Event()  # set in a process that was forked after JAX had started its threads


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """float64 and the usual promotion of dtypes, whatever the user chose; the user's own settings afterwards."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        yield


def check_usable(*inputs: Any) -> None:
    """Refuse to work inside a transformation of JAX, and in a process in which JAX would wait for ever."""
    if _FORKED.is_set():
        raise InputError(
            "sdefit must run in a process of its own, but this one was forked after JAX had started, and JAX's threads"
            " are not copied; start processes by multiprocessing.get_context('spawn')"
        )
    if not core.trace_state_clean() or any(isinstance(one, core.Tracer) for one in jax.tree.leaves(inputs)):
        raise InputError(TRACED)


def _after_fork() -> None:
    if xla_bridge.backends_are_initialized():
        _FORKED.set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
