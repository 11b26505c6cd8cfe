"""Draws of θ, G and σ from their posterior by importance, for methods with a likelihood: what the data leave possible.

Short series often cannot tell process noise from observation noise. What an estimate of θ is worth depends on which
of the two it was, so intervals average over both. The priors are the weak ones of `Auto`, on θ too where the estimate
has one, or the user's on θ. Sampling adapts: each round draws from a Student distribution with the weighted
mean and covariance of the round before, and the last one is drawn from again by weight. It needs a likelihood without
derivatives alone, and takes many draws side by side.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Key, Scalar
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.inference.likelihood import Likelihood, filter_pool, filter_state
from sdefit.inference.parameterisation import Parameterisation, cholesky_psd
from sdefit.matching.latent_process import observations
from sdefit.methods.interface import LikelihoodMethod, Method
from sdefit.priors import NoiseLevels, ThetaPrior, noise_levels, theta_prior
from sdefit.result import Estimate

_ROUNDS = 6
_DRAWS = 1000  # in each round
_FREEDOM = 5.0  # degrees of freedom of the Student distribution
_WIDER = 1.25  # times the covariance that was found
_ENOUGH = _DRAWS / 8  # draws that must count in a round: weights are tempered until they do
_LEAST = 0.1  # of its usual level (of θ: of its prior's width), at which the first round begins


def sample_posterior(
    model: SDE, method: Method, pool: Pool, estimate: Estimate, draws: int, key: Key
) -> tuple[Float[Array, "draws params"], Float[Array, "draws state state"], Float[Array, "draws state"]]:
    """θ, and G and σ standardised, as far as the data leave them open."""
    assert isinstance(method, LikelihoodMethod)
    likelihood, state = method.likelihood(model, pool, estimate), filter_state(estimate)
    target = _Target(likelihood, None if state.scales is None else theta_prior(model, state.scales))
    v, half = target.begin(state.coordinates, state.curvature)
    round_key, pick_key = jax.random.split(key)

    def one(carry, key):
        center, half, *_ = carry
        v, log_weight = _drawn(target, center, half, key)
        weight = _tempered(log_weight)
        center = weight @ v
        away = (v - center[None, :]) * jnp.sqrt(weight)[:, None]
        return (center, _root(_WIDER * away.T @ away), v, log_weight), None

    empty = v, half, jnp.zeros((_DRAWS, v.size)), jnp.zeros(_DRAWS)
    (_, _, drawn, log_weight), _ = jax.lax.scan(one, empty, jax.random.split(round_key, _ROUNDS))
    picked = drawn[jax.random.categorical(pick_key, log_weight, shape=(draws,))]
    return jax.vmap(target.parts)(picked)


@dataclasses.dataclass(frozen=True)
class _Target:
    """The posterior in coordinates v without edges: θ's own, log G_kk, arsinh(G_kj/G_kk), log σ, x(t_1)."""

    likelihood: Likelihood
    expected: ThetaPrior | None = None  # of θ, where the estimate has a weak prior on it

    @property
    def parameterisation(self) -> Parameterisation:
        return self.likelihood.parameterisation

    @property
    def rows(self) -> np.ndarray:
        """The row of each entry of G below the diagonal."""
        _, scales, below, *_ = self.parameterisation.sizes
        return np.tril_indices(scales, -1)[0][:below]

    def coordinates(self, v: Float[Array, "coordinates"]) -> Float[Array, "coordinates"]:
        """The coordinates u of the likelihood."""
        theta, scales, turns, sigma, first = self._split(v)
        size = jnp.exp(scales)
        return jnp.concatenate([theta, size, jnp.sinh(turns) * size[self.rows], jnp.exp(sigma), first])

    def begin(self, u: Float[Array, "coordinates"], curvature) -> tuple[Array, Array]:
        """Where the first round is centred, and a root of its covariance, from an estimate and the curvature there."""
        theta, scales, below, sigma, first = self._split(u)
        log_G, log_noise = self._levels
        usual = [jnp.resize(level, part.shape) for level, part in ((log_G, scales), (log_noise, sigma))]
        size, sigma = (
            jnp.maximum(jnp.abs(part), _LEAST * jnp.exp(level))
            for level, part in zip(usual, (scales, sigma), strict=True)
        )
        turns = jnp.arcsinh(jnp.clip(below * jnp.sign(scales)[self.rows] / size[self.rows], -3.0, 3.0))
        v = jnp.concatenate([self._off_edges(theta), jnp.log(size), turns, jnp.log(sigma), first])
        slope = jax.jacfwd(self.coordinates)(v)
        # Never flatter in a noise than its prior is, nor wider in a logarithm than a factor e³.
        flat = np.repeat([0.0, 0.25, 0.25, 0.1, 0.0], self.parameterisation.sizes)
        logarithm = jnp.isfinite(self.parameterisation.max_step) & (jnp.arange(flat.size) < theta.size)
        flat = jnp.where(logarithm, 0.1, flat)
        return v, inverse_root(slope.T @ curvature @ slope + jnp.diag(flat))

    def _off_edges(self, theta: Float[Array, "params"]) -> Float[Array, "params"]:
        """θ where the first round is centred: not at a bound, where nothing shows how wide the posterior is."""
        if self.expected is None or not theta.size:
            return theta
        bounds, width = self.parameterisation.bounds, self.expected.width
        lower, upper = jnp.array(bounds.bounds.lower), jnp.array(bounds.bounds.upper)
        close = _LEAST * jnp.where(jnp.isfinite(lower) & jnp.isfinite(upper), upper - lower, width)
        at = jnp.clip(bounds.constrain(theta), lower + close, upper - close)
        return jnp.where(jnp.isfinite(lower) | jnp.isfinite(upper), bounds.unconstrain(at), theta)

    def log_density(self, v: Float[Array, "coordinates"]) -> Scalar:
        """Up to a constant; far below all else where the filter fails."""
        parameterisation, likelihood = self.parameterisation, self.likelihood
        u = self.coordinates(v)
        point = parameterisation.point(parameterisation.variance_params(u))
        total, _ = filter_pool(parameterisation.model, likelihood.pool, point, likelihood.steps, likelihood.rule)
        total = total - parameterisation.prior(u, self._levels, self.expected).value + self._stretch(v)
        return jnp.where(jnp.isfinite(total), total, -1e10)

    def parts(self, v: Float[Array, "coordinates"]) -> tuple[Array, Array, Array]:
        """θ, G and σ."""
        point = self.parameterisation.point(self.parameterisation.variance_params(self.coordinates(v)))
        return point.theta, cholesky_psd(point.Q), jnp.sqrt(point.variance)

    def _stretch(self, v) -> Scalar:
        """log of the volume of θ and of the directions of G's rows that a unit of v takes."""
        theta, scales, turns, *_ = self._split(v)
        _, slope = jax.jvp(self.parameterisation.bounds.constrain, (theta,), (jnp.ones_like(theta),))
        growth = jnp.ones_like(scales).at[self.rows].add(jnp.sinh(turns) ** 2)
        entries = 0.5 * jnp.arange(1, scales.size + 1) if turns.size else jnp.zeros(scales.size)
        directions = jnp.sum(jnp.log(jnp.cosh(turns))) - jnp.sum(entries * jnp.log(growth))
        return jnp.sum(jnp.log(jnp.abs(slope))) + directions

    def _split(self, u) -> list[Array]:
        return jnp.split(u, np.cumsum(self.parameterisation.sizes)[:-1])

    @property
    def _levels(self) -> NoiseLevels:
        return noise_levels(observations(self.likelihood.pool))


