"""Covariance functions of time with their two time derivatives.

A kernel is a function k(a, b) of two times with hyper-parameters φ = (scale, length, shape); kernels
without a shape ignore the third. `blocks` gives the matrices the method needs:
C = k, ʹC = ∂k/∂a, Cʹ = ∂k/∂b, ʹCʹ = ∂²k/∂a∂b, each over all pairs of times.
"""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Scalar, Times
from sdefit.errors import ModelError


class Blocks(NamedTuple):
    """A covariance of z over all pairs of times, and those of z with ż and of ż."""

    value: Float[Array, "times times"]
    left: Float[Array, "times times"]
    right: Float[Array, "times times"]
    both: Float[Array, "times times"]


class Kernel(eqx.Module):
    """A covariance function; settings only, none of them learned."""

    name: ClassVar[str]
    shaped: ClassVar[bool] = False  # whether `shape` is a hyper-parameter

    @abc.abstractmethod
    def blocks(self, times: Times, scale: Scalar, length: Scalar, shape: Scalar) -> Blocks:
        """The covariance and its time derivatives over all pairs of times (equations 26 to 28 of the paper)."""


class Stationary(Kernel):
    """A kernel of r = a − b alone: scale² · profile(|r|/length)."""

    @abc.abstractmethod
    def profile(self, s: Array, shape: Scalar) -> tuple[Array, Array, Array]:
        """The profile at s ≥ 0, its slope divided by s, and its second derivative."""

    def blocks(self, times, scale, length, shape):
        r = times[:, None] - times[None, :]
        value, slope_over_s, curve = self.profile(jnp.abs(r) / length, shape)
        left = scale**2 * slope_over_s * r / length**2
        return Blocks(scale**2 * value, left, -left, -(scale**2) * curve / length**2)


class RBF(Stationary):
    """The squared-exponential kernel exp(−s²/2): infinitely smooth."""

    name = "rbf"

    def profile(self, s, shape):
        value = jnp.exp(-(s**2) / 2)
        return value, -value, (s**2 - 1) * value


class Matern52(Stationary):
    """Matérn 5/2: twice differentiable; has an O(N) state-space form."""

    name = "matern52"

    def profile(self, s, shape):
        u = jnp.sqrt(5.0) * s
        decay = jnp.exp(-u)
        return (1 + u + u**2 / 3) * decay, -5 / 3 * (1 + u) * decay, -5 / 3 * (1 + u - u**2) * decay


class Matern32(Stationary):
    """Matérn 3/2: once differentiable, which is all that ż needs; has an O(N) state-space form."""

    name = "matern32"

    def profile(self, s, shape):
        u = jnp.sqrt(3.0) * s
        decay = jnp.exp(-u)
        return (1 + u) * decay, -3 * decay, -3 * (1 - u) * decay


class RationalQuadratic(Stationary):
    """(1 + s²/2α)^−α: a mixture of squared exponentials of many lengths; the shape is α."""

    name = "rational_quadratic"
    shaped = True

    def profile(self, s, shape):
        base = 1 + s**2 / (2 * shape)
        value = base**-shape
        slope = -value / base
        return value, slope, slope + s**2 * (1 + 1 / shape) * value / base**2


class Sigmoid(Kernel):
    """The arcsine kernel of a one-layer sigmoid network: not stationary, flat far from the origin.

    k = scale² · asin(n/√d), n = 2(β + ab/length²), d = (1 + 2β + 2a²/length²)(1 + 2β + 2b²/length²), with
    the shape β. Written as atan2(n, √(d − n²)): asin loses half its digits where n²/d nears 1.
    """

    name = "sigmoid"
    shaped = True

    def blocks(self, times, scale, length, shape):
        def k(a, b):
            u, v = a / length, b / length
            n = 2 * (shape + u * v)
            rest = 1 + 4 * shape + 2 * u**2 + 2 * v**2 + 4 * shape * (u - v) ** 2  # d − n², cancellation done by hand
            return scale**2 * jnp.arctan2(n, jnp.sqrt(rest))

        def pairs(f):
            return jax.vmap(jax.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(times, times)

        left = pairs(jax.grad(k, 0))
        return Blocks(pairs(k), left, left.T, pairs(jax.grad(jax.grad(k, 0), 1)))


KERNELS: dict[str, Kernel] = {k.name: k for k in (Matern52(), Matern32(), RBF(), RationalQuadratic(), Sigmoid())}


def get_kernel(name: str) -> Kernel:
    """The kernel of that name."""
    if name not in KERNELS:
        raise ModelError(f"kernel must be one of {', '.join(KERNELS)}, not {name!r}")
    return KERNELS[name]
