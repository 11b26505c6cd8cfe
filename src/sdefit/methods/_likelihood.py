"""The Gaussian filter's likelihood of a whole `Pool`, where to begin its search, and how short its steps must be."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Float, Int, Key, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import ScaledBounds
from sdefit.inference.increments import exchanged, filled
from sdefit.matching import means
from sdefit.methods._coordinates import Coordinates, Point
from sdefit.methods._increments import SPANS, Increments
from sdefit.methods._latent import data_of, expected
from sdefit.optimise import ValueGradHessian
from sdefit.ssm.filter import FilterPass, given_first_row, predict, run_filter
from sdefit.ssm.innovations import negative_log_likelihood
from sdefit.ssm.kalman import Gaussian, Observations, log_likelihood
from sdefit.ssm.moments import Rule, value_and_slope

_TRIES = 6  # searches for start values per span
_CORRELATION = (0.0, 0.5, -0.5)  # of the noise of different states, at the start
_REACH = 0.5  # ‖∂f/∂x‖ times the length of one step, at most
_MOST_STEPS = 64  # between two rows


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """The Gaussian filter's −log-likelihood as a function of coordinates, without its constant."""

    where: Coordinates
    pool: Pool
    steps: Int[Array, "series times"]
    rule: Rule

    def __call__(self, u: Float[Array, "coordinates"], loose: float | Scalar = 0.0) -> ValueGradHessian:
        """Value, gradient and expected curvature at u; `loose` is the diffusion of a model without any."""

        def new(natural):
            point = self.where.point(natural, loose)
            return filter_pool(self.where.model, self.pool, point, self.steps, self.rule)[1].innovations

        return negative_log_likelihood(new, self.where.natural(u)).reparameterise(self.where.natural, u)


def weak_priors(where: Coordinates, scales: Theta | None) -> Callable[[Array], ValueGradHessian]:
    """−log of the weak priors on G and σ, and on θ where its scales are given, as a function of coordinates."""
    levels = gp.noise_levels(data_of(where.pool))
    about = None if scales is None else expected(where.model, scales)
    return lambda u: where.prior(u, levels, about)


def filter_pool(model: SDE, pool: Pool, point: Point, steps, rule: Rule) -> tuple[Scalar, FilterPass]:
    """The log-likelihood of all series, and each one's forward pass."""
    drift = pool.drift(lambda t, x: model.f(t, x, point.theta))

    def one(times, values, observed, origin, first, steps):
        data = Observations(times, values, observed)

        def own(t, x):
            return drift(t, x, origin)

        if model.diffusion == "none":
            still = Gaussian(first, point.Q)
            belief, _ = predict(own, "extended", point.Q, jnp.zeros_like(times[0]), times[0], 1, still)
            done = run_filter(own, point.Q, point.variance, belief, data, steps, "extended")
        else:
            belief, data = given_first_row(data, point.variance)
            done = run_filter(own, point.Q, point.variance, belief, data, steps, rule)
        return log_likelihood(done.filtered), done

    total, done = over_series(one)(pool.times, pool.values, pool.observed, pool.origins, point.first, steps)
    return jnp.sum(total), done


def step_counts(model: SDE, pool: Pool, thetas: Float[Array, "starts params"]) -> Int[Array, "series times"]:
    """Steps to each row, from the slope of the drift at the data for typical ones of `thetas`."""
    path = over_series(filled)(pool.times, pool.values, pool.observed)

    def size(theta, t, x, origin):
        drift = pool.drift(lambda t, x: model.f(t, x, theta))
        return jnp.linalg.norm(value_and_slope(lambda t, x: drift(t, x, origin), t, x)[1])

    every = over_series(jax.vmap(size, (None, 0, 0, None)), (None, 0, 0, 0))
    sizes = jax.vmap(every, (0, None, None, None))(thetas, pool.times, path, pool.origins)
    typical = jnp.median(jnp.where(jnp.isfinite(sizes), sizes, 0.0), axis=0)
    ends = jnp.maximum(typical, jnp.roll(typical, 1, axis=1))
    gaps = jnp.diff(pool.times, axis=1, prepend=pool.times[:, :1])
    counts = jnp.clip(jnp.ceil(ends * gaps / _REACH), 1, _MOST_STEPS)
    return jnp.where(gaps > 0, counts, 0).astype(jnp.int32)


class Starts(eqx.Module):
    """Where the searches begin, and more of them if need be; the filter's steps, and the scale of each parameter."""

    begin: Float[Array, "starts coordinates"]
    more: Float[Array, "starts coordinates"]
    steps: Int[Array, "series times"]
    scales: Theta


def starts_from(where: Coordinates, increments: Increments, start: Theta, count: int, key: Key) -> Starts:
    """Starts from the increments of the data, and the user's own where there is one."""
    model, pool, size, bounds = where.model, where.pool, len(where.model.free), where.bounds
    given = jnp.where(jnp.isnan(start), 0.5, bounds.unconstrain(jnp.nan_to_num(start)))
    random = jax.random.normal(key, (_TRIES + count, size))
    # Half of them about the user's start, half about none: a start that is far off must not spoil the others.
    about = jnp.where((jnp.arange(_TRIES) % 2 == 0)[:, None], given[None, :], 0.5)
    tries = about + jnp.where(jnp.arange(_TRIES)[:, None] > 1, 1.5 * random[:_TRIES], 0.0)
    agreed = increments.agree(tries, where.max_step[:size])
    scales = increments.scales(agreed)
    matched = jax.vmap(lambda u: searchable(bounds, u, scales))(agreed.u)
    steps = step_counts(model, pool, jax.vmap(bounds.constrain)(matched))
    # The user's own start comes first where there is one, and the matched ones after it.
    own = ~jnp.any(jnp.isnan(start))
    lane = jnp.arange(count) - own
    u = matched[lane % len(SPANS)] + jnp.where((lane >= len(SPANS))[:, None], random[_TRIES:], 0.0)
    u = jnp.where((lane < 0)[:, None], given[None, :], u)
    turn, first = jnp.array(_CORRELATION)[lane % len(_CORRELATION)], increments.path[:, 0]
    spread = means.spread_starts(bounds, scales, jnp.full(size, jnp.nan), count, jax.random.fold_in(key, 1))
    both, turns, odd = jnp.concatenate([u, spread]), jnp.concatenate([turn, turn]), jnp.arange(2 * count) % 2 == 1

    def begun(u, turn, odd):
        own, other = increments.noises(u), exchanged(*increments.noises(u))
        diffusion, noise = (jnp.where(odd, b, a) for a, b in zip(own, other, strict=True))
        return where.begin(u, diffusion, noise, turn, first)

    begin = jax.vmap(begun)(both, turns, odd)
    return Starts(begin[:count], begin[count:], steps, scales)


def searchable(bounds: ScaledBounds, u: Theta, scales: Theta) -> Theta:
    """u moved to where a search can leave it: a twentieth of its scale off a bound, and within ten of a bound or 0.

    A rate that matching takes for 0 is dead there: its coordinate is a logarithm, in which the likelihood is flat.
    """
    away = jnp.abs(scales / bounds.unit)
    logs = jnp.log(away)
    near, far = jnp.where(bounds.one_sided, logs - 3.0, -10 * away), jnp.where(bounds.one_sided, logs + 2.3, 10 * away)
    return jnp.where(bounds.two_sided, jnp.clip(u, -4.0, 4.0), jnp.clip(u, near, far))
