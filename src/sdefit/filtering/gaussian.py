"""Continuous-discrete Gaussian filter and smoother for dx = f(t, x) dt + G dw, y = x + noise.

Observations enter one state at a time (their noise is independent), each in Joseph form: no matrix
is factorised, missing values are simply skipped, and the covariance keeps its sign even without
observation noise. The smoother carries information backwards (Bryson and Frazier), which needs no
inverse of a predicted covariance and so takes singular ones.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int, Scalar
from sdefit.filtering.moments import Drift, Rule
from sdefit.filtering.transition import step
from sdefit.linalg import dot


class Observations(eqx.Module):
    """One series: times, values, and which of them were observed."""

    times: Float[Array, "times"]
    values: Float[Array, "times state"]
    observed: Bool[Array, "times state"]


class Cloud(NamedTuple):
    """A Gaussian belief about the state."""

    mean: Float[Array, "state"]
    covariance: Float[Array, "state state"]


class Innovations(NamedTuple):
    """What each observation added: its prediction error and that error's variance (0 and 1 where none was made)."""

    error: Float[Array, "*times state"]
    variance: Float[Array, "*times state"]


class Filtered(NamedTuple):
    """All the smoother needs of a forward pass: beliefs after each row, how they came there, what was new."""

    cloud: Cloud
    transition: Float[Array, "*times state state"]
    gains: Float[Array, "*times state state"]  # one per observed state; 0 where not observed
    new: Innovations


def run_filter(
    drift: Drift,
    Q: Float[Array, "state state"],
    noise: Float[Array, "state"],
    first: Cloud,
    data: Observations,
    steps: Int[Array, "times"] | int = 1,
    rule: Rule = "cubature",
) -> Filtered:
    """The belief about x after each row, given that row and those before it.

    **Arguments**
    - `drift`: f(t, x). `Q`: G Gᵀ. `noise`: the variance of the observation noise.
    - `first`: the belief about x at the first time, before that row's observations are used.
    - `data`: a row whose time repeats the one before and that observes nothing changes nothing.
    - `steps`: how many steps lead to each row. Traced numbers allow derivatives forward only; one
      plain integer allows both ways.
    - `rule`: how moments of f are taken.
    """

    def row(cloud, inputs):
        before, now, count, value, observed = inputs
        count = steps if isinstance(steps, int) else count
        cloud, transition = predict(drift, rule, Q, before, now, count, cloud)
        cloud, gains, new = update(cloud, value, observed, noise)
        return cloud, Filtered(cloud, transition, gains, new)

    before = jnp.concatenate([data.times[:1], data.times[:-1]])
    counts = jnp.broadcast_to(jnp.asarray(steps, jnp.int32), data.times.shape)
    return jax.lax.scan(row, first, (before, data.times, counts, data.values, data.observed))[1]


def log_likelihood(new: Innovations, observed: Bool[Array, "times state"]) -> Scalar:
    """The log density of the observations, from their innovations."""
    each = jnp.log(new.variance) + new.error**2 / new.variance + jnp.log(2 * jnp.pi)
    return -0.5 * jnp.sum(jnp.where(observed, each, 0.0))


def run_smoother(filtered: Filtered) -> Cloud:
    """The belief about x at each row given all rows, before and after."""

    def row(carry, one: Filtered):
        (mean, P), gone = one.cloud, carry
        smooth = Cloud(mean - dot(P, gone[0][:, None])[:, 0], P - dot(dot(P, gone[1]), P))
        return _back(one, *gone), smooth

    size = filtered.cloud.mean.shape[-1]
    none = jnp.zeros(size), jnp.zeros((size, size))
    return jax.lax.scan(row, none, filtered, reverse=True)[1]


def _back(one: Filtered, pull, information):
    """What later rows say about x, carried back over one row's updates and the steps that led to it."""
    size = pull.size
    for k in reversed(range(size)):
        error, variance, unit = one.new.error[k], one.new.variance[k], jnp.eye(size)[k]
        seen = jnp.any(one.gains[k] != 0) / variance
        pull = pull - unit * (one.gains[k] @ pull + seen * error)
        left = jnp.eye(size) - one.gains[k][:, None] * unit[None, :]
        information = dot(dot(left.T, information), left) + seen * unit[:, None] * unit[None, :]
    return dot(one.transition.T, pull[:, None])[:, 0], dot(dot(one.transition.T, information), one.transition)


def after_first(data: Observations, noise: Float[Array, "state"], spread: float = 1.0) -> tuple[Cloud, Observations]:
    """The belief about x(t_1) under a flat prior, and the data without its first row.

    Where the first row observes a state, x(t_1) given it is N(y_1, σ²): the likelihood that follows
    is that of all later rows given the first, which is the exact one for σ = 0. A state that the first
    row does not observe starts at its first value seen later, give or take `spread`.
    """
    earliest = jnp.argmax(data.observed, axis=0)
    # The last term is for the loop over rows: it is traced once if its first belief depends on what the later ones do.
    mean = jnp.take_along_axis(data.values, earliest[None, :], axis=0)[0] + 0.0 * noise
    variance = jnp.where(data.observed[0], noise, spread**2)
    rest = Observations(data.times, data.values, data.observed & (jnp.arange(data.times.size) > 0)[:, None])
    return Cloud(mean, jnp.diag(variance)), rest


def predict(
    drift: Drift, rule: Rule, Q: Array, before: Scalar, now: Scalar, steps: Int[Array, ""] | int, cloud: Cloud
) -> tuple[Cloud, Float[Array, "state state"]]:
    """The belief at time `now` from that at time `before`, and the transition matrix between them."""
    h = (now - before) / jnp.maximum(steps, 1)

    def one(i, carry):
        cloud, transition = carry
        there = step(drift, rule, Q, before + i * h, h, *cloud, any_slope=not isinstance(steps, int))
        return Cloud(there.mean, there.covariance), dot(there.transition, transition)

    # Begun as a function of the cloud, as it goes on: the loop is then traced once, not until its form settles.
    same = jnp.eye(cloud.mean.size) + 0.0 * cloud.covariance
    return jax.lax.fori_loop(0, steps, one, (cloud, same))


def update(
    cloud: Cloud, value: Float[Array, "state"], observed: Bool[Array, "state"], noise: Float[Array, "state"]
) -> tuple[Cloud, Float[Array, "state state"], Innovations]:
    """The belief after one row of observations, with their gains and innovations."""
    (mean, covariance), gains, errors, variances = cloud, [], [], []
    for k in range(mean.size):
        shared = covariance[:, k]
        variance = jnp.where(observed[k], shared[k] + noise[k], 1.0)
        error = jnp.where(observed[k], value[k] - mean[k], 0.0)
        gain = jnp.where(observed[k], shared / variance, 0.0)
        cross = gain[:, None] * shared[None, :]
        covariance = covariance - cross - cross.T + variance * gain[:, None] * gain[None, :]
        mean = mean + gain * error
        for kept, one in ((gains, gain), (errors, error), (variances, variance)):
            kept.append(one)
    return Cloud(mean, covariance), jnp.stack(gains), Innovations(jnp.stack(errors), jnp.stack(variances))
