"""A Wasserstein critic, and its training against θ: Algorithm 2 of the paper.

The critic is a small network in single precision: its answers only steer θ, and more digits would double the cost.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from sdefit._types import Array, Bool, Float, Int, Key, Scalar, Theta

WIDTHS = (256, 128)  # nodes of the two hidden layers, as in the paper
WINDOW = 25  # steps of θ in one window; at the end of each the training is looked at
_LEAK = 0.2  # slope of a node below 0: without one a node that is off for every sample stays off
_FLAT = 1e-9  # a critic less steep than this is dead; a working one has a slope near 1, or 1e-4 with clipped weights
_STEEP = 1e3  # and one steeper than this has exploded

Samples = Float[Array, "samples dim"]


class Critic(eqx.Module):
    """A network C with two hidden layers and one output."""

    weights: tuple[Float[Array, "dim wide"], Float[Array, "wide narrow"], Float[Array, "narrow"]]
    biases: tuple[Float[Array, "wide"], Float[Array, "narrow"]]

    def __call__(self, x: Samples) -> Float[Array, "samples"]:
        """C(x) for every sample."""
        for weight, bias in zip(self.weights[:2], self.biases, strict=True):
            x = jax.nn.leaky_relu(x @ weight + bias[None, :], _LEAK)
        return x @ self.weights[2]


def new_critic(dim: int, live: Scalar, key: Key, widths: tuple[int, int] = WIDTHS) -> Critic:
    """A critic with random weights for samples of which `live` of the `dim` entries are more than padding.

    The weights of an entry depend on its place alone, so that padding behind it changes nothing.
    """
    first, second, third = jax.random.split(key, 3)
    wide, narrow = widths

    def row(n: Int[Array, ""]):
        return jax.random.normal(jax.random.fold_in(first, n), (wide,), jnp.float32)

    inputs = jax.vmap(row)(jnp.arange(dim)) / jnp.sqrt(live).astype(jnp.float32)
    hidden = jax.random.normal(second, (wide, narrow), jnp.float32) / wide**0.5
    output = jax.random.normal(third, (narrow,), jnp.float32) / narrow**0.5
    return Critic((inputs, hidden, output), (jnp.zeros(wide, jnp.float32), jnp.zeros(narrow, jnp.float32)))


def wasserstein_estimate(critic: Critic, data: Samples, model: Samples) -> Scalar:
    """Mean of C over the data less its mean over the model.

    Of all C with slope 1 the largest such difference is the Wasserstein-1 distance.
    """
    return jnp.mean(critic(data)) - jnp.mean(critic(model))


def input_gradients(critic: Critic, x: Samples) -> Samples:
    """The gradient of C at every sample."""
    return jax.grad(lambda x: jnp.sum(critic(x)))(x)


def gradient_norm(slope: Samples) -> Float[Array, "samples"]:
    """The length of each gradient."""
    return jnp.sqrt(jnp.sum(slope**2, axis=1) + 1e-30)  # at 0 the root has no derivative


class Samplers(NamedTuple):
    """Samples of both distributions: the i-th batch of the data's, and of the model's at θ; and where θ may be."""

    data: Callable[[Int[Array, ""]], Samples]
    model: Callable[[Int[Array, ""], Theta], Samples]
    project: Callable[[Theta], Theta] = lambda theta: theta


class WGANConfig(NamedTuple):
    """How critic and θ are trained.

    - `penalty`: weight of max(slope − 1, 0)², which keeps the critic's slope at 1 or below; 0 for none.
    - `clip`: the largest size of any of the critic's numbers, or None.
    - `critic_rate`, `rate`: learning rates of Adam, for the critic and for θ; the latter falls as one over the number
      of windows, unless `tolerance` is 0.
    - `critic_steps`: steps of the critic before each of θ.
    - `steps`: the most steps of θ, made in whole windows.
    - `tolerance`: training is over when the mean of θ over a window is this near to that over the one before, in every
      coordinate; θ is then the mean over both. With 0 all steps are made, θ is the last, and others must say whether it
      has converged.
    - `restarts`: how often a critic that died or exploded is replaced.
    - `momentum`: of the critic's Adam.
    """

    penalty: float
    clip: float | None
    critic_rate: float
    rate: float
    critic_steps: int
    steps: int
    tolerance: float
    restarts: int
    momentum: float = 0.5


class TrainingResult(eqx.Module):
    """Where θ ended; after each step θ and the critic's distance, NaN beyond the last; the critic, and how it fared."""

    theta: Theta
    critic: Critic
    path: Float[Array, "steps params"]
    distances: Float[Array, "steps"]
    converged: Bool[Array, ""]
    alive: Bool[Array, ""]
    restarts: Int[Array, ""]


