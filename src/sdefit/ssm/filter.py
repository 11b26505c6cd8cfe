"""The continuous-discrete Gaussian filter and smoother of dx = f(t, x) dt + G dw, y = x + noise.

Between rows the belief follows moment equations (`transition`); at rows it is updated, and later run back, by the
steps of `kalman`: once each transition is linearised the smoother is that of a linear model.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int, Scalar
from sdefit.linalg import dot
from sdefit.ssm import kalman
from sdefit.ssm.innovations import Innovations
from sdefit.ssm.kalman import Filtered, Gaussian, Observations, Sensors
from sdefit.ssm.moments import Drift, Rule
from sdefit.ssm.transition import step


class FilterPass(NamedTuple):
    """A forward pass, and the transition matrix over each gap that its moments were linearised to."""

    filtered: Filtered
    F: Float[Array, "*times state state"]

    @property
    def last(self) -> Gaussian:
        """The belief after each row, given that row and those before it."""
        mean, covariance = self.filtered.updated
        return Gaussian(mean[..., 0], covariance)

    @property
    def innovations(self) -> Innovations:
        return Innovations.of(self.filtered)


def run_filter(
    drift: Drift,
    Q: Float[Array, "state state"],
    noise_variance: Float[Array, "state"],
    first: Gaussian,
    data: Observations,
    steps: Int[Array, "times"] | int = 1,
    rule: Rule = "cubature",
) -> FilterPass:
    """The belief about x at each row, given those before it and given that row as well.

    **Arguments**
    - `drift`: f(t, x). `Q`: G Gᵀ.
    - `first`: the belief about x at the first time, before that row's observations are used.
    - `data`: a row whose time repeats the one before and that observes nothing changes nothing.
    - `steps`: how many steps lead to each row. Traced numbers allow derivatives forward only; one
      plain integer allows both ways.
    - `rule`: how moments of f are taken.
    """

    def row(last: Gaussian, inputs):
        before, now, count, value, observed = inputs
        count = steps if isinstance(steps, int) else count
        predicted, F = predict(drift, rule, Q, before, now, count, last)
        return update(predicted, value, observed, noise_variance, F)

    before = jnp.concatenate([data.times[:1], data.times[:-1]])
    counts = jnp.broadcast_to(jnp.asarray(steps, jnp.int32), data.times.shape)
    return jax.lax.scan(row, first, (before, data.times, counts, data.values, data.observed))[1]


def run_smoother(done: FilterPass) -> Gaussian:
    """The belief about x at each row given all rows, before and after."""
    filtered, size = done.filtered, done.F.shape[-1]
    sensors = Sensors(jnp.eye(size, dtype=done.F.dtype), jnp.zeros(size, done.F.dtype))
    _, later = kalman.run_smoother(done.F, filtered, sensors)
    mean, covariance = kalman.smoothed(filtered, later)
    return Gaussian(mean[..., 0], covariance)


def predict(
    drift: Drift, rule: Rule, Q: Array, before: Scalar, now: Scalar, steps: Int[Array, ""] | int, last: Gaussian
) -> tuple[Gaussian, Float[Array, "state state"]]:
    """The belief about x at time `now` from that at time `before`, and the transition matrix between them."""
    h = (now - before) / jnp.maximum(steps, 1)

    def one(i, carry):
        belief, F = carry
        there = step(drift, rule, Q, before + i * h, h, *belief, any_slope=not isinstance(steps, int))
        return Gaussian(there.mean, there.covariance), dot(there.transition, F)

    # Begun as a function of the belief, as it goes on: the loop is then traced once, not until its form settles.
    same = jnp.eye(last.mean.size) + 0.0 * last.covariance
    return jax.lax.fori_loop(0, steps, one, (last, same))


def update(
    predicted: Gaussian,
    value: Float[Array, "state"],
    observed: Bool[Array, "state"],
    noise_variance: Float[Array, "state"],
    F: Float[Array, "state state"],
) -> tuple[Gaussian, FilterPass]:
    """The belief about x after one row of observations, and what the smoother needs of the row."""
    mean, covariance = predicted
    sensors = Sensors(jnp.eye(mean.size, dtype=mean.dtype), noise_variance)
    updated, gains = kalman.update_covariance(covariance, observed, sensors)
    columns, innovations = kalman.update_mean(mean[:, None], value[:, None], gains, sensors)
    filtered = Filtered(Gaussian(mean[:, None], covariance), Gaussian(columns, updated), gains, innovations)
    return Gaussian(columns[:, 0], updated), FilterPass(filtered, F)


def given_first_row(
    data: Observations, noise_variance: Float[Array, "state"], spread: float = 1.0
) -> tuple[Gaussian, Observations]:
    """The belief about x(t_1) under a flat prior given the first row, and the data without that row.

    Where the first row observes a state, x(t_1) given it is N(y_1, σ²): the likelihood that follows
    is that of all later rows given the first, which is the exact one for σ = 0. A state that the first
    row does not observe starts at its first value seen later, give or take `spread`.
    """
    earliest = jnp.argmax(data.observed, axis=0)
    # The last term is for the loop over rows: it is traced once if its first belief depends on what the later ones do.
    mean = jnp.take_along_axis(data.values, earliest[None, :], axis=0)[0] + 0.0 * noise_variance
    variance = jnp.where(data.observed[0], noise_variance, spread**2)
    rest = Observations(data.times, data.values, data.observed & (jnp.arange(data.times.size) > 0)[:, None])
    return Gaussian(mean, jnp.diag(variance)), rest
