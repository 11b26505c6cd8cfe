"""The Gaussian process nearest to the posterior of dx = f(t, x) dt + G dw, y = x + noise, and its bound.

On a grid of short steps the equation is the chain x' = x + Γ f(x) + N(0, S), with Γ = ∫₀ʰ exp(sA) ds and
S = ∫₀ʰ exp(sA) G Gᵀ exp(sA)ᵀ ds for A = ∂f/∂x along the data: exact where f is affine, of second order
near the data. The approximation q is a Gaussian Markov chain on the same grid, dx = (−A_t x + b_t) dt + G dw
in the limit of short steps, and maximises

    bound = E_q[log p(y, x)] + entropy of q ≤ log p(y).

All of E_q[log p] follows from the mean, slope and covariance of the drift under each node's Gaussian, by
quadrature. A sweep takes their derivatives in the moments of q for the natural parameters of a new q
(natural gradient with step 1, or less where the bound would fall), and a block-tridiagonal solve for its
moments. Where f is affine, one sweep is the Kalman smoother and the bound is the log-likelihood.
"""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float, Int, Scalar
from sdefit.linalg import dot
from sdefit.ssm.filter import update
from sdefit.ssm.innovations import Innovations
from sdefit.ssm.kalman import Gaussian, Observations
from sdefit.ssm.moments import Drift, small_cholesky, value_and_slope
from sdefit.ssm.transition import affine

# Rows that repeat a time (padding) are this part of the typical spacing apart, so that no step is without noise.
_SAME_TIME = 1e-6
_SMALLEST_STEP = 1e-3  # of the natural gradient: below it, a sweep gains nothing but rounding


class DiscretisedSDE(NamedTuple):
    """The model over each step of a grid: x' = x + Γ f(t, x) + N(0, S)."""

    time: Float[Array, "*steps"]
    gain: Float[Array, "*steps state state"]  # Γ
    precision: Float[Array, "*steps state state"]  # S⁻¹
    log_determinant: Float[Array, "*steps"]  # of S


class Sites(NamedTuple):
    """Natural parameters of a Gaussian chain: log q = −½ xᵀ Λ x + ηᵀ x, with Λ block-tridiagonal."""

    linear: Float[Array, "nodes state"]  # η
    diagonal: Float[Array, "nodes state state"]
    below: Float[Array, "steps state state"]  # rows of the later node, columns of the earlier


class Path(NamedTuple):
    """The moments of a Gaussian chain: of each node, the covariance of each with the next, and the entropy."""

    nodes: Gaussian
    cross: Float[Array, "steps state state"]  # rows of the later node, columns of the earlier
    entropy: Scalar


class Posterior(eqx.Module):
    """What the sweeps found: q, its bound, the bound after each of them (the last one repeated), whether it settled."""

    path: Path
    bound: Scalar
    bounds: Float[Array, "sweeps"]
    sweeps: Int[Array, ""]
    settled: Bool[Array, ""]


class _Moved(NamedTuple):
    """Moments of g(x) = x + Γ f(x) under one node's Gaussian."""

    mean: Float[Array, "*steps state"]
    slope: Float[Array, "*steps state state"]
    covariance: Float[Array, "*steps state state"]


def refine(data: Observations, substeps: int) -> Observations:
    """The same data on a grid of `substeps` equal steps from each row to the next."""

    def rows(array):
        full = jnp.zeros((substeps * (array.shape[0] - 1) + 1, array.shape[1]), array.dtype)
        return full.at[::substeps].set(array)

    fraction = jnp.arange(substeps) / substeps
    gaps = jnp.diff(data.times)
    between = (data.times[:-1, None] + gaps[:, None] * fraction[None, :]).ravel()
    return Observations(jnp.append(between, data.times[-1]), rows(data.values), rows(data.observed))


def steps_of(
    drift: Drift, Q: Float[Array, "state state"], times: Float[Array, "nodes"], path: Float[Array, "nodes state"]
) -> DiscretisedSDE:
    """The model over each step, with A = ∂f/∂x at the beginning of the step on the given path."""

    def one(t, h, x):
        slope = value_and_slope(drift, t, x)[1]
        by_column = jax.vmap(affine, (None, 1, None, None), (None, 1, None))
        _, gain, spread = by_column(slope, jnp.eye(x.size), Q, h)
        chol = _lower_inverse(_cholesky(spread))
        return DiscretisedSDE(t + 0.5 * h, gain, dot(chol.T, chol), -2 * jnp.sum(jnp.log(jnp.diagonal(chol))))

    return jax.vmap(one)(times[:-1], jnp.maximum(jnp.diff(times), _SAME_TIME), path[:-1])


