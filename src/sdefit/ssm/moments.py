"""What functions of the state do to a Gaussian belief about it, beyond what they do to its mean.

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
from sdefit.linalg import dot

Drift: TypeAlias = Callable[[Scalar, Float[Array, "state"]], Float[Array, "state"]]
# G Gᵀ where it depends on time and state.
Diffusivity: TypeAlias = Callable[[Scalar, Float[Array, "state"]], Float[Array, "state state"]]
# What is measured of the state, one number per column, and the variance of the noise of each.
Measurement: TypeAlias = Callable[
    [Scalar, Float[Array, "state"]], tuple[Float[Array, "columns"], Float[Array, "columns"]]
]
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
    points = cubature_points(mean, covariance)
    values, slopes = jax.vmap(lambda x: value_and_slope(drift, t, x))(points)
    return _mean(values[:-1]) - values[-1], _mean(slopes[:-1]) - slopes[-1]


def cubature_points(
    mean: Float[Array, "state"], covariance: Float[Array, "state state"]
) -> Float[Array, "points state"]:
    """The points of the cubature rule, and the mean after them."""
    reach = jnp.sqrt(1.0 * mean.size) * small_cholesky(covariance).T
    return mean[None, :] + jnp.concatenate([reach, -reach, jnp.zeros_like(reach[:1])])


RULES: dict[str, Callable[[Drift, Scalar, Array, Array], Moments]] = {"extended": extended, "cubature": cubature}


def expected(
    function: Callable[[Float[Array, "state"]], Array],
    mean: Float[Array, "state"],
    covariance: Float[Array, "state state"],
    rule: Rule,
) -> Array:
    """E[function(x)] under the belief, by the points of a rule; the value at the mean for the extended one.

    A point where it is not a number counts as 0: a diffusion √x ends where x is 0, however wide the belief is.
    """
    points = mean[None, :] if rule == "extended" else cubature_points(mean, covariance)[:-1]
    values = jax.vmap(function)(points)
    return _mean(jnp.where(jnp.isfinite(values), values, 0.0))


def defined(values: Float[Array, "points ..."]) -> Float[Array, "points ..."]:
    """Values at the points of the cubature rule, with that at the mean where one is not a number."""
    return jnp.where(jnp.isfinite(values), values, values[-1:])


def linearised(
    measurement: Measurement,
    t: Scalar,
    mean: Float[Array, "state"],
    covariance: Float[Array, "state state"],
    rule: Rule,
) -> tuple[Float[Array, "columns"], Float[Array, "columns state"], Float[Array, "columns"]]:
    """E[h], E[∂h/∂x], and the variance of what is measured about the straight line with that slope.

    That variance is the noise's and, for an h that is not linear, what the line does not explain: Var[h] − H P Hᵀ.
    """

    def at(x):
        value, variance = measurement(t, x)
        return value, (value, variance)

    def both(x):
        slope, (value, variance) = jax.jacfwd(at, has_aux=True)(x)
        return value, slope, variance

    if rule == "extended":
        return both(mean)
    found = jax.vmap(both)(cubature_points(mean, covariance))
    values, slopes, variances = (defined(one)[:-1] for one in found)
    center, H = _mean(values), _mean(slopes)
    explained = jnp.sum(jnp.sum(H[:, :, None] * covariance[None], axis=1) * H, axis=1)
    curved = jnp.maximum(_mean((values - center[None, :]) ** 2) - explained, 0.0)
    return center, H, _mean(variances) + curved


def value_and_slope(drift: Drift, t: Scalar, x: Float[Array, "state"]) -> Moments:
    """f(t, x) and ∂f/∂x from one traced copy of the drift."""

    def twice(x):
        value = drift(t, x)
        return value, value

    slope, value = jax.jacfwd(twice, has_aux=True)(x)
    return value, slope


def fastest_rate(A: Float[Array, "*batch state state"]) -> Float[Array, "*batch"]:
    """About the largest size of an eigenvalue of A, by Gelfand's formula ‖A⁸‖^(1/8).

    Unlike ‖A‖ it hardly depends on the units of the states, and those of a hidden state are anyone's choice.
    """
    size = jnp.linalg.norm(A, axis=(-2, -1))
    unit = A / jnp.where(size > 0, size, 1.0)[..., None, None]
    for _ in range(3):
        unit = dot(unit, unit)
    return size * jnp.linalg.norm(unit, axis=(-2, -1)) ** 0.125


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
