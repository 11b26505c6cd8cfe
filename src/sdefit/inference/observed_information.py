"""The covariance of an estimate by maximum likelihood: the inverse of the observed information."""

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Int
from sdefit.inference.likelihood import filter_pool
from sdefit.inference.parameterisation import Parameterisation
from sdefit.optimise import ValueGradHessian
from sdefit.ssm.innovations import negative_log_likelihood
from sdefit.ssm.moments import Rule


def inverse_information(
    parameterisation: Parameterisation, u: Float[Array, "coordinates"], steps: Int[Array, "series times"], rule: Rule
) -> Float[Array, "quantities quantities"]:
    """The inverse of the observed information of (θ, all of G Gᵀ row by row, σ²) at coordinates u.

    The second derivative in (θ, G Gᵀ, σ²) is taken as differences of the exact gradient over a
    thousandth of a standard error. Where it is not positive (the likelihood is not concave there),
    the expected information stands in for it.
    """
    variance_params, model, pool = parameterisation.variance_params(u), parameterisation.model, parameterisation.pool

    def at(z) -> ValueGradHessian:
        return negative_log_likelihood(
            lambda z: filter_pool(model, pool, parameterisation.point(z), steps, rule)[1].innovations, z
        )

    def around(_, before):
        """Slopes about u at moves of a thousandth of a standard error, once the curvature there is known."""
        size, *_ = before
        moves = jnp.concatenate([jnp.diag(size), -jnp.diag(size), jnp.zeros((1, size.size))])
        there = jax.vmap(lambda move: at(variance_params + move))(moves)
        expected = there.curvature[-1]
        return 1e-3 / jnp.sqrt(jnp.maximum(jnp.diagonal(expected), 1e-300)), size, there.gradient, expected

    # Two rounds of one loop, so that the filter is traced once: the first does not move.
    n = variance_params.size
    begin = jnp.zeros(n), jnp.zeros(n), jnp.zeros((2 * n + 1, n)), jnp.zeros((n, n))
    _, size, slopes, expected = jax.lax.fori_loop(0, 2, around, begin)
    up, down, here = slopes[:n], slopes[n:-1], slopes[-1]
    # A variance near zero cannot be lowered: there the difference is taken on one side.
    rows = jnp.where(jnp.isfinite(down), (up - down) / 2, up - here[None, :]) / size[:, None]
    covariance = _inverse(0.5 * (rows + rows.T), expected, size)
    slope = jax.jacfwd(parameterisation.quantities)(variance_params)
    return slope @ covariance @ slope.T


def _inverse(observed, expected, size):
    """The inverse of the observed information if it is positive, else of the expected one."""

    def inverse(matrix):
        values, vectors = jnp.linalg.eigh(matrix * size[:, None] * size[None, :])
        inverse = (vectors / jnp.maximum(values, 1e-18)[None, :]) @ vectors.T * size[:, None] * size[None, :]
        return values[0], inverse

    lowest, first = inverse(jnp.where(jnp.isfinite(observed), observed, expected))
    return jnp.where(lowest > 1e-18, first, inverse(expected)[1])
