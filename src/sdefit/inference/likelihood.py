"""The Gaussian filter's likelihood of a whole `Pool`, where to begin its search, and how short its steps must be."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Int, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.inference.parameterisation import Parameterisation, Point
from sdefit.optimise import ValueGradHessian
from sdefit.result import Estimate
from sdefit.ssm.filter import FilterPass, given_first_row, predict, run_filter
from sdefit.ssm.innovations import negative_log_likelihood
from sdefit.ssm.kalman import Gaussian, Observations, log_likelihood
from sdefit.ssm.moments import Rule, value_and_slope

AGREE = 0.1  # log-likelihood within which two searches found the same
_REACH = 0.5  # ‖∂f/∂x‖ times the length of one step, at most
_MOST_STEPS = 64  # between two rows


class FilterState(eqx.Module):
    """What a likelihood method needs again after a fit.

    The coordinates of the estimate and the curvature there; the log-likelihood at which each search ended; the steps of
    the filter between rows, and by how much half as long ones change the log-likelihood; the scales of θ's weak prior,
    if it has one; x(t_1).
    """

    coordinates: Float[Array, "coordinates"]
    curvature: Float[Array, "coordinates coordinates"]
    values: Float[Array, "starts"]
    steps: Int[Array, "series times"]
    step_error: Scalar
    scales: Theta | None
    first: Float[Array, "series state"]


def filter_state(estimate: Estimate) -> FilterState:
    """The state of an estimate by a method with a likelihood."""
    assert isinstance(estimate.state, FilterState)
    return estimate.state


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """The Gaussian filter's −log-likelihood as a function of coordinates, without its constant."""

    parameterisation: Parameterisation
    pool: Pool
    steps: Int[Array, "series times"]
    rule: Rule

    def __call__(self, u: Float[Array, "coordinates"], artificial_diffusion: float | Scalar = 0.0) -> ValueGradHessian:
        """Value, gradient and expected curvature at u; `artificial_diffusion` is for a model without G."""

        def new(variance_params):
            point = self.parameterisation.point(variance_params, artificial_diffusion)
            return filter_pool(self.parameterisation.model, self.pool, point, self.steps, self.rule)[1].innovations

        return negative_log_likelihood(new, self.parameterisation.variance_params(u)).reparameterise(
            self.parameterisation.variance_params, u
        )


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


def step_counts(
    model: SDE, pool: Pool, path: Float[Array, "series times state"], thetas: Float[Array, "starts params"]
) -> Int[Array, "series times"]:
    """Steps to each row, from the slope of the drift along a path for typical ones of `thetas`."""

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