def train(
    samplers: Samplers, theta: Theta, new: Callable[[Key], Critic], config: WGANConfig, key: Key
) -> TrainingResult:
    """θ at which the Wasserstein-1 distance between data and model is least, from a start; Algorithm 2 of the paper.

    `new` makes a critic. One that dies or explodes is replaced, and training begins again; when that was of no use,
    the outcome is not `alive` and its θ is the start.
    """
    new_key, step_key = jax.random.split(key)
    optimisers = _optimisers(config)

    def begin(restarts) -> _Players:
        critic: Any = new(jax.random.fold_in(new_key, restarts))  # optax knows no type for a module
        states = optimisers[0].init(critic), optimisers[1].init(theta)
        return _Players(critic, theta, *states, jnp.zeros((), jnp.int32))

    def advance(s: _Training) -> _Training:
        players, (path, distances, slope) = jax.lax.scan(
            lambda players, _: _step(samplers, config, optimisers, players, step_key), s.players, None, length=WINDOW
        )
        finite = jnp.all(jnp.isfinite(distances)) & jnp.all(jnp.isfinite(players.theta))
        sick = ~finite | (slope[-1] < _FLAT) | (slope[-1] > _STEEP)
        again = sick & (s.restarts < config.restarts)
        players = jax.tree.map(lambda a, b: jnp.where(again, a, b), begin(s.restarts + 1), players)
        history = s.path.at[s.window].set(path), s.distances.at[s.window].set(distances)
        settled = ~sick & (s.window > 0) & _settled(history[0], s.window, config.tolerance)
        return _Training(
            players, *history, jnp.where(again, 0, s.window + 1), s.restarts + again, settled, sick & ~again
        )

    windows = max(-(-config.steps // WINDOW), 1)
    none, no = jnp.zeros((), jnp.int32), jnp.array(False)
    blank = jnp.full((windows, WINDOW, theta.size), jnp.nan), jnp.full((windows, WINDOW), jnp.nan)
    end = jax.lax.while_loop(
        lambda s: (s.window < windows) & ~s.settled & ~s.dead,
        advance,
        _Training(begin(none), *blank, none, none, no, no),
    )
    return _result(end, theta, config)


class _Players(eqx.Module):
    """Both players, and the number of the batch to come."""

    critic: Critic
    theta: Theta
    critic_state: Any
    theta_state: Any
    batch: Int[Array, ""]


class _Training(eqx.Module):
    """Training with its windows so far: how many, whether θ has settled, and whether the critic is lost."""

    players: _Players
    path: Float[Array, "windows steps params"]
    distances: Float[Array, "windows steps"]
    window: Int[Array, ""]
    restarts: Int[Array, ""]
    settled: Bool[Array, ""]
    dead: Bool[Array, ""]


def _result(end: _Training, start: Theta, config: WGANConfig) -> TrainingResult:
    done = (jnp.arange(end.path.shape[0]) < end.window)[:, None]  # what an earlier critic left behind is not shown
    path = jnp.where(done[:, :, None], end.path, jnp.nan).reshape(-1, start.size)
    distances = jnp.where(done, end.distances, jnp.nan).ravel()
    theta = _mean(end.path, end.window - 1, 2) if config.tolerance else end.players.theta
    converged = end.settled if config.tolerance else ~end.dead
    return TrainingResult(
        jnp.where(end.dead, start, theta), end.players.critic, path, distances, converged, ~end.dead, end.restarts
    )


def _settled(path: Float[Array, "windows steps params"], window: Int[Array, ""], tolerance: float) -> Bool[Array, ""]:
    """Whether the means of θ over this window and the one before agree."""
    return jnp.all(jnp.abs(_mean(path, window, 1) - _mean(path, window - 1, 1)) < tolerance)


def _mean(path: Float[Array, "windows steps params"], last: Int[Array, ""], count: int) -> Theta:
    """The mean of θ over so many windows, the last of which has this number; over fewer where there are not so many."""
    window = jnp.arange(path.shape[0])
    some = ((window > last - count) & (window <= last))[:, None]
    return jnp.sum(jnp.where(some, jnp.mean(path, axis=1), 0.0), axis=0) / jnp.maximum(jnp.sum(some), 1)


def _optimisers(config: WGANConfig) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    # Little momentum: each player must answer to where the other is now, or the two go round in circles.
    def rate(count):
        return config.rate / (1 + (count / WINDOW if config.tolerance else 0.0))

    return optax.adam(config.critic_rate, config.momentum, 0.9), optax.adam(rate, 0.0, 0.9)


def _step(samplers: Samplers, config: WGANConfig, optimisers, players: _Players, key: Key):
    """Both players after some steps of the critic and one of θ; with θ, the distance and the critic's mean slope."""

    def critic_step(carry, n):
        critic, state = carry
        data, model = samplers.data(players.batch + n), samplers.model(players.batch + n, players.theta)
        slope = jax.grad(_loss)(critic, data, model, config.penalty, jax.random.fold_in(key, players.batch + n))
        move, state = optimisers[0].update(slope, state)
        critic = optax.apply_updates(critic, move)
        clip = jnp.inf if config.clip is None else config.clip
        return (jax.tree.map(lambda w: jnp.clip(w, -clip, clip), critic), state), None

    numbers = jnp.arange(config.critic_steps, dtype=jnp.int32)
    (critic, state), _ = jax.lax.scan(critic_step, (players.critic, players.critic_state), numbers)
    batch = players.batch + config.critic_steps
    model, back = jax.vjp(lambda theta: samplers.model(batch, theta), players.theta)
    slope = input_gradients(critic, model)
    # θ descends the estimate, of which only the model's half depends on it.
    move, theta_state = optimisers[1].update(back(-slope / slope.shape[0])[0], players.theta_state)
    theta, steep = samplers.project(players.theta + move), jnp.sqrt(jnp.mean(gradient_norm(slope) ** 2))
    # Over its own slope the estimate is a distance, also where a penalty or clipping does not hold the slope at 1.
    distance = (wasserstein_estimate(critic, samplers.data(batch), model) / steep).astype(theta.dtype)
    return _Players(critic, theta, state, theta_state, batch + 1), (theta, distance, steep)


def _loss(critic: Critic, data: Samples, model: Samples, penalty: float, key: Key) -> Scalar:
    """Minus the Wasserstein estimate, plus a penalty on gradients longer than 1 between data and model.

    That is Petzka et al. 2018. A penalty that also lifts shorter ones (Gulrajani et al. 2017) holds the critic near a
    straight line: it then sees how far the means are apart, and hardly that the spreads differ.
    """
    if not penalty:
        return -wasserstein_estimate(critic, data, model)
    half = max(data.shape[0] // 2, 1)
    fraction = jax.random.uniform(key, (half, 1), data.dtype)
    between = fraction * data[:half] + (1 - fraction) * model[::-1][:half]
    excess = jnp.maximum(gradient_norm(input_gradients(critic, between)) - 1, 0.0)
    return penalty * jnp.mean(excess**2) - wasserstein_estimate(critic, data, model)
