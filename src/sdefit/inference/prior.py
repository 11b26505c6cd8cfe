"""The prior of θ, G and σ of methods with a likelihood, stated once.

A `Prior` is a density in coordinates of its own. The estimate is the mode of likelihood times prior in these, and
`Fit.intervals(draws=0)` and `Fit.posterior` draw from the same density, whatever coordinates they walk in. θ is one of
the coordinates, in the user's units, and has the user's prior where there is one. x(t_1) has a flat prior.

| | own coordinates | θ without a prior of the user's | G and σ |
|---|---|---|---|
| `WeakPrior` (Auto) | θ, log ‖G_k‖, correlations, log σ_k | normal, truncated at its bounds | log-normal; LKJ(2) |
| `BoundaryPrior` (ESGF) | θ, entries of G, σ_k | flat | flat, times a small power of G_kk and σ_k |
"""

import abc
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar, Theta
from sdefit.inference.parameterisation import Parameterisation
from sdefit.linalg import product
from sdefit.matching.latent_process import observations
from sdefit.optimise import ValueGradHessian
from sdefit.priors import NoiseLevels, ThetaPrior, correlation_prior, noise_levels, noise_prior_residuals, theta_prior


@dataclasses.dataclass(frozen=True)
class Prior(abc.ABC):
    """A prior as a function of the coordinates u of a likelihood; see `Parameterisation`."""

    parameterisation: Parameterisation

    def __call__(self, u: Float[Array, "coordinates"]) -> ValueGradHessian:
        """−log of the density in the prior's own coordinates, up to a constant, with its derivatives in u."""
        ours, model = self.ours(u), self.parameterisation.model
        if all(model.params[name].prior is None for name in model.free):
            return ours
        slope = jax.grad(self._users)
        return ours + ValueGradHessian(self._users(u), slope(u), jax.jacfwd(slope)(u))

    @abc.abstractmethod
    def ours(self, u: Float[Array, "coordinates"]) -> ValueGradHessian:
        """The same, but for the user's own priors on θ."""

    def log_volume(self, u: Float[Array, "coordinates"]) -> Scalar:
        """log of the volume in the prior's own coordinates that a unit of u takes."""
        theta, *noises = self.parameterisation.split(u)
        _, slope = jax.jvp(self.parameterisation.bounds.constrain, (theta,), (jnp.ones_like(theta),))
        return jnp.sum(jnp.log(jnp.abs(slope))) + self.log_volume_of_noises(*noises)

    def log_volume_of_noises(self, scales: Array, below: Array, sigma: Array, first: Array) -> Scalar:
        """The part of `log_volume` that is not of θ: nothing where G and σ are their own coordinates."""
        return jnp.zeros(())

    def _users(self, u: Float[Array, "coordinates"]) -> Scalar:
        theta = self.parameterisation.bounds.constrain(self.parameterisation.split(u)[0])
        params = self.parameterisation.model.params
        priors = [(i, params[name].prior) for i, name in enumerate(self.parameterisation.model.free)]
        return -sum((prior.log_prob(theta[i]) for i, prior in priors if prior is not None), jnp.zeros(()))


@dataclasses.dataclass(frozen=True)
class BoundaryPrior(Prior):
    """θ^0 G_kk^w σ_k^w: flat but for a small power w, by which an optimum at zero moves just off it.

    This is the gamma(1 + w, 0) prior of Chung, Rabe-Hesketh, Dorie, Gelman and Liu (2013).
    """

    weight: float

    def ours(self, u: Float[Array, "coordinates"]) -> ValueGradHessian:
        on, w = np.repeat([False, True, False, True, False], self.parameterisation.sizes), self.weight
        size = jnp.where(on, jnp.abs(u) + 1e-30, 1.0)
        inverse = jnp.where(on, jnp.sign(u) / size, 0.0)
        return ValueGradHessian(-w * jnp.sum(jnp.log(size)), -w * inverse, w * jnp.diag(inverse**2))


@dataclasses.dataclass(frozen=True)
class WeakPrior(Prior):
    """log ‖G_k‖ and log σ_k normal about levels, the correlations of the process noise LKJ(2), θ normal; see `priors`.

    Without `theta` it is flat in θ. One G or σ for all states counts once for each state.
    """

    levels: NoiseLevels
    theta: ThetaPrior | None = None

    @classmethod
    def of(cls, parameterisation: Parameterisation, scales: Theta | None) -> "WeakPrior":
        """With levels from the roughness of the data, and on θ where its natural scales are given."""
        levels = noise_levels(observations(parameterisation.pool))
        about = None if scales is None else theta_prior(parameterisation.model, scales)
        return cls(parameterisation, levels, about)

    def ours(self, u: Float[Array, "coordinates"]) -> ValueGradHessian:
        noises = self._of_noises(u)
        return noises if self.theta is None else noises + self._of_theta(u, self.theta)

    def _of_theta(self, u: Float[Array, "coordinates"], about: ThetaPrior) -> ValueGradHessian:
        """Normal in θ, in the user's units."""
        model, size = self.parameterisation.model, len(self.parameterisation.model.free)
        own = np.array([model.params[name].prior is None for name in model.free], bool)
        theta, slope = jax.jvp(self.parameterisation.bounds.constrain, (u[:size],), (jnp.ones(size),))
        away, slope = (jnp.where(own, a / about.width, 0.0) for a in (theta - about.center, slope))
        rest = (0, u.size - size)
        return ValueGradHessian(0.5 * jnp.sum(away**2), jnp.pad(away * slope, rest), jnp.diag(jnp.pad(slope**2, rest)))

    def _of_noises(self, u: Float[Array, "coordinates"]) -> ValueGradHessian:
        """The density of G and σ, with as much of its curvature as is never negative."""
        p = self.parameterisation

        def residuals(u):
            _, scales, below, sigma, _ = p.split(u)
            noise = jnp.log(jnp.abs(sigma * (p.even if p.noise == "same" else 1.0)) + 1e-15)
            return noise_prior_residuals(noise if noise.size else self.levels[1], p.G(scales, below), self.levels)

        def value(u):
            _, scales, below, *_ = p.split(u)
            return 0.5 * jnp.sum(residuals(u) ** 2) + correlation_prior(p.G(scales, below))

        # Only where there are entries below the diagonal can its own be too small beside them.
        slope, bent = jax.jacfwd(residuals)(u), np.repeat([False, p.sizes[2] > 0, False, False, False], p.sizes)
        bend = jnp.where(bent, 2 / (u**2 + 1e-30), 0.0)
        return ValueGradHessian(value(u), jax.grad(value)(u), product(slope, slope) + jnp.diag(bend))

    def log_volume_of_noises(self, scales: Array, below: Array, sigma: Array, first: Array) -> Scalar:
        """From G and σ to log ‖G_k‖, the correlation matrix of G Gᵀ and log σ_k.

        With t = G_kj / G_kk the rows of the correlation's Cholesky factor are (t, 1)/√(1 + |t|²). Their volume is
        (1 + |t|²)^(−(k+1)/2), and that of the correlations Π L_kk^(K−k) of theirs (Lewandowski and others 2009).
        """
        rows, size = self.parameterisation.rows, jnp.log(jnp.abs(scales))
        growth = jnp.ones_like(scales).at[rows].add((below / scales[rows]) ** 2)
        turns = 0.5 * (scales.size + 1) * jnp.sum(jnp.log(growth)) + jnp.sum(size[rows])
        return -turns - jnp.sum(size) - jnp.sum(jnp.log(jnp.abs(sigma)))
