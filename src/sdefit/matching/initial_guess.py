"""Where the search for θ begins, and coordinates without units about there."""

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Key, Scalar, Theta
from sdefit.data import Pool
from sdefit.dynamics.on_path import PathDrift
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import ScaledBounds, parameter_units
from sdefit.linalg import cholesky, diagonal, solve
from sdefit.matching.derivative_samples import DerivativeSamples
from sdefit.matching.mean_matching import match_means, spread_starts
from sdefit.matching.parameter_scales import scales_on_path, standard_errors, widened_scales_at


class Box(eqx.Module):
    """A range in which θ itself is stepped, as in the published code: what leaves it is put back on its edge."""

    lower: Theta
    upper: Theta

    @classmethod
    def of(cls, model: SDE, least: float, most: float) -> "Box":
        """The range from `least` to `most`, as far as the model's own bounds allow it."""
        return cls(jnp.maximum(jnp.array(model.bounds.lower), least), jnp.minimum(jnp.array(model.bounds.upper), most))

    def constrain(self, u: Theta) -> Theta:
        return jnp.clip(u, self.lower, self.upper)

    unconstrain = constrain


class InitialGuess(eqx.Module):
    """A first θ, in unconstrained coordinates u = `u` + `whitening` v, and the natural scales of θ."""

    begin: Theta  # the first of the starts
    u: Theta
    whitening: Float[Array, "params params"]
    scales: Theta
    by_increments: Theta  # the θ that matches the increments of x instead
    bounds: ScaledBounds | Box

    def theta(self, v: Theta) -> Theta:
        """θ at v: the mean square residual grows by its own size from v = 0 to |v| = 1."""
        return self.bounds.constrain(self.u + self.whitening @ v)

    def inside(self, v: Theta) -> Bool[Array, ""]:
        """Whether no θ is on the edge of its range."""
        if not isinstance(self.bounds, Box):
            return jnp.array(True)
        theta = self.u + v
        return jnp.all((theta > self.bounds.lower) & (theta < self.bounds.upper))

    def project(self, v: Theta) -> Theta:
        """The v that is nearest in the range of θ: v itself, where coordinates are unconstrained."""
        return self.bounds.constrain(self.u + v) - self.u if isinstance(self.bounds, Box) else v


def guess_by_means(
    model: SDE,
    pool: Pool,
    samples: DerivativeSamples,
    speed: Scalar,
    drift: PathDrift,
    start: Theta,
    starts: int,
    key: Key,
) -> InitialGuess:
    """θ at which the means of both kinds of samples agree best, from several starts."""
    seen, bounds, x = samples.observed, ScaledBounds.of(model, pool), jnp.mean(samples.x, axis=0)
    scales = scales_on_path(drift, x, speed, seen, bounds.unit)
    begin = spread_starts(bounds, scales, start, starts, key)

    def match(which):
        return match_means(lambda u: samples.mean_residuals(drift, bounds.constrain(u))[which].ravel(), begin)

    both = jax.vmap(match)(jnp.arange(2))
    matched_means = jax.tree.map(lambda a: a[0], both)
    scales = widened_scales_at(matched_means.x, standard_errors(matched_means.at.curvature), bounds, scales)
    # Coordinates in which the mean square residual is round: the search then needs no units.
    curvature, eye = matched_means.at.curvature / (jnp.sum(seen) * float(x.shape[-1])), jnp.eye(matched_means.x.size)
    chol = cholesky(curvature + 1e-9 * jnp.diag(diagonal(curvature)) + 1e-300 * eye)
    first, by_increments = bounds.constrain(begin[0]), bounds.constrain(both.x[1])
    return InitialGuess(first, matched_means.x, solve(chol.T, eye), scales, by_increments, bounds)


def random_guess(
    model: SDE,
    pool: Pool,
    samples: DerivativeSamples,
    speed: Scalar,
    drift: PathDrift,
    start: Theta,
    box: Box | None,
    key: Key,
) -> InitialGuess:
    """The published code's start, |N(0, 1)| where the user gave none: in the user's units, as are its coordinates.

    These are θ itself inside a box, or unconstrained without one.
    """
    unit = parameter_units(model, pool)
    scales = scales_on_path(drift, jnp.mean(samples.x, axis=0), speed, samples.observed, unit)
    begin = jnp.where(jnp.isfinite(start), start, jnp.abs(jax.random.normal(key, start.shape)))
    bounds = ScaledBounds(model.bounds, jnp.ones_like(unit)) if box is None else box
    begin = begin if box is None else box.constrain(begin)
    return InitialGuess(begin, bounds.unconstrain(begin), jnp.eye(start.size), scales, begin, bounds)


def select_start(samples: DerivativeSamples, drift: PathDrift, matched: Theta, guess: InitialGuess) -> Theta:
    """Where the refinement begins: at the matched θ, if it explains half of what θ can explain of the increments.

    With much data and much process noise, the evidence gives all to o and leaves nothing in ż to match.
    """

    def missed(theta):
        return jnp.mean(samples.mean_residuals(drift, theta)[1] ** 2)

    nothing, least = jnp.mean(samples.mean_increments() ** 2), missed(guess.by_increments)
    return jnp.where(missed(matched) <= 0.5 * (nothing + least), matched, guess.by_increments)
