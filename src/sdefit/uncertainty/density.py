"""The posterior of θ, G and σ as one density: what `importance` and `posterior` draw from, and the estimate's mode."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.inference.likelihood import Likelihood, filter_pool, filter_state
from sdefit.inference.parameterisation import cholesky_psd
from sdefit.inference.prior import Prior
from sdefit.matching.latent_process import observations
from sdefit.methods.interface import LikelihoodMethod
from sdefit.priors import noise_levels, theta_prior
from sdefit.result import Estimate

_LEAST = 0.1  # of its usual level (of θ: of its weak prior's width), at which draws begin


@dataclasses.dataclass(frozen=True)
class PosteriorDensity:
    """Likelihood times prior in coordinates v without edges: θ's own, log G_kk, arsinh(G_kj/G_kk), log σ, x(t_1)."""

    likelihood: Likelihood
    prior: Prior

    @classmethod
    def of(cls, model: SDE, method: LikelihoodMethod, pool: Pool, estimate: Estimate) -> "PosteriorDensity":
        """The one whose mode the estimate is, in the coordinates of its prior."""
        likelihood = method.likelihood(model, pool, estimate)
        return cls(likelihood, method.prior(likelihood.parameterisation, filter_state(estimate).scales))

    def log_density(self, v: Float[Array, "coordinates"]) -> Scalar:
        """Up to a constant, by a likelihood without derivatives; far below all else where the filter fails."""
        p, likelihood, u = self.likelihood.parameterisation, self.likelihood, self.coordinates(v)
        point = p.point(p.variance_params(u))
        total, _ = filter_pool(p.model, likelihood.pool, point, likelihood.steps, likelihood.rule)
        total = total - self.prior(u).value + self.log_volume(v)
        return jnp.where(jnp.isfinite(total), total, -1e10)

    def log_density_and_gradient(self, v: Float[Array, "coordinates"]) -> tuple[Scalar, Float[Array, "coordinates"]]:
        """The same up to another constant, with the gradient that runs forward through the filter."""
        u, back = jax.vjp(self.coordinates, v)
        at, (volume, slope) = self.likelihood(u) + self.prior(u), jax.value_and_grad(self.log_volume)(v)
        value, gradient = volume - at.value, slope - back(at.gradient)[0]
        sound = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        return jnp.where(sound, value, -1e10), jnp.where(sound, gradient, 0.0)

    def coordinates(self, v: Float[Array, "coordinates"]) -> Float[Array, "coordinates"]:
        """The coordinates u of the likelihood."""
        theta, scales, turns, sigma, first = self.likelihood.parameterisation.split(v)
        size = jnp.exp(scales)
        below = jnp.sinh(turns) * size[self.likelihood.parameterisation.rows]
        return jnp.concatenate([theta, size, below, jnp.exp(sigma), first])

    def log_volume(self, v: Float[Array, "coordinates"]) -> Scalar:
        """log of the volume in the prior's own coordinates that a unit of v takes."""
        _, scales, turns, sigma, _ = self.likelihood.parameterisation.split(v)
        rows = self.likelihood.parameterisation.rows
        of_u = jnp.sum(scales) + jnp.sum(scales[rows]) + jnp.sum(jnp.log(jnp.cosh(turns))) + jnp.sum(sigma)
        return of_u + self.prior.log_volume(self.coordinates(v))

    def parts(self, v: Float[Array, "coordinates"]) -> tuple[Array, Array, Array]:
        """θ, G and σ."""
        p = self.likelihood.parameterisation
        point = p.point(p.variance_params(self.coordinates(v)))
        return point.theta, cholesky_psd(point.Q), jnp.sqrt(point.variance)

    def begin(self, estimate: Estimate) -> tuple[Array, Array]:
        """Where draws begin, and a root of their covariance, from an estimate and the curvature there."""
        state, p = filter_state(estimate), self.likelihood.parameterisation
        theta, scales, below, sigma, first = p.split(state.coordinates)
        log_G, log_noise = noise_levels(observations(p.pool))
        usual = [jnp.resize(level, part.shape) for level, part in ((log_G, scales), (log_noise, sigma))]
        size, sigma = (
            jnp.maximum(jnp.abs(part), _LEAST * jnp.exp(level))
            for level, part in zip(usual, (scales, sigma), strict=True)
        )
        turns = jnp.arcsinh(jnp.clip(below * jnp.sign(scales)[p.rows] / size[p.rows], -3.0, 3.0))
        v = jnp.concatenate([self._off_edges(theta, state.scales), jnp.log(size), turns, jnp.log(sigma), first])
        slope = jax.jacfwd(self.coordinates)(v)
        # Never flatter in a noise than its weak prior is, nor wider in a logarithm than a factor e³.
        flat = np.repeat([0.0, 0.25, 0.25, 0.1, 0.0], p.sizes)
        logarithm = jnp.isfinite(p.max_step) & (jnp.arange(flat.size) < theta.size)
        flat = jnp.where(logarithm, 0.1, flat)
        return v, inverse_root(slope.T @ state.curvature @ slope + jnp.diag(flat))

    def _off_edges(self, theta: Float[Array, "params"], scales: Float[Array, "params"] | None):
        """θ where draws begin: not at a bound, where nothing shows how wide the posterior is."""
        if scales is None or not theta.size:
            return theta
        bounds = self.likelihood.parameterisation.bounds
        lower, upper = jnp.array(bounds.bounds.lower), jnp.array(bounds.bounds.upper)
        close = _LEAST * theta_prior(self.likelihood.parameterisation.model, scales).width
        at = jnp.clip(bounds.constrain(theta), lower + close, upper - close)
        return jnp.where(jnp.isfinite(lower) | jnp.isfinite(upper), bounds.unconstrain(at), theta)


def inverse_root(curvature: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A root of the inverse of a curvature, whatever its units; directions of little or negative curvature are wide."""
    size = jnp.sqrt(jnp.abs(jnp.diagonal(curvature)))
    size = jnp.where(size > 0, size, 1.0)
    values, vectors = jnp.linalg.eigh(curvature / (size[:, None] * size[None, :]))
    return vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), 0.02))[None, :] / size[:, None]
