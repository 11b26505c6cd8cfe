"""Whether a stochastic descent has come to rest about a point, or still moved when its steps were spent."""

import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Theta
from sdefit.dynamics.on_path import PathDrift
from sdefit.matching.derivative_samples import DerivativeSamples
from sdefit.matching.initial_guess import InitialGuess
from sdefit.matching.parameter_scales import standard_errors

_PARTS = 4  # of the last half of the steps: two halves, each split, as in split-R̂
_SETTLED = 1.1  # Gelman and Rubin's own bound on R̂
_CORRELATED = 10  # neighbouring residuals of smoothed means that hang together
_SMALL = 0.1  # of a standard error: a Monte Carlo error of that size matters to nobody


def potential_scale_reduction(path: Float[Array, "steps params"], error: Theta | float = 0.0) -> Float[Array, "params"]:
    """Split-R̂ (Gelman et al. 2013, 11.4) of the last half of a path, for each parameter.

    R̂² = 1 + B/W compares the variance B of the means of the parts with the variance W inside them, which is the Monte
    Carlo error of the last θ, squared. About a fixed point R̂ nears 1; where θ moves steadily through the parts it is
    4.6. W is never below the square of a tenth of the statistical `error` of the parameter.
    """
    size = path.shape[0] // 2 // _PARTS
    parts = path[path.shape[0] - size * _PARTS :].reshape(_PARTS, size, -1)
    between = jnp.var(jnp.mean(parts, axis=1), axis=0, ddof=1)
    within = jnp.maximum(jnp.mean(jnp.var(parts, axis=1), axis=0), (_SMALL * error) ** 2)
    return jnp.where(between > 0, jnp.sqrt(1 + between / within), 1.0)


def has_settled(path: Float[Array, "steps params"], error: Theta | float = 0.0) -> Bool[Array, ""]:
    """Whether every parameter has; never with too few steps to tell, or where a number is not finite."""
    enough = path.shape[0] // 2 // _PARTS >= 2
    return jnp.all(jnp.isfinite(path)) & jnp.all(potential_scale_reduction(path, error) < _SETTLED) & enough


def at_rest(
    path: Float[Array, "steps params"], samples: DerivativeSamples, drift: PathDrift, guess: InitialGuess
) -> Bool[Array, ""]:
    """Whether the descent along this path has settled, and not on the edge of its range."""
    end = path[-1]
    return has_settled(path, matching_errors(samples, drift, guess, end)) & guess.inside(end)


def matching_errors(samples: DerivativeSamples, drift: PathDrift, guess: InitialGuess, v: Theta) -> Theta:
    """Standard errors of coordinates v, were the mean of ż from the drift fitted to ż as the data know it.

    They follow from how uncertain ż is, not from how well it is fitted: far from the answer they are no larger.
    """

    def mean(v: Theta) -> Float[Array, "dim"]:
        return jnp.mean(samples.flat(samples.from_drift(drift, guess.theta(v))), axis=0)

    data, slope = samples.flat(samples.dz), jax.jacfwd(mean)(v)
    variance = jnp.var(data, axis=0) + 1e-4 * jnp.mean(data**2)
    return standard_errors(slope.T @ (slope / variance[:, None]) / _CORRELATED)
