"""One-step residuals of an estimate by the Gaussian filter, whatever method it came from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.inference.equation import Equation, begins_path
from sdefit.inference.likelihood import filter_pool, filtered_path, step_counts
from sdefit.inference.parameterisation import Point, estimated_first, point_of
from sdefit.result import Estimate
from sdefit.ssm.moments import fastest_rate, value_and_slope


class Residuals(eqx.Module):
    """What each observation was beyond its prediction from those before, NaN where there was none.

    `standard` is in units of the predicted spread: independent and standard normal if the model is right. `error`
    is in the user's units, `spread` its predicted standard deviation. `state` and `drift` are what each column would
    measure of the belief before the gap that led to the row and how fast the fitted drift moves that, `gap` is the
    length of the gap, `stiffness` ‖∂f/∂x‖ times the gap.
    """

    standard: Float[Array, "series times columns"]
    error: Float[Array, "series times columns"]
    spread: Float[Array, "series times columns"]
    state: Float[Array, "series times columns"]
    drift: Float[Array, "series times columns"]
    gap: Float[Array, "series times"]
    stiffness: Float[Array, "series times"]


def residuals_of(model: SDE, pool: Pool, estimate: Estimate) -> Residuals:
    """The residuals at an estimate's θ, G and σ."""
    theta, first = estimate.theta, estimate.mean[:, 0]
    if model.general:
        first = first[:, np.array(estimated_first(model), int)]
    point = point_of(model, estimate, first)
    point = eqx.tree_at(lambda p: p.variance, point, point.variance + 1e-14)
    steps = 2 * step_counts(model, pool, estimate.mean, theta[None])
    _, done = filter_pool(model, pool, point, steps, "cubature")
    seen = _predicted(model, pool)
    error = jnp.where(seen, done.innovations.error, jnp.nan)
    spread = jnp.where(seen, jnp.sqrt(done.innovations.variance), jnp.nan)
    before = jnp.roll(filtered_path(model, pool, point, done), 1, axis=1)
    gap = jnp.diff(pool.times, axis=1, prepend=pool.times[:, :1])
    drift, slope = _along(model, pool, theta, before)
    stiffness = (fastest_rate(slope) if model.general else jnp.linalg.norm(slope, axis=(-2, -1))) * gap
    measured, moving = (before, drift) if not model.general else _measured(model, pool, point, before, drift)
    sizes = pool.column_scale[None, None, :]
    return Residuals(
        standard=error / spread,
        error=sizes * error,
        spread=sizes * spread,
        state=pool.unstandardise_columns(measured),
        drift=sizes / pool.time_scale * moving,
        gap=pool.time_scale * gap,
        stiffness=stiffness,
    )


def _measured(model: SDE, pool: Pool, point: Point, path: Array, drift: Array) -> tuple[Array, Array]:
    """What columns measure along a path, and how fast that moves with the drift."""
    equation = Equation(model, pool, point)

    def along(times, x, velocity, origin):
        measurement = equation.measurement(origin)

        def one(t, x, v):
            return jax.jvp(lambda x: measurement(t, x)[0], (x,), (v,))

        return jax.vmap(one)(times, x, velocity)

    return over_series(along)(pool.times, path, drift, pool.origins)


def excess_kurtosis(z: np.ndarray) -> float:
    """The excess kurtosis of residuals; 0 for Gaussian ones, and without any."""
    away = z - z.mean() if z.size else z
    square = float(np.mean(away**2)) if z.size else 0.0
    return float(np.mean(away**4)) / square**2 - 3 if square > 0 else 0.0


def _predicted(model: SDE, pool: Pool) -> Bool[Array, "series times columns"]:
    """Which observations have a prediction: not a first row that says where the path begins."""
    first = jnp.arange(pool.times.shape[1]) == 0
    return pool.observed & ~(first[None, :, None] & jnp.array(begins_path(model))[None, None, :])


def _along(model: SDE, pool: Pool, theta, states) -> tuple[Array, Array]:
    """The standardised drift and its slope at these states."""
    drift = pool.drift(lambda t, x: model.f(t, x, theta))

    def one(t, x, origin):
        return value_and_slope(lambda t, x: drift(t, x, origin), t, x)

    return jax.vmap(jax.vmap(one, (0, 0, None)))(pool.times, states, pool.origins)
