"""The weak priors on θ, G and σ, in one place: they count only where the data say little.

log σ and the logarithm of each row of G are Gaussian about the level at which noise and diffusion explain about equal
parts of the roughness of the data, a factor of e (G) or e² (σ) being one standard deviation. Without them G or σ is put
at zero in most short series, which is the likelihood's own answer to a question it cannot decide. θ is Gaussian about
its bound or 0, within three natural scales of each parameter (`matching.parameter_scales`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Scalar, Theta
from sdefit.data import over_series
from sdefit.dynamics.sde import SDE
from sdefit.linalg import diagonal
from sdefit.ssm.kalman import Observations

WIDTH_G = 1.0  # of log ‖G_k‖ about its level
WIDTH_NOISE = 2.0  # of log σ_k
WIDTH_THETA = 3.0  # of θ, in natural scales


class NoiseLevels(NamedTuple):
    """log ‖G_k‖ and log σ_k at which diffusion and noise explain the roughness of the data in about equal parts."""

    log_G: Float[Array, "state"]
    log_noise: Float[Array, "state"]


class ThetaPrior(NamedTuple):
    """Center and standard deviation of the weak prior on θ, in the user's units."""

    center: Theta
    width: Theta


def theta_prior(model: SDE, scales: Theta) -> ThetaPrior:
    """About the bound or 0, a few natural scales wide; about the middle of an interval, as wide as that."""
    lower, upper = jnp.array(model.bounds.lower), jnp.array(model.bounds.upper)
    inside = jnp.isfinite(lower) & jnp.isfinite(upper)
    middle = 0.5 * (jnp.where(inside, lower, 0.0) + jnp.where(inside, upper, 0.0))
    width = jnp.where(inside, upper - lower, WIDTH_THETA * scales)
    return ThetaPrior(jnp.where(inside, middle, model.bounds.edges), width)


def noise_prior(log_noise: Float[Array, "state"], G: Float[Array, "state state"], levels: NoiseLevels) -> Scalar:
    """−log of the priors on σ and G: Gaussian in log σ_k and log ‖G_k‖, mild against singular correlation."""
    residuals = noise_prior_residuals(log_noise, G, levels)
    return 0.5 * jnp.sum(residuals**2) + correlation_prior(G)


def noise_prior_residuals(
    log_noise: Float[Array, "state"], G: Float[Array, "state state"], levels: NoiseLevels
) -> Float[Array, "residuals"]:
    """How many prior standard deviations log σ_k and log ‖G_k‖ lie from their levels; nothing of a G that is 0."""
    log_G, usual = levels
    rows = 0.5 * jnp.log(jnp.sum(G**2, axis=1) + 1e-30)
    of_G = jnp.where(jnp.all(G == 0), 0.0, (rows - log_G) / WIDTH_G)
    return jnp.concatenate([(log_noise - usual) / WIDTH_NOISE, of_G])


def correlation_prior(G: Float[Array, "state state"]) -> Scalar:
    """−log of the LKJ(2) density of the correlations of G Gᵀ (Lewandowski, Kurowicka and Joe 2009); 0 for a diagonal G.

    It is their determinant: the product of the parts of each row's variance that the rows before do not share.
    """
    own = diagonal(G) ** 2 / (jnp.sum(G**2, axis=1) + 1e-30)
    return jnp.where(jnp.all(G == 0), 0.0, -jnp.sum(jnp.log(own + 1e-12)))


def noise_levels(data: Observations) -> NoiseLevels:
    """The levels of one or several series (a leading axis).

    Roughness is how far an observation lies off the line between its neighbours: with gaps h₁, h₂ and
    weights a, b of the line its variance is σ²(1 + a² + b²) + g² h₁h₂/(h₁ + h₂), whatever smooth
    drift there is. With g² = 2σ² the maximum-likelihood g² is the mean of squares in units of that, each triple taken
    alone: one about a long gap counts no more than another.
    """
    square, triples = (jnp.sum(a, axis=0) for a in over_series(_roughness)(data))
    level = jnp.where(triples > 0, jnp.maximum(square / jnp.maximum(triples, 1), 1e-10), 0.02)
    return NoiseLevels(0.5 * jnp.log(level), 0.5 * jnp.log(level / 2))


def _roughness(data: Observations):
    """Over the observed triples of each state: the sum of squared roughness in units of its variance, their number."""

    def one(values, observed):
        order = jnp.argsort(~observed, stable=True)  # the observed ones first, in order
        t, y = data.times[order], values[order]
        use = jnp.arange(t.size - 2) < jnp.sum(observed) - 2
        preceding, following = t[1:-1] - t[:-2], t[2:] - t[1:-1]
        whole = jnp.where(use, preceding + following, 1.0)
        b = preceding / whole
        off = y[1:-1] - (1 - b) * y[:-2] - b * y[2:]
        variance = 0.5 * (1 + (1 - b) ** 2 + b**2) + preceding * following / whole
        return jnp.sum(jnp.where(use, off**2 / variance, 0.0)), jnp.sum(use)

    return jax.vmap(one, in_axes=(1, 1))(data.values, data.observed)
