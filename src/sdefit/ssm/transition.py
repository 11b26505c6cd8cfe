"""One step of the mean and covariance of dx = f(t, x) dt + G dw, exact where f is affine in x.

Within a step of length h the belief follows the affine drift f̄ + Ā (x − x̄), whose coefficients are
averages of f, ∂f/∂x and the mean over the two Gauss nodes of a predicted path, plus what a rule adds
for the spread of the belief half-way. The affine equation is solved by its matrix exponential. Why
this and not a Runge-Kutta step on the moments:

- it is exact for linear equations whatever the step, and stays stable for stiff ones;
- the covariance is Φ P Φᵀ + Q, which cannot lose its sign;
- the mean is of fourth order in h where the belief is narrow (the affine drift misses the true one by
  O(h³) at each node, the two misses cancel, and what the Gauss rule does not see is O(h⁵)), and both
  moments are of second order in any case.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Scalar
from sdefit.linalg import dot
from sdefit.ssm.moments import RULES, Drift, Rule, value_and_slope

_NODES = (0.5 - 3**0.5 / 6, 0.5 + 3**0.5 / 6)
# exp(hA) as a Taylor polynomial of degree 4 over h/2⁶, doubled six times: for ‖hA‖ ≤ ½ the relative
# error is near 1e-11, and up to ‖hA‖ ≈ 150 a decaying solution stays decaying. A longer polynomial and
# fewer doublings would run as fast, but the doublings are a loop and compile once.
_DOUBLINGS = 6
_STEEP = 4.0  # ‖hA‖ above which `affine` may double more often, until a short step is like that of ‖hA‖ = ½
_AHEAD = 2.0  # time constants of the drift that a path is predicted over: straight lines lead nowhere beyond


class Step(NamedTuple):
    """Where a step takes the belief, with the transition matrix Φ that the smoother needs."""

    mean: Float[Array, "state"]
    covariance: Float[Array, "state state"]
    transition: Float[Array, "state state"]


def step(
    drift: Drift,
    rule: Rule,
    Q: Float[Array, "state state"],
    t: Scalar,
    h: Scalar,
    mean: Float[Array, "state"],
    covariance: Float[Array, "state state"],
    any_slope: bool = True,
) -> Step:
    """Mean, covariance and transition over [t, t + h], with Q = G Gᵀ; for `any_slope` see `affine`."""
    value, slope = value_and_slope(drift, t, mean)
    bend = dot(slope, value[:, None])[:, 0]
    short_h = jnp.minimum(h, _AHEAD / jnp.maximum(_size(slope), 1e-300))
    half = jnp.eye(mean.size, dtype=mean.dtype) + 0.5 * short_h * slope
    halfway = dot(dot(half, covariance), half.T) + 0.5 * short_h * Q
    middle = mean + 0.5 * short_h * (value + 0.25 * short_h * bend)
    more_value, more_slope = RULES[rule](drift, t + 0.5 * short_h, middle, halfway)

    def at_node(fraction):
        s = fraction * short_h
        predicted = mean + s * (value + more_value + 0.5 * s * bend)
        return predicted, *value_and_slope(drift, t + s, predicted)

    nodes = jax.vmap(at_node)(jnp.array(_NODES, mean.dtype))
    center, value, slope = (0.5 * (a[0] + a[1]) for a in nodes)
    value, slope = value + more_value, slope + more_slope
    constant = value + dot(slope, (mean - center)[:, None])[:, 0]
    transition, moved, spread = affine(slope, constant, Q, h, any_slope)
    return Step(mean + moved, dot(dot(transition, covariance), transition.T) + spread, transition)


def affine(
    A: Float[Array, "state state"],
    b: Float[Array, "state"],
    Q: Float[Array, "state state"],
    h: Scalar,
    any_slope: bool = True,
) -> tuple[Array, Array, Array]:
    """exp(hA), ∫₀ʰ exp(sA) b ds and ∫₀ʰ exp(sA) Q exp(sA)ᵀ ds: the flow of dx = (A x + b) dt + dw, E[dw dwᵀ] = Q dt.

    With `any_slope` it holds however stiff A is, and allows derivatives forward only. A single state needs no loop.
    """
    if A.shape[0] == 1:
        x = h * A
        return jnp.exp(x), h * b * _mean_growth(x)[0], h * Q * _mean_growth(2 * x)
    size = jnp.abs(h) * _size(A)
    steep = any_slope & (size > _STEEP) & jnp.isfinite(size)
    more = jnp.where(steep, jnp.ceil(jnp.log2(2 * jnp.where(steep, size, 1.0))), 0.0)
    short = h / 2**_DOUBLINGS / jnp.exp2(more)
    B = short * A
    eye = jnp.eye(A.shape[0], dtype=A.dtype)
    phi = eye + dot(B / 2, eye + dot(B / 3, eye + B / 4))
    term = spread = short * Q
    for k in (2, 3, 4, 5):
        half = dot(B / k, term)
        term = half + half.T
        spread = spread + term

    def double(_, flow):
        transition, moved, spread = flow
        spread = spread + dot(dot(transition, spread), transition.T)
        return dot(transition, transition), moved + dot(transition, moved), spread

    flow = jax.lax.fori_loop(0, _DOUBLINGS, double, (eye + dot(B, phi), short * dot(phi, b[:, None]), spread))
    if any_slope:
        flow = jax.lax.fori_loop(0, more.astype(jnp.int32), double, flow)
    return flow[0], flow[1][:, 0], flow[2]


def _mean_growth(x: Array) -> Array:
    """(eˣ − 1)/x, the mean of e^{sx} over 0 ≤ s ≤ 1."""
    small = jnp.abs(x) < 0.02
    series = 1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7)))))
    away = jnp.where(small, 1.0, x)
    return jnp.where(small, series, jnp.expm1(away) / away)


def _size(A: Float[Array, "state state"]) -> Scalar:
    """The largest sum of sizes in a row of A: no eigenvalue is larger. What it decides has no derivative."""
    return jnp.max(jnp.sum(jnp.abs(jax.lax.stop_gradient(A)), axis=1))
