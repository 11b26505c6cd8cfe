"""`Moments`: regression of increments on the drift, the plain estimator that every other one should beat."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.errors import DataError
from sdefit.methods._base import Method
from sdefit.methods._settings import check_whole
from sdefit.result import Code, Estimate


class Moments(Method):
    """Moments of increments: a baseline that takes no smoothing and a few milliseconds.

    With y_i the fully observed rows, h_i the time to the next one and
    r_i = y_{i+1} − y_i − f(t_i, y_i, θ) h_i,

    - θ minimises Σ |r_i|² / h_i (Euler's scheme read backwards),
    - σ² = −mean r_i r_{i+1}, which is what observation noise leaves in neighbouring residuals,
    - G Gᵀ = Σ (r_i r_iᵀ − 2σ²) / Σ h_i, moved to the nearest matrix that is no variance below zero.

    All three are biased where the drift turns within one spacing or the noise is not small against an
    increment. Rows in which some state is missing are passed over.

    **Arguments**
    - `starts`: searches from as many places, in one batch; the first is the user's.
    - `iterations`: the steps of each search.
    """

    starts: int = 8
    iterations: int = 60

    name: ClassVar[str] = "moments"
    title: ClassVar[str] = "Moments of increments (baseline)"
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

    def estimate(self, model: SDE, pool: Pool, start: Theta, key: Key) -> Estimate:
        rows = jax.vmap(_complete_first)(pool.times, pool.values, pool.observed)
        theta, end, settled, way = self._theta(model, pool, rows, start, key)
        G, noise = _spread(model, pool, *_residuals(model, pool, rows, theta))
        mean, std = _bridge(pool, G, noise)
        code = jnp.where(settled, Code.OK, Code.NOT_CONVERGED)
        return Estimate(theta, G, noise, mean, std, end.loss, code, {}, {"loss": way})

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        """Straight lines between observations, with the spread of a Brownian bridge around them."""
        return _bridge(pool, estimate.G, estimate.noise)

    def _theta(self, model, pool, rows, start, key):
        """The best of several searches in unconstrained coordinates."""

        def residuals(u):
            r, h, use = _residuals(model, pool, rows, model.bounds.constrain(u))
            weight = jnp.where(use, 1.0 / jnp.sqrt(h * jnp.sum(use)), 0.0)
            return (r * weight[..., None]).ravel()

        u = jax.random.uniform(key, (self.starts, len(model.free)), minval=-3.0, maxval=3.0)
        # exp(0) = 1 is a fair first guess of a positive number; a real one at exactly 0 can hide others.
        first = jnp.where(jnp.isnan(start), 0.5, model.bounds.unconstrain(jnp.nan_to_num(start)))
        ends = jax.vmap(lambda u: _least_squares(residuals, u, self.iterations))(u.at[0].set(first))
        end = jax.tree.map(lambda a: a[jnp.argmin(ends[0].loss)], ends)
        return model.bounds.constrain(end[0].u), *end


class _Place(NamedTuple):
    """A point of a least-squares search: where it is, how good, and the quadratic around it."""

    u: Array
    loss: Array
    slope: Array  # Jᵀr
    curve: Array  # JᵀJ


def _least_squares(residuals, u0, iterations: int):
    """The lowest |r(u)|² near `u0` by Levenberg and Marquardt: the place, whether it settled, and the way."""

    def look(u):
        r, J = residuals(u), jax.jacfwd(residuals)(u)
        loss = r @ r
        fine = jnp.isfinite(loss) & jnp.all(jnp.isfinite(J))
        return _Place(u, jnp.where(fine, loss, jnp.inf), J.T @ r, J.T @ J)

    def step(state, _):
        best, damping, guess = state
        place = look(guess)
        better = place.loss < best.loss
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), place, best)
        damping = jnp.clip(jnp.where(better, damping / 5, damping * 4), 1e-12, 1e12)
        return (best, damping, best.u - _step(best, damping)), best.loss

    nowhere = _Place(u0, jnp.array(jnp.inf, u0.dtype), jnp.zeros_like(u0), jnp.eye(u0.size, dtype=u0.dtype))
    (best, _, _), way = jax.lax.scan(step, (nowhere, jnp.array(1e-2, u0.dtype), u0), length=iterations)
    promised = best.slope @ _step(best, 1e-12)
    return best, jnp.isfinite(best.loss) & (promised <= 1e-8 * best.loss + 1e-14), way


def _step(place: _Place, damping):
    size = jnp.diag(place.curve)
    factor = jnp.linalg.cholesky(place.curve + jnp.diag(damping * jnp.where(size > 0, size, 1.0)))
    return jax.scipy.linalg.cho_solve((factor, True), place.slope)


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
    h = jnp.where(use, jnp.diff(times), 1.0)
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
    before = jax.lax.cummax(jnp.where(observed, index, -1))
    after = jax.lax.cummin(jnp.where(observed, index, times.size), reverse=True)
    first, last = before < 0, after >= times.size
    left, right = jnp.where(first, after, before), jnp.where(last, before, after)
    back, ahead = jnp.abs(times - times[left]), jnp.abs(times[right] - times)
    between = (back + ahead > 0) & ~first & ~last
    share = jnp.where(between, back / jnp.where(between, back + ahead, 1.0), 0.0)
    mean = values[left] + share * (values[right] - values[left])
    walk = jnp.where(between, (1 - share) * back, jnp.where(first | last, back, 0.0))
    return mean, noise * ((1 - share) ** 2 + share**2) + rate * walk
