"""`levenberg_marquardt`: damped Newton steps from many starts at once, the one least-squares search of the package.

With the expected curvature of a log-likelihood (`ssm.innovations`) it is damped Fisher scoring, with that of a sum of
squares (`log_mean_square`) it is the Gauss-Newton method of Levenberg and Marquardt. Both curvatures need first
derivatives only and are never negative, so that a search takes ten or so evaluations where a quasi-Newton search, which
must learn its curvature, takes a hundred.

optimistix has the same method for one residual vector and one start; a batch of starts under `vmap` there waits for the
slowest, cannot give up those that are behind, and takes neither priors nor a curvature that is not JᵀJ.
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
_NEAR = 0.1  # a predicted decrease below which the last move corrects the curvature


class ValueGradHessian(eqx.Module):
    """A value with its gradient and curvature: its Hessian, or what stands in for it."""

    value: Float[Array, "*starts"]
    gradient: Float[Array, "*starts params"]
    curvature: Float[Array, "*starts params params"]

    def __add__(self, other: "ValueGradHessian") -> "ValueGradHessian":
        return jax.tree.map(jnp.add, self, other)

    def reparameterise(self, inner: Callable[[Array], Array], x: Float[Array, "inner"]) -> "ValueGradHessian":
        """The same as a function of x, where what it was a function of is `inner`(x).

        The second derivative of `inner` counts in full, so the curvature may now be negative.
        """
        slope = jax.jacfwd(inner)(x)
        bend = jax.jacfwd(jax.jacrev(lambda x: inner(x) @ self.gradient))(x)
        return ValueGradHessian(self.value, self.gradient @ slope, dot(dot(slope.T, self.curvature), slope) + bend)


class SearchResult(eqx.Module):
    """Where each search ended, and the value after each iteration (the last one repeated to the end)."""

    x: Float[Array, "*starts params"]
    at: ValueGradHessian
    converged: Bool[Array, "*starts"]
    steps: Int[Array, "*starts"]
    values: Float[Array, "*starts iterations"]

    @property
    def ends(self) -> Float[Array, "*starts"]:
        """The value where each search ended; infinite for one that ended in no number."""
        return jnp.where(jnp.isfinite(self.at.value), self.at.value, jnp.inf)

    @property
    def best(self) -> "SearchResult":
        """The search that ended lowest."""
        lowest = jnp.argmin(self.ends)
        return jax.tree.map(lambda a: a[lowest], self)


class _Search(eqx.Module):
    x: Array
    at: ValueGradHessian
    correction: Array
    damping: Array
    growth: Array
    done: Array
    steps: Array
    values: Array


def log_mean_square(residuals: Callable[[Array], Float[Array, "*rows state"]], x: Float[Array, "params"]):
    """½ Σ_k n log (mean square of the n residuals of state k), with its Gauss-Newton curvature.

    Minus the log-likelihood of normal residuals whose variance is what they show: it depends on no unit. A row of
    residuals that is 0 throughout is none.
    """

    def twice(x):
        value = residuals(x)
        return value, value

    slope, r = jax.jacfwd(twice, has_aux=True)(x)
    r, slope = r.reshape(-1, r.shape[-1]), slope.reshape(-1, r.shape[-1], x.size)
    rows = jnp.maximum(jnp.sum(jnp.any(r != 0, axis=-1)), 1)
    square = jnp.sum(r**2, axis=0) / rows
    square = jnp.where(square > 0, square, 1.0)
    weighted, flat = (r / square[None, :]).reshape(-1, 1), slope.reshape(-1, x.size)
    curvature = product((slope / square[None, :, None]).reshape(-1, x.size), flat)
    return ValueGradHessian(0.5 * rows * jnp.sum(jnp.log(square)), product(weighted, flat)[0], curvature)


def levenberg_marquardt(
    fn: Callable[[Float[Array, "params"]], ValueGradHessian],
    x0: Float[Array, "starts params"],
    *,
    max_step: Float[Array, "params"],
    iterations: int = 50,
    tolerance: float = 1e-6,
) -> SearchResult:
    """The lowest points near each row of `x0` of `fn`, by Newton steps on its curvature, damped where they fail.

    **Arguments**
    - `max_step`: the longest step of each coordinate.
    - `iterations`: the most evaluations of `fn` per row.
    - `tolerance`: done when the next step is predicted to bring a smaller decrease than this.

    A point where `fn` is not finite is refused like one that is too high. A search that after some
    iterations is still behind one that is done is given up.
    """

    def advance(s: _Search) -> _Search:
        first = s.steps == 0
        at = ValueGradHessian(s.at.value, s.at.gradient, s.at.curvature + s.correction)
        move = _newton_step(at, s.damping, max_step)
        there = fn(s.x + move)
        predicted = -(at.gradient @ move + 0.5 * jnp.maximum(move @ at.curvature @ move, 0.0))
        ratio = jnp.where(first, 0.5, (s.at.value - there.value) / jnp.where(first, 1.0, predicted))
        good = _finite(there) & (ratio > 1e-4)
        correction = jnp.where(first | (predicted > _NEAR), 0.0, _rank_one_correction(s.at, there, move))
        then, now = (s.x + move, there, correction), (s.x, s.at, jnp.zeros_like(correction))
        x, at, correction = _choose(good, then, now)
        # Nielsen's rule: the damping follows how well the last decrease was predicted.
        calmer = s.damping * jnp.clip(1 - (2 * ratio - 1) ** 3, 1 / 3, 2.0)
        damping = jnp.where(good, jnp.maximum(calmer, 1e-9), s.damping * s.growth)
        growth = jnp.where(good, 2.0, 2 * s.growth)
        done = jnp.where(first, ~good, (predicted < tolerance) | (damping > _MOST_DAMPING))
        values = jnp.where(jnp.arange(iterations) == s.steps, at.value, s.values)
        return _Search(x, at, correction, damping, growth, done, s.steps + 1, values)

    def all_advance(s: _Search) -> _Search:
        s = jax.vmap(lambda s: _choose(s.done, s, advance(s)))(s)
        best = jnp.min(jnp.where(s.done, s.at.value, jnp.inf))
        return eqx.tree_at(lambda s: s.done, s, s.done | ((s.steps >= _PATIENCE) & (s.at.value > best)))

    begin = jax.vmap(lambda x: _begin(x, iterations))(x0)
    s = jax.lax.while_loop(lambda s: jnp.any(~s.done & (s.steps < iterations)), all_advance, begin)
    values = jnp.where(jnp.arange(iterations)[None, :] < s.steps[:, None], s.values, s.at.value[:, None])
    converged = jax.vmap(lambda at: _finite(at) & (newton_decrement(at) < 1e-3))(s.at)
    return SearchResult(s.x, s.at, converged, s.steps, values)


def not_started(x0: Float[Array, "starts params"], iterations: int) -> SearchResult:
    """What `levenberg_marquardt` returns, before it has looked anywhere."""
    s = jax.vmap(lambda x: _begin(x, iterations))(x0)
    return SearchResult(s.x, s.at, s.done, s.steps, s.values)


def newton_decrement(at: ValueGradHessian) -> Scalar:
    """½ gᵀ H⁻¹ g, the decrease that an undamped Newton step predicts: how far the lowest point is, in any units."""
    move = _newton_step(at, 1e-9, jnp.full_like(at.gradient, jnp.inf))
    return -0.5 * at.gradient @ move


def _begin(x, iterations: int) -> _Search:
    """Nothing is known before the loop, and its first step stays where it is: one traced copy of the function."""
    size, dtype = x.size, x.dtype
    unknown = ValueGradHessian(jnp.array(jnp.inf, dtype), jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype))
    nothing, number, count = jnp.zeros((size, size), dtype), jnp.array(_DAMPING, dtype), jnp.array(0, jnp.int32)
    return _Search(x, unknown, nothing, number, number, count < 0, count, jnp.full(iterations, jnp.inf, dtype))


def _choose(good, then, otherwise):
    return jax.tree.map(lambda a, b: jnp.where(good, a, b), then, otherwise)


def _newton_step(at: ValueGradHessian, damping, max_step):
    size = jnp.abs(diagonal(at.curvature))
    size_root = jnp.sqrt(jnp.where(size > 0, size, 1.0))
    # Scaled to a unit diagonal: the units of the coordinates do not matter. A direction of negative
    # curvature is taken for one of positive: down the slope, as far as the curvature makes sensible.
    # The call of LAPACK also keeps this loop in pieces: as one, with the filter in it, it compiles three times as long.
    values, vectors = jnp.linalg.eigh(at.curvature / (size_root[:, None] * size_root[None, :]))
    move = -(vectors @ ((vectors.T @ (at.gradient / size_root)) / (jnp.abs(values) + damping))) / size_root
    return move * jnp.minimum(1.0, 1.0 / jnp.max(jnp.abs(move) / max_step + 1e-300))


def _rank_one_correction(before: ValueGradHessian, there: ValueGradHessian, move):
    """By how much the function bent less along the last move than expected (the SR1 update).

    Where few observations tell about a variance, the expected curvature can be several times the true
    one, and without this each step would go the same fraction of the way.
    """
    gradient_change, expected = there.gradient - before.gradient, there.curvature @ move
    rest = gradient_change - expected
    weight = rest @ move
    sound = (weight < 0) & (gradient_change @ move > 0.05 * (expected @ move))
    return jnp.where(sound, rest[:, None] * rest[None, :] / jnp.where(sound, weight, 1.0), 0.0)


def _finite(at: ValueGradHessian):
    return jnp.isfinite(at.value) & jnp.all(jnp.isfinite(at.gradient)) & jnp.all(jnp.isfinite(at.curvature))
