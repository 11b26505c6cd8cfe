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


def local_scales(
    drift: PathDrift,
    x: Float[Array, "series times state"],
    speed: Scalar,
    seen: Bool[Array, "series times"],
    theta: Theta,
) -> Theta:
    """What each parameter must change by, at θ, to change the drift by as much as the speed."""
    slope = jnp.where(seen[..., None, None], jax.jacfwd(drift, argnums=1)(x, theta), 0.0)
    return speed / jnp.sqrt(jnp.mean(slope**2, axis=(0, 1, 2)))


def rms(a: Array) -> Scalar:
    """The root mean square of all entries."""
    return jnp.sqrt(jnp.mean(a**2))


def standard_errors(curvature: Float[Array, "params params"]) -> Theta:
    """Standard errors of coordinates in which minus a log-likelihood has this curvature."""
    eye = jnp.eye(curvature.shape[0])
    ridge = 1e-12 * jnp.diag(diagonal(curvature)) + 1e-300 * eye
    return jnp.sqrt(jnp.abs(diagonal(solve(curvature + ridge, eye))))


def informed_scales(u: Theta, std: Theta, bounds: ScaledBounds, scales: Theta, local: Theta) -> Theta:
    """The scale of each parameter once it was matched at u with standard error `std`.

    A parameter that stands two standard errors off its bound (or off 0) has at least its own distance as its scale:
    natural scales are made from 0, and for a state of 300 ± 1 they are far too small for the rate of its return to a
    level. Beside a parameter that is so far off, the others have at least their `local` scale at the matched θ.
    """
    theta, slope = jax.jvp(bounds.constrain, (u,), (jnp.ones_like(u),))
    away, known = _away_from_edge(theta, jnp.abs(slope) * std, bounds, 2.0)
    other = jnp.where(jnp.any(known) & jnp.isfinite(local), jnp.maximum(scales, local), scales)
    return jnp.where(known & jnp.isfinite(away), jnp.maximum(scales, away), other)


def widened_scales(theta: Theta, std: Theta, bounds: Bounds | ScaledBounds, scales: Theta) -> Theta:
    """The scale of each parameter once it was estimated with a prior of such scales, give or take `std`.

    One that stands three standard errors off its bound (or off 0) in spite of it has at least its own distance as its
    scale: terms of the drift that cancel along most of the path are larger than its speed, from which scales come.
    """
    away, known = _away_from_edge(theta, std, bounds, 3.0)
    return jnp.where(known & jnp.isfinite(away), jnp.maximum(scales, away), scales)


def _away_from_edge(
    theta: Theta, std: Theta, bounds: Bounds | ScaledBounds, sure: float
) -> tuple[Theta, Bool[Array, "params"]]:
    """How far each parameter is off its bound (or off 0), and whether by so many standard errors."""
    away = jnp.abs(theta - bounds.edges)
    return away, away > sure * std
