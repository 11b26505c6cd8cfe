"""Whether a stochastic descent has come to rest about a point, or still moved when its steps were spent."""

import jax.numpy as jnp

from sdefit._types import Array, Bool, Float

_PARTS = 4  # of the last half of the steps: two halves, each split, as in split-R̂
_SETTLED = 1.1  # Gelman and Rubin's own bound on R̂


def potential_scale_reduction(path: Float[Array, "steps params"]) -> Float[Array, "params"]:
    """Split-R̂ (Gelman et al. 2013, 11.4) of the last half of a path, for each parameter.

    R̂² = 1 + B/W compares the variance of the means of the parts with the variance inside them, which is the Monte Carlo
    error of the last θ. About a fixed point it nears 1; θ that moves steadily through the parts has an R̂ of 4.6.
    """
    size = path.shape[0] // 2 // _PARTS
    parts = path[path.shape[0] - size * _PARTS :].reshape(_PARTS, size, -1)
    between = jnp.var(jnp.mean(parts, axis=1), axis=0, ddof=1)
    within = jnp.mean(jnp.var(parts, axis=1), axis=0)
    return jnp.where(between > 0, jnp.sqrt(1 + between / within), 1.0)


def has_settled(path: Float[Array, "steps params"]) -> Bool[Array, ""]:
    """Whether every parameter has; never with too few steps to tell, or where a number is not finite."""
    enough = path.shape[0] // 2 // _PARTS >= 2
    return jnp.all(jnp.isfinite(path)) & jnp.all(potential_scale_reduction(path) < _SETTLED) & enough
