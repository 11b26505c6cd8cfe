"""What the critic of AReS sees: samples of ż in batches, standardised or as the published code has them."""

import equinox as eqx
import jax.numpy as jnp

from sdefit._types import Array, Float, Int
from sdefit.dynamics.on_path import PathDrift
from sdefit.matching.critic import Samplers, Samples
from sdefit.matching.derivative_samples import DerivativeSamples
from sdefit.matching.initial_guess import InitialGuess


def in_turn(
    samples: DerivativeSamples, scaled: "CriticInput", size: int, drift: PathDrift, guess: InitialGuess
) -> Samplers:
    """Samples drawn once, gone through batch by batch; both kinds in a batch come from the same draws."""
    batches = Batches.of(samples, size)

    def model(i, v):
        return scaled(batches.batch(i).from_drift(drift, guess.theta(v)))

    return Samplers(lambda i: scaled(batches.batch(i).dz), model)


class Batches(eqx.Module):
    """Samples in batches, each of which holds the mirror images of its own half: its mean is that of all."""

    dz: Float[Array, "batches samples series times state"]
    x: Float[Array, "batches samples series times state"]
    o: Float[Array, "batches samples series times state"]
    samples: DerivativeSamples

    @classmethod
    def of(cls, samples: DerivativeSamples, size: int) -> "Batches":
        def split(a):
            halves = a.reshape(2, -1, size // 2, *a.shape[1:])
            return jnp.swapaxes(halves, 0, 1).reshape(-1, size, *a.shape[1:])

        return cls(split(samples.dz), split(samples.x), split(samples.o), samples)

    def batch(self, i: Int[Array, ""]) -> DerivativeSamples:
        """The i-th batch, in turn."""
        i = i % self.dz.shape[0]
        return self.samples.with_draws(self.dz[i], self.x[i], self.o[i])


class CriticInput(eqx.Module):
    """What the critic sees of ż: each entry less a center, in a unit of its own or one for all."""

    samples: DerivativeSamples
    center: Float[Array, "dim"]
    std: Float[Array, "dim"]

    @classmethod
    def standardised(cls, samples: DerivativeSamples) -> "CriticInput":
        """Each entry less its mean over the data's samples, in units of its spread there."""
        data = samples.flat(samples.dz)
        # An entry that is known almost exactly must not drown the others: at least a hundredth of what ż is.
        std = jnp.sqrt(jnp.var(data, axis=0) + 1e-4 * jnp.mean(data**2))
        return cls(samples, jnp.mean(data, axis=0), std)

    @classmethod
    def in_normalised_time(cls, samples: DerivativeSamples) -> "CriticInput":
        """ż of standardised states per standard deviation of the times, as the published code has it."""
        per_time = jnp.std(samples.times, where=samples.observed)
        zero = jnp.zeros(samples.dz[0].size)
        return cls(samples, zero, jnp.full_like(zero, 1 / per_time))

    def __call__(self, dz: Float[Array, "samples series times state"]) -> Samples:
        return ((self.samples.flat(dz) - self.center[None, :]) / self.std[None, :]).astype(jnp.float32)
