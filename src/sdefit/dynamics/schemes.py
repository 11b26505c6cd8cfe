"""One step of each scheme for dx = f(t, x) dt + G(t, x) dw (Itô), and the march that strings steps into a path.

G is a matrix of one row per state and one column per independent noise, or a function (t, x) that returns one. A step
of length h is driven by the pair (W, H): the Brownian increment, W ~ N(0, h), and its space-time Lévy area,
H ~ N(0, h/12), independent of W. Every scheme is given the same pair, so two schemes run with one key and one step
length follow the same Brownian path.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Int, Key, Path, Scalar, Times

State: TypeAlias = Float[Array, "state"]
Noises: TypeAlias = Float[Array, "noises"]
Matrix: TypeAlias = Float[Array, "state noises"]
Field: TypeAlias = Callable[[Scalar, State], State]
Diffusion: TypeAlias = Matrix | Callable[[Scalar, State], Matrix]
Noise: TypeAlias = tuple[Noises, Noises]
Draw: TypeAlias = Callable[[Int[Array, ""], Scalar], Noise]
Step: TypeAlias = Callable[[Field, Diffusion, Scalar, Scalar, State, Noise], State]


def diffusion_at(G: Diffusion, t: Scalar, x: State) -> Matrix:
    """The matrix G at one point."""
    return G(t, x) if callable(G) else G


def diffusion_slopes(G: Callable[[Scalar, State], Matrix], t: Scalar, x: State) -> Float[Array, "noises state noises"]:
    """The derivative of G along each of its columns: entry (j, ·, k) is that of column k along column j, L^j g_k."""
    matrix = G(t, x)
    return jax.vmap(lambda column: jax.jvp(lambda x: G(t, x), (x,), (column,))[1], in_axes=1)(matrix)


def euler(f: Field, G: Diffusion, t: Scalar, h: Scalar, x: State, noise: Noise) -> State:
    """x(t + h) by Euler-Maruyama: x + h f + G W; weak order 1, strong order 1 if G does not depend on x, else 1/2."""
    W, _ = noise
    # Written as a sum: a matrix product would be a library call in every step of the loop.
    return x + h * f(t, x) + jnp.sum(diffusion_at(G, t, x) * W[None, :], axis=1)


def milstein(f: Field, G: Diffusion, t: Scalar, h: Scalar, x: State, noise: Noise) -> State:
    """x(t + h) by the Milstein scheme for noise that commutes, L^j g_k = L^k g_j; strong and weak order 1.

    x + h f + G W + ½ Σ_jk L^j g_k (W_j W_k − h δ_jk), Kloeden and Platen (1992), equation (10.3.16). Noise commutes if
    there is one, if G does not depend on x, or if each noise acts on one state and by a g_i of x_i alone. For other
    noise the sum lacks the Lévy areas between two noises, and the scheme is no better than Euler-Maruyama.
    """
    step = euler(f, G, t, h, x, noise)
    if not callable(G):
        return step
    W, _ = noise
    products = W[:, None] * W[None, :] - h * jnp.eye(W.size, dtype=x.dtype)
    return step + 0.5 * jnp.sum(diffusion_slopes(G, t, x) * products[:, None, :], axis=(0, 2))


def shark(f: Field, G: Diffusion, t: Scalar, h: Scalar, x: State, noise: Noise) -> State:
    """x(t + h) by diffrax's ShARK: two drift evaluations, strong order 1.5 for a G that does not depend on x."""
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

    def matrix(t, x, _):
        return diffusion_at(G, jnp.asarray(t), x)

    W, H = noise
    drift = diffrax.ODETerm(lambda t, x, _: f(jnp.asarray(t), x))
    diffusion = diffrax.ControlTerm(matrix, Given(diffrax.SpaceTimeLevyArea(dt=h, W=W, H=H)))
    return diffrax.ShARK().step(diffrax.MultiTerm(drift, diffusion), t, t + h, x, None, None, False)[0]


SCHEMES: dict[str, Step] = {"euler": euler, "milstein": milstein, "shark": shark}


def draws(key: Key, noises: int) -> Draw:
    """The function that draws (W, H) of step number i and length h, afresh for each number."""

    def draw(i, h):
        w = jax.random.normal(jax.random.fold_in(key, 2 * i), (noises,))
        a = jax.random.normal(jax.random.fold_in(key, 2 * i + 1), (noises,))
        return jnp.sqrt(h) * w, jnp.sqrt(h / 12) * a

    return draw


def march(
    step: Step, f: Field, G: Diffusion, x0: State, times: Times, counts: Int[Array, "gaps"], draw: Draw
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
