"""The latent model y = z + o + e (equation 10 of the paper): its hyper-parameters, and what a solver of it can do.

The Doss-Sussmann transformation z = x − o (7) takes the Ornstein-Uhlenbeck process do = −γ o dt + G dw, o(t_1) = 0 (8),
out of x; what is left is differentiable (9). z has a Gaussian-process prior for each state (11), e is independent noise
(13). Everything is in standardised units of time and state.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Int, Key, Scalar
from sdefit.ssm.kalman import Observations


class LatentParams(eqx.Module):
    """φ = (scale, length, shape) per state, the noise standard deviations σ, G and the OU rate γ."""

    scale: Float[Array, "state"]
    length: Float[Array, "state"]
    shape: Float[Array, "state"]
    noise: Float[Array, "state"]
    G: Float[Array, "state state"]
    ou_rate: Scalar


class Posterior(eqx.Module):
    """What the data say of the path: means of z, ż and o, mean and standard deviation of x = z + o."""

    z: Float[Array, "times state"]
    dz: Float[Array, "times state"]
    o: Float[Array, "times state"]
    x: Float[Array, "times state"]
    std: Float[Array, "times state"]


class Draws(eqx.Module):
    """Joint draws of z, ż and o given the data."""

    z: Float[Array, "samples times state"]
    dz: Float[Array, "samples times state"]
    o: Float[Array, "samples times state"]


class Conditional(eqx.Module):
    """The path given the data, prepared for drawing."""

    @abc.abstractmethod
    def draw(self, samples: int, key: Key) -> Draws:
        """Joint draws, in antithetic pairs: the second half mirrors the first about the mean."""

    def sampler(self) -> "AncestralSampler":
        """The same, prepared for many batches of which each needs ż or the path alone."""
        return JointSampler(self)


class AncestralSampler(eqx.Module):
    """What the two graphical models of the paper begin with, each drawn by itself (Algorithm 1)."""

    @abc.abstractmethod
    def draw_dz(self, samples: int, key: Key) -> Float[Array, "samples times state"]:
        """ż given the data, in antithetic pairs."""

    @abc.abstractmethod
    def draw_path(self, samples: int, key: Key) -> Float[Array, "2 samples times state"]:
        """x = z + o and o given the data, in antithetic pairs."""


class JointSampler(AncestralSampler):
    """Draws all of z, ż and o for either: as cheap as that where a draw costs O(N)."""

    conditional: Conditional

    def draw_dz(self, samples: int, key: Key) -> Float[Array, "samples times state"]:
        return self.conditional.draw(samples, key).dz

    def draw_path(self, samples: int, key: Key) -> Float[Array, "2 samples times state"]:
        drawn = self.conditional.draw(samples, key)
        return jnp.stack([drawn.z + drawn.o, drawn.o])


class Solver(eqx.Module):
    """One way to do the Gaussian algebra. All solvers give the same numbers where they all apply."""

    jitter: float = 1e-6  # added to the noise variance; standardised units, so a part in 1e6 of the data's variance

    @abc.abstractmethod
    def log_evidence(self, params: LatentParams, data: Observations) -> Scalar:
        """log p(y | φ, σ, G), the evidence: equations 22 and 23 of the paper."""

    @abc.abstractmethod
    def posterior(self, params: LatentParams, data: Observations) -> Posterior:
        """Means and the spread of x given the data."""

    @abc.abstractmethod
    def condition(self, params: LatentParams, data: Observations) -> Conditional:
        """The path given the data: its factorisation is done once, for any number of draws."""

    def draw(self, params: LatentParams, data: Observations, samples: int, key: Key) -> Draws:
        """Joint draws given the data."""
        return self.condition(params, data).draw(samples, key)


def row_normals(key: Key, rows: int, shape: tuple[int, ...], dtype) -> Float[Array, "rows ..."]:
    """Standard normal numbers, row by row: a padded series draws the same numbers as the bare one."""

    def row(n: Int[Array, ""]):
        return jax.random.normal(jax.random.fold_in(key, n), shape, dtype)

    return jax.vmap(row)(jnp.arange(rows))
