"""What a drift does to a Gaussian belief about the state, beyond what it does to its mean.

The moments of the belief follow dm/dt = E[f], dP/dt = A P + P Aᵀ + G Gᵀ with A = E[∂f/∂x], which is
exact for a Gaussian (Stein's lemma) and needs no inverse of P, unlike E[f (x − m)ᵀ] P⁻¹. A rule gives
the differences E[f] − f(m) and E[∂f/∂x] − ∂f/∂x(m).
"""

import functools
import operator
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Scalar

Drift: TypeAlias = Callable[[Scalar, Float[Array, "state"]], Float[Array, "state"]]
Moments: TypeAlias = tuple[Float[Array, "state"], Float[Array, "state state"]]
Rule: TypeAlias = str  # a key of RULES

_TINY = 1e-14  # standardised variance below which a direction counts as known: keeps √ differentiable at 0


def extended(drift: Drift, t: Scalar, mean: Float[Array, "state"], covariance: Float[Array, "state state"]) -> Moments:
    """No difference: the drift is taken as straight across the belief."""
    del drift, t
    return jnp.zeros_like(mean), jnp.zeros_like(covariance)


def cubature(drift: Drift, t: Scalar, mean: Float[Array, "state"], covariance: Float[Array, "state state"]) -> Moments:
    """By the third-order cubature rule, which is exact for cubic polynomials.

    The points are mean ± √K times each column of a root of the covariance, equally weighted.
    """
    reach = jnp.sqrt(1.0 * mean.size) * small_cholesky(covariance).T
    points = mean[None, :] + jnp.concatenate([reach, -reach, jnp.zeros_like(reach[:1])])
    values, slopes = jax.vmap(lambda x: value_and_slope(drift, t, x))(points)
    return _mean(values[:-1]) - values[-1], _mean(slopes[:-1]) - slopes[-1]


RULES: dict[str, Callable[[Drift, Scalar, Array, Array], Moments]] = {"extended": extended, "cubature": cubature}


def value_and_slope(drift: Drift, t: Scalar, x: Float[Array, "state"]) -> Moments:
    """f(t, x) and ∂f/∂x from one traced copy of the drift."""

    def twice(x):
        value = drift(t, x)
        return value, value

    slope, value = jax.jacfwd(twice, has_aux=True)(x)
    return value, slope


def small_cholesky(P: Float[Array, "state state"]) -> Float[Array, "state state"]:
    """A lower-triangular root of P, column by column, that takes a singular P and stays differentiable there."""
    columns = []
    for j in range(P.shape[0]):
        pivot = jnp.sqrt(jnp.where(P[j, j] >= 0, P[j, j], 0.0) + _TINY)
        column = jnp.concatenate([jnp.zeros(j, P.dtype), pivot[None], P[j + 1 :, j] / pivot])
        P = P - column[:, None] * column[None, :]
        columns.append(column)
    return jnp.stack(columns, axis=1)


def _mean(a: Float[Array, "points ..."]) -> Float[Array, "..."]:
    """The mean over a short first axis, written out: in a batch that is vector code, and a reduction is not."""
    return functools.reduce(operator.add, [a[i] for i in range(a.shape[0])]) / a.shape[0]
