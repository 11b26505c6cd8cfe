"""Linear Gaussian state space in O(N): likelihood, smoothing and joint draws.

The model is s_{n+1} = A_n s_n + N(0, Q_n), y_nk = h_k·s_n + N(0, r_k). Observations of one time are
taken in one by one (their noise is independent), so a missing value is a skipped update and no
matrix is ever factorised. Smoothing runs the backward recursion of the disturbance smoother, which
needs no inverse of a predicted covariance: repeated times (Q = 0) and a known initial state (P = 0)
are harmless.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Scalar


class LinearModel(eqx.Module):
    """A linear Gaussian state-space model at N times; step n leads from time n − 1 to time n."""

    transition: Float[Array, "times dim dim"]  # the first is not used
    process: Float[Array, "times dim dim"]
    initial: Float[Array, "dim dim"]
    observe: Float[Array, "state dim"]
    noise: Float[Array, "state"]


class Filtered(eqx.Module):
    """What the backward pass and the draws need of a forward pass."""

    log_likelihood: Scalar
    predicted: Float[Array, "times dim dim"]
    gains: Float[Array, "times state dim"]  # 0 where not observed
    precisions: Float[Array, "times state"]  # 1/innovation variance, 0 where not observed
    means: Float[Array, "times dim"]  # predicted
    innovations: Float[Array, "times state"]


def run_filter(model: LinearModel, y: Float[Array, "times state"], observed: Bool[Array, "times state"]) -> Filtered:
    """The forward pass: log-likelihood, predictions, gains and innovations."""

    def step(carry, now):
        mean, cov = carry
        transition, process, y_n, seen, first = now
        mean = jnp.where(first, mean, transition @ mean)
        cov = jnp.where(first, cov, transition @ cov @ transition.T + process)
        predicted, start = cov, mean
        gains, precisions, innovations, terms = [], [], [], []
        for k in range(y.shape[1]):
            h = model.observe[k]
            column = cov @ h
            variance = h @ column + model.noise[k]
            precision = jnp.where(seen[k], 1.0 / variance, 0.0)
            gain = column * precision
            innovation = y_n[k] - h @ mean
            mean = mean + gain * innovation
            cov = cov - jnp.outer(gain, column)
            terms.append(jnp.where(seen[k], jnp.log(2 * jnp.pi * variance) + innovation**2 / variance, 0.0))
            gains.append(gain)
            precisions.append(precision)
            innovations.append(innovation)
        out = predicted, jnp.stack(gains), jnp.stack(precisions), start, jnp.stack(innovations), -0.5 * sum(terms)
        return (mean, cov), out

    first = jnp.arange(y.shape[0]) == 0
    begin = jnp.zeros(model.initial.shape[0], y.dtype), model.initial
    _, out = jax.lax.scan(step, begin, (model.transition, model.process, y, observed, first))
    predicted, gains, precisions, means, innovations, terms = out
    return Filtered(jnp.sum(terms), predicted, gains, precisions, means, innovations)


def smooth(model: LinearModel, done: Filtered) -> tuple[Float[Array, "times dim"], Float[Array, "times dim dim"]]:
    """Mean and covariance of every state given all observations."""

    def step(carry, now):
        r, n = carry
        transition, predicted, gains, precisions, mean, innovations = now
        for k in reversed(range(gains.shape[0])):
            h = model.observe[k]
            r = r + h * (precisions[k] * innovations[k] - gains[k] @ r)
            left = n - jnp.outer(h, gains[k] @ n)
            n = left - jnp.outer(left @ gains[k], h) + precisions[k] * jnp.outer(h, h)
        smoothed = mean + predicted @ r, predicted - predicted @ n @ predicted
        return (transition.T @ r, transition.T @ n @ transition), smoothed

    dim = done.means.shape[1]
    begin = jnp.zeros(dim, done.means.dtype), jnp.zeros((dim, dim), done.means.dtype)
    rows = model.transition, done.predicted, done.gains, done.precisions, done.means, done.innovations
    _, smoothed = jax.lax.scan(step, begin, rows, reverse=True)
    return smoothed


def smooth_means(
    model: LinearModel, done: Filtered, y: Float[Array, "times state samples"]
) -> Float[Array, "times dim samples"]:
    """The smoothed mean for many data sets with the observation pattern of `done`."""

    def forward(mean, now):
        transition, gains, y_n, first = now
        mean = jnp.where(first, mean, transition @ mean)
        start, innovations = mean, []
        for k in range(gains.shape[0]):
            innovations.append(y_n[k] - model.observe[k] @ mean)
            mean = mean + gains[k][:, None] * innovations[-1][None, :]
        return mean, (start, jnp.stack(innovations))

    def backward(r, now):
        transition, predicted, gains, precisions, mean, innovations = now
        for k in reversed(range(gains.shape[0])):
            pull = precisions[k] * innovations[k] - gains[k] @ r
            r = r + model.observe[k][:, None] * pull[None, :]
        return transition.T @ r, mean + predicted @ r

    zero = jnp.zeros((done.means.shape[1], y.shape[2]), y.dtype)
    first = jnp.arange(y.shape[0]) == 0
    _, (means, innovations) = jax.lax.scan(forward, zero, (model.transition, done.gains, y, first))
    rows = model.transition, done.predicted, done.gains, done.precisions, means, innovations
    _, smoothed = jax.lax.scan(backward, zero, rows, reverse=True)
    return smoothed


def draw(
    model: LinearModel,
    done: Filtered,
    y: Float[Array, "times state"],
    state_noise: Float[Array, "times dim samples"],
    observation_noise: Float[Array, "times state samples"],
) -> Float[Array, "times dim samples"]:
    """Joint draws of the states given all observations, from standard normal numbers (Matheron's rule).

    A path of states and observations is drawn from the prior, and the smoothed mean of the difference
    to the data is added. Only means are propagated: the gains are those of `done`.
    """
    prior = _draw_prior(model, state_noise)
    fake = jnp.einsum("kd,ndm->nkm", model.observe, prior) + jnp.sqrt(model.noise)[None, :, None] * observation_noise
    return prior + smooth_means(model, done, y[:, :, None] - fake)


def _draw_prior(model: LinearModel, state_noise):
    first = jnp.arange(state_noise.shape[0]) == 0
    roots = jax.vmap(_square_root)(jnp.where(first[:, None, None], model.initial[None], model.process))
    kicks = roots @ state_noise

    def step(state, now):
        transition, kick, first = now
        state = kick + jnp.where(first, 0.0, 1.0) * (transition @ state)
        return state, state

    _, path = jax.lax.scan(step, jnp.zeros_like(kicks[0]), (model.transition, kicks, first))
    return path


def _square_root(cov: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """A lower-triangular root of a covariance that may be singular: zero pivots give zero columns."""

    def column(j, root):
        rest = cov[:, j] - root @ root[j]
        pivot = jnp.maximum(rest[j], 0.0)
        small = pivot <= 1e-14 * cov[j, j]
        scaled = jnp.where(small, 0.0, rest / jnp.sqrt(jnp.where(small, 1.0, pivot)))
        return root.at[:, j].set(jnp.where(jnp.arange(cov.shape[0]) >= j, scaled, 0.0))

    return jax.lax.fori_loop(0, cov.shape[0], column, jnp.zeros_like(cov))