def infer(
    drift: Drift,
    steps: DiscretisedSDE,
    noise: Float[Array, "state"],
    first: Gaussian,
    data: Observations,
    begin: Float[Array, "nodes state"],
    sweeps: int = 50,
    tolerance: float = 1e-8,
) -> Posterior:
    """The Gaussian chain with the highest bound.

    **Arguments**
    - `noise`: the variance of the observation noise. `first`: the prior of the first node, independent by state.
    - `data`: on the grid of the steps; `begin`: a path on it around which the first q is made.
    - `sweeps`, `tolerance`: the most sweeps, and the gain of a full one below which it is done.
    """

    class State(NamedTuple):
        sites: Sites
        target: Sites
        path: Path
        bound: Scalar
        step: Scalar
        taken: Int[Array, ""]
        done: Bool[Array, ""]
        bounds: Float[Array, "sweeps"]

    def advance(s: State) -> State:
        sites = jax.tree.map(lambda a, b: a + s.step * (b - a), s.sites, s.target)
        path = moments(sites)
        value, target = _bound_and_sites(drift, steps, noise, first, data, path)
        good = jnp.isfinite(value) & (value >= s.bound)
        done = (jnp.abs(value - s.bound) < tolerance * s.step) | (~good & (s.step < _SMALLEST_STEP))
        new, old = (sites, target, path, value), (s.sites, s.target, s.path, s.bound)
        sites, target, path, value = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, old)
        step = jnp.where(good, jnp.minimum(2 * s.step, 1.0), 0.5 * s.step)
        return State(sites, target, path, value, step, s.taken + 1, done, s.bounds.at[s.taken].set(value))

    start = _gauss_newton(drift, steps, noise, first, data, begin)
    # Nothing is known before the loop, and its first sweep looks at the start itself: one traced copy of a sweep.
    low, none = jnp.array(-jnp.inf), jnp.array(0)
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(moments, start))
    state = State(start, start, nothing, low, jnp.array(1.0), none, none > 0, jnp.full(sweeps, low))
    s = jax.lax.while_loop(lambda s: ~s.done & (s.taken < sweeps), advance, state)
    bounds = jnp.where(jnp.arange(sweeps) < s.taken, s.bounds, s.bound)
    return Posterior(s.path, s.bound, bounds, s.taken, s.done & jnp.isfinite(s.bound))


def moments(sites: Sites) -> Path:
    """Means, covariances and entropy of a Gaussian chain; not finite where its precision is not positive."""
    nodes, size = sites.linear.shape

    def forward(carry, inputs):
        inverse, reduced = carry
        linear, diagonal, below = inputs
        weight = dot(below, inverse)
        chol = _lower_inverse(_cholesky(diagonal - dot(weight, below.T)))
        reduced = linear - dot(weight, reduced[:, None])[:, 0]
        inverse = dot(chol.T, chol)
        return (inverse, reduced), (inverse, reduced, jnp.sum(jnp.log(jnp.diagonal(chol))))

    def backward(carry, inputs):
        mean, covariance = carry
        inverse, reduced, below = inputs
        back = -dot(inverse, below.T)
        cross = dot(covariance, back.T)
        mean = dot(inverse, reduced[:, None])[:, 0] + dot(back, mean[:, None])[:, 0]
        return (mean, inverse + dot(back, cross)), (mean, inverse + dot(back, cross), cross)

    none = jnp.zeros((1, size, size))
    begin = jnp.eye(size), jnp.zeros(size)
    rows = (sites.linear, sites.diagonal, jnp.concatenate([none, sites.below]))
    _, (inverse, reduced, halves) = jax.lax.scan(forward, begin, rows)
    end = jnp.zeros(size), jnp.zeros((size, size))
    rows = (inverse, reduced, jnp.concatenate([sites.below, none]))
    _, (mean, covariance, cross) = jax.lax.scan(backward, end, rows, reverse=True)
    entropy = 0.5 * nodes * size * (1 + jnp.log(2 * jnp.pi)) + jnp.sum(halves)
    return Path(Gaussian(mean, covariance), cross[:-1], entropy)


