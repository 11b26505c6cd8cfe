"""The log-likelihood of a one-dimensional equation on a grid: exact as the grid and the steps become fine.

The belief about x is a density on equally spaced points, carried forward by the Chapman-Kolmogorov
equation with short Gaussian transitions and multiplied by the likelihood of each observation. No
Gaussian assumption on the belief: the measure of what a Gaussian filter loses.
"""

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Scalar
from sdefit.ssm.kalman import Observations
from sdefit.ssm.moments import Drift
from sdefit.ssm.transition import step


def grid_log_likelihood(
    drift: Drift, G: Scalar, noise: Scalar, data: Observations, grid: Float[Array, "points"], steps: int = 8
) -> Scalar:
    """log p(y_2, …, y_N | y_1) of dx = f(t, x) dt + G dw, one state, with a flat prior on x(t_1).

    **Arguments**
    - `noise`: standard deviation of the observation noise, larger than a spacing of the grid.
    - `grid`: equally spaced points that the path stays within.
    - `steps`: Gaussian transitions between two rows; G times the root of one must exceed the spacing.
    """
    spacing = grid[1] - grid[0]

    def normal(x, mean, variance):
        return jnp.exp(-0.5 * (x - mean) ** 2 / variance) / jnp.sqrt(2 * jnp.pi * variance)

    def move(t, h, belief):
        known = jnp.zeros((1, 1))

        def there(x):
            to = step(drift, "extended", jnp.full((1, 1), G**2), t, h, x[None], known)
            return to.mean[0], to.covariance[0, 0]

        mean, variance = jax.vmap(there)(grid)
        return spacing * normal(grid[:, None], mean[None, :], variance[None, :]) @ belief

    def row(belief, inputs):
        before, now, y, observed = inputs
        h = (now - before) / steps
        belief = jax.lax.fori_loop(0, steps, lambda i, p: move(before + i * h, h, p), belief)
        weighed = belief * normal(grid, y[0], noise**2)
        density = spacing * jnp.sum(weighed)
        return jnp.where(observed[0], weighed / density, belief), jnp.where(observed[0], jnp.log(density), 0.0)

    first = normal(grid, data.values[0, 0], noise**2)
    rows = (data.times[:-1], data.times[1:], data.values[1:], data.observed[1:])
    return jnp.sum(jax.lax.scan(row, first, rows)[1])
