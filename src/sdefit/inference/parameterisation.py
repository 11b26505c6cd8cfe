"""Unconstrained coordinates of everything a likelihood depends on: θ, G, σ and, for an ODE, x(t_1).

The diagonal of G and σ are coordinates as they are, of either sign: the likelihood depends on G Gᵀ
and σ² only and is even in them, so a maximum at zero is an ordinary point. (Their logarithms would
have to walk to −∞.) What is returned has a positive diagonal.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import ScaledBounds
from sdefit.linalg import dot, picked, placed

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
        theta, scales, below, sigma, first = self.split(u)
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
                full = Q[0] * jnp.diag(self.even**2)
            case _:
                mirrored = jnp.where(rows == columns, 0.0, Q)
                full = placed(Q, (rows, columns), K) + placed(mirrored, (columns, rows), K)
        if self.noise != "each":
            variance = variance * self.even**2 if self.noise == "same" else jnp.zeros(K)
        theta = theta * self.bounds.unit
        return Point(theta, full, variance, first.reshape(-1, K) if first.size else jnp.zeros((series, K)))

    def begin(self, u, diffusion, noise, first) -> Float[Array, "coordinates"]:
        """Coordinates from θ (unconstrained), standard deviations per state and x(t_1); a G without correlation."""
        _, scales, below, sigma, last = self.sizes
        # What diffusion cannot explain in an ODE is noise.
        noise = jnp.sqrt(noise**2 + 0.5 * diffusion**2) if scales == 0 else noise
        g = jnp.mean(diffusion / self.even, keepdims=True) if scales == 1 else diffusion[:scales]
        s = jnp.mean(noise / self.even, keepdims=True) if sigma == 1 else noise[:sigma]
        return jnp.concatenate([u, g, jnp.zeros(below), s, first.ravel()[:last]])

    def at(self, theta: Theta, G, noise, first) -> Float[Array, "coordinates"]:
        """The coordinates of θ, G, σ and x(t_1)."""
        _, scales, below, sigma, last = self.sizes
        diagonal = jnp.diagonal(G) / self.even if scales == 1 else jnp.diagonal(G)
        rest = G[jnp.tril_indices(G.shape[0], -1)][:below]
        s = jnp.mean(noise / self.even, keepdims=True) if sigma == 1 else noise[:sigma]
        return jnp.concatenate([self.bounds.unconstrain(theta), diagonal[:scales], rest, s, first.ravel()[:last]])

    def quantities(self, variance_params: Float[Array, "natural"]) -> Float[Array, "quantities"]:
        """(θ, all of G Gᵀ row by row, σ²): what intervals are of, whatever the coordinates."""
        point = self.point(variance_params)
        return jnp.concatenate([point.theta, point.Q.ravel(), point.variance])

    def split(self, u: Float[Array, "coordinates"]) -> list[Array]:
        """Its parts."""
        return jnp.split(u, np.cumsum(self.sizes)[:-1])

    @property
    def rows(self) -> np.ndarray:
        """The row of each entry of G below the diagonal."""
        _, scales, below, *_ = self.sizes
        return np.tril_indices(scales, -1)[0][:below]

    def G(self, scales, below) -> Float[Array, "state state"]:
        """G from its coordinates."""
        if self.model.diffusion == "scalar":
            return scales[0] * jnp.diag(self.even)
        K = self.pool.values.shape[-1]
        if not scales.size:
            return jnp.zeros((K, K))
        return _lower(scales, below)

    @property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the entries of G Gᵀ that are coordinates; one stands for a scalar G."""
        if self.model.diffusion == "full":
            return np.tril_indices(self.pool.values.shape[-1])
        return np.arange(self.sizes[1]), np.arange(self.sizes[1])

    @property
    def even(self) -> Float[Array, "state"]:
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
