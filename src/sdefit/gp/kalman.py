"""Linear Gaussian state space in O(N): likelihood, smoothing and joint draws.

The model is s_{n+1} = A_n s_n + N(0, Q_n), y_nk = h_k·s_n + N(0, r_k). Observations of one time are
taken in one by one (their noise is independent), so a missing value is a skipped update and no
matrix is ever factorised. Smoothing runs the backward recursion of the disturbance smoother, which
needs no inverse of a predicted covariance: repeated times (Q = 0) and a known initial state (P = 0)
are harmless.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Scalar, Times
from sdefit.linalg import cholesky, dot

Values = Float[Array, "times state"]
Observed = Bool[Array, "times state"]
Build = Callable[[Any, Times], "Steps"]

_BLOCK = 256  # rows, whose matrices stay in a core's cache


class Frame(eqx.Module):
    """What of a linear Gaussian state-space model does not change with time."""

    initial: Float[Array, "dim dim"]  # covariance of the first state, whose mean is 0
    observe: Float[Array, "state dim"]
    noise: Float[Array, "state"]  # variances


class Steps(eqx.Module):
    """What does: step n leads from time n − 1 to time n. The first is of no time: the identity, without noise."""

    transition: Float[Array, "*times dim dim"]
    process: Float[Array, "*times dim dim"]


class State(eqx.Module):
    """Mean and covariance of a state."""

    mean: Float[Array, "*times dim"]
    cov: Float[Array, "*times dim dim"]


class Filtered(eqx.Module):
    """What the backward pass and the draws need of a forward pass."""

    last: State  # of the time before, given what was observed until then
    predicted: State
    gains: Float[Array, "*times state dim"]  # 0 where not observed
    precisions: Float[Array, "*times state"]  # 1/innovation variance, 0 where not observed
    innovations: Float[Array, "*times state"]


def run_filter(frame: Frame, steps: Steps, y: Values, observed: Observed) -> Filtered:
    """The forward pass: predictions, gains and innovations."""
    return _forward(frame, steps, _begin(frame), y, observed)[1][1]


def _begin(frame: Frame) -> State:
    return State(jnp.zeros_like(frame.initial[0]), frame.initial)


def _forward(frame: Frame, steps: Steps, before: State, y: Values, observed: Observed):
    """From the state before the first of these times to the last, with the log-likelihood and what each time saw."""

    def step(last, now):
        here, y_n, seen = now
        mean = dot(here.transition, last.mean[:, None])[:, 0]
        cov = dot(dot(here.transition, last.cov), here.transition.T) + here.process
        predicted = State(mean, cov)
        gains, precisions, innovations, terms = [], [], [], []
        for k in range(y.shape[1]):
            column = cov @ frame.observe[k]
            variance = frame.observe[k] @ column + frame.noise[k]
            precision = jnp.where(seen[k], 1.0 / variance, 0.0)
            gain = column * precision
            innovation = y_n[k] - frame.observe[k] @ mean
            mean = mean + gain * innovation
            cov = cov - gain[:, None] * column[None, :]
            terms.append(jnp.where(seen[k], jnp.log(2 * jnp.pi * variance) + innovation**2 / variance, 0.0))
            gains.append(gain)
            precisions.append(precision)
            innovations.append(innovation)
        done = Filtered(last, predicted, jnp.stack(gains), jnp.stack(precisions), jnp.stack(innovations))
        return State(mean, cov), (-0.5 * sum(terms), done)

    end, (terms, done) = jax.lax.scan(step, before, (steps, y, observed))
    return end, (jnp.sum(terms), done)


class _Later(eqx.Module):
    """What observations from a time on say of the state predicted for it, and of their noise at that time."""

    pull: Float[Array, "dim"]  # r: derivative of the log-likelihood in the predicted mean
    information: Float[Array, "dim dim"]  # N: the variance of that derivative
    noise_pull: Float[Array, "state"]
    noise_information: Float[Array, "state"]

    @property
    def of_covariance(self) -> Float[Array, "dim dim"]:
        """The derivative of the log-likelihood in the predicted covariance (Koopman and Shephard 1992)."""
        return 0.5 * (self.pull[:, None] * self.pull[None, :] - self.information)


Read = Callable[[_Later, Steps, Filtered], Any]


def _backward(frame: Frame, steps: Steps, after: _Later, done: Filtered, read: Read) -> tuple[_Later, Any]:
    """From what is said after the last of these times back to the first, with what `read` makes of each."""

    def step(after, now):
        step, here = now
        r, n = after.pull, after.information
        pulls, informations = [], []
        for k in reversed(range(here.gains.shape[0])):
            h, turned = frame.observe[k], dot(here.gains[k][None, :], n)[0]
            pulls.insert(0, here.precisions[k] * here.innovations[k] - here.gains[k] @ r)
            informations.insert(0, here.precisions[k] + turned @ here.gains[k])
            r = r + h * pulls[0]
            across = h[:, None] * turned[None, :]
            n = n - across - across.T + informations[0] * h[:, None] * h[None, :]
        later = _Later(r, n, jnp.stack(pulls), jnp.stack(informations))
        back = step.transition.T
        before = dot(back, r[:, None])[:, 0], dot(dot(back, n), step.transition)
        return _Later(*before, later.noise_pull, later.noise_information), read(later, step, here)

    return jax.lax.scan(step, after, (steps, done), reverse=True)


def _nothing_later(frame: Frame) -> _Later:
    return _Later(*(jnp.zeros_like(a) for a in (frame.initial[0], frame.initial, frame.noise, frame.noise)))


def smooth(frame: Frame, steps: Steps, done: Filtered) -> State:
    """Mean and covariance of every state given all observations."""

    def read(later, _, here):
        mean, cov = here.predicted.mean, here.predicted.cov
        return State(mean + dot(cov, later.pull[:, None])[:, 0], cov - dot(dot(cov, later.information), cov))

    return _backward(frame, steps, _nothing_later(frame), done, read)[1]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def log_likelihood(build: Build, hyper: Any, frame: Frame, gaps: Times, y: Values, observed: Observed) -> Scalar:
    """The log density of the observations where the steps are `build(hyper, gaps)`, the first gap being 0.

    Its derivative, in `hyper`, `frame` (but for `observe`) and `y`, takes one backward pass, which to run and to
    compile is several times cheaper than differentiating the forward one step by step. A long series goes block by
    block: its steps and the derivative in them are of one block at a time, so that a row costs the same in any number.
    """
    return _log_likelihood(build, hyper, frame, gaps, y, observed)[0]


def _log_likelihood(build: Build, hyper, frame: Frame, gaps, y, observed):
    def block(before, rows):
        gaps, y, observed = rows
        return _forward(frame, build(hyper, gaps), before, y, observed)

    blocks = _blocks((gaps, y, observed))
    _, (values, done) = _over(blocks, block, _begin(frame))
    return jnp.sum(values), (hyper, frame, blocks[0], done, y)


def _log_likelihood_back(build: Build, saved, weight: Scalar):
    hyper, frame, gaps, done, y = saved

    def read(later, step, here):
        process = later.of_covariance
        transition = later.pull[:, None] * here.last.mean[None, :]
        transition = transition + 2 * dot(dot(process, step.transition), here.last.cov)
        noise = 0.5 * (later.noise_pull**2 - later.noise_information)
        return Steps(transition, process), noise, -later.noise_pull

    def block(carry, rows):
        gaps, done = rows
        after, total = carry
        steps, pull_back = jax.vjp(lambda hyper: build(hyper, gaps), hyper)
        before, (slopes, noise, values) = _backward(frame, steps, after, done, read)
        return (before, jax.tree.map(jnp.add, total, pull_back(slopes)[0])), (noise, values)

    begin = _nothing_later(frame), jax.tree.map(jnp.zeros_like, hyper)
    (before, slope), (noise, values) = _over((gaps, done), block, begin, reverse=True)
    ends = Frame(before.of_covariance, jnp.zeros_like(frame.observe), jnp.sum(noise, axis=(0, 1)))
    slope, ends, values = jax.tree.map(lambda a: weight * a, (slope, ends, values))
    return slope, ends, None, values.reshape(-1, y.shape[1])[: y.shape[0]], None


log_likelihood.defvjp(_log_likelihood, _log_likelihood_back)


def _blocks(rows: Any) -> Any:
    """The rows in blocks of equal size; those that fill up the last are 0: no time passes, nothing is observed."""
    size = jax.tree.leaves(rows)[0].shape[0]
    count = -(-size // _BLOCK)

    def cut(a):
        return jnp.pad(a, [(0, -size % count)] + [(0, 0)] * (a.ndim - 1)).reshape(count, -1, *a.shape[1:])

    return jax.tree.map(cut, rows)


def _over(blocks: Any, step: Callable, begin: Any, reverse: bool = False):
    """A scan; over a single block, its step alone."""
    if jax.tree.leaves(blocks)[0].shape[0] > 1:
        return jax.lax.scan(step, begin, blocks, reverse=reverse)
    end, made = step(begin, jax.tree.map(lambda a: a[0], blocks))
    return end, jax.tree.map(lambda a: a[None], made)


def smooth_means(
    frame: Frame, steps: Steps, done: Filtered, y: Float[Array, "times state samples"]
) -> Float[Array, "times dim samples"]:
    """The smoothed mean for many data sets with the observation pattern of `done`."""

    def forward(mean, now):
        transition, gains, y_n = now
        mean = dot(transition, mean)
        start, innovations = mean, []
        for k in range(gains.shape[0]):
            innovations.append(y_n[k] - dot(frame.observe[k][None, :], mean)[0])
            mean = mean + gains[k][:, None] * innovations[-1][None, :]
        return mean, (start, jnp.stack(innovations))

    def backward(r, now):
        transition, predicted, gains, precisions, mean, innovations = now
        for k in reversed(range(gains.shape[0])):
            pull = precisions[k] * innovations[k] - dot(gains[k][None, :], r)[0]
            r = r + frame.observe[k][:, None] * pull[None, :]
        return dot(transition.T, r), mean + dot(predicted, r)

    zero = jnp.zeros((frame.initial.shape[0], y.shape[2]), y.dtype)
    _, (means, innovations) = jax.lax.scan(forward, zero, (steps.transition, done.gains, y))
    rows = steps.transition, done.predicted.cov, done.gains, done.precisions, means, innovations
    return jax.lax.scan(backward, zero, rows, reverse=True)[1]


def draw(
    frame: Frame,
    steps: Steps,
    done: Filtered,
    y: Values,
    state_noise: Float[Array, "times dim samples"],
    observation_noise: Float[Array, "times state samples"],
) -> Float[Array, "times dim samples"]:
    """Joint draws of the states given all observations, from standard normal numbers (Matheron's rule).

    A path of states and observations is drawn from the prior, and the smoothed mean of the difference
    to the data is added. Only means are propagated: the gains are those of `done`.
    """
    prior = _draw_prior(frame, steps, state_noise)
    fake = dot(frame.observe[None], prior) + jnp.sqrt(frame.noise)[None, :, None] * observation_noise
    return prior + smooth_means(frame, steps, done, y[:, :, None] - fake)


def _draw_prior(frame: Frame, steps: Steps, state_noise: Float[Array, "times dim samples"]):
    # The first step has no noise of its own: its numbers make the initial state.
    first = jnp.arange(state_noise.shape[0]) == 0
    roots = jax.vmap(cholesky)(jnp.where(first[:, None, None], frame.initial[None], steps.process))

    def step(state, now):
        transition, kick = now
        state = dot(transition, state) + kick
        return state, state

    kicks = dot(roots, state_noise)
    return jax.lax.scan(step, jnp.zeros_like(kicks[0]), (steps.transition, kicks))[1]
