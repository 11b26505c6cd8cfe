"""A compiled program as bytes and back, without pickle: machine code from XLA, and what it returns as JSON."""

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxlib import xla_client

from sdefit.programs.plain import from_plain, to_plain


class Stored(NamedTuple):
    """A program that is not loaded yet: the shapes of what it returns, and its machine code."""

    returns: Any
    code: bytes


def pack(compiled: Any, returns: Any) -> bytes | None:
    """A program as bytes; None if it cannot be had so. One with a sort can be packed only before it first runs."""
    try:
        plain = to_plain(returns)
        executable = compiled.runtime_executable()
        if len(executable.get_parameter_layouts()) != len(jax.tree.leaves(compiled.args_info)):
            return None  # an array of the program's own has become an input of its code
        if jax.tree.flatten(from_plain(plain)) != jax.tree.flatten(returns):
            return None
        return json.dumps(plain).encode() + b"\n" + executable.serialize()
    except Exception:  # whatever this release of XLA raises: the program is compiled again next time
        return None


def unpack(data: bytes | None) -> Stored | None:
    """What `pack` made; None for anything else."""
    try:
        shapes, code = (data or b"").split(b"\n", 1)
        return Stored(from_plain(json.loads(shapes)), code)
    except Exception:  # of another release
        return None


def load(stored: Stored) -> Callable[..., Any]:
    """The program, as a function of the inputs it was compiled for that returns NumPy arrays."""
    _ready_libraries()
    device = jax.devices()[0]
    executable = device.client.deserialize_executable(stored.code, xla_client.DeviceList((device,)))
    tree = jax.tree.structure(stored.returns)

    def call(*inputs: Any) -> Any:
        arrays = [jax.device_put(_bare(one), device) for one in jax.tree.leaves(inputs)]
        found = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return jax.tree.unflatten(tree, [np.asarray(one[0]) for one in found])

    return call


def _bare(array: Any) -> Any:
    """A random key as the numbers it consists of; other arrays as they are."""
    return jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array


@functools.cache
def _ready_libraries() -> None:
    """Have JAX set up the linear algebra that programs call; else it is done only where a program is compiled."""
    jax.jit(jax.lax.linalg.cholesky).lower(np.ones((1, 1)))
