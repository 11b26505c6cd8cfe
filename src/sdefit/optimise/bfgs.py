"""`minimise`: a quasi-Newton search made for batches.

One value and gradient per iteration, in a single `lax.while_loop` whose lanes stop on their own, so
that a hundred searches under `vmap` cost a hundred evaluations per iteration and no line-search
loops inside. The general-purpose searches of optax and optimistix evaluate the function several
times per vmapped iteration and compile several copies of it.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int, Scalar

_ARMIJO = 1e-4  # share of the predicted decrease a step must bring
_SHRINK = 0.25  # a refused step is cut to this share of itself, or to where a parabola has its lowest point


class Minimum(eqx.Module):
    """Where a search ended: the point, its value and gradient, and how it got there."""

    x: Float[Array, "params"]
    value: Scalar
    gradient: Float[Array, "params"]
    inverse_hessian: Float[Array, "params params"]
    converged: Bool[Array, ""]
    steps: Int[Array, ""]
    values: Float[Array, "iterations"]  # value after each iteration; the last one repeated to the end


class _Search(eqx.Module):
    x: Array
    value: Array
    gradient: Array
    inverse_hessian: Array
    direction: Array
    step: Array
    steps: Array
    refused: Array
    quiet: Array
    values: Array


def minimise(
    fn: Callable[[Float[Array, "params"]], Scalar],
    x0: Float[Array, "params"],
    *,
    iterations: int = 100,
    tolerance: float = 1e-7,
    max_step: float = 2.0,
) -> Minimum:
    """The lowest point near `x0` of a smooth function, by BFGS with backtracking.

    **Arguments**
    - `iterations`: the most evaluations of value and gradient.
    - `tolerance`: done when the gradient predicts a decrease below `tolerance`², or when two steps
      running decrease the value by less than `tolerance`² of its size.
    - `max_step`: the longest step in any coordinate. Coordinates are logarithms as a rule, so 2 means
      a factor of seven.

    A point where `fn` is not finite is refused like one that is too high.
    """
    fn_and_grad = jax.value_and_grad(fn)

    def going(s: _Search):
        return (s.steps == 0) | ((s.steps < iterations) & ~done(s) & (s.refused < 20) & jnp.isfinite(s.value))

    def advance(s: _Search):
        x = s.x + s.step * s.direction
        value, gradient = fn_and_grad(x)
        slope = s.gradient @ s.direction
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        good = finite & ((s.steps == 0) | (value <= s.value + _ARMIJO * s.step * slope))
        moved = _accept(s, x, value, gradient, max_step, tolerance)
        s = jax.tree.map(lambda a, b: jnp.where(good, a, b), moved, _refuse(s, value, slope))
        values = jnp.where(jnp.arange(iterations) == s.steps, s.value, s.values)
        return eqx.tree_at(lambda s: (s.steps, s.values), s, (s.steps + 1, values))

    def small(s: _Search, factor: float):
        return _predicted(s) < factor * (1 + jnp.abs(s.value))

    def done(s: _Search):
        return small(s, tolerance**2) | (s.quiet >= 2)

    s = jax.lax.while_loop(going, advance, _begin(x0, iterations))
    values = jnp.where(jnp.arange(iterations) < s.steps, s.values, s.value)
    # A search that no longer improves has met the rounding error of fn if it is nearly flat there, and an edge or
    # a kink of fn if it is not.
    stuck = (s.refused >= 20) | (s.quiet >= 2)
    converged = jnp.isfinite(s.value) & (small(s, tolerance**2) | (stuck & small(s, 1e-6)))
    return Minimum(s.x, s.value, s.gradient, s.inverse_hessian, converged, s.steps, values)


def _begin(x0: Float[Array, "params"], iterations: int) -> _Search:
    """The search before it has looked anywhere. The first iteration looks at x0, so that fn is compiled once."""
    high, zero, none = jnp.array(jnp.inf, x0.dtype), jnp.zeros_like(x0), jnp.array(0, jnp.int32)
    eye = jnp.eye(x0.size, dtype=x0.dtype)
    one = jnp.ones((), x0.dtype)
    return _Search(x0, high, zero, eye, zero, one, none, none, none, jnp.full(iterations, high))


def _predicted(s: _Search):
    """Twice the decrease a full quasi-Newton step promises."""
    return jnp.abs(s.gradient @ s.inverse_hessian @ s.gradient)


def _direction(inverse_hessian, gradient, max_step):
    direction = -inverse_hessian @ gradient
    return direction * jnp.minimum(1.0, max_step / (jnp.max(jnp.abs(direction)) + 1e-300))


def _accept(s: _Search, x, value, gradient, max_step, tolerance) -> _Search:
    move, gradient_change = x - s.x, gradient - s.gradient
    curved = move @ gradient_change
    use = curved > 1e-10 * jnp.linalg.norm(move) * jnp.linalg.norm(gradient_change)
    # Before the first update the inverse Hessian is a guess: give it the curvature just seen.
    first = s.steps == s.refused + 1
    base = jnp.where(
        first & use,
        curved / (gradient_change @ gradient_change + 1e-300) * jnp.eye(x.size, dtype=x.dtype),
        s.inverse_hessian,
    )
    inverse_hessian = jnp.where(use, _bfgs(base, move, gradient_change, jnp.where(use, curved, 1.0)), s.inverse_hessian)
    guess = jnp.minimum(1.0, 1.0 / (jnp.linalg.norm(gradient) + 1e-300)) * jnp.eye(x.size, dtype=x.dtype)
    inverse_hessian = jnp.where(s.steps == 0, guess, inverse_hessian)
    direction = _direction(inverse_hessian, gradient, max_step)
    uphill = gradient @ direction >= 0
    inverse_hessian = jnp.where(uphill, jnp.eye(x.size, dtype=x.dtype), inverse_hessian)
    direction = jnp.where(uphill, _direction(inverse_hessian, gradient, max_step), direction)
    small = (s.steps > 0) & (s.value - value <= tolerance**2 * (1 + jnp.abs(s.value)))
    quiet = jnp.where(small, s.quiet + 1, 0)
    zero = jnp.zeros_like(s.refused)
    one = jnp.ones((), x.dtype)
    return _Search(x, value, gradient, inverse_hessian, direction, one, s.steps, zero, quiet, s.values)


def _refuse(s: _Search, value, slope) -> _Search:
    parabola = -0.5 * slope * s.step / (value - s.value - slope * s.step)
    factor = jnp.where(jnp.isfinite(value), jnp.clip(parabola, 0.1, 0.5), _SHRINK)
    return eqx.tree_at(lambda s: (s.step, s.refused), s, (s.step * factor, s.refused + 1))


def _bfgs(inverse_hessian, move, gradient_change, curved):
    mapped_change = inverse_hessian @ gradient_change
    across = move[:, None] * mapped_change[None, :]
    own = (1 + gradient_change @ mapped_change / curved) * move[:, None] * move[None, :]
    return inverse_hessian + (own - across - across.T) / curved
