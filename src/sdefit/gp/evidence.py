"""Maximum evidence for φ, σ and G of the latent model, from starts read off the data.

Weak priors keep what the data cannot tell from running away: log σ and the logarithm of each row of G
are Gaussian around the level at which noise and diffusion explain about equal parts of the roughness
of the data, a factor of e (G) or e² (σ) being one standard deviation. Without them G or σ is put at zero in most
short series, which is the likelihood's own answer to a question it cannot decide.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar
from sdefit.data import over_series
from sdefit.dynamics.diffusion import DiffusionShape
from sdefit.gp.latent import Hyper, Solver
from sdefit.linalg import diagonal
from sdefit.optimise import Minimum, minimise
from sdefit.ssm.kalman import Observations


class Evidence(eqx.Module):
    """What the evidence is of: the solver, the shape of G, the rate of o, and the weight of the priors.

    The rate of o is `fixed_rate` per `unit` of time if given, else one over the mean length of z: o then takes up
    what moves faster than the path itself, whatever the unit of time. The refit's answer hardly depends on it.
    """

    solver: Solver
    diffusion: DiffusionShape = eqx.field(static=True)
    shaped: bool = eqx.field(static=True)
    even: Float[Array, "state"]
    unit: Scalar
    fixed_rate: float | None = eqx.field(static=True, default=None)
    width_G: float = eqx.field(static=True, default=1.0)
    width_noise: float = eqx.field(static=True, default=2.0)

    @property
    def states(self) -> int:
        return self.diffusion.states

    def hyper(self, u: Float[Array, "coordinates"]) -> Hyper:
        """The hyper-parameters from log scale, log length, log σ, the entries of G[, log shape]."""
        K = self.states
        length = jnp.exp(u[K : 2 * K])
        G = self.diffusion.matrix(u[3 * K : 3 * K + self.diffusion.size], self.even)
        shape = jnp.exp(u[-K:]) if self.shaped else jnp.ones(K, u.dtype)
        return Hyper(jnp.exp(u[:K]), length, shape, jnp.exp(u[2 * K : 3 * K]), G, self._rate(length))

    def _rate(self, length: Float[Array, "state"]) -> Scalar:
        return 1 / jnp.exp(jnp.mean(jnp.log(length))) if self.fixed_rate is None else self.fixed_rate * self.unit

    def start(self, levels: tuple[Array, Array], length: Float[Array, "state"]) -> Float[Array, "coordinates"]:
        """Coordinates to begin from, given the noise levels of the data and a length."""
        K, (log_G, log_noise) = self.states, levels
        entries = self.diffusion.entries(log_G, self.even)
        shape = jnp.zeros(K if self.shaped else 0, length.dtype)
        return jnp.concatenate([jnp.zeros(K, length.dtype), jnp.log(length), log_noise, entries, shape])

    def penalty(self, u: Float[Array, "coordinates"], levels: tuple[Array, Array], longest: Scalar) -> Scalar:
        """−log of the weak priors, and walls around what the data could ever tell of φ."""
        K = self.states
        walls = _wall(u[:K], -4.0, 3.0) + _wall(u[K : 2 * K], jnp.log(0.5), jnp.log(longest))
        if self.shaped:
            walls = walls + _wall(u[-K:], -4.0, 4.0)
        G = self.diffusion.matrix(u[3 * K : 3 * K + self.diffusion.size], self.even)
        return walls + noise_prior(u[2 * K : 3 * K], G, levels, self.width_G, self.width_noise)


def noise_prior(log_noise, G, levels, width_G: float, width_noise: float) -> Scalar:
    """−log of the weak priors on σ and G: Gaussian in log σ_k and log ‖G_k‖, mild against singular correlation."""
    about = noise_residuals(log_noise, G, levels, width_G, width_noise)
    return 0.5 * jnp.sum(about**2) + _wall(log_noise, -9.0, 2.0) + singularity(G)


def noise_residuals(log_noise, G, levels, width_G: float, width_noise: float) -> Float[Array, "residuals"]:
    """How many prior standard deviations log σ_k and log ‖G_k‖ lie from their levels; nothing of a G that is 0."""
    log_G, usual = levels
    rows = 0.5 * jnp.log(jnp.sum(G**2, axis=1) + 1e-30)
    spread = jnp.where(jnp.all(G == 0), 0.0, (rows - log_G) / width_G)
    return jnp.concatenate([(log_noise - usual) / width_noise, spread])


def singularity(G: Float[Array, "state state"]) -> Scalar:
    """−log of the part of each row's variance that the rows before do not share; 0 for a diagonal G.

    For two states this is the LKJ(2) prior of their correlation.
    """
    share = diagonal(G) ** 2 / (jnp.sum(G**2, axis=1) + 1e-30)
    return jnp.where(jnp.all(G == 0), 0.0, -jnp.sum(jnp.log(share + 1e-12)))


def fit_evidence(
    evidence: Evidence, data: Observations, levels: tuple[Array, Array], starts: int, iterations: int
) -> Minimum:
    """The coordinates of highest evidence for one or several series (a leading axis), over several lengths.

    **Arguments**
    - `starts`: how many lengths to start from, from an eighth of the span down, each a quarter of the one before.

    The span is that of the longest series, with no gap longer than the unit of time (the typical spacing).
    """
    span = jnp.max(jnp.sum(jnp.minimum(jnp.diff(data.times, axis=-1), 1.0), axis=-1))

    def loss(u):
        values = over_series(evidence.solver.log_evidence, (None, 0))(evidence.hyper(u), data)
        return evidence.penalty(u, levels, 20 * span) - jnp.sum(values)

    shares = np.geomspace(1 / 8, 1 / 8 / 4 ** (starts - 1), starts)
    begin = [evidence.start(levels, jnp.full(evidence.states, span * share)) for share in shares]
    if starts == 1:
        return minimise(loss, begin[0], iterations=iterations, tolerance=1e-4)
    found = jax.vmap(lambda u: minimise(loss, u, iterations=iterations, tolerance=1e-4))(jnp.stack(begin))
    best = jnp.argmin(jnp.where(jnp.isfinite(found.value), found.value, jnp.inf))
    return jax.tree.map(lambda a: a[best], found)


def noise_levels(data: Observations) -> tuple[Float[Array, "state"], Float[Array, "state"]]:
    """log ‖G_k‖ and log σ_k at which diffusion and noise explain the roughness of the data in about equal parts.

    Roughness is how far an observation lies off the line between its neighbours: with gaps h₁, h₂ and
    weights a, b of the line its variance is σ²(1 + a² + b²) + g² h₁h₂/(h₁ + h₂), whatever smooth
    drift there is. With g² = 2σ² the maximum-likelihood g² is the mean of squares in units of that, each triple taken
    alone: one about a long gap counts no more than another.
    """
    square, triples = (jnp.sum(a, axis=0) for a in over_series(_roughness)(data))
    level = jnp.where(triples > 0, jnp.maximum(square / jnp.maximum(triples, 1), 1e-10), 0.02)
    return 0.5 * jnp.log(level), 0.5 * jnp.log(level / 2)


def _roughness(data: Observations):
    """Over the observed triples of each state: the sum of squared roughness in units of its variance, their number."""

    def one(values, observed):
        order = jnp.argsort(~observed, stable=True)  # the observed ones first, in order
        t, y = data.times[order], values[order]
        use = jnp.arange(t.size - 2) < jnp.sum(observed) - 2
        before, after = t[1:-1] - t[:-2], t[2:] - t[1:-1]
        whole = jnp.where(use, before + after, 1.0)
        b = before / whole
        off = y[1:-1] - (1 - b) * y[:-2] - b * y[2:]
        variance = 0.5 * (1 + (1 - b) ** 2 + b**2) + before * after / whole
        return jnp.sum(jnp.where(use, off**2 / variance, 0.0)), jnp.sum(use)

    return jax.vmap(one, in_axes=(1, 1))(data.values, data.observed)


def _wall(v: Array, low, high) -> Scalar:
    return jnp.sum(jax.nn.relu(low - v) ** 2 + jax.nn.relu(v - high) ** 2)
