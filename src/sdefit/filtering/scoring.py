"""`score`: maximum likelihood by damped Fisher scoring, made for batches.

Innovations e with variances s have the log density −½ Σ (log s + e²/s). Its expected curvature,
Σ (∂e ∂eᵀ / s + ½ ∂s ∂sᵀ / s²), needs first derivatives only and is never negative, so a damped Newton
search (Levenberg-Marquardt) on it takes ten or so evaluations where a quasi-Newton search that must
learn its curvature takes a hundred. Derivatives run forward through the filter, all in one pass: that
compiles in a tenth of the time of a backward pass, and may pass through loops of any length.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int, Scalar
from sdefit.linalg import diagonal, dot, product

_DAMPING = 1e-2
_MOST_DAMPING = 1e12
_PATIENCE = 20  # iterations after which a search must not be behind one that is done
_NEAR = 0.1  # a promised decrease below which the last move corrects the curvature


class Curved(eqx.Module):
    """A value with its gradient and curvature."""

    value: Float[Array, "*starts"]
    gradient: Float[Array, "*starts params"]
    curvature: Float[Array, "*starts params params"]

    def __add__(self, other: "Curved") -> "Curved":
        return jax.tree.map(jnp.add, self, other)

    def through(self, inner: Callable[[Array], Array], x: Float[Array, "inner"]) -> "Curved":
        """The same as a function of x, where what it was a function of is `inner`(x).

        The second derivative of `inner` counts in full, so the curvature may now be negative.
        """
        slope = jax.jacfwd(inner)(x)
        bend = jax.jacfwd(jax.jacrev(lambda x: inner(x) @ self.gradient))(x)
        return Curved(self.value, self.gradient @ slope, dot(dot(slope.T, self.curvature), slope) + bend)


class Scored(eqx.Module):
    """Where each search ended, and the value after each iteration (the last one repeated to the end)."""

    x: Float[Array, "*starts params"]
    at: Curved
    converged: Bool[Array, "*starts"]
    steps: Int[Array, "*starts"]
    values: Float[Array, "*starts iterations"]


class _Search(eqx.Module):
    x: Array
    at: Curved
    missed: Array
    damping: Array
    growth: Array
    done: Array
    steps: Array
    values: Array


def negative_log_likelihood(found: Callable[[Array], tuple[Array, Array]], x: Float[Array, "params"]) -> Curved:
    """−log density of the innovations `found(x)` = (errors, variances), without its constant, as a `Curved`."""

    def twice(x):
        pair = found(x)
        return pair, pair

    slopes, (e, s) = jax.jacfwd(twice, has_aux=True)(x)
    e, s = e.ravel(), s.ravel()
    de, ds = (d.reshape(e.size, x.size) for d in slopes)
    value = 0.5 * jnp.sum(jnp.log(s) + e**2 / s)
    gradient = jnp.sum((e / s)[:, None] * de + (0.5 * (1 - e**2 / s) / s)[:, None] * ds, axis=0)
    ds = ds / s[:, None]
    return Curved(value, gradient, product(de, de / s[:, None]) + 0.5 * product(ds, ds))


def score(
    fn: Callable[[Float[Array, "params"]], Curved],
    x0: Float[Array, "starts params"],
    *,
    longest: Float[Array, "params"],
    iterations: int = 50,
    tolerance: float = 1e-6,
) -> Scored:
    """The lowest points near each row of `x0` of `fn`, by Newton steps on its curvature, damped where they fail.

    **Arguments**
    - `longest`: the longest step of each coordinate.
    - `iterations`: the most evaluations of `fn` per row.
    - `tolerance`: done when the next step promises a smaller decrease than this.

    A point where `fn` is not finite is refused like one that is too high. A search that after some
    iterations is still behind one that is done is given up.
    """

    def advance(s: _Search) -> _Search:
        first = s.steps == 0
        at = Curved(s.at.value, s.at.gradient, s.at.curvature + s.missed)
        move = _newton(at, s.damping, longest)
        there = fn(s.x + move)
        promised = -(at.gradient @ move + 0.5 * jnp.maximum(move @ at.curvature @ move, 0.0))
        ratio = jnp.where(first, 0.5, (s.at.value - there.value) / jnp.where(first, 1.0, promised))
        good = _finite(there) & (ratio > 1e-4)
        missed = jnp.where(first | (promised > _NEAR), 0.0, _missed(s.at, there, move))
        then, now = (s.x + move, there, missed), (s.x, s.at, jnp.zeros_like(missed))
        x, at, missed = _choose(good, then, now)
        calmer = s.damping * jnp.clip(1 - (2 * ratio - 1) ** 3, 1 / 3, 2.0)
        damping = jnp.where(good, jnp.maximum(calmer, 1e-9), s.damping * s.growth)
        growth = jnp.where(good, 2.0, 2 * s.growth)
        done = jnp.where(first, ~good, (promised < tolerance) | (damping > _MOST_DAMPING))
        values = jnp.where(jnp.arange(iterations) == s.steps, at.value, s.values)
        return _Search(x, at, missed, damping, growth, done, s.steps + 1, values)

    def all_advance(s: _Search) -> _Search:
        s = jax.vmap(lambda s: _choose(s.done, s, advance(s)))(s)
        best = jnp.min(jnp.where(s.done, s.at.value, jnp.inf))
        return eqx.tree_at(lambda s: s.done, s, s.done | ((s.steps >= _PATIENCE) & (s.at.value > best)))

    begin = jax.vmap(lambda x: _begin(x, iterations))(x0)
    s = jax.lax.while_loop(lambda s: jnp.any(~s.done & (s.steps < iterations)), all_advance, begin)
    values = jnp.where(jnp.arange(iterations)[None, :] < s.steps[:, None], s.values, s.at.value[:, None])
    converged = jax.vmap(lambda at: _finite(at) & (promise(at) < 1e-3))(s.at)
    return Scored(s.x, s.at, converged, s.steps, values)


def unsearched(x0: Float[Array, "starts params"], iterations: int) -> Scored:
    """What `score` returns, before it has looked anywhere."""
    s = jax.vmap(lambda x: _begin(x, iterations))(x0)
    return Scored(s.x, s.at, s.done, s.steps, s.values)


def _begin(x, iterations: int) -> _Search:
    """Nothing is known before the loop, and its first step stays where it is: one traced copy of the function."""
    size, dtype = x.size, x.dtype
    unknown = Curved(jnp.array(jnp.inf, dtype), jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype))
    nothing, number, count = jnp.zeros((size, size), dtype), jnp.array(_DAMPING, dtype), jnp.array(0, jnp.int32)
    return _Search(x, unknown, nothing, number, number, count < 0, count, jnp.full(iterations, jnp.inf, dtype))


def _choose(good, then, otherwise):
    return jax.tree.map(lambda a, b: jnp.where(good, a, b), then, otherwise)


def promise(at: Curved) -> Scalar:
    """The decrease an undamped Newton step promises: how far from the lowest point we are, whatever the units."""
    move = _newton(at, 1e-9, jnp.full_like(at.gradient, jnp.inf))
    return -0.5 * at.gradient @ move


def _newton(at: Curved, damping, longest):
    size = jnp.abs(diagonal(at.curvature))
    root = jnp.sqrt(jnp.where(size > 0, size, 1.0))
    # Scaled to a unit diagonal: the units of the coordinates do not matter. A direction of negative
    # curvature is taken for one of positive: down the slope, as far as the curvature makes sensible.
    # The call of LAPACK also keeps this loop in pieces: as one, with the filter in it, it compiles three times as long.
    values, vectors = jnp.linalg.eigh(at.curvature / (root[:, None] * root[None, :]))
    move = -(vectors @ ((vectors.T @ (at.gradient / root)) / (jnp.abs(values) + damping))) / root
    return move * jnp.minimum(1.0, 1.0 / jnp.max(jnp.abs(move) / longest + 1e-300))


def _missed(before: Curved, after: Curved, move):
    """By how much the function bent less along the last move than expected, as a correction of rank one.

    Where few observations tell about a variance, the expected curvature can be several times the true
    one, and without this each step would go the same fraction of the way.
    """
    turn, expected = after.gradient - before.gradient, after.curvature @ move
    rest = turn - expected
    weight = rest @ move
    sound = (weight < 0) & (turn @ move > 0.05 * (expected @ move))
    return jnp.where(sound, rest[:, None] * rest[None, :] / jnp.where(sound, weight, 1.0), 0.0)


def _finite(at: Curved):
    return jnp.isfinite(at.value) & jnp.all(jnp.isfinite(at.gradient)) & jnp.all(jnp.isfinite(at.curvature))
