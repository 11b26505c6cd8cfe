"""Unconstrained coordinates of everything a likelihood depends on: θ, G, σ and, for an ODE, x(t_1).

The diagonal of G and σ are coordinates as they are, of either sign: the likelihood depends on G Gᵀ
and σ² only and is even in them, so a maximum at zero is an ordinary point. (Their logarithms would
have to walk to −∞.) What is returned has a positive diagonal.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import ScaledBounds
from sdefit.linalg import dot, picked, placed, product
from sdefit.optimise import ValueGradHessian
from sdefit.priors import NoiseLevels, ThetaPrior, correlation_prior, noise_prior_residuals

# Nothing is known better than to a ten-millionth of the data's spread: an exact fit stays finite.
_FLOOR = 1e-14


class Point(eqx.Module):
    """θ in the user's units; Q = G Gᵀ, σ² and x(t_1) in standardised ones."""

    theta: Theta
    Q: Float[Array, "state state"]
    variance: Float[Array, "state"]
    first: Float[Array, "series state"]


@dataclasses.dataclass(frozen=True)
class Parameterisation:
    """The vector u = (θ unconstrained, diagonal of G, G below it, σ, x(t_1)), as far as each is estimated.

    None of them depends on the user's units.
    """

    model: SDE
    pool: Pool
    noise: str
    bounds: ScaledBounds = dataclasses.field(init=False)  # of θ, with coordinates in units of the data

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", ScaledBounds.of(self.model, self.pool))

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """How many coordinates each part has."""
        series, _, K = self.pool.values.shape
        scales = {"full": K, "diagonal": K, "scalar": 1, "none": 0}[self.model.diffusion]
        below = K * (K - 1) // 2 if self.model.diffusion == "full" else 0
        noise = {"each": K, "same": 1, "none": 0}[self.noise]
        return len(self.model.free), scales, below, noise, series * K if self.model.diffusion == "none" else 0

    @property
    def max_step(self) -> Float[Array, "coordinates"]:
        """The longest step a search may take: unlimited for a real number."""
        ends = zip(self.model.bounds.lower, self.model.bounds.upper, strict=True)
        theta = [np.inf if np.isinf(a) and np.isinf(b) else 2.0 for a, b in ends]
        return jnp.array(theta + [1.0] * sum(self.sizes[1:]))

    def variance_params(self, u: Float[Array, "coordinates"]) -> Float[Array, "natural"]:
        """(θ in units of the data, lower G Gᵀ, σ², x(t_1)): what the likelihood is nearly quadratic in."""
        theta, scales, below, sigma, first = jnp.split(u, np.cumsum(self.sizes)[:-1])
        G = _lower(scales, below)
        Q = picked(dot(G, G.T), self._entries) if scales.size else scales
        bounds = self.bounds
        return jnp.concatenate([bounds.constrain(theta) / bounds.unit, Q, sigma**2 + _FLOOR, first])

    def point(self, variance_params: Float[Array, "natural"], artificial_diffusion: float | Scalar = 0.0) -> Point:
        """The parts of a vector of variance parameters; `artificial_diffusion` is for a model without G."""
        series, _, K = self.pool.values.shape
        rows, columns = self._entries
        theta, Q, variance, first = jnp.split(
            variance_params, np.cumsum([len(self.model.free), rows.size, self.sizes[3]])
        )
        match self.model.diffusion:
            case "none":
                full = artificial_diffusion * jnp.eye(K)
            case "scalar":
                full = Q[0] * jnp.diag(self._even**2)
            case _:
                mirrored = jnp.where(rows == columns, 0.0, Q)
                full = placed(Q, (rows, columns), K) + placed(mirrored, (columns, rows), K)
        if self.noise != "each":
            variance = variance * self._even**2 if self.noise == "same" else jnp.zeros(K)
        theta = theta * self.bounds.unit
        return Point(theta, full, variance, first.reshape(-1, K) if first.size else jnp.zeros((series, K)))

    def begin(self, u, diffusion, noise, correlation, first) -> Float[Array, "coordinates"]:
        """Coordinates from θ (unconstrained), standard deviations per state and x(t_1)."""
        _, scales, below, sigma, last = self.sizes
        # What diffusion cannot explain in an ODE is noise.
        noise = jnp.sqrt(noise**2 + 0.5 * diffusion**2) if scales == 0 else noise
        g = jnp.mean(diffusion / self._even, keepdims=True) if scales == 1 else diffusion[:scales]
        s = jnp.mean(noise / self._even, keepdims=True) if sigma == 1 else noise[:sigma]
        rows = np.tril_indices(scales, -1)[0][:below]
        return jnp.concatenate([u, g, correlation * g[rows], s, first.ravel()[:last]])

    def at(self, theta: Theta, G, noise, first) -> Float[Array, "coordinates"]:
        """The coordinates of θ, G, σ and x(t_1)."""
        _, scales, below, sigma, last = self.sizes
        diagonal = jnp.diagonal(G) / self._even if scales == 1 else jnp.diagonal(G)
        rest = G[jnp.tril_indices(G.shape[0], -1)][:below]
        s = jnp.mean(noise / self._even, keepdims=True) if sigma == 1 else noise[:sigma]
        return jnp.concatenate([self.bounds.unconstrain(theta), diagonal[:scales], rest, s, first.ravel()[:last]])

    def quantities(self, variance_params: Float[Array, "natural"]) -> Float[Array, "quantities"]:
        """(θ, all of G Gᵀ row by row, σ²): what intervals are of, whatever the coordinates."""
        point = self.point(variance_params)
        return jnp.concatenate([point.theta, point.Q.ravel(), point.variance])

    def prior(
        self, u: Float[Array, "coordinates"], spreads: float | NoiseLevels, expected: ThetaPrior | None = None
    ) -> ValueGradHessian:
        """−log of the priors: the user's on θ, and one on the spreads that counts only where the data do not.

        The latter is a weight, of the log of each standard deviation, or the levels about which G and σ are expected.
        `expected` does the same for each θ that has no prior of the user's.
        """
        own = self._about(u, spreads) if isinstance(spreads, tuple) else self._off_zero(u, spreads)
        own = own if expected is None else own + self._near(u, expected)
        if all(self.model.params[name].prior is None for name in self.model.free):
            return own
        slope = jax.grad(self._minus_log_priors)
        return own + ValueGradHessian(self._minus_log_priors(u), slope(u), jax.jacfwd(slope)(u))

    def _off_zero(self, u: Float[Array, "coordinates"], weight: float) -> ValueGradHessian:
        """−`weight` times the log of each standard deviation."""
        on = np.repeat([False, True, False, True, False], self.sizes)
        size = jnp.where(on, jnp.abs(u) + 1e-30, 1.0)
        inverse = jnp.where(on, jnp.sign(u) / size, 0.0)
        return ValueGradHessian(-weight * jnp.sum(jnp.log(size)), -weight * inverse, weight * jnp.diag(inverse**2))

    def _near(self, u: Float[Array, "coordinates"], expected: ThetaPrior) -> ValueGradHessian:
        """Normal priors on θ, in the user's units."""
        size, (center, width) = len(self.model.free), expected
        own = np.array([self.model.params[name].prior is None for name in self.model.free], bool)
        theta, slope = jax.jvp(self.bounds.constrain, (u[:size],), (jnp.ones(size),))
        away, slope = (jnp.where(own, a / width, 0.0) for a in (theta - center, slope))
        rest = (0, u.size - size)
        return ValueGradHessian(0.5 * jnp.sum(away**2), jnp.pad(away * slope, rest), jnp.diag(jnp.pad(slope**2, rest)))

    def _about(self, u: Float[Array, "coordinates"], levels: NoiseLevels) -> ValueGradHessian:
        """The weak priors of the latent process on G and σ, with as much of their curvature as is never negative."""

        def residuals(u):
            _, scales, below, sigma, _ = jnp.split(u, np.cumsum(self.sizes)[:-1])
            # One number for all counts once for each state, as where each has its own.
            noise = jnp.log(jnp.abs(sigma * (self._even if self.noise == "same" else 1.0)) + 1e-15)
            return noise_prior_residuals(noise if noise.size else levels[1], self._G(scales, below), levels)

        def alone(u):
            _, scales, below, *_ = jnp.split(u, np.cumsum(self.sizes)[:-1])
            return correlation_prior(self._G(scales, below))

        def value(u):
            return 0.5 * jnp.sum(residuals(u) ** 2) + alone(u)

        # Only where there are entries below the diagonal can its own be too small beside them.
        slope, bent = jax.jacfwd(residuals)(u), np.repeat([False, self.sizes[2] > 0, False, False, False], self.sizes)
        bend = jnp.where(bent, 2 / (u**2 + 1e-30), 0.0)
        return ValueGradHessian(value(u), jax.grad(value)(u), product(slope, slope) + jnp.diag(bend))

    def _G(self, scales, below) -> Float[Array, "state state"]:
        """G from its coordinates."""
        if self.model.diffusion == "scalar":
            return scales[0] * jnp.diag(self._even)
        K = self.pool.values.shape[-1]
        if not scales.size:
            return jnp.zeros((K, K))
        return _lower(scales, below)

    def minus_log_density(self, u: Float[Array, "coordinates"], width: float) -> Scalar:
        """−log of the prior of a posterior: the user's on θ, or none; entries of G and σ normal of this width.

        It is a density in u: where θ has no prior of its own, it is uniform in θ itself.
        """
        size = len(self.model.free)
        _, slope = jax.jvp(self.bounds.constrain, (u[:size],), (jnp.ones(size),))
        spreads = u[size : size + sum(self.sizes[1:4])]
        return self._minus_log_priors(u) - jnp.sum(jnp.log(jnp.abs(slope))) + 0.5 * jnp.sum((spreads / width) ** 2)

    def _minus_log_priors(self, u: Float[Array, "coordinates"]) -> Scalar:
        theta = self.bounds.constrain(u[: len(self.model.free)])
        priors = [(i, self.model.params[name].prior) for i, name in enumerate(self.model.free)]
        return -sum((prior.log_prob(theta[i]) for i, prior in priors if prior is not None), jnp.zeros(()))

    @property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the entries of G Gᵀ that are coordinates; one stands for a scalar G."""
        if self.model.diffusion == "full":
            return np.tril_indices(self.pool.values.shape[-1])
        return np.arange(self.sizes[1]), np.arange(self.sizes[1])

    @property
    def _even(self) -> Float[Array, "state"]:
        """Equal numbers in the user's units, as standardised ones with geometric mean 1."""
        return jnp.exp(jnp.mean(jnp.log(self.pool.scale))) / self.pool.scale


def _lower(scales: Float[Array, "state"], below: Float[Array, "below"]) -> Float[Array, "state state"]:
    """The matrix with this diagonal and, where there are any, these entries below it."""
    diagonal = jnp.diag(scales)
    return diagonal + placed(below, np.tril_indices(scales.size, -1), scales.size) if below.size else diagonal


def cholesky_psd(Q: Float[Array, "state state"]) -> Float[Array, "state state"]:
    """The lower-triangular G with positive diagonal and G Gᵀ = Q, for a Q that may be singular."""
    size = jnp.maximum(jnp.max(jnp.diagonal(Q)), 1e-30)
    G = jnp.linalg.cholesky(Q + 1e-14 * size * jnp.eye(Q.shape[0]))
    return jnp.where(jnp.any(Q != 0), G, 0.0)
