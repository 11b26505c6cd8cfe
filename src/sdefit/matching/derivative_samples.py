"""Stage 2 of MaRS and AReS: samples of ż by the two graphical models of the paper (figure 1, Algorithm 1).

The data-based model has ż given z and φ (equation 29), the SDE-based one ż = f(z + o, θ) + γ o (equations 9, 30). The
paper samples ancestrally: o given y (45), then z given y and o (43), then ż; and z given y (49, 50), then ż given z. A
joint draw of (z, ż, o) given y has the same distribution, by the chain rule of densities, and is one simulation
smoother: the data-based samples are its ż, and the SDE-based samples are computed from its z and o.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Bool, Float, Key, Scalar, Theta
from sdefit.data import over_series
from sdefit.dynamics.on_path import PathDrift
from sdefit.matching.parameter_scales import restoring_speed, rms
from sdefit.ssm.kalman import Observations

_PLOTTED = 16  # samples kept for figures


class DerivativeSamples(eqx.Module):
    """Joint draws of ż, x = z + o and o given the data."""

    dz: Float[Array, "samples series times state"]
    x: Float[Array, "samples series times state"]
    o: Float[Array, "samples series times state"]
    times: Float[Array, "series times"]
    observed: Bool[Array, "series times"]  # rows at which something was observed
    ou_rate: Scalar

    def from_drift(self, drift: PathDrift, theta: Theta) -> Float[Array, "samples series times state"]:
        """ż = f(z + o, θ) + γ o for every draw: the SDE-based model (equations 9, 30)."""
        return jax.vmap(drift, in_axes=(0, None))(self.x, theta) + self.ou_rate * self.o

    def with_draws(self, dz: Array, x: Array, o: Array) -> "DerivativeSamples":
        """The same rows with other draws."""
        return DerivativeSamples(dz, x, o, self.times, self.observed, self.ou_rate)

    def every(self, step: int) -> "DerivativeSamples":
        """The samples at every `step`-th time alone."""
        dz, x, o = (a[:, :, ::step] for a in (self.dz, self.x, self.o))
        return DerivativeSamples(dz, x, o, self.times[:, ::step], self.observed[:, ::step], self.ou_rate)

    def for_plots(self) -> "DerivativeSamples":
        """The draws kept for figures: some of each antithetic half."""
        half = self.dz.shape[0] // 2
        keep = jnp.concatenate([jnp.arange(_PLOTTED // 2), half + _PLOTTED // 2 + jnp.arange(_PLOTTED // 2)])
        return self.with_draws(*(a[keep % a.shape[0]] for a in (self.dz, self.x, self.o)))

    def flat(self, dz: Float[Array, "samples series times state"]) -> Float[Array, "samples dim"]:
        """Each draw as one vector, rows at which nothing was observed left at 0."""
        return jnp.where(self.observed[None, :, :, None], dz, 0.0).reshape(dz.shape[0], -1)

    def mean_derivative(self) -> Float[Array, "series times state"]:
        """The mean of ż where something was observed."""
        return jnp.where(self.observed[..., None], jnp.mean(self.dz, axis=0), 0.0)

    def mean_increments(self) -> Float[Array, "series times state"]:
        """The mean increment of x from each row to the next, per time; 0 where either was not observed."""
        x, pairs = jnp.mean(self.x, axis=0), self._pairs
        gap = jnp.roll(self.times, -1, axis=1) - self.times
        return jnp.where(pairs, jnp.roll(x, -1, axis=1) - x, 0.0) / jnp.where(pairs, gap[..., None], 1.0)

    def mean_residuals(self, drift: PathDrift, theta: Theta) -> Float[Array, "2 series times state"]:
        """By how much the mean of f + γ o misses that of ż; and by how much the mean of f misses the increments."""
        f = jnp.mean(jax.vmap(drift, in_axes=(0, None))(self.x, theta), axis=0)
        model = jnp.where(self.observed[..., None], f + self.ou_rate * jnp.mean(self.o, axis=0), 0.0)
        between = jnp.where(self._pairs, 0.5 * (f + jnp.roll(f, -1, axis=1)), 0.0)
        return jnp.stack([model - self.mean_derivative(), between - self.mean_increments()])

    def speed(self, G: Float[Array, "state state"]) -> Scalar:
        """Of x along its path, but for noise: what the drift must be able to do.

        What noise drives is pulled back (`restoring_speed`). That counts where the evidence gives all to o: z then
        hardly moves. Rows without observations count as 0 in the means.
        """
        restoring = restoring_speed(jnp.sum(G**2, axis=1))
        return jnp.hypot(
            rms(self.mean_derivative()), rms(jnp.where(self.observed[..., None], restoring[None, None, :], 0.0))
        )

    @property
    def _pairs(self) -> Bool[Array, "series times 1"]:
        """Rows that were observed and so was the next one."""
        return (self.observed & jnp.roll(self.observed, -1, axis=1)).at[:, -1].set(False)[..., None]


def sample_derivatives(
    conditional: gp.Conditional, ou_rate: Scalar, rows: Observations, samples: int, key: Key
) -> DerivativeSamples:
    """Joint draws of ż, x and o given the data for every series, at every one of these rows: Algorithm 1."""
    keys = series_keys(key, rows.times.shape[0])
    draws = over_series(lambda one, k: one.draw(samples, k), out_axes=1)(conditional, keys)
    seen = jnp.any(rows.observed, axis=-1)
    return DerivativeSamples(draws.dz, draws.z + draws.o, draws.o, rows.times, seen, ou_rate)


def series_keys(key: Key, series: int) -> Any:
    """A key for each series, whatever their number."""
    return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(series))
