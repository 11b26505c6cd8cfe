"""θ by matching means: damped Gauss-Newton on the mean of ż, from starts in the drift's own natural scale."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Key, Scalar, Theta
from sdefit.dynamics.parameters import Bounds
from sdefit.dynamics.units import ScaledBounds
from sdefit.linalg import diagonal, log_volume, solve
from sdefit.optimise import SearchResult, ValueGradHessian, levenberg_marquardt, log_mean_square, minimise

Residual = Callable[[Theta], Float[Array, "residuals"]]


def natural_scales(slopes: Callable[[Theta], Float[Array, "rows params"]], size: Scalar, unit: Theta) -> Theta:
    """For each parameter the value at which its term in the drift is as large as the derivative itself.

    Where f is linear in θ, s_j · rms(∂f/∂θ_j) = `size`. In general s is where the terms s_j ∂f/∂θ_j can best be
    told apart while none is much larger than that: with M the matrix of their mean products in units of `size`,
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


def spread_starts(
    bounds: ScaledBounds, scales: Theta, start: Theta, starts: int, key: Key
) -> Float[Array, "starts params"]:
    """Unconstrained starts: the user's where given, else values of natural size; the others scattered about it."""
    lower, upper = jnp.array(bounds.bounds.lower), jnp.array(bounds.bounds.upper)
    size_key, sign_key = jax.random.split(key)
    spread = jnp.exp(jax.random.normal(size_key, (starts, scales.size))).at[0].set(1.0)
    sign = jnp.where(jax.random.bernoulli(sign_key, 0.5, spread.shape), 1.0, -1.0).at[0].set(1.0)
    free = jnp.isinf(lower) & jnp.isinf(upper)
    within = jnp.where(jnp.isinf(lower), upper - scales, lower + scales)[None, :]
    middle = jnp.where(jnp.isinf(lower) | jnp.isinf(upper), 0.0, 0.5 * (lower + upper))
    inside = jnp.isfinite(lower) & jnp.isfinite(upper)
    theta = jnp.where(free[None, :], (sign * spread) * scales[None, :], within)
    theta = jnp.where(inside[None, :], middle[None, :], theta)
    u = jax.vmap(bounds.unconstrain)(theta) + jnp.where(free[None, :], 0.0, jnp.log(spread))
    return u.at[0].set(jnp.where(jnp.isfinite(start), bounds.unconstrain(start), u[0]))


def match_means(residual: Residual, starts: Float[Array, "starts params"], iterations: int = 80) -> SearchResult:
    """The least-squares θ over all starts, in unconstrained coordinates; in one step where f is linear in θ.

    What is minimised is ½ n log of the mean square of n residuals, as if each were independent: its curvature is that
    of a log-likelihood, and no unit is left in it.
    """

    def fn(u: Theta) -> ValueGradHessian:
        return log_mean_square(lambda u: residual(u)[:, None], u)

    max_step = jnp.full(starts.shape[1], jnp.inf)
    return levenberg_marquardt(fn, starts, max_step=max_step, iterations=iterations, tolerance=1e-9).best


def standard_errors(curvature: Float[Array, "params params"]) -> Theta:
    """Standard errors of coordinates in which minus a log-likelihood has this curvature."""
    eye = jnp.eye(curvature.shape[0])
    ridge = 1e-12 * jnp.diag(diagonal(curvature)) + 1e-300 * eye
    return jnp.sqrt(jnp.abs(diagonal(solve(curvature + ridge, eye))))


def informed_scales(u: Theta, std: Theta, bounds: ScaledBounds, scales: Theta, local: Theta) -> Theta:
    """The scale of each parameter once it was matched at u, give or take `std`: what was told, else what is natural.

    A parameter that stands two standard errors off its bound (or off 0) has at least its own distance as its scale:
    natural scales are made from 0, and for a state of 300 ± 1 they are far too small for the rate of its return to a
    level. Beside a parameter that was told, the others have at least their `local` scale, that at the matched θ: what
    each must change by to change the drift by its speed.
    """
    theta, slope = jax.jvp(bounds.constrain, (u,), (jnp.ones_like(u),))
    away, told = _told(theta, jnp.abs(slope) * std, bounds, 2.0)
    other = jnp.where(jnp.any(told) & jnp.isfinite(local), jnp.maximum(scales, local), scales)
    return jnp.where(told & jnp.isfinite(away), jnp.maximum(scales, away), other)


def widened_scales(theta: Theta, std: Theta, bounds: Bounds | ScaledBounds, scales: Theta) -> Theta:
    """The scale of each parameter once it was estimated with a prior of such scales, give or take `std`.

    One that stands three standard errors off its bound (or off 0) in spite of it has at least its own distance as its
    scale: terms of the drift that cancel along most of the path are larger than its speed, from which scales come.
    """
    away, told = _told(theta, std, bounds, 3.0)
    return jnp.where(told & jnp.isfinite(away), jnp.maximum(scales, away), scales)


def _told(theta: Theta, std: Theta, bounds: Bounds | ScaledBounds, sure: float) -> tuple[Theta, Bool[Array, "params"]]:
    """How far each parameter is off its bound (or off 0), and whether by so many standard errors."""
    away = jnp.abs(theta - bounds.edges)
    return away, away > sure * std
