"""Start values from the data alone: increments of the data against the drift added up along them.

x(t_{i+q}) − x(t_i) = ∫ f dt + noise, with the integral by the trapezoidal rule over the observed
values (missing ones interpolated). Least squares over θ costs no filter at all, does not mind where
it starts, and is biased by the observation noise: more for q = 1, less for larger q, where curvature
between rows counts in turn. So several q give several starts.
"""

import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int


def filled(
    times: Float[Array, "times"], values: Float[Array, "times state"], observed: Bool[Array, "times state"]
) -> Float[Array, "times state"]:
    """The values with missing ones interpolated in time, and held constant beyond the first and last."""

    size, states = values.shape
    rows = jnp.broadcast_to(jnp.arange(size)[:, None], values.shape)

    def nearest(reverse):
        # A loop: the compiler unrolls a cumulative maximum into hundreds of operations.
        def last(carry, row):
            carry = jnp.where(row[1], row[0], carry)
            return carry, carry

        return jax.lax.scan(last, jnp.full(states, -1), (rows, observed), reverse=reverse)[1]

    left, right = nearest(False), nearest(True)
    left, right = jnp.where(left < 0, right, left), jnp.where(right < 0, left, right)
    span = times[right] - times[left]
    share = jnp.where(span > 0, (times[:, None] - times[left]) / jnp.where(span > 0, span, 1.0), 0.0)
    before, after = (jnp.take_along_axis(values, index, axis=0) for index in (left, right))
    return (1 - share) * before + share * after


def increment_errors(
    times: Float[Array, "times"],
    path: Float[Array, "times state"],
    drifts: Float[Array, "times state"],
    over: Int[Array, ""] | int,
) -> Float[Array, "times state"]:
    """x(t_{i+q}) − x(t_i) less the integral of the drift between them, q = `over`; 0 where the series ends before.

    It ends where times begin to repeat. What spans more than q units of time (the typical spacing) counts per q units:
    over a long gap the trapezoidal rule says little, and the variance grows no further.
    """
    gaps = jnp.diff(times)
    ahead = jnp.minimum(jnp.arange(times.size) + over, times.size - 1)
    middle = 0.5 * (drifts[1:] + drifts[:-1]) * gaps[:, None]
    rest = path - jnp.concatenate([jnp.zeros_like(path[:1]), jnp.cumsum(middle, axis=0)])
    inside = (jnp.arange(times.size) + over < times.size) & (times[ahead] > times[ahead - 1])
    long = jnp.maximum((times[ahead] - times) / over, 1.0)
    return jnp.where(inside[:, None], (rest[ahead] - rest) / long[:, None], 0.0)


def split(errors: Float[Array, "series times state"]) -> tuple[Float[Array, "state"], Float[Array, "state"]]:
    """Diffusion and noise standard deviations per state from single-step errors (q = 1, unit spacing).

    Observation noise makes neighbouring errors move against each other: their covariance is −σ²,
    while their variance is g² + 2σ². Each is kept at no less than a few percent of the whole.
    """
    some = _some(errors)
    variance = jnp.sum(errors**2, axis=(0, 1)) / some + 1e-12
    against = -jnp.sum(errors[:, 1:] * errors[:, :-1], axis=(0, 1)) / some
    noise = jnp.clip(against, 0.02 * variance, 0.45 * variance)
    return jnp.sqrt(variance - 2 * noise), jnp.sqrt(noise)


def exchanged(
    diffusion: Float[Array, "state"], noise: Float[Array, "state"]
) -> tuple[Float[Array, "state"], Float[Array, "state"]]:
    """The other explanation of the same errors: mostly noise instead of mostly diffusion, or the other way about.

    The likelihood of a short series often has a maximum for each.
    """
    return 2**0.5 * noise, diffusion / 2**0.5


def _some(errors):
    """How many rows are there at all: those beyond the end are exactly 0."""
    return jnp.maximum(jnp.sum(jnp.any(errors != 0, axis=-1)), 1)
