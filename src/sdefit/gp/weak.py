"""The weak-form refit: the drift enters through its integral, as the mean of the process.

Given a path x̂ near the truth, dx = f(x, θ) dt + G dw is read as the linear model

    x(t) = x(t_1) + ∫ f(x̂, θ) ds + G w(t),    y = x + e,

with f linearised in θ (and, with `feedback`, in x about x̂). θ joins the state vector under a wide Gaussian
prior, so that one Kalman pass gives the marginal likelihood of (G, σ) with θ and x(t_1) integrated out (REML),
the generalised least-squares θ with its covariance, and a better path. Several series are one chain: the state x
starts anew at each, θ goes on.

x̂ was smoothed, hence knows the future noise: the integrals are Stratonovich's, and rates come out
too small. The remedy is the divergence term of the Onsager-Machlup functional, −½∫ div f(x̂, θ) ds, which
moves θ by −½ V ∂θ∫ div f ds (V the covariance of θ). Added whole, it gives maximum likelihood, whose rates are
too large in short series by about the square of a standard error over that move; see `divergence_share`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float, Scalar, Theta, Times
from sdefit.gp import kalman
from sdefit.gp.latent import Data

DriftOnPath = Callable[[Float[Array, "series times state"], Theta], Float[Array, "series times state"]]


class Chain(eqx.Module):
    """The linear model of one pass, but for G and σ, and the path it is a deviation from."""

    transition: Float[Array, "rows dim dim"]
    gaps: Times
    restart: Bool[Array, "rows"]
    initial: Float[Array, "dim dim"]
    reference: Float[Array, "rows state"]
    values: Float[Array, "rows state"]
    observed: Bool[Array, "rows state"]


class Refit(eqx.Module):
    """θ with its covariance, and the path with its standard deviation."""

    theta: Theta
    covariance: Float[Array, "params params"]
    path: Float[Array, "series times state"]
    std: Float[Array, "series times state"]


def chain(
    drift: DriftOnPath,
    rows: Data,
    path: Float[Array, "series times state"],
    theta: Theta,
    center: Theta,
    width: Theta,
    feedback: Float[Array, "series times state state"],
) -> Chain:
    """The linear model around `path` and `theta`, with the prior N(center, width²) on θ.

    `rows` has a leading axis of series; rows at which nothing is observed are there to follow the path. `feedback`
    is ∂f/∂x along the path, or 0 to leave f(x̂) as it is.
    """
    series, times, K = path.shape
    P = theta.size
    gaps = jnp.diff(rows.times, axis=1)
    value, slope = drift(path, theta), jax.jacfwd(drift, argnums=1)(path, theta)
    pushed = _trapezoid(gaps, value + slope @ (center - theta))
    moved = _trapezoid(gaps, slope * width[None, None, None, :])
    carried = _carried(gaps, feedback)
    first = rows.values[:, :1]
    reference = jax.vmap(_reference)(first[:, 0], path, pushed, carried)
    eye = jnp.eye(P + K, dtype=path.dtype)
    along = jnp.tile(eye[None, None], (series, times, 1, 1)).at[:, 1:, P:, :P].set(moved)
    along = along.at[:, 1:, P:, P:].set(carried).at[:, 0, P:, P:].set(0.0)  # x starts anew with each series
    return Chain(
        along.reshape(-1, P + K, P + K),
        jnp.concatenate([jnp.zeros_like(gaps[:, :1]), gaps], axis=1).reshape(-1),
        jnp.tile(jnp.arange(times) == 0, series),
        eye,  # deviations of θ in widths of its prior; of x(t_1) from the first observation, in standard units
        reference.reshape(-1, K),
        rows.values.reshape(-1, K),
        rows.observed.reshape(-1, K),
    )


def _carried(gaps: Float[Array, "series gaps"], feedback) -> Float[Array, "series gaps state state"]:
    """exp(h ∂f/∂x) over each gap by the implicit midpoint rule, which never grows a decaying mode."""
    half = 0.25 * gaps[:, :, None, None] * (feedback[:, 1:] + feedback[:, :-1])
    eye = jnp.eye(feedback.shape[-1], dtype=feedback.dtype)[None, None]
    return jnp.linalg.solve(eye - half, eye + half)


def _reference(first, path, pushed, carried):
    """The path the chain deviates from: x̂ itself moved by what its increments lack of the integral of f."""

    def step(off, now):
        carry, push, change = now
        off = carry @ off + push - change
        return off, off

    begin = first - path[0]
    _, off = jax.lax.scan(step, begin, (carried, pushed, jnp.diff(path, axis=0)))
    return path + jnp.concatenate([begin[None], off])


def linear_model(link: Chain, G: Float[Array, "state state"], variance: Float[Array, "state"]) -> kalman.LinearModel:
    """The chain with its diffusion and noise."""
    K = G.shape[0]
    dim = link.initial.shape[0]
    carried = link.transition[:, -K:, -K:] @ G[None]
    half = 0.5 * link.gaps[:, None, None]
    spread = half * ((G @ G.T)[None] + carried @ jnp.swapaxes(carried, 1, 2))
    spread = jnp.where(link.restart[:, None, None], jnp.eye(K)[None], spread)
    process = jnp.zeros((link.gaps.size, dim, dim), G.dtype).at[:, -K:, -K:].set(spread)
    observe = np.zeros((K, dim))
    observe[np.arange(K), dim - K + np.arange(K)] = 1
    return kalman.LinearModel(link.transition, process, link.initial, jnp.asarray(observe, G.dtype), variance)


def log_likelihood(link: Chain, G: Float[Array, "state state"], variance: Float[Array, "state"]) -> Scalar:
    """The likelihood of G and σ with θ and x(t_1) integrated out."""
    model = linear_model(link, G, variance)
    return kalman.run_filter(model, link.values - link.reference, link.observed).log_likelihood


def solve(link: Chain, G, variance, center: Theta, width: Theta, shape: tuple[int, int]) -> Refit:
    """θ and the path given G and σ; `shape` is (series, times)."""
    model, P, K = linear_model(link, G, variance), center.size, G.shape[0]
    done = kalman.run_filter(model, link.values - link.reference, link.observed)
    mean, cov = kalman.smooth(model, done)
    std = jnp.sqrt(jnp.maximum(jnp.diagonal(cov[:, P:, P:], axis1=1, axis2=2), 0.0))
    covariance = width[:, None] * cov[-1, :P, :P] * width[None, :]
    path = (mean[:, P:] + link.reference).reshape(*shape, K)
    return Refit(center + width * mean[-1, :P], covariance, path, std.reshape(*shape, K))


def divergence_move(
    divergence: Callable[[Theta], Float[Array, "series times"]], rows: Data, theta: Theta, covariance
) -> Theta:
    """−½ V ∂θ ∫ div f(x̂, θ) ds: the way from Stratonovich's estimate to maximum likelihood."""
    gaps = jnp.diff(rows.times, axis=1)

    def total(theta):
        return jnp.sum(_trapezoid(gaps, divergence(theta)))

    return -0.5 * covariance @ jax.grad(total)(theta)


def divergence_share(move: Theta, covariance: Float[Array, "params params"]) -> Scalar:
    """The share of `divergence_move` to take: half of it, and nearly all where the data are long.

    With ρ the length of the move in standard errors, maximum likelihood is off by about c/ρ standard errors
    (for the rate of an OU process with unknown level c = 2), so 1 − c/ρ² of the move removes that bias to
    first order. c = 6 and the floor of a half come from simulation of short non-linear series: docs/method.md.
    """
    rho2 = move @ jnp.linalg.solve(covariance, move)
    return jnp.maximum(0.5, 1 - 6.0 / jnp.maximum(rho2, 1e-12))


def _trapezoid(gaps: Float[Array, "series gaps"], v: Float[Array, "series times ..."]):
    h = gaps.reshape(gaps.shape + (1,) * (v.ndim - 2))
    return 0.5 * h * (v[:, 1:] + v[:, :-1])
