"""The Kalman filter and the disturbance smoother of a linear Gaussian state-space model, in O(N).

    s_n = F_n s_{n−1} + c_n + N(0, Q_n),    y_nk = h_k·s_n + N(0, r_k)

Observations of one time are taken in one by one, as their noise is independent (Durbin and Koopman 2012, section 6.4):
a missing value is a skipped update, and no matrix is factorised. The smoother runs D&K's r and N backwards, which
needs no inverse of a predicted covariance: repeated times (Q = 0) and a known initial state (P = 0) are harmless.

Covariances do not depend on the data, and means depend on them linearly. So means are matrices with a column for each
data set, draw or regressor, and the four steps below are all that the filters and smoothers of the package do at a row:
`update_covariance` and `update_mean` forwards, `back_information` and `back_score` backwards.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Scalar
from sdefit.linalg import cholesky, dot

Columns = Float[Array, "dim columns"]


class Observations(eqx.Module):
    """Times, values, and which of them were observed; functions of several series take a leading axis of series."""

    times: Float[Array, "*series times"]
    values: Float[Array, "*series times state"]
    observed: Bool[Array, "*series times state"]


class Gaussian(NamedTuple):
    """Mean and covariance of a state; where there are many data sets, a column of means for each."""

    mean: Float[Array, "*batch dim"] | Float[Array, "*batch dim columns"]
    covariance: Float[Array, "*batch dim dim"]


class Transitions(NamedTuple):
    """The model from each time to the next: F, Q and, where it is not 0, c with a column for each data set."""

    F: Float[Array, "*times dim dim"]
    Q: Float[Array, "*times dim dim"]
    offset: Float[Array, "*times dim columns"] | None = None


class Sensors(NamedTuple):
    """What is observed of a state at every time: the rows h_k, and the variances r_k of the noise."""

    H: Float[Array, "state dim"]
    variance: Float[Array, "state"]


class Gains(NamedTuple):
    """How observations of one time are taken in, one after the other: all of it 0 where nothing was observed.

    That cannot be read off `precision`: one of 0 may also be that of a variance which has grown beyond all numbers, and
    such a likelihood must be 0.
    """

    gain: Float[Array, "*times state dim"]  # D&K's K/F
    precision: Float[Array, "*times state"]  # 1/F, with F the variance of the innovation
    observed: Bool[Array, "*times state"]


class Filtered(NamedTuple):
    """What a forward pass leaves at each time."""

    predicted: Gaussian  # given the rows before
    updated: Gaussian  # and this row
    gains: Gains
    innovations: Float[Array, "*times state columns"]


class Backward(NamedTuple):
    """What the observations from a time on say of the state predicted for it, and of their noise at that time.

    r is the derivative of the log-likelihood in the predicted mean and N the variance of r; u and D are the same for
    the noise of each observation (D&K's equations 4.44, 4.59 and 4.69).
    """

    r: Float[Array, "*times dim columns"]
    N: Float[Array, "*times dim dim"]
    u: Float[Array, "*times state columns"]
    D: Float[Array, "*times state"]


def update_covariance(
    covariance: Float[Array, "dim dim"], observed: Bool[Array, "state"], sensors: Sensors
) -> tuple[Float[Array, "dim dim"], Gains]:
    """The covariance after one row of observations, and their gains."""
    gains, precisions = [], []
    for k, h in enumerate(sensors.H):
        column = jnp.sum(covariance * h[None, :], axis=1)
        precision = jnp.where(observed[k], 1.0 / (jnp.sum(h * column) + sensors.variance[k]), 0.0)
        gains.append(column * precision)
        precisions.append(precision)
        covariance = covariance - gains[k][:, None] * column[None, :]
    return covariance, Gains(jnp.stack(gains), jnp.stack(precisions), observed)


def update_mean(
    mean: Columns, values: Float[Array, "state columns"], gains: Gains, sensors: Sensors
) -> tuple[Columns, Float[Array, "state columns"]]:
    """The means after one row of observations, and their innovations (not masked where nothing was observed)."""
    innovations = []
    for k, h in enumerate(sensors.H):
        innovations.append(values[k] - jnp.sum(h[:, None] * mean, axis=0))
        mean = mean + gains.gain[k][:, None] * innovations[k][None, :]
    return mean, jnp.stack(innovations)


def back_score(
    r: Columns, innovations: Float[Array, "state columns"], gains: Gains, sensors: Sensors
) -> tuple[Columns, Float[Array, "state columns"]]:
    """D&K's r before one row of observations from that after it, with u of each of them."""
    u = []
    for k in reversed(range(len(gains.precision))):
        u.insert(0, gains.precision[k] * innovations[k] - jnp.sum(gains.gain[k][:, None] * r, axis=0))
        r = r + sensors.H[k][:, None] * u[0][None, :]
    return r, jnp.stack(u)


def back_information(
    N: Float[Array, "dim dim"], gains: Gains, sensors: Sensors
) -> tuple[Float[Array, "dim dim"], Float[Array, "state"]]:
    """D&K's N before one row of observations from that after it, with D of each of them."""
    D = []
    for k in reversed(range(len(gains.precision))):
        h, turned = sensors.H[k], jnp.sum(gains.gain[k][:, None] * N, axis=0)
        D.insert(0, gains.precision[k] + jnp.sum(turned * gains.gain[k]))
        across = h[:, None] * turned[None, :]
        N = N - across - across.T + D[0] * h[:, None] * h[None, :]
    return N, jnp.stack(D)


def run_filter(
    first: Gaussian,
    transitions: Transitions,
    sensors: Sensors,
    values: Float[Array, "times state columns"],
    observed: Bool[Array, "times state"],
) -> tuple[Gaussian, Filtered]:
    """The belief after the last of these times, from that before the first of them, and the whole forward pass."""

    def step(last: Gaussian, row: tuple[Transitions, Array, Array]):
        here, y, seen = row
        mean = dot(here.F, last.mean)
        mean = mean if here.offset is None else mean + here.offset
        predicted = Gaussian(mean, dot(dot(here.F, last.covariance), here.F.T) + here.Q)
        covariance, gains = update_covariance(predicted.covariance, seen, sensors)
        mean, innovations = update_mean(predicted.mean, y, gains, sensors)
        updated = Gaussian(mean, covariance)
        return updated, Filtered(predicted, updated, gains, innovations)

    return jax.lax.scan(step, first, (transitions, values, observed))


def log_likelihood(filtered: Filtered) -> Scalar:
    """The log density of the observations in the first column."""
    seen, e = filtered.gains.observed, filtered.innovations[..., 0]
    precision = jnp.where(seen, filtered.gains.precision, 1.0)
    return -0.5 * jnp.sum(jnp.where(seen, jnp.log(2 * jnp.pi / precision) + precision * e**2, 0.0))


def run_smoother(
    transitions_F: Float[Array, "times dim dim"],
    filtered: Filtered,
    sensors: Sensors,
    later_rows: Backward | None = None,
) -> tuple[Backward, Backward]:
    """What is said before the first of these times, and at each of them, from what is said after the last."""

    def step(later_rows: Backward, row):
        F, gains, innovations = row
        r, u = back_score(later_rows.r, innovations, gains, sensors)
        N, D = back_information(later_rows.N, gains, sensors)
        return Backward(dot(F.T, r), dot(dot(F.T, N), F), u, D), Backward(r, N, u, D)

    later_rows = nothing_later(filtered) if later_rows is None else later_rows
    return jax.lax.scan(step, later_rows, (transitions_F, filtered.gains, filtered.innovations), reverse=True)


def nothing_later(filtered: Filtered) -> Backward:
    """What is said after the last time."""
    mean, covariance = filtered.predicted
    return jax.tree.map(
        lambda a: jnp.zeros_like(a[0]), Backward(mean, covariance, filtered.innovations, filtered.gains.precision)
    )


def smoothed(filtered: Filtered, later: Backward) -> Gaussian:
    """Means and covariance of every state given all observations."""
    mean, P = filtered.predicted
    return Gaussian(mean + dot(P, later.r), P - dot(dot(P, later.N), P))


def smoothed_means(
    transitions: Transitions, sensors: Sensors, filtered: Filtered, values: Float[Array, "times state columns"]
) -> Float[Array, "times dim columns"]:
    """The smoothed means of many data sets with the observation pattern of `filtered`, whose gains are used again."""

    def forward(mean, row):
        F, gains, y = row
        predicted = dot(F, mean)
        mean, innovations = update_mean(predicted, y, gains, sensors)
        return mean, (predicted, innovations)

    def backward(r, row):
        F, predicted, gains, mean, innovations = row
        r, _ = back_score(r, innovations, gains, sensors)
        return dot(F.T, r), mean + dot(predicted, r)

    zero = jnp.zeros((sensors.H.shape[1], values.shape[2]), values.dtype)
    _, (means, innovations) = jax.lax.scan(forward, zero, (transitions.F, filtered.gains, values))
    rows = transitions.F, filtered.predicted.covariance, filtered.gains, means, innovations
    return jax.lax.scan(backward, zero, rows, reverse=True)[1]


def draw_posterior(
    initial: Float[Array, "dim dim"],
    transitions: Transitions,
    sensors: Sensors,
    filtered: Filtered,
    values: Float[Array, "times state"],
    state_noise: Float[Array, "times dim samples"],
    observation_noise: Float[Array, "times state samples"],
) -> Float[Array, "times dim samples"]:
    """Joint draws of the states given all observations, from standard normal numbers, by Matheron's rule.

    A path of states and observations is drawn from the prior, and the smoothed mean of the difference to the data is
    added: the simulation smoother of Durbin and Koopman (2002).
    """
    prior = _draw_prior(initial, transitions, state_noise)
    fake = dot(sensors.H[None], prior) + jnp.sqrt(sensors.variance)[None, :, None] * observation_noise
    return prior + smoothed_means(transitions, sensors, filtered, values[:, :, None] - fake)


def _draw_prior(initial, transitions: Transitions, state_noise: Float[Array, "times dim samples"]):
    # The first step takes no time and adds no noise: its numbers make the initial state.
    first = jnp.arange(state_noise.shape[0]) == 0
    roots = jax.vmap(cholesky)(jnp.where(first[:, None, None], initial[None], transitions.Q))

    def step(state, row):
        F, disturbance = row
        state = dot(F, state) + disturbance
        return state, state

    disturbances = dot(roots, state_noise)
    return jax.lax.scan(step, jnp.zeros_like(disturbances[0]), (transitions.F, disturbances))[1]


def likelihood_slopes(later: Backward) -> tuple[Float[Array, "*times dim dim"], Float[Array, "*times state"]]:
    """The derivatives of the log-likelihood in Q (or the first covariance) and in r (Koopman and Shephard 1992).

    Like `log_likelihood`, of the first column.
    """
    r = later.r[..., :1]
    Q = 0.5 * (dot(r, jnp.swapaxes(r, -1, -2)) - later.N)
    return Q, 0.5 * (later.u[..., 0] ** 2 - later.D)
