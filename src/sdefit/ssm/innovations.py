"""Innovations of a filter, and the curvature of their log-likelihood that first derivatives give."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float
from sdefit.linalg import product
from sdefit.optimise import ValueGradHessian
from sdefit.ssm.kalman import Filtered


class Innovations(NamedTuple):
    """The prediction error of each observation and its variance: 0 and 1 where there is none."""

    error: Float[Array, "*times state"]
    variance: Float[Array, "*times state"]

    @classmethod
    def of(cls, filtered: Filtered) -> "Innovations":
        seen = filtered.gains.observed
        precision = jnp.where(seen, filtered.gains.precision, 1.0)
        return cls(jnp.where(seen, filtered.innovations[..., 0], 0.0), 1.0 / precision)


def negative_log_likelihood(innovations: Callable[[Array], Innovations], x: Float[Array, "params"]) -> ValueGradHessian:
    """½ Σ (log s + e²/s) of innovations e with variances s at parameters x, with its expected curvature.

    That is the Fisher information Σ (∂e ∂eᵀ / s + ½ ∂s ∂sᵀ / s²). Derivatives run forward through the filter, all in
    one pass: that compiles in a tenth of the time of a backward pass, and may pass through loops of any length.
    """

    def twice(x):
        pair = innovations(x)
        return pair, pair

    slopes, (e, s) = jax.jacfwd(twice, has_aux=True)(x)
    e, s = e.ravel(), s.ravel()
    de, ds = (d.reshape(e.size, x.size) for d in slopes)
    value = 0.5 * jnp.sum(jnp.log(s) + e**2 / s)
    gradient = jnp.sum((e / s)[:, None] * de + (0.5 * (1 - e**2 / s) / s)[:, None] * ds, axis=0)
    ds = ds / s[:, None]
    return ValueGradHessian(value, gradient, product(de, de / s[:, None]) + 0.5 * product(ds, ds))
