"""One-step residuals of an estimate by the Gaussian filter, whatever method it came from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.inference.likelihood import filter_pool, step_counts
from sdefit.inference.parameterisation import Point
from sdefit.result import Estimate
from sdefit.ssm.moments import value_and_slope


class Residuals(eqx.Module):
    """What each observation was beyond its prediction from those before, NaN where there was none.

    `standard` is in units of the predicted spread: independent and standard normal if the model is right. `error`
    is in the user's units, `spread` its predicted standard deviation. `state` and `drift` are the belief before the
    gap that led to the row and the fitted drift there, `gap` its length, `stiffness` ‖∂f/∂x‖ times the gap.
    """

    standard: Float[Array, "series times state"]
    error: Float[Array, "series times state"]
    spread: Float[Array, "series times state"]
    state: Float[Array, "series times state"]
    drift: Float[Array, "series times state"]
    gap: Float[Array, "series times"]
    stiffness: Float[Array, "series times"]


def residuals_of(model: SDE, pool: Pool, estimate: Estimate) -> Residuals:
    """The residuals at an estimate's θ, G and σ."""
    theta, G, noise, first = estimate.theta, estimate.G, estimate.noise, estimate.mean[:, 0]
    point = Point(theta, G @ G.T, noise**2 + 1e-14, first)
    steps = 2 * step_counts(model, pool, estimate.mean, theta[None])
    _, done = filter_pool(model, pool, point, steps, "cubature")
    seen = _predicted(model, pool)
    error = jnp.where(seen, done.innovations.error, jnp.nan)
    spread = jnp.where(seen, jnp.sqrt(done.innovations.variance), jnp.nan)
    before = jnp.roll(done.last.mean, 1, axis=1)
    gap = jnp.diff(pool.times, axis=1, prepend=pool.times[:, :1])
    drift, slope = _along(model, pool, theta, before)
    stiffness = jnp.linalg.norm(slope, axis=(-2, -1)) * gap
    rates = (pool.scale / pool.time_scale)[None, None, :]
    sizes = pool.scale[None, None, :]
    return Residuals(
        standard=error / spread,
        error=sizes * error,
        spread=sizes * spread,
        state=pool.unstandardise_path(before),
        drift=rates * drift,
        gap=pool.time_scale * gap,
        stiffness=stiffness,
    )


def excess_kurtosis(z: np.ndarray) -> float:
    """The excess kurtosis of residuals; 0 for Gaussian ones, and without any."""
    away = z - z.mean() if z.size else z
    square = float(np.mean(away**2)) if z.size else 0.0
    return float(np.mean(away**4)) / square**2 - 3 if square > 0 else 0.0


def _predicted(model: SDE, pool: Pool) -> Bool[Array, "series times state"]:
    """Which observations have a prediction: all but the first row, which without an ODE's x(t_1) has none."""
    later = jnp.arange(pool.times.shape[1]) > 0
    return pool.observed & (later[None, :, None] if model.diffusion != "none" else True)


def _along(model: SDE, pool: Pool, theta, states) -> tuple[Array, Array]:
    """The standardised drift and its slope at these states."""
    drift = pool.drift(lambda t, x: model.f(t, x, theta))

    def one(t, x, origin):
        return value_and_slope(lambda t, x: drift(t, x, origin), t, x)

    return jax.vmap(jax.vmap(one, (0, 0, None)))(pool.times, states, pool.origins)
