"""Unconstrained coordinates of everything a likelihood depends on: θ, G, σ and what is not known of x(t_1).

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
from sdefit.result import Estimate

# Nothing is known better than to a ten-millionth of the data's spread: an exact fit stays finite.
_FLOOR = 1e-14


class Point(eqx.Module):
    """θ in the user's units; Q = G Gᵀ, σ² and x(t_1) in standardised ones."""

    theta: Theta
    Q: Float[Array, "state state"]
    variance: Float[Array, "columns"]
    first: Float[Array, "series beginnings"]


def point_of(model: SDE, estimate: Estimate, first: Float[Array, "series beginnings"]) -> Point:
    """The point of a finished estimate; nothing is added to a diffusion that the model gives."""
    Q = jnp.zeros_like(estimate.G) if model.diffusion == "given" else estimate.G @ estimate.G.T
    return Point(estimate.theta, Q, estimate.noise**2, first)


@dataclasses.dataclass(frozen=True)
class Parameterisation:
    """The vector u = (θ unconstrained, diagonal of G, G below it, σ, x(t_1)), as far as each is estimated.

    A diffusion that the model gives, and a noise whose standard deviation it gives, have no coordinates of their own:
    their parameters are in θ. Of x(t_1) the states are estimated of which no column says where they begin.

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
        series, K = self.pool.values.shape[0], len(self.model.states)
        scales = {"full": K, "diagonal": K, "scalar": 1, "none": 0, "given": 0}[self.model.diffusion]
        below = K * (K - 1) // 2 if self.model.diffusion == "full" else 0
        noise = {"each": sum(self.estimated_noise), "same": 1, "none": 0}[self.noise]
        return len(self.model.free), scales, below, noise, series * len(estimated_first(self.model))

    @property
    def estimated_noise(self) -> tuple[bool, ...]:
        """Which columns have a noise of their own that is estimated."""
        return tuple(law.estimated for law in self.model.laws)

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
        series, K = self.pool.values.shape[0], len(self.model.states)
        rows, columns = self._entries
        theta, Q, variance, first = jnp.split(
            variance_params, np.cumsum([len(self.model.free), rows.size, self.sizes[3]])
        )
        match self.model.diffusion:
            case "none" | "given":
                full = artificial_diffusion * jnp.eye(K)
            case "scalar":
                full = Q[0] * jnp.diag(self.even**2)
            case _:
                mirrored = jnp.where(rows == columns, 0.0, Q)
                full = placed(Q, (rows, columns), K) + placed(mirrored, (columns, rows), K)
        if self.noise != "each":
            variance = variance * self.even**2 if self.noise == "same" else jnp.zeros(K)
        elif not all(self.estimated_noise):
            variance = _spread(variance, self.estimated_noise)
        theta = theta * self.bounds.unit
        return Point(theta, full, variance, first.reshape(series, -1))

    def _noise_coordinates(self, noise: Float[Array, "columns"]) -> Float[Array, "noises"]:
        """The coordinates of the standard deviations of all columns."""
        if self.noise == "same":
            return jnp.mean(noise / self.even, keepdims=True)
        return noise[np.flatnonzero(self.estimated_noise)] if self.noise == "each" else noise[:0]

    def begin(self, u, diffusion, noise, first) -> Float[Array, "coordinates"]:
        """Coordinates from θ (unconstrained), standard deviations per state and x(t_1); a G without correlation."""
        _, scales, below, _, last = self.sizes
        # What diffusion cannot explain in an ODE is noise.
        noise = (
            jnp.sqrt(noise**2 + 0.5 * diffusion**2)
            if self.model.diffusion == "none" and not self.model.general
            else noise
        )
        g = jnp.mean(diffusion / self.even, keepdims=True) if scales == 1 else diffusion[:scales]
        s = self._noise_coordinates(noise)
        return jnp.concatenate([u, g, jnp.zeros(below), s, first.ravel()[:last]])

    def at(self, theta: Theta, G, noise, first) -> Float[Array, "coordinates"]:
        """The coordinates of θ, G, σ and x(t_1)."""
        _, scales, below, _, last = self.sizes
        diagonal = jnp.diagonal(G) / self.even if scales == 1 else jnp.diagonal(G)
        rest = G[jnp.tril_indices(G.shape[0], -1)][:below]
        s = self._noise_coordinates(noise)
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
        K = len(self.model.states)
        if not scales.size:
            return jnp.zeros((K, K))
        return _lower(scales, below)

    @property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the entries of G Gᵀ that are coordinates; one stands for a scalar G."""
        if self.model.diffusion == "full":
            return np.tril_indices(len(self.model.states))
        return np.arange(self.sizes[1]), np.arange(self.sizes[1])

    @property
    def even(self) -> Float[Array, "state"]:
        """Equal numbers in the user's units, as standardised ones with geometric mean 1."""
        return jnp.exp(jnp.mean(jnp.log(self.pool.scale))) / self.pool.scale


def estimated_first(model: SDE) -> tuple[int, ...]:
    """The states whose value at the first time is estimated: all of an ODE's, and otherwise those that are hidden.

    A state that a column measures begins, under a flat prior, where its first observation says. Nothing is estimated of
    a state whose beginning the model gives.
    """
    K = range(len(model.states))
    if isinstance(model.initial, str):
        return ()
    given = {name for name, *_ in model.initial or ()}
    if not model.general:
        return tuple(K) if model.diffusion == "none" else ()
    return tuple(k for k in K if k not in model.direct and model.states[k] not in given)


def _spread(entries: Float[Array, "some"], where: tuple[bool, ...]) -> Float[Array, "all"]:
    """A vector with these entries where it says so, and 0 elsewhere."""
    marks = np.eye(len(where))[np.flatnonzero(where)]
    return jnp.sum(entries[:, None] * marks, axis=0)


def _lower(scales: Float[Array, "state"], below: Float[Array, "below"]) -> Float[Array, "state state"]:
    """The matrix with this diagonal and, where there are any, these entries below it."""
    diagonal = jnp.diag(scales)
    return diagonal + placed(below, np.tril_indices(scales.size, -1), scales.size) if below.size else diagonal


def cholesky_psd(Q: Float[Array, "state state"]) -> Float[Array, "state state"]:
    """The lower-triangular G with positive diagonal and G Gᵀ = Q, for a Q that may be singular."""
    size = jnp.maximum(jnp.max(jnp.diagonal(Q)), 1e-30)
    G = jnp.linalg.cholesky(Q + 1e-14 * size * jnp.eye(Q.shape[0]))
    return jnp.where(jnp.any(Q != 0), G, 0.0)
