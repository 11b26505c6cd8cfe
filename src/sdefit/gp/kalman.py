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
from sdefit.linalg import cholesky, dot


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
        transition, process, y_n, seen = now
        mean = dot(transition, mean[:, None])[:, 0]
        cov = dot(dot(transition, cov), transition.T) + process
        predicted, start = cov, mean
        gains, precisions, innovations, terms = [], [], [], []
        for k in range(y.shape[1]):
            column = cov @ model.observe[k]
            variance = model.observe[k] @ column + model.noise[k]
            precision = jnp.where(seen[k], 1.0 / variance, 0.0)
            gain = column * precision
            innovation = y_n[k] - model.observe[k] @ mean
            mean = mean + gain * innovation
            cov = cov - gain[:, None] * column[None, :]
            terms.append(jnp.where(seen[k], jnp.log(2 * jnp.pi * variance) + innovation**2 / variance, 0.0))
            gains.append(gain)
            precisions.append(precision)
            innovations.append(innovation)
        out = predicted, jnp.stack(gains), jnp.stack(precisions), start, jnp.stack(innovations), -0.5 * sum(terms)
        return (mean, cov), out

    # From a state of 0 the first step leads to the initial one.
    transition, process = model.transition.at[0].set(0.0), model.process.at[0].set(model.initial)
    begin = jnp.zeros_like(model.initial[0]), jnp.zeros_like(model.initial)
    _, out = jax.lax.scan(step, begin, (transition, process, y, observed))
    predicted, gains, precisions, means, innovations, terms = out
    return Filtered(jnp.sum(terms), predicted, gains, precisions, means, innovations)


class _Later(eqx.Module):
    """What later observations say: of each predicted state, and of the noise of each observation."""

    pull: Float[Array, "*times dim"]  # r: derivative of the log-likelihood in the predicted mean
    information: Float[Array, "*times dim dim"]  # N: the variance of that derivative
    noise_pull: Float[Array, "*times state"]
    noise_information: Float[Array, "*times state"]


def _look_back(model: LinearModel, done: Filtered) -> _Later:
    def step(carry, now):
        r, n = carry
        transition, gains, precisions, innovations = now
        pulls, informations = [], []
        for k in reversed(range(gains.shape[0])):
            h, turned = model.observe[k], dot(gains[k][None, :], n)[0]
            pulls.insert(0, precisions[k] * innovations[k] - gains[k] @ r)
            informations.insert(0, precisions[k] + turned @ gains[k])
            r = r + h * pulls[0]
            across = h[:, None] * turned[None, :]
            n = n - across - across.T + informations[0] * h[:, None] * h[None, :]
        out = _Later(r, n, jnp.stack(pulls), jnp.stack(informations))
        back = transition.T
        return (dot(back, r[:, None])[:, 0], dot(dot(back, n), transition)), out

    begin = jnp.zeros_like(done.means[0]), jnp.zeros_like(done.predicted[0])
    rows = model.transition, done.gains, done.precisions, done.innovations
    return jax.lax.scan(step, begin, rows, reverse=True)[1]


def smooth(model: LinearModel, done: Filtered) -> tuple[Float[Array, "times dim"], Float[Array, "times dim dim"]]:
    """Mean and covariance of every state given all observations."""
    later = _look_back(model, done)
    mean = done.means + jnp.einsum("nij,nj->ni", done.predicted, later.pull)
    return mean, done.predicted - done.predicted @ later.information @ done.predicted


@jax.custom_vjp
def log_likelihood(model: LinearModel, y: Float[Array, "times state"], observed: Bool[Array, "times state"]) -> Scalar:
    """The log density of the observations, with its exact derivative by one backward pass.

    With r and N of the disturbance smoother, the derivative in a predicted covariance, and so in Q, is ½(r rᵀ − N)
    (Koopman and Shephard 1992); the others follow by the chain rule. To run and to compile, that is several times
    cheaper than differentiating the forward pass step by step. `observe` is taken as a constant.
    """
    return run_filter(model, y, observed).log_likelihood


def _log_likelihood(model: LinearModel, y, observed):
    done = run_filter(model, y, observed)
    return done.log_likelihood, (model, done)


def _log_likelihood_back(saved: tuple[LinearModel, Filtered], weight: Scalar):
    model, done = saved
    later = _look_back(model, done)
    process = 0.5 * weight * (later.pull[:, :, None] * later.pull[:, None, :] - later.information)
    updates = done.gains / jnp.where(done.precisions > 0, done.precisions, 1.0)[:, :, None]
    mean = done.means + jnp.sum(done.innovations[:, :, None] * done.gains, axis=1)
    cov = done.predicted - jnp.sum(updates[:, :, :, None] * done.gains[:, :, None, :], axis=1)
    transition = weight * later.pull[1:, :, None] * mean[:-1, None, :]
    transition = transition + 2 * dot(dot(process[1:], model.transition[1:]), cov[:-1])
    noise = 0.5 * weight * jnp.sum(later.noise_pull**2 - later.noise_information, axis=0)
    slopes = LinearModel(
        jnp.concatenate([jnp.zeros_like(process[:1]), transition]),
        process.at[0].set(0.0),
        process[0],
        jnp.zeros_like(model.observe),
        noise,
    )
    return slopes, -weight * later.noise_pull, None


log_likelihood.defvjp(_log_likelihood, _log_likelihood_back)


def smooth_means(
    model: LinearModel, done: Filtered, y: Float[Array, "times state samples"]
) -> Float[Array, "times dim samples"]:
    """The smoothed mean for many data sets with the observation pattern of `done`."""

    def forward(mean, now):
        transition, gains, y_n, first = now
        mean = jnp.where(first, mean, dot(transition, mean))
        start, innovations = mean, []
        for k in range(gains.shape[0]):
            innovations.append(y_n[k] - dot(model.observe[k][None, :], mean)[0])
            mean = mean + gains[k][:, None] * innovations[-1][None, :]
        return mean, (start, jnp.stack(innovations))

    def backward(r, now):
        transition, predicted, gains, precisions, mean, innovations = now
        for k in reversed(range(gains.shape[0])):
            pull = precisions[k] * innovations[k] - dot(gains[k][None, :], r)[0]
            r = r + model.observe[k][:, None] * pull[None, :]
        return dot(transition.T, r), mean + dot(predicted, r)

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
    fake = dot(model.observe[None], prior) + jnp.sqrt(model.noise)[None, :, None] * observation_noise
    return prior + smooth_means(model, done, y[:, :, None] - fake)


def _draw_prior(model: LinearModel, state_noise):
    first = jnp.arange(state_noise.shape[0]) == 0
    roots = jax.vmap(cholesky)(jnp.where(first[:, None, None], model.initial[None], model.process))
    kicks = dot(roots, state_noise)

    def step(state, now):
        transition, kick, first = now
        state = kick + jnp.where(first, 0.0, 1.0) * dot(transition, state)
        return state, state

    _, path = jax.lax.scan(step, jnp.zeros_like(kicks[0]), (model.transition, kicks, first))
    return path
