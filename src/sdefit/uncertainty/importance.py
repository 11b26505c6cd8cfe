"""Draws of θ, G and σ from their posterior by importance, for methods with a likelihood: what the data leave possible.

Short series often cannot tell process noise from observation noise. What an estimate of θ is worth depends on which
of the two it was, so intervals average over both. Sampling adapts: each round draws from a Student distribution with
the weighted mean and covariance of the round before, and the last one is drawn from again by weight. It needs a
likelihood without derivatives alone, and takes many draws side by side.
"""

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Key
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.methods.interface import LikelihoodMethod, Method
from sdefit.result import Estimate
from sdefit.uncertainty.density import PosteriorDensity

_ROUNDS = 6
_DRAWS = 1000  # in each round
_FREEDOM = 5.0  # degrees of freedom of the Student distribution
_WIDER = 1.25  # times the covariance that was found
_ENOUGH = _DRAWS / 8  # draws that must count in a round: weights are tempered until they do


def sample_posterior(
    model: SDE, method: Method, pool: Pool, estimate: Estimate, draws: int, key: Key
) -> tuple[Float[Array, "draws params"], Float[Array, "draws state state"], Float[Array, "draws state"]]:
    """θ, and G and σ standardised, as far as the data leave them open."""
    assert isinstance(method, LikelihoodMethod)
    posterior = PosteriorDensity.of(model, method, pool, estimate)
    v, half = posterior.begin(estimate)
    round_key, pick_key = jax.random.split(key)

    def one(carry, key):
        center, half, *_ = carry
        v, log_weight = _drawn(posterior, center, half, key)
        weight = _tempered(log_weight)
        center = weight @ v
        away = (v - center[None, :]) * jnp.sqrt(weight)[:, None]
        return (center, _root(_WIDER * away.T @ away), v, log_weight), None

    empty = v, half, jnp.zeros((_DRAWS, v.size)), jnp.zeros(_DRAWS)
    (_, _, drawn, log_weight), _ = jax.lax.scan(one, empty, jax.random.split(round_key, _ROUNDS))
    picked = drawn[jax.random.categorical(pick_key, log_weight, shape=(draws,))]
    return jax.vmap(posterior.parts)(picked)


def _drawn(posterior: PosteriorDensity, center, half, key: Key) -> tuple[Array, Array]:
    """Draws from a Student distribution, and the log of their weights."""
    normal_key, spread_key = jax.random.split(key)
    spread = 2 * jax.random.gamma(spread_key, _FREEDOM / 2, (_DRAWS, 1)) / _FREEDOM
    t = jax.random.normal(normal_key, (_DRAWS, center.size)) / jnp.sqrt(spread)
    v = center[None, :] + t @ half.T
    log_proposal = -0.5 * (_FREEDOM + center.size) * jnp.log1p(jnp.sum(t**2, axis=1) / _FREEDOM)
    return v, jax.vmap(posterior.log_density)(v) - log_proposal


def _tempered(log_weight: Float[Array, "draws"]) -> Float[Array, "draws"]:
    """Weights to a power, at most 1, at which enough draws count."""

    def weights(power):
        return jax.nn.softmax(power * log_weight)

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        enough = jnp.sum(weights(middle) ** 2) * _ENOUGH < 1
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, high = jax.lax.fori_loop(0, 20, halve, (jnp.array(0.0), jnp.array(2.0)))
    return weights(jnp.minimum(0.5 * (low + high), 1.0))


def _root(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    size = jnp.sqrt(jnp.maximum(jnp.diagonal(covariance), 1e-300))
    eye = jnp.eye(size.size)
    return size[:, None] * jnp.linalg.cholesky(covariance / (size[:, None] * size[None, :]) + 1e-6 * eye)