def _drawn(target: _Target, center, half, key: Key) -> tuple[Array, Array]:
    """Draws from a Student distribution, and the log of their weights."""
    normal_key, spread_key = jax.random.split(key)
    spread = 2 * jax.random.gamma(spread_key, _FREEDOM / 2, (_DRAWS, 1)) / _FREEDOM
    t = jax.random.normal(normal_key, (_DRAWS, center.size)) / jnp.sqrt(spread)
    v = center[None, :] + t @ half.T
    log_proposal = -0.5 * (_FREEDOM + center.size) * jnp.log1p(jnp.sum(t**2, axis=1) / _FREEDOM)
    return v, jax.vmap(target.log_density)(v) - log_proposal


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


def inverse_root(curvature: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A root of the inverse of a curvature, whatever its units; directions of little or negative curvature are wide."""
    size = jnp.sqrt(jnp.abs(jnp.diagonal(curvature)))
    size = jnp.where(size > 0, size, 1.0)
    values, vectors = jnp.linalg.eigh(curvature / (size[:, None] * size[None, :]))
    return vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), 0.02))[None, :] / size[:, None]


def _root(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    size = jnp.sqrt(jnp.maximum(jnp.diagonal(covariance), 1e-300))
    eye = jnp.eye(size.size)
    return size[:, None] * jnp.linalg.cholesky(covariance / (size[:, None] * size[None, :]) + 1e-6 * eye)
