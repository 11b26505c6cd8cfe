"""Increments of the data against the integral of the drift: start values and scales of θ without any filter.

x(t_{i+q}) − x(t_i) = ∫ f dt + noise, with the integral by the trapezoidal rule over the observed
values (missing ones interpolated). Least squares over θ costs no filter at all, does not mind where
it starts, and is biased by the observation noise: more for q = 1, less for larger q, where curvature
between rows counts in turn. So several q give several starts.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.on_path import drift_on_path
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import ScaledBounds
from sdefit.matching.parameter_scales import restoring_speed, rms, scales_on_path, standard_errors, widened_scales_at
from sdefit.optimise import levenberg_marquardt, log_mean_square

SPANS = (1, 3, 8)  # rows that an increment spans
_LEAST, _MOST = 0.02, 0.45  # share of the variance of single-step errors that is σ²: ½ leaves no diffusion, 0 no noise


class IncrementFit(eqx.Module):
    """Unconstrained θ at which increments over each span agree best with the drift, and the curvature there."""

    u: Float[Array, "spans params"]
    curvature: Float[Array, "spans params params"]


class Increments(eqx.Module):
    """The data of a pool, missing values interpolated, and the drift along them."""

    model: SDE = eqx.field(static=True)
    pool: Pool
    path: Float[Array, "series times state"]
    bounds: ScaledBounds  # of θ, with coordinates in units of the data

    @classmethod
    def of(cls, model: SDE, pool: Pool) -> "Increments":
        return cls(model, pool, interpolated(pool), ScaledBounds.of(model, pool))

    def errors(self, u: Theta, span: Int[Array, ""] | int) -> Float[Array, "series times state"]:
        """What the drift at u leaves of the increments over so many rows."""
        drifts = drift_on_path(self.model, self.pool, self.pool.times)(self.path, self.bounds.constrain(u))
        return over_series(increment_errors, (0, 0, 0, None))(self.pool.times, self.path, drifts, span)

    def noises(self, u: Theta) -> tuple[Float[Array, "state"], Float[Array, "state"]]:
        """Standard deviations of diffusion and of observation noise that the drift at u leaves."""
        return split(self.errors(u, 1))

    def agree(self, tries: Float[Array, "tries params"], max_step: Float[Array, "params"]) -> IncrementFit:
        """The best agreement over each span, from several starts whose steps are at most so long."""
        P = tries.shape[1]
        if not P:
            return IncrementFit(jnp.zeros((len(SPANS), 0)), jnp.zeros((len(SPANS), 0, 0)))

        def match(span):
            def mismatch(u):
                return log_mean_square(lambda u: self.errors(u, span), u)

            best = levenberg_marquardt(mismatch, tries, max_step=max_step, iterations=40).best
            return best.x, best.at.curvature

        return IncrementFit(*jax.vmap(match)(jnp.array(SPANS)))

    def scales_near(self, u: Theta, max_step: Float[Array, "params"]) -> Theta:
        """The `scales` where the best agreement is found from one start."""
        return self.scales(self.agree(u[None], max_step))

    def scales(self, agreed: IncrementFit) -> Theta:
        """The scale of each parameter, the largest of those that one span or another suggests."""
        if not self.model.free:
            return jnp.zeros(0)
        bounds, drift = self.bounds, drift_on_path(self.model, self.pool, self.pool.times)
        seen, thetas = jnp.any(self.pool.observed, axis=-1), jax.vmap(bounds.constrain)(agreed.u)

        def size(a):
            return rms(jnp.where(seen[..., None], a, 0.0))

        # As fast as the drift there, or as it must be to hold what the diffusion drives within a spread of 1.
        restoring = size(jnp.broadcast_to(restoring_speed(self.noises(agreed.u[0])[0] ** 2), self.path.shape))
        speeds = jax.vmap(lambda theta: size(drift(self.path, theta)))(thetas)
        speed = jnp.hypot(jnp.max(jnp.where(jnp.isfinite(speeds), speeds, 0.0)), restoring)
        natural_scale = scales_on_path(drift, self.path, speed, seen, bounds.unit)

        def widened(u, curvature, span):
            std = standard_errors(curvature) * jnp.sqrt(span)  # increments over more than one row overlap
            return widened_scales_at(u, std, bounds, natural_scale)

        return jnp.max(jax.vmap(widened)(agreed.u, agreed.curvature, jnp.array(SPANS, float)), axis=0)


def interpolated(pool: Pool) -> Float[Array, "series times state"]:
    """The data with what is missing interpolated in time."""
    return over_series(filled)(pool.times, pool.values, pool.observed)


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
    fraction = jnp.where(span > 0, (times[:, None] - times[left]) / jnp.where(span > 0, span, 1.0), 0.0)
    left_value, right_value = (jnp.take_along_axis(values, index, axis=0) for index in (left, right))
    return (1 - fraction) * left_value + fraction * right_value


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
    later = jnp.minimum(jnp.arange(times.size) + over, times.size - 1)
    middle = 0.5 * (drifts[1:] + drifts[:-1]) * gaps[:, None]
    rest = path - jnp.concatenate([jnp.zeros_like(path[:1]), jnp.cumsum(middle, axis=0)])
    inside = (jnp.arange(times.size) + over < times.size) & (times[later] > times[later - 1])
    long = jnp.maximum((times[later] - times) / over, 1.0)
    return jnp.where(inside[:, None], (rest[later] - rest) / long[:, None], 0.0)


def split(errors: Float[Array, "series times state"]) -> tuple[Float[Array, "state"], Float[Array, "state"]]:
    """Diffusion and noise standard deviations per state from single-step errors (q = 1, unit spacing).

    Observation noise makes neighbouring errors move against each other: their covariance is −σ²,
    while their variance is g² + 2σ². Each is kept at no less than a few percent of the whole.
    """
    some = _some(errors)
    variance = jnp.sum(errors**2, axis=(0, 1)) / some + 1e-12
    against = -jnp.sum(errors[:, 1:] * errors[:, :-1], axis=(0, 1)) / some
    noise = jnp.clip(against, _LEAST * variance, _MOST * variance)
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
