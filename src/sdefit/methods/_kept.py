"""Traced programs kept in a folder, so that a new process need not trace them again.

What is kept is StableHLO: it describes arithmetic and can run nothing else. A program is found again by a
digest of all it was made from: model, settings, shapes, versions and the library's own files. A model given as a
Python function cannot be described, and its programs are not kept. Anything wrong with the folder or a file in it
means tracing anew, never an error.
"""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from sdefit.dynamics.model_file import to_dict
from sdefit.dynamics.sde import SDE
from sdefit.methods._base import Method


def kept(
    folder: Path, function: Callable[..., Any], model: SDE, method: Method, inputs: tuple[Any, ...]
) -> Callable[..., Any] | None:
    """`function(model, method, …)` as a function of its arrays, from the folder or put there; None if it cannot be.

    Inputs and outputs must be arrays in dicts, lists and tuples.
    """
    described = to_dict(model)
    if "equations" not in described or any(one.prior is not None for _, one in model.parameters):
        return None  # a function or a prior cannot be described in full
    from jax import export  # a slow import that only the command line needs

    file = folder / f"{_digest(function, described, method, inputs)}.stablehlo"
    with contextlib.suppress(Exception):  # missing, cut short or of another version: trace anew
        return jax.jit(export.deserialize(bytearray(file.read_bytes())).call)
    traced = export.export(jax.jit(lambda *arrays: function(model, method, *arrays)))(*inputs)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(traced.serialize())
        draft.replace(file)
    return jax.jit(traced.call)


def _digest(function: Callable[..., Any], described: dict[str, Any], method: Method, inputs: tuple[Any, ...]) -> str:
    shapes = jax.tree.map(lambda a: [list(a.shape), str(a.dtype)], inputs)
    made_of = [
        function.__name__,
        json.dumps(described, sort_keys=True, default=str),
        repr(method),
        str(shapes),
        jax.__version__,
        jax.default_backend(),
        _library_state(),
    ]
    return hashlib.sha256("\n".join(made_of).encode()).hexdigest()


@functools.cache
def _library_state() -> str:
    """The names, sizes and dates of the library's files: an edited library traces anew."""
    root = Path(__file__).parents[1]
    return str([(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(root.rglob("*.py"))])
