"""Natural scales of θ: how large each parameter must be for its term of the drift to matter.

Weak priors on θ and starts are made of them. They follow the units of time and state as θ itself does.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Scalar, Theta
from sdefit.dynamics.on_path import PathDrift
from sdefit.dynamics.parameters import Bounds
from sdefit.dynamics.units import ScaledBounds
from sdefit.linalg import diagonal, log_volume, solve
from sdefit.optimise import minimise

_SURE = 3.0  # standard errors off its bound or 0 at which a parameter is taken to be off it


def natural_scales(slopes: Callable[[Theta], Float[Array, "rows params"]], size: Scalar, unit: Theta) -> Theta:
    """For each parameter the value at which its term in the drift is as large as the derivative itself.

    Where f is linear in θ, s_j · rms(∂f/∂θ_j) = `size`. In general s is where the terms s_j ∂f/∂θ_j are most
    distinct while none is much larger than that: with M the matrix of their mean products in units of `size`,
    s has the lowest P/2 log tr M − ½ log det M, and tr M = P. Such a point exists for rate·(level − x) and
    r·x·(1 − x/k) whatever the data, which setting every term to `size` does not. It turns with the units of time and
    state as θ itself does, so what is built on it depends on no unit. The search for it begins at `unit`.
    """
    params = unit.size

    def loss(log_s):
        s = unit * jnp.exp(log_s)
        terms = slopes(s) * s[None, :] / size
        # Column by column: far from the answer the terms differ by many powers of ten, or hardly at all.
        largest = jnp.max(jnp.abs(terms), axis=0) + 1e-300
        rms = jnp.sqrt(jnp.mean((terms / largest[None, :]) ** 2, axis=0) + 1e-30)
        alike = terms / (largest * rms)[None, :] / terms.shape[0] ** 0.5
        lengths = 2 * jnp.log(largest * rms)
        log_det = jnp.sum(lengths) + 2 * log_volume(jnp.concatenate([alike, 1e-14 * jnp.eye(params)]))
        log_mean = jax.nn.logsumexp(lengths) - math.log(params)
        return 0.5 * params * log_mean - 0.5 * log_det + 0.5 * log_mean**2

    return unit * jnp.exp(minimise(loss, jnp.zeros(params), iterations=100, max_step=4.0).x)


def scales_on_path(
    drift: PathDrift,
    x: Float[Array, "series times state"],
    speed: Scalar,
    seen: Bool[Array, "series times"],
    unit: Theta,
) -> Theta:
    """The natural scale of each parameter along a path of this speed, looked for from its unit."""

    def slopes(theta):
        return jnp.where(seen[..., None, None], jax.jacfwd(drift, argnums=1)(x, theta), 0.0).reshape(-1, unit.size)

    return natural_scales(slopes, speed, unit)


def restoring_speed(variance: Array) -> Array:
    """The speed at which the drift pulls back what noise drives, if the state stays within a spread of 1: ½ (G Gᵀ)_kk.

    A stationary OU process dx = −k x dt + g dw of variance g²/(2k) = 1 has the rate k = g²/2.
    """
    return 0.5 * variance


def rms(a: Array) -> Scalar:
    """The root mean square of all entries."""
    return jnp.sqrt(jnp.mean(a**2))


def standard_errors(curvature: Float[Array, "params params"]) -> Theta:
    """Standard errors of coordinates in which minus a log-likelihood has this curvature."""
    eye = jnp.eye(curvature.shape[0])
    ridge = 1e-12 * jnp.diag(diagonal(curvature)) + 1e-300 * eye
    return jnp.sqrt(jnp.abs(diagonal(solve(curvature + ridge, eye))))


def widened_scales(theta: Theta, std: Theta, bounds: Bounds | ScaledBounds, scales: Theta) -> Theta:
    """The scale of each parameter once it was estimated, give or take `std`.

    One that stands three standard errors off its bound (or off 0) has at least its own distance as its scale. Natural
    scales are made from 0: for a state of 300 ± 1 they are far too small for the rate of its return to a level. And
    terms of the drift that cancel along most of the path are larger than its speed, from which scales come.
    """
    away = jnp.abs(theta - bounds.edges)
    return jnp.where((away > _SURE * std) & jnp.isfinite(away), jnp.maximum(scales, away), scales)


def widened_scales_at(u: Theta, std: Theta, bounds: ScaledBounds, scales: Theta) -> Theta:
    """The same of an estimate in unconstrained coordinates, with standard errors of these."""
    theta, slope = jax.jvp(bounds.constrain, (u,), (jnp.ones_like(u),))
    return widened_scales(theta, jnp.abs(slope) * std, bounds, scales)
