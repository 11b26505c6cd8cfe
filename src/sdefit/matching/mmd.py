"""MMD²_u of Algorithm 3: the maximum mean discrepancy between two sets of samples, rational-quadratic kernel."""

import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar


def mmd_squared(
    a: Float[Array, "samples dim"], b: Float[Array, "samples dim"], length: Scalar, *, paired: bool = False
) -> Scalar:
    """The unbiased estimate of MMD² between the distributions of `a` and `b` (Gretton et al. 2012).

    The kernel is 1/(1 + ‖x − y‖²/(2 length²)), the rational quadratic with α = 1. The estimate may be
    negative: it is 0 on average for equal distributions. `paired` leaves the pairs (a_i, b_i) out, for
    samples that were drawn jointly.
    """
    m = a.shape[0]
    within = _off_diagonal(_kernel(a, a, length)) + _off_diagonal(_kernel(b, b, length))
    across = _kernel(a, b, length)
    return within / (m * (m - 1)) - 2 * (_off_diagonal(across) / (m * (m - 1)) if paired else jnp.mean(across))


def median_length(a: Float[Array, "samples dim"], b: Float[Array, "samples dim"]) -> Scalar:
    """The median distance among all samples, the usual length of the kernel."""
    both = jnp.concatenate([a, b])
    rows, columns = np.triu_indices(both.shape[0], 1)
    ordered = jnp.sort(_square_distances(both, both).ravel()[rows * both.shape[0] + columns])
    middle = 0.5 * (ordered[(rows.size - 1) // 2] + ordered[rows.size // 2])
    return jnp.sqrt(jnp.maximum(middle, 1e-30))


def pair_length(a: Float[Array, "samples dim"], b: Float[Array, "samples dim"]) -> Scalar:
    """The median distance of the pairs (a_i, b_i), for samples that were drawn apart.

    It estimates the median distance across, which the published code takes, from as many pairs as there are samples:
    sorting the distances of all pairs takes twenty times as long as MMD² itself.
    """
    return jnp.sqrt(jnp.maximum(jnp.median(jnp.sum((a - b) ** 2, axis=1)), 1e-30))


def _kernel(a, b, length):
    return 1 / (1 + _square_distances(a, b) / (2 * length**2))


def _square_distances(a, b):
    squares = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1)[None, :]
    return jnp.maximum(squares - 2 * a @ b.T, 0.0)


def _off_diagonal(matrix):
    return jnp.sum(matrix) - jnp.trace(matrix)
