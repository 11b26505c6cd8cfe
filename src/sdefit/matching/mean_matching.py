"""θ by matching means: damped Gauss-Newton on the mean of ż, from starts of natural size."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Key, Theta
from sdefit.dynamics.units import ScaledBounds
from sdefit.optimise import SearchResult, ValueGradHessian, levenberg_marquardt, log_mean_square

Residual = Callable[[Theta], Float[Array, "residuals"]]


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
