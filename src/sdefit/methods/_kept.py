"""Compiled programs kept in a folder, so that a new process need not make them again.

A program is found again by a digest of all it was made from: function, model, settings, shapes, versions, flags, the
machine and the library's own files. A model given as a Python function cannot be described, and its programs are not
kept. Anything wrong with the folder or a file in it means making the program anew, never an error. The files hold
machine code, as those of Python's own cache hold byte code: the folder is for its owner alone.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import pickle
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from sdefit.dynamics.model_file import to_dict
from sdefit.dynamics.sde import SDE
from sdefit.methods._base import Method

_MOST = 100  # files in the folder, of a megabyte or two each; the oldest go first


class Kept(NamedTuple):
    """A program from the folder: the shapes of what it returns, and what it is loaded from."""

    returns: Any
    code: bytes

    def load(self, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        """The program, for inputs of the structure it was made for."""
        from jax.experimental import serialize_executable

        _ready_libraries()
        trees = jax.tree.structure((inputs, {})), jax.tree.structure(self.returns)
        return serialize_executable.deserialize_and_load(self.code, *trees, execution_devices=jax.devices()[:1])


def place(
    folder: Path, function: Callable[..., Any], model: SDE, method: Method, inputs: tuple[Any, ...]
) -> Path | None:
    """The file of the program `function(model, method, *inputs)`; None if it cannot be described in full."""
    described = to_dict(model)
    if "equations" not in described or any(one.prior is not None for _, one in model.parameters):
        return None
    if getattr(function, "__closure__", None) or jax.config.jax_default_device is not None:
        return None
    made_of = [
        f"{function.__module__}.{function.__qualname__}" if hasattr(function, "__qualname__") else repr(function),
        json.dumps(described, sort_keys=True, default=str),
        repr(method),
        str(jax.tree.map(lambda a: (a.shape, str(a.dtype)), inputs)),
        *_surroundings(),
    ]
    return folder / f"{hashlib.sha256('\n'.join(made_of).encode()).hexdigest()}.program"


def read(file: Path) -> Kept | None:
    """What was written there; None if nothing was, or it is damaged."""
    with contextlib.suppress(Exception):
        data = file.read_bytes()
        if hashlib.sha256(data[32:]).digest() == data[:32]:
            return Kept(**pickle.loads(data[32:]))
    return None


def packed(compiled: Any, returns: Any) -> bytes | None:
    """A program as a file holds it, None if that cannot be; one with a sort can be packed only before it first runs."""
    from jax.experimental import serialize_executable

    with contextlib.suppress(Exception):
        body = pickle.dumps(Kept(returns, serialize_executable.serialize(compiled)[0])._asdict())
        return hashlib.sha256(body).digest() + body
    return None


def write(file: Path, data: bytes) -> None:
    """Keep a packed program, if the folder lets us."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(data)
        draft.replace(file)
        by_age = sorted(file.parent.glob("*.program"), key=lambda one: one.stat().st_mtime)
        for old in by_age[:-_MOST]:
            old.unlink(missing_ok=True)


@functools.cache
def _ready_libraries() -> None:
    """Have JAX set up the linear algebra that programs call; else it is done only where a program is made."""
    jax.jit(jax.lax.linalg.cholesky).lower(np.ones((1, 1)))


@functools.cache
def _surroundings() -> tuple[str, ...]:
    """What a program depends on besides its own: versions, flags, the machine, and the library's files."""
    device = jax.devices()[0]
    root = Path(__file__).parents[1]
    return (
        jax.__version__,
        importlib.metadata.version("optax"),
        device.client.platform_version,
        device.device_kind,
        os.environ.get("XLA_FLAGS", ""),
        str(jax.config.jax_default_matmul_precision),
        _processor(),
        str([(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(root.rglob("*.py"))]),
    )


def _processor() -> str:
    """What the processor can do: code made for one may not run on another."""
    with contextlib.suppress(OSError, StopIteration), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        return next(line for line in lines if line.startswith(("flags", "Features")))
    return platform.processor() + platform.machine()
