"""Algebra of small matrices that compiles to plain arithmetic.

On a CPU, XLA makes one piece of machine code of a whole loop, be it a search of a hundred steps, if all in it is
plain arithmetic. A call of LAPACK, a product of batches of matrices, a sort or a scatter anywhere in the loop
(and indexing has a scatter for its derivative) makes each operation a piece of its own, which for short loops takes
up to three times as long to compile and to run. So these are for code inside loops, where matrices are of a few
rows.
"""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import slice_in_dim

from sdefit._types import Array, Float, Scalar

Places = tuple[np.ndarray, np.ndarray]  # rows and columns


def dot(a: Float[Array, "*batch n m"], b: Float[Array, "*batch m k"]) -> Float[Array, "*batch n k"]:
    """The product of two small matrices, or of each in a batch.

    A sum over a middle axis would be compiled to scalar code: outer products are not. The barrier keeps the compiler
    from computing a product again inside each product that uses it.
    """
    left, right = a.ndim - 1, b.ndim - 2
    terms = (slice_in_dim(a, j, j + 1, axis=left) * slice_in_dim(b, j, j + 1, axis=right) for j in range(a.shape[-1]))
    return jax.lax.optimization_barrier(functools.reduce(operator.add, terms))


def diagonal(a: Float[Array, "n n"]) -> Float[Array, "n"]:
    """The diagonal of a small matrix, whose derivative is a product: that of `jnp.diagonal` scatters."""
    return jnp.sum(a * jnp.eye(a.shape[0], dtype=a.dtype), axis=1)


def placed(entries: Float[Array, "m"], places: Places, size: int) -> Float[Array, "size size"]:
    """The square matrix with these entries at rows and columns `places`, and 0 elsewhere."""
    return jnp.sum(entries[:, None, None] * _marks(places, size), axis=0)


def picked(a: Float[Array, "n n"], places: Places) -> Float[Array, "m"]:
    """The entries of a small matrix at rows and columns `places`."""
    return jnp.sum(a[None] * _marks(places, a.shape[0]), axis=(1, 2))


def _marks(places: Places, size: int) -> np.ndarray:
    """For each place a matrix with a 1 there."""
    marks = np.zeros((places[0].size, size, size))
    marks[np.arange(places[0].size), places[0], places[1]] = 1.0
    return marks


def product(a: Float[Array, "rows n"], b: Float[Array, "rows m"]) -> Float[Array, "n m"]:
    """aᵀb of two tall matrices of few columns."""
    return jnp.sum(a[:, :, None] * b[:, None, :], axis=0)


def solve(a: Float[Array, "n n"], b: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """The solution x of a x = b for a small square matrix."""
    return solve_and_log_det(a, b)[0]


def solve_and_log_det(a: Float[Array, "n n"], b: Float[Array, "n m"]) -> tuple[Float[Array, "n m"], Scalar]:
    """The solution x of a x = b for a small square matrix, and log |det a|: by elimination, the largest pivot first."""
    size = a.shape[0]
    rows = jnp.arange(size)

    def eliminate(j, carry):
        whole, log_det = carry
        column = whole[:, j]
        best = rows == jnp.argmax(jnp.where(rows >= j, jnp.abs(column), -1.0))
        here, there = whole[j], jnp.sum(jnp.where(best[:, None], whole, 0.0), axis=0)
        whole = jnp.where(best[:, None], here[None, :], whole)  # of two rows that change places, one
        unit = there / there[j]
        whole = whole - whole[:, j][:, None] * unit[None, :]
        return jnp.where((rows == j)[:, None], unit[None, :], whole), log_det + jnp.log(jnp.abs(there[j]))

    whole, log_det = jax.lax.fori_loop(0, size, eliminate, (jnp.concatenate([a, b], axis=1), jnp.zeros((), a.dtype)))
    return whole[:, size:], log_det


def cholesky(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower-triangular root of a small covariance that may be singular: zero pivots give zero columns."""
    rows = jnp.arange(a.shape[0])

    def column(j, factor):
        rest = a[:, j] - jnp.sum(factor * factor[j][None, :], axis=1)
        pivot = jnp.maximum(rest[j], 0.0)
        small = pivot <= 1e-14 * a[j, j]
        scaled = jnp.where(small, 0.0, rest / jnp.sqrt(jnp.where(small, 1.0, pivot)))
        return jnp.where(rows[None, :] == j, jnp.where(rows >= j, scaled, 0.0)[:, None], factor)

    return jax.lax.fori_loop(0, a.shape[0], column, jnp.zeros_like(a))


def log_volume(a: Float[Array, "rows n"]) -> Scalar:
    """½ log det aᵀa of a tall matrix of few columns: the logarithm of the length that each adds to those before it."""

    def column(j, carry):
        rest, total = carry
        square = jnp.sum(rest[:, j] ** 2)
        along = jnp.sum(rest[:, j][:, None] * rest, axis=0) / square
        return rest - rest[:, j][:, None] * along[None, :], total + 0.5 * jnp.log(square)

    return jax.lax.fori_loop(0, a.shape[1], column, (a, jnp.zeros((), a.dtype)))[1]
