"""The Gaussian filter's likelihood of a whole `Pool`, where to begin its search, and how short its steps must be."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Int, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.change_of_variables import change_of_variables
from sdefit.dynamics.on_path import Path
from sdefit.dynamics.sde import SDE
from sdefit.inference.equation import Equation
from sdefit.inference.equation_in_z import EquationInZ
from sdefit.inference.parameterisation import Parameterisation, Point
from sdefit.optimise import ValueGradHessian
from sdefit.result import Estimate
from sdefit.ssm.filter import FilterPass, given_first_row, predict, run_filter, run_smoother
from sdefit.ssm.innovations import negative_log_likelihood
from sdefit.ssm.kalman import Gaussian, Observations, log_likelihood
from sdefit.ssm.moments import Rule, fastest_rate, value_and_slope

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
    first: Float[Array, "series beginnings"]


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
    """The log-likelihood of all series, and each one's forward pass: of z where there is a change of variables."""
    equation = Equation(model, pool, point)

    def one(times, values, observed, origin, first, steps):
        data, drift = Observations(times, values, observed), equation.drift(origin)
        if pool.in_z:
            return _filter_in_z(in_z(equation), data, origin, first, steps, rule)
        if model.general:
            belief, left = equation.begin(data, origin, first)
            Q, measured = equation.diffusivity(origin), equation.measurement(origin)
            done = run_filter(drift, Q, measured, belief, left, steps, rule)
        elif model.diffusion == "none":
            still = Gaussian(first, point.Q)
            belief, _ = predict(drift, "extended", point.Q, jnp.zeros_like(times[0]), times[0], 1, still)
            done = run_filter(drift, point.Q, point.variance, belief, data, steps, "extended")
        else:
            belief, data = given_first_row(data, point.variance)
            done = run_filter(drift, point.Q, point.variance, belief, data, steps, rule)
        return log_likelihood(done.filtered), done

    total, done = over_series(one)(pool.times, pool.values, pool.observed, pool.origins, point.first, steps)
    return jnp.sum(total), done


def in_z(equation: Equation) -> EquationInZ:
    """The equation after the change of variables of its model."""
    change = change_of_variables(equation.model)
    assert change is not None  # the pool says so
    return EquationInZ(equation, change)


def _filter_in_z(equation: EquationInZ, data: Observations, origin: Any, first: Array, steps, rule: Rule):
    belief, left = equation.x.begin(data, origin, first)
    left, slope = equation.data(left)
    drift, Q, measured = equation.drift(origin), equation.diffusivity(origin), equation.measurement(origin)
    done = run_filter(drift, Q, measured, equation.belief(belief), left, steps, rule)
    return log_likelihood(done.filtered) + slope, done


def smoothed_path(model: SDE, pool: Pool, point: Point, done: FilterPass) -> tuple[Path, Path]:
    """Mean and standard deviation of every state at every row, given all rows; of a transformed state the median."""
    smooth = over_series(run_smoother)(done)
    if pool.in_z:
        return over_series(in_z(Equation(model, pool, point)).states_and_std)(smooth)
    return smooth.mean, jnp.sqrt(jnp.maximum(jnp.diagonal(smooth.covariance, axis1=-2, axis2=-1), 0.0))


def filtered_path(model: SDE, pool: Pool, point: Point, done: FilterPass) -> Path:
    """The mean of every state after each row, given that row and those before it."""
    mean = done.last.mean
    return over_series(in_z(Equation(model, pool, point)).states)(mean) if pool.in_z else mean


def step_counts(
    model: SDE, pool: Pool, path: Float[Array, "series times state"], thetas: Float[Array, "starts params"]
) -> Int[Array, "series times"]:
    """Steps to each row, from the slope of the drift along a path for typical ones of `thetas`."""

    def size(theta, t, x, origin):
        drift = pool.drift(lambda t, x: model.f(t, x, theta))
        slope = value_and_slope(lambda t, x: drift(t, x, origin), t, x)[1]
        return fastest_rate(slope) if model.general else jnp.linalg.norm(slope)

    every = over_series(jax.vmap(size, (None, 0, 0, None)), (None, 0, 0, 0))
    sizes = jax.vmap(every, (0, None, None, None))(thetas, pool.times, path, pool.origins)
    typical = jnp.median(jnp.where(jnp.isfinite(sizes), sizes, 0.0), axis=0)
    ends = jnp.maximum(typical, jnp.roll(typical, 1, axis=1))
    gaps = jnp.diff(pool.times, axis=1, prepend=pool.times[:, :1])
    counts = jnp.clip(jnp.ceil(ends * gaps / _REACH), 1, _MOST_STEPS)
    return jnp.where(gaps > 0, counts, 0).astype(jnp.int32)
