"""Maximum evidence for φ, σ and G of the latent model (equation 22 of the paper), with the weak priors of `priors`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar
from sdefit.data import over_series
from sdefit.dynamics.diffusion import DiffusionShape
from sdefit.gp.latent import LatentParams, Solver
from sdefit.optimise import Minimum, minimise
from sdefit.priors import NoiseLevels, noise_prior
from sdefit.ssm.kalman import Observations


class Evidence(eqx.Module):
    """What the evidence is of: the solver, the shape of G, the rate γ of o, and how γ is chosen.

    γ is `fixed_ou_rate` per `unit` of time if given, else one over the mean length of z: o then takes up
    what moves faster than the path itself, whatever the unit of time. What the refinement finds hardly depends on it.
    φ and σ are of each state, or `shared` by all, in standardised units.
    """

    solver: Solver
    diffusion: DiffusionShape = eqx.field(static=True)
    shaped: bool = eqx.field(static=True)
    even: Float[Array, "state"]
    unit: Scalar
    fixed_ou_rate: float | None = eqx.field(static=True, default=None)
    shared: bool = eqx.field(static=True, default=False)

    @property
    def states(self) -> int:
        return self.diffusion.states

    def params(self, u: Float[Array, "coordinates"]) -> LatentParams:
        """The hyper-parameters from log scale, log length, log σ, the entries of G[, log shape]."""
        K, u = self.states, self._tied(u)
        length = jnp.exp(u[K : 2 * K])
        G = self.diffusion.matrix(u[3 * K : 3 * K + self.diffusion.size], self.even)
        shape = jnp.exp(u[-K:]) if self.shaped else jnp.ones(K, u.dtype)
        return LatentParams(jnp.exp(u[:K]), length, shape, jnp.exp(u[2 * K : 3 * K]), G, self._ou_rate(length))

    def _tied(self, u: Float[Array, "coordinates"]) -> Float[Array, "coordinates"]:
        """Where φ and σ are shared: for each of their coordinates the mean over states."""
        if not self.shared:
            return u
        K, G = self.states, u[3 * self.states : 3 * self.states + self.diffusion.size]
        first, last = u[: 3 * K].reshape(3, K), u[3 * K + G.size :]
        means = jnp.repeat(jnp.mean(first, axis=1), K), jnp.full_like(last, jnp.mean(last) if last.size else 0.0)
        return jnp.concatenate([means[0], G, means[1]])

    def _ou_rate(self, length: Float[Array, "state"]) -> Scalar:
        return 1 / jnp.exp(jnp.mean(jnp.log(length))) if self.fixed_ou_rate is None else self.fixed_ou_rate * self.unit

    def start(self, levels: NoiseLevels, length: Float[Array, "state"]) -> Float[Array, "coordinates"]:
        """Coordinates to begin from, given the noise levels of the data and a length."""
        K, (log_G, log_noise) = self.states, levels
        entries = self.diffusion.entries(log_G, self.even)
        shape = jnp.zeros(K if self.shaped else 0, length.dtype)
        return jnp.concatenate([jnp.zeros(K, length.dtype), jnp.log(length), log_noise, entries, shape])

    def penalty(self, u: Float[Array, "coordinates"], levels: NoiseLevels, maximum: Scalar) -> Scalar:
        """−log of the weak priors, and walls around the lengths and shapes that data could determine."""
        K, u = self.states, self._tied(u)
        walls = _wall(u[K : 2 * K], jnp.log(0.5), jnp.log(maximum))
        if self.shaped:
            walls = walls + _wall(u[-K:], -4.0, 4.0)
        G = self.diffusion.matrix(u[3 * K : 3 * K + self.diffusion.size], self.even)
        return walls + noise_prior(u[2 * K : 3 * K], G, levels)


def fit_evidence(evidence: Evidence, data: Observations, levels: NoiseLevels, starts: int, iterations: int) -> Minimum:
    """The coordinates of highest evidence for one or several series (a leading axis), over several lengths.

    **Arguments**
    - `starts`: how many lengths to start from, from an eighth of the span down, each a quarter of the one before.

    The span is that of the longest series, with no gap longer than the unit of time (the typical spacing).
    """
    span = jnp.max(jnp.sum(jnp.minimum(jnp.diff(data.times, axis=-1), 1.0), axis=-1))

    def loss(u):
        values = over_series(evidence.solver.log_evidence, (None, 0))(evidence.params(u), data)
        return evidence.penalty(u, levels, 20 * span) - jnp.sum(values)

    shares = np.geomspace(1 / 8, 1 / 8 / 4 ** (starts - 1), starts)
    begin = [evidence.start(levels, jnp.full(evidence.states, span * fraction)) for fraction in shares]
    if starts == 1:
        return minimise(loss, begin[0], iterations=iterations, tolerance=1e-4)
    found = jax.vmap(lambda u: minimise(loss, u, iterations=iterations, tolerance=1e-4))(jnp.stack(begin))
    best = jnp.argmin(jnp.where(jnp.isfinite(found.value), found.value, jnp.inf))
    return jax.tree.map(lambda a: a[best], found)


def _wall(v: Float[Array, "state"], low: Scalar | float, high: Scalar | float) -> Scalar:
    """0 between the two, the square of the distance beyond."""
    return jnp.sum(jax.nn.relu(low - v) ** 2 + jax.nn.relu(v - high) ** 2)