def bound_and_innovations(
    drift: Drift, steps: DiscretisedSDE, noise: Float[Array, "state"], first: Gaussian, data: Observations, path: Path
) -> tuple[Scalar, Innovations]:
    """The bound of q, and the innovations of the linear model that q takes the drift for.

    The bound's derivative in any parameter is that at fixed q, once q is the best (the derivative in q is
    zero). Its curvature is not; that of the linear model's likelihood comes close, and needs only innovations.
    """
    early, late = _ends(path)
    moved = jax.vmap(lambda one, belief: _moved(drift, one, belief))(steps, early)
    per_step = jax.vmap(_expected_log_density)(steps, moved, early, path.cross, late)
    bound = jnp.sum(per_step) + _expected_rest(noise, first, data, path.nodes) + path.entropy

    def node(belief, inputs):
        one, moved, before, value, observed = inputs
        slope = moved.slope
        mean = moved.mean + dot(slope, (belief.mean - before.mean)[:, None])[:, 0]
        chol = _lower_inverse(_cholesky(one.precision))
        curved = moved.covariance - dot(dot(slope, before.covariance), slope.T)
        spread = dot(chol.T, chol) + curved
        belief = Gaussian(mean, dot(dot(slope, belief.covariance), slope.T) + spread)
        belief, done = update(belief, value, observed, noise, slope)
        return belief, done.innovations

    rows = (steps, moved, early, data.values[1:], data.observed[1:])
    return bound, jax.lax.scan(node, first, rows)[1]


def _bound_and_sites(
    drift, steps: DiscretisedSDE, noise, first: Gaussian, data: Observations, path: Path
) -> tuple[Scalar, Sites]:
    """The bound of q, and its natural gradient: the natural parameters of log p, averaged over q."""
    early, late = _ends(path)

    def expected(one, early, cross, late):
        return _expected_log_density(one, _moved(drift, one, early), early, cross, late)

    value_and_grad = jax.vmap(jax.value_and_grad(expected, argnums=(1, 2, 3)))
    per_step, (d_early, d_cross, d_late) = value_and_grad(steps, early, path.cross, late)
    bound = jnp.sum(per_step) + _expected_rest(noise, first, data, path.nodes) + path.entropy
    sites = _pair_sites(d_early, d_cross, d_late, early, late)
    return bound, _add(sites, _data_sites(noise, first, data))


def _gauss_newton(drift, steps: DiscretisedSDE, noise, first: Gaussian, data: Observations, begin) -> Sites:
    """The sites of the model made linear around a path: always positive, so a safe place to start."""
    spread = jnp.broadcast_to(jnp.diag(noise), (*begin.shape, begin.shape[1]))
    early, late = Gaussian(begin[:-1], spread[:-1]), Gaussian(begin[1:], spread[1:])
    moved = jax.vmap(lambda one, belief: _moved(drift, one, belief))(steps, early)

    def one(step: DiscretisedSDE, moved: _Moved, early: Gaussian, late: Gaussian):
        weighed = dot(moved.slope.T, step.precision)
        error = (late.mean - moved.mean)[:, None]
        d_early = Gaussian(dot(weighed, error)[:, 0], -0.5 * dot(weighed, moved.slope))
        return d_early, weighed.T, Gaussian(-dot(step.precision, error)[:, 0], -0.5 * step.precision)

    d_early, d_cross, d_late = jax.vmap(one)(steps, moved, early, late)
    return _add(_pair_sites(d_early, d_cross, d_late, early, late), _data_sites(noise, first, data))


def _pair_sites(d_early: Gaussian, d_cross, d_late: Gaussian, early: Gaussian, late: Gaussian) -> Sites:
    """Natural parameters from derivatives in the moments of each two neighbouring nodes."""

    def one(d_early, d_cross, d_late, early, late):
        here = -(d_early.covariance + d_early.covariance.T)
        there = -(d_late.covariance + d_late.covariance.T)
        x, y = early.mean[:, None], late.mean[:, None]
        at_early = d_early.mean + (dot(here, x) - dot(d_cross.T, y))[:, 0]
        at_late = d_late.mean + (dot(there, y) - dot(d_cross, x))[:, 0]
        return at_early, here, at_late, there

    at_early, here, at_late, there = jax.vmap(one)(d_early, d_cross, d_late, early, late)

    def summed(before, updated):
        none = jnp.zeros_like(before[:1])
        return jnp.concatenate([before, none]) + jnp.concatenate([none, updated])

    return Sites(summed(at_early, at_late), summed(here, there), -d_cross)


def _data_sites(noise, first: Gaussian, data: Observations) -> Sites:
    """Natural parameters of the observations and of the first node's prior."""
    precision = jnp.where(data.observed, 1 / noise[None, :], 0.0)
    prior = 1 / jnp.diagonal(first.covariance)
    linear = (precision * data.values).at[0].add(prior * first.mean)
    diagonal = jax.vmap(jnp.diag)(precision.at[0].add(prior))
    return Sites(linear, diagonal, jnp.zeros_like(diagonal[:-1]))


def _add(one: Sites, other: Sites) -> Sites:
    return jax.tree.map(jnp.add, one, other)


