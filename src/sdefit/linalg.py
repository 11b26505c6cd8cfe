"""Products of small matrices that stay fast in a large batch."""

import functools
import operator

import jax
from jax.lax import slice_in_dim

from sdefit._types import Array, Float


def dot(a: Float[Array, "n m"], b: Float[Array, "m k"]) -> Float[Array, "n k"]:
    """The product of two small matrices, fast in a large batch.

    A batched product would be one library call per lane, and a sum over a middle axis is compiled to
    scalar code: outer products are neither. The barrier keeps the compiler from computing a product
    again inside each product that uses it.
    """
    terms = (slice_in_dim(a, j, j + 1, axis=1) * slice_in_dim(b, j, j + 1, axis=0) for j in range(a.shape[1]))
    return jax.lax.optimization_barrier(functools.reduce(operator.add, terms))
