"""`Moments`: regression of increments on the drift, the plain estimator that every other one should beat."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float, Key, Theta
from sdefit.data import LONG_GAP, Pool
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import ScaledBounds
from sdefit.errors import DataError
from sdefit.methods._settings import check_whole
from sdefit.methods.interface import Method, NoState, Stage
from sdefit.optimise import levenberg_marquardt, log_mean_square
from sdefit.result import Code, Estimate


class Moments(Method):
    """Moments of increments: a baseline that takes no smoothing and a few milliseconds.

    With y_i the fully observed rows, h_i the time to the next one and
    r_i = y_{i+1} − y_i − f(t_i, y_i, θ) h_i,

    - θ minimises Σ |r_i|² / h_i (Euler's scheme read backwards),
    - σ² = −mean r_i r_{i+1}, which is what observation noise leaves in neighbouring residuals,
    - G Gᵀ = Σ (r_i r_iᵀ − 2σ²) / Σ h_i, moved to the nearest matrix that is no variance below zero.

    All three are biased where the drift turns within one spacing or the noise is not small against an
    increment. Rows in which some state is missing are passed over, and gaps of more than ten typical spacings.

    **Arguments**
    - `starts`: searches from as many places, in one batch; the first is the user's.
    - `iterations`: the steps of each search.

    >>> sf.fit(model, series, sf.Moments())
    Fit(model by moments: rate=0.952..., level=1.92...; ok)
    """

    starts: int = 8
    iterations: int = 60

    name: ClassVar[str] = "moments"
    title: ClassVar[str] = "Moments of increments (baseline)"
    objective_name: ClassVar[str] = "loss"
    State: ClassVar = NoState
    reference: ClassVar[str] = (
        "D. Florens-Zmirou (1989), Approximate discrete-time schemes for statistics of diffusion processes, "
        "Statistics 20(4)."
    )

    def __post_init__(self) -> None:
        check_whole(self, starts=1, iterations=1)

    def check(self, model: SDE, pool: Pool) -> None:
        """Refuse data in which fewer than 3 rows of some series have every state observed."""
        complete = np.asarray(pool.observed).all(axis=-1).sum(axis=-1)
        if complete.min() < 3:
            raise DataError(
                f"method moments needs 3 or more times at which every state is observed, but series "
                f"{int(complete.argmin())} has {int(complete.min())}; use a method that fills gaps"
            )

    def stages(self) -> tuple[Stage, ...]:
        return (self.regress,)

    def regress(self, model: SDE, pool: Pool, start: Theta, key: Key, found: None) -> Estimate:
        """θ by least squares, then G and σ from what it leaves."""
        rows = jax.vmap(_complete_first)(pool.times, pool.values, pool.observed)
        settled, theta, losses = self._least_squares(model, pool, rows, start, key)
        G, noise = _spread(model, pool, *_residuals(model, pool, rows, theta))
        mean, std = _bridge(pool, G, noise)
        code = jnp.where(settled, Code.OK, Code.NOT_CONVERGED)
        return Estimate(theta, G, noise, mean, std, losses[-1], code, NoState(), {"loss": losses})

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        """Straight lines between observations, with the spread of a Brownian bridge around them."""
        return _bridge(pool, estimate.G, estimate.noise)

    def _least_squares(self, model: SDE, pool: Pool, rows, start: Theta, key: Key):
        """Whether the best search converged, its θ, and the mean of |r|²/h after each of its steps."""
        bounds = ScaledBounds.of(model, pool)

        def residuals(u):
            r, h, use = _residuals(model, pool, rows, bounds.constrain(u))
            return jnp.where(use[..., None], r / jnp.sqrt(h)[..., None], 0.0).reshape(-1, 1)

        if not model.free:
            return jnp.array(True), start, jnp.mean(residuals(start) ** 2, axis=0)
        u = jax.random.uniform(key, (self.starts, len(model.free)), minval=-3.0, maxval=3.0)
        # About one unit is a fair first guess of a positive number; a real one at exactly 0 can hide others.
        first = jnp.where(jnp.isnan(start), 0.5, bounds.unconstrain(jnp.nan_to_num(start)))
        found = levenberg_marquardt(
            lambda u: log_mean_square(residuals, u),
            u.at[0].set(first),
            max_step=jnp.full(len(model.free), jnp.inf),
            iterations=self.iterations,
        ).best
        rows_of_r = jnp.sum(rows[2][:, 1:] & rows[2][:, :-1]) * len(model.states)
        return found.converged, bounds.constrain(found.x), jnp.exp(2 * found.values / rows_of_r)


def _complete_first(times, values, observed):
    """The rows with every state observed, moved to the front in their order, and which those are."""
    complete = jnp.all(observed, axis=-1)
    order = jnp.argsort(~complete, stable=True)
    return times[order], values[order], complete[order]


def _residuals(model, pool: Pool, rows, theta):
    """r_i, h_i and whether they count, in standardised units; (series, rows − 1)."""
    times, values, complete = rows
    drift = pool.drift(lambda t, x: model.f(t, x, theta))
    f = jax.vmap(jax.vmap(drift, (0, 0, None)))(times[:, :-1], values[:, :-1], pool.origins)
    use = complete[:, 1:] & complete[:, :-1]
    gaps = jnp.diff(times)
    use = use & (gaps <= LONG_GAP)
    h = jnp.where(use, gaps, 1.0)
    return jnp.where(use[..., None], jnp.diff(values, axis=1) - f * h[..., None], 0.0), h, use


def _spread(
    model: SDE,
    pool: Pool,
    r: Float[Array, "series rows state"],
    h: Float[Array, "series rows"],
    use: Bool[Array, "series rows"],
):
    """G and σ from the residuals' variance and their lag-one covariance."""
    neighbours = use[:, 1:] & use[:, :-1]
    lagged = jnp.sum(r[:, 1:] * r[:, :-1] * neighbours[..., None], axis=(0, 1)) / jnp.maximum(jnp.sum(neighbours), 1)
    variance = jnp.maximum(-lagged, 0.0)
    total = jnp.einsum("snk,snl->kl", r, r)
    if model.diffusion == "none":
        return jnp.zeros_like(total), jnp.sqrt(0.5 * jnp.diag(total) / jnp.sum(use))
    elapsed = jnp.sum(jnp.where(use, h, 0.0))
    GGt = (total - 2.0 * jnp.sum(use) * jnp.diag(variance)) / elapsed
    return _factor(model, pool.scale, GGt, total / elapsed), jnp.sqrt(variance)


def _factor(model: SDE, scale: Array, GGt: Float[Array, "state state"], total: Float[Array, "state state"]):
    """The lower-triangular G of the model's structure nearest to the given G Gᵀ."""
    floor = 1e-8 * jnp.diag(total)
    if model.diffusion == "full":
        values, vectors = jnp.linalg.eigh(GGt)
        GGt = (vectors * jnp.maximum(values, 0.0)[None, :]) @ vectors.T + jnp.diag(floor)
        return jnp.linalg.cholesky(GGt)
    variances = jnp.maximum(jnp.diag(GGt), floor)
    if model.diffusion == "scalar":  # one number in the user's units, not in standardised ones
        variances = jnp.mean(variances * scale**2) / scale**2
    return jnp.diag(jnp.sqrt(variances))


def _bridge(pool: Pool, G: Float[Array, "state state"], noise: Float[Array, "state"]):
    """Mean and standard deviation between the neighbouring observations of each state."""
    rates = jnp.sum(G**2, axis=1)
    over_states = jax.vmap(_bridge_one, (None, 1, 1, 0, 0), 1)
    mean, variance = jax.vmap(over_states, (0, 0, 0, None, None))(
        pool.times, pool.values, pool.observed, rates, noise**2
    )
    return mean, jnp.sqrt(variance)


def _bridge_one(times, values, observed, rate, noise):
    index = jnp.arange(times.size)
    preceding = jax.lax.cummax(jnp.where(observed, index, -1))
    following = jax.lax.cummin(jnp.where(observed, index, times.size), reverse=True)
    first, last = preceding < 0, following >= times.size
    left, right = jnp.where(first, following, preceding), jnp.where(last, preceding, following)
    back, onwards = jnp.abs(times - times[left]), jnp.abs(times[right] - times)
    between = (back + onwards > 0) & ~first & ~last
    fraction = jnp.where(between, back / jnp.where(between, back + onwards, 1.0), 0.0)
    mean = values[left] + fraction * (values[right] - values[left])
    walk = jnp.where(between, (1 - fraction) * back, jnp.where(first | last, back, 0.0))
    return mean, noise * ((1 - fraction) ** 2 + fraction**2) + rate * walk