def _ends(path: Path) -> tuple[Gaussian, Gaussian]:
    """The beliefs at the beginning and the end of each step."""
    early, late = (jax.tree.map(lambda a, part=part: a[part], path.nodes) for part in (slice(-1), slice(1, None)))
    return early, late


def _moved(drift, one: DiscretisedSDE, belief: Gaussian) -> _Moved:
    """Moments of g(x) = x + Γ f(x) by quadrature; its mean slope is E[g (x − m)ᵀ] P⁻¹ (Stein)."""
    points, weights = quadrature(belief.mean.size)
    chol = small_cholesky(belief.covariance)
    x = belief.mean[None, :] + dot(jnp.asarray(points), chol.T)
    g = x + jax.vmap(lambda x: dot(one.gain, drift(one.time, x)[:, None])[:, 0])(x)
    mean = jnp.asarray(weights) @ g
    apart = g - mean[None, :]
    weighed = jnp.asarray(weights)[None, :] * apart.T
    return _Moved(mean, dot(weighed @ jnp.asarray(points), _lower_inverse(chol)), weighed @ apart)


def _expected_log_density(one: DiscretisedSDE, moved: _Moved, early: Gaussian, cross, late: Gaussian) -> Scalar:
    """E_q[log N(x'; g(x), S)] from the moments of x, x' and g(x)."""
    del early  # its moments are in those of g
    error = late.mean - moved.mean
    shared = dot(moved.slope, cross.T)
    second = late.covariance + error[:, None] * error[None, :] - shared - shared.T + moved.covariance
    return -0.5 * (jnp.sum(one.precision * second) + one.log_determinant + error.size * jnp.log(2 * jnp.pi))


def _expected_rest(noise, first: Gaussian, data: Observations, belief: Gaussian) -> Scalar:
    """E_q of the log densities of all observations and of the first node."""
    variance = jnp.diagonal(belief.covariance, axis1=1, axis2=2)
    seen = ((data.values - belief.mean) ** 2 + variance) / noise[None, :] + jnp.log(2 * jnp.pi * noise)[None, :]
    wide = jnp.diagonal(first.covariance)
    prior = ((first.mean - belief.mean[0]) ** 2 + variance[0]) / wide + jnp.log(2 * jnp.pi * wide)
    return -0.5 * (jnp.sum(jnp.where(data.observed, seen, 0.0)) + jnp.sum(prior))


def quadrature(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights that average over a standard normal vector.

    For one or two states the product of Gauss and Hermite's five points, exact for polynomials of degree
    nine; for three or four McNamee and Stenger's rule of degree five; for more the cubature rule of degree
    three. The bound needs squares of the drift: exact for cubic, quadratic and linear drifts in turn.
    """
    axes = np.concatenate([np.eye(size), -np.eye(size)])
    if size <= 2:
        nodes, weights = np.polynomial.hermite_e.hermegauss(5)
        points = np.array(list(itertools.product(nodes, repeat=size)))
        return points, np.prod(list(itertools.product(weights / weights.sum(), repeat=size)), axis=1)
    if size > 4:
        return np.sqrt(size) * axes, np.full(2 * size, 0.5 / size)
    pairs = [s * np.eye(size)[i] + r * np.eye(size)[j] for i in range(size) for j in range(i) for s, r in _SIGNS]
    points = np.sqrt(3) * np.concatenate([np.zeros((1, size)), axes, pairs])
    shares = [1 + (size**2 - 7 * size) / 18, *[(4 - size) / 18] * (2 * size), *[1 / 36] * len(pairs)]
    return points, np.array(shares)


_SIGNS = ((1, 1), (1, -1), (-1, 1), (-1, -1))


def _cholesky(P: Float[Array, "state state"]) -> Float[Array, "state state"]:
    """The lower-triangular root of P column by column; not finite where P is not positive."""
    columns = []
    for j in range(P.shape[0]):
        pivot = jnp.sqrt(P[j, j])
        column = jnp.concatenate([jnp.zeros(j, P.dtype), pivot[None], P[j + 1 :, j] / pivot])
        P = P - column[:, None] * column[None, :]
        columns.append(column)
    return jnp.stack(columns, axis=1)


def _lower_inverse(L: Float[Array, "state state"]) -> Float[Array, "state state"]:
    """The inverse of a small lower-triangular matrix, row by row."""
    rows = []
    for i in range(L.shape[0]):
        row = jnp.eye(L.shape[0], dtype=L.dtype)[i]
        for j in range(i):
            row = row - L[i, j] * rows[j]
        rows.append(row / L[i, i])
    return jnp.stack(rows)
