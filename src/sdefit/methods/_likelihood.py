"""The Gaussian filter's likelihood of a whole `Pool`, where to begin its search, and how short its steps must be."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Float, Int, Key, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.filtering.gaussian import Cloud, Filtered, Observations, after_first, log_likelihood, predict, run_filter
from sdefit.filtering.moments import Rule, value_and_slope
from sdefit.filtering.scoring import Curved, negative_log_likelihood, score
from sdefit.filtering.starts import filled, increment_errors, mismatch, split
from sdefit.matching.means import Matched, informed_scales
from sdefit.methods._coordinates import Coordinates, Point, Scales
from sdefit.methods._latent import local_scales, path_drift, rms, scales_of

_OVER = (1, 3, 8)  # rows spanned by the increments that give start values
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

    def __call__(self, u: Float[Array, "coordinates"], loose: float | Scalar = 0.0) -> Curved:
        """Value, gradient and expected curvature at u; `loose` is the diffusion of a model without any."""

        def new(natural):
            point = self.where.point(natural, loose)
            return filter_pool(self.where.model, self.pool, point, self.steps, self.rule)[1].new

        return negative_log_likelihood(new, self.where.natural(u)).through(self.where.natural, u)


def filter_pool(model: SDE, pool: Pool, point: Point, steps, rule: Rule) -> tuple[Scalar, Filtered]:
    """The log-likelihood of all series, and each one's forward pass."""
    drift = pool.drift(lambda t, x: model.f(t, x, point.theta))

    def one(times, values, observed, origin, first, steps):
        data = Observations(times, values, observed)

        def own(t, x):
            return drift(t, x, origin)

        if model.diffusion == "none":
            still = Cloud(first, point.Q)
            cloud, _ = predict(own, "extended", point.Q, jnp.zeros_like(times[0]), times[0], 1, still)
            filtered = run_filter(own, point.Q, point.variance, cloud, data, steps, "extended")
        else:
            cloud, data = after_first(data, point.variance)
            filtered = run_filter(own, point.Q, point.variance, cloud, data, steps, rule)
        return log_likelihood(filtered.new, data.observed), filtered

    total, filtered = over_series(one)(pool.times, pool.values, pool.observed, pool.origins, point.first, steps)
    return jnp.sum(total), filtered


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


def starts_from(
    where: Coordinates, pool: Pool, start: Theta, count: int, key: Key
) -> tuple[Float[Array, "starts coordinates"], Int[Array, "series times"]]:
    """Where the searches begin, and the steps that the filter will take."""
    begun = begin_from(where, pool, start, count, key)
    return begun.starts, begun.steps


class Begun(eqx.Module):
    """Where the searches begin, the steps that the filter will take, and θ as it was matched over each span."""

    starts: Float[Array, "starts coordinates"]
    steps: Int[Array, "series times"]
    matched: Float[Array, "spans params"]  # unconstrained
    curvature: Float[Array, "spans params params"]  # what the increments tell of it, as if none overlapped


def begin_from(where: Coordinates, pool: Pool, start: Theta, count: int, key: Key) -> Begun:
    """θ that matches increments of the data over several spans, and starts made of it."""
    model, size = where.model, len(where.model.free)
    path = over_series(filled)(pool.times, pool.values, pool.observed)

    def errors(u, over):
        drift = pool.drift(lambda t, x: model.f(t, x, model.bounds.constrain(u)))
        drifts = over_series(jax.vmap(drift, (0, 0, None)))(pool.times, path, pool.origins)
        return over_series(increment_errors, (0, 0, 0, None))(pool.times, path, drifts, over)

    def match(tries, over):
        def fn(u):
            return mismatch(lambda u: errors(u, over), u)

        return score(fn, tries, longest=where.longest[:size], iterations=40)

    given = jnp.where(jnp.isnan(start), 0.5, model.bounds.unconstrain(jnp.nan_to_num(start)))
    random = jax.random.normal(key, (_TRIES + count, size))
    # Half of them about the user's start, half about none: a start that is far off must not spoil the others.
    about = jnp.where((jnp.arange(_TRIES) % 2 == 0)[:, None], given[None, :], 0.5)
    tries = about + jnp.where(jnp.arange(_TRIES)[:, None] > 1, 1.5 * random[:_TRIES], 0.0)
    if size:
        found = jax.vmap(match, (None, 0))(tries, jnp.array(_OVER))
        best = jnp.argmin(jnp.where(jnp.isfinite(found.at.value), found.at.value, jnp.inf), axis=1)
        matched, curvature = jax.vmap(lambda x, c, i: (x[i], c[i]))(found.x, found.at.curvature, best)
        curvature = curvature / jnp.array(_OVER)[:, None, None]
    else:  # all parameters are fixed
        matched, curvature = jnp.zeros((len(_OVER), 0)), jnp.zeros((len(_OVER), 0, 0))
    steps = step_counts(model, pool, jax.vmap(model.bounds.constrain)(matched))
    # The user's own start comes first where there is one, and the matched ones after it.
    own = ~jnp.any(jnp.isnan(start))
    lane = jnp.arange(count) - own
    u = matched[lane % len(_OVER)] + jnp.where((lane >= len(_OVER))[:, None], random[_TRIES:], 0.0)
    u = jnp.where((lane < 0)[:, None], given[None, :], u)
    turn = jnp.array(_CORRELATION)[lane % len(_CORRELATION)]
    starts = jax.vmap(lambda u, r: where.begin(u, *split(errors(u, 1)), r, path[:, 0]))(u, turn)
    return Begun(starts, steps, matched, curvature)


def expected_scales(where: Coordinates, begun: Begun) -> Scales:
    """How fast the drift is expected to be and how large each parameter, from what was matched.

    The speed is that of the matched drift along the data and, in quadrature, G²/2 at the usual level of G: what noise
    drives, and yet stays within a spread of 1, is pulled back at about that speed. The scale of a parameter is its
    natural one at that speed, or more where matching tells it: the largest over all spans.
    """
    model, pool, constrain = where.model, where.pool, where.model.bounds.constrain
    if not model.free:
        return Scales(where.path, jnp.ones(()), jnp.zeros(0))
    seen, path, drift = jnp.any(pool.observed, axis=-1), where.path, path_drift(model, pool, pool.times)
    log_G, _ = gp.noise_levels(gp.Data(pool.times, pool.values, pool.observed))
    pull = jnp.broadcast_to(0.5 * jnp.exp(2 * log_G), path.shape)
    moved = jax.vmap(lambda u: rms(jnp.where(seen[..., None], drift(path, constrain(u)), 0.0)))(begun.matched)
    speed = jnp.hypot(jnp.max(jnp.where(jnp.isfinite(moved), moved, 0.0)), rms(jnp.where(seen[..., None], pull, 0.0)))
    natural = scales_of(drift, path, speed, seen, len(model.free))

    def informed(u, curvature):
        local = local_scales(drift, path, speed, seen, constrain(u))
        # That increments overlap is in their curvature already: nothing else hangs together over ten rows.
        return informed_scales(Matched(u, curvature, jnp.ones(())), model.bounds, natural, local, jnp.array(10.0))

    return Scales(path, speed, jnp.max(jax.vmap(informed)(begun.matched, begun.curvature), axis=0))
