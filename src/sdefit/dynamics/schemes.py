"""One step of each scheme for dx = f(t, x) dt + G dw, and the march that strings steps into a path.

A step of length h is driven by the pair (W, H): the Brownian increment, W ~ N(0, h), and its space-time
Lévy area, H ~ N(0, h/12), independent of W. Every scheme is given the same pair, so two schemes run with one
key and one step length follow the same Brownian path.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Int, Key, Path, Scalar, Times

State: TypeAlias = Float[Array, "state"]
Matrix: TypeAlias = Float[Array, "state state"]
Field: TypeAlias = Callable[[Scalar, State], State]
Noise: TypeAlias = tuple[State, State]
Draw: TypeAlias = Callable[[Int[Array, ""], Scalar], Noise]
Step: TypeAlias = Callable[[Field, Matrix, Scalar, Scalar, State, Noise], State]


def euler(f: Field, G: Matrix, t: Scalar, h: Scalar, x: State, noise: Noise) -> State:
    """x(t + h) by Euler-Maruyama: x + h f + G W; strong and weak order 1 for constant G."""
    W, _ = noise
    # Written as a sum: a matrix product would be a library call in every step of the loop.
    return x + h * f(t, x) + jnp.sum(G * W[None, :], axis=1)


def shark(f: Field, G: Matrix, t: Scalar, h: Scalar, x: State, noise: Noise) -> State:
    """x(t + h) by diffrax's ShARK: two drift evaluations, strong order 1.5 for constant G."""
    # Imported here because diffrax is slow to import and most simulations do without it.
    import diffrax

    class Given(diffrax.AbstractPath):
        """The Brownian path of this one step, already drawn."""

        increment: diffrax.SpaceTimeLevyArea
        # A path must name its ends; a single step does not look at them.
        t0 = -jnp.inf
        t1 = jnp.inf

        def evaluate(self, t0, t1=None, left=True, use_levy=False):
            return self.increment if use_levy else self.increment.W

    W, H = noise
    drift = diffrax.ODETerm(lambda t, x, _: f(jnp.asarray(t), x))
    diffusion = diffrax.ControlTerm(lambda t, x, _: G, Given(diffrax.SpaceTimeLevyArea(dt=h, W=W, H=H)))
    return diffrax.ShARK().step(diffrax.MultiTerm(drift, diffusion), t, t + h, x, None, None, False)[0]


SCHEMES: dict[str, Step] = {"euler": euler, "shark": shark}


def draws(key: Key, states: int) -> Draw:
    """The function that draws (W, H) of step number i and length h, afresh for each number."""

    def draw(i, h):
        w = jax.random.normal(jax.random.fold_in(key, 2 * i), (states,))
        a = jax.random.normal(jax.random.fold_in(key, 2 * i + 1), (states,))
        return jnp.sqrt(h) * w, jnp.sqrt(h / 12) * a

    return draw


def march(
    step: Step, f: Field, G: Matrix, x0: State, times: Times, counts: Int[Array, "gaps"], draw: Draw
) -> tuple[Path, Scalar]:
    """The path at `times` from x0 at the first, and the time it left the finite numbers (inf if it never did).

    Gap number n is crossed in `counts[n]` equal steps. The counts are data, not shapes: other times and step
    lengths run the same compiled program. Only the states at `times` are kept.
    """
    gaps = jnp.diff(times) / counts
    firsts = jnp.cumsum(counts) - counts

    def cross(carry, gap):
        start, h, count, first = gap

        def one(j, carry):
            x, end = carry
            t = start + j * h
            x = step(f, G, t, h, x, draw(first + j, h))
            return x, jnp.where(jnp.all(jnp.isfinite(x)), end, jnp.minimum(end, t + h))

        carry = jax.lax.fori_loop(0, count, one, carry)
        return carry, carry[0]

    start = (x0, jnp.asarray(jnp.inf, x0.dtype))
    (_, end), xs = jax.lax.scan(cross, start, (times[:-1], gaps, counts, firsts))
    return jnp.concatenate([x0[None, :], xs]), end
