"""The exact log-likelihood of linear equations, by other means than the filter: to check it, and for users of OU."""

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Scalar
from sdefit.ssm.kalman import Observations

_DOUBLINGS = 64  # at most, of a time step


def linear_log_likelihood(
    A: Float[Array, "state state"],
    b: Float[Array, "state"],
    G: Float[Array, "state state"],
    noise: Float[Array, "state"],
    data: Observations,
) -> Scalar:
    """log p(y_2, …, y_N | y_1) of dx = (A x + b) dt + G dw observed with noise of standard deviation `noise`.

    x(t_1) has a flat prior; every state must be observed in the first row. Transitions come from
    matrix exponentials (Van Loan), updates from whole-row Cholesky factors.
    """

    def row(carry, inputs):
        mean, P = carry
        h, y, observed = inputs
        F, c, Q = _transition(A, b, G @ G.T, h)
        mean, P = F @ mean + c, F @ P @ F.T + Q
        mean, P, value = _update(mean, P, y, observed, noise)
        return (mean, P), value

    first = data.values[0], jnp.diag(noise**2)
    return jnp.sum(jax.lax.scan(row, first, (jnp.diff(data.times), data.values[1:], data.observed[1:]))[1])


def ou_log_likelihood(rate: Scalar, level: Scalar, G: Scalar, noise: Scalar, data: Observations) -> Scalar:
    """log p(y_2, …, y_N | y_1) of the Ornstein-Uhlenbeck process dx = rate (level − x) dt + G dw."""
    one = jnp.ones((1, 1))
    return linear_log_likelihood(-rate * one, rate * level * one[0], G * one, noise * one[0], data)


def _transition(A, b, Q, h):
    """exp(Ah), ∫ exp(As) b ds and ∫ exp(As) Q exp(As)ᵀ ds from one exponential of a block matrix each.

    exp(−Ah) overflows over a long h: that one is halved until ‖Ah‖ is at most 1, and the flow doubled as often.
    """
    K = b.size
    zero = jnp.zeros((K, K))
    size = jax.lax.stop_gradient(h * jnp.max(jnp.sum(jnp.abs(A), axis=1)))
    doublings = jnp.where(size > 1, jnp.ceil(jnp.log2(jnp.maximum(size, 1.0))), 0.0)
    short = h / jnp.exp2(doublings)
    drift = jax.scipy.linalg.expm(short * jnp.block([[A, b[:, None]], [jnp.zeros((1, K + 1))]]))
    blocks = jax.scipy.linalg.expm(short * jnp.block([[-A, Q], [zero, A.T]]))
    F = blocks[K:, K:].T

    def double(i, flow):
        F, c, S = flow
        twice = F @ F, c + F @ c, S + F @ S @ F.T
        return jax.tree.map(lambda a, b: jnp.where(i < doublings, a, b), twice, flow)

    return jax.lax.fori_loop(0, _DOUBLINGS, double, (F, drift[:K, K], F @ blocks[:K, K:]))


def _update(mean, P, y, observed, noise):
    """The belief after a row and that row's log density; unobserved states get an uninformative, decoupled row."""
    both = observed[:, None] & observed[None, :]
    S = jnp.where(both, P + jnp.diag(noise**2), jnp.eye(mean.size))
    H = jnp.where(observed[:, None], P, 0.0)
    e = jnp.where(observed, y - mean, 0.0)
    L = jnp.linalg.cholesky(S)
    z = jax.scipy.linalg.solve_triangular(L, e, lower=True)
    W = jax.scipy.linalg.solve_triangular(L, H, lower=True)
    log_density = -0.5 * z @ z - jnp.sum(jnp.log(jnp.diagonal(L))) - 0.5 * jnp.sum(observed) * jnp.log(2 * jnp.pi)
    return mean + W.T @ z, P - W.T @ W, log_density
