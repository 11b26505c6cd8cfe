"""Closed forms g₀(x) of noise that depends on its own state, and the coordinate z = ∫ dx/g₀(x) of each.

Every z increases with x. A constant of a form is a number, or the name of the parameter that it is; `at` puts numbers
in place of names. Where z ends at a finite edge (√x at zero) a z beyond the edge stands for its mirror image, as the
process itself is reflected there, and x stays a little inside its domain, so that every value is finite.
"""

import abc
import dataclasses
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Self, TypeAlias

import jax.numpy as jnp
import numpy as np

from sdefit.dynamics.expressions import number_text

Constant: TypeAlias = Any  # a number, the name of a parameter, or a traced number in its place

LARGEST_EXPONENT = 230.0  # exp(230) = 1e100: its cube is still finite


def array_module(value: Any) -> ModuleType:
    """NumPy for numbers and arrays of NumPy, else JAX's own."""
    return np if isinstance(value, np.ndarray | np.generic | float | int) else jnp


@dataclasses.dataclass(frozen=True)
class NoiseShape(abc.ABC):
    """How the noise of a state depends on that state, up to a factor."""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters among its constants."""
        return tuple(one for one in dataclasses.astuple(self) if isinstance(one, str))

    def at(self, p: Mapping[str, Any]) -> Self:
        """The form with numbers in place of names."""
        named = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return dataclasses.replace(self, **{name: p[one] for name, one in named.items() if isinstance(one, str)})

    @property
    @abc.abstractmethod
    def domain(self) -> tuple[Any, Any]:
        """The ends of the open interval in which x is."""

    @property
    def middle(self) -> Any:
        """A z well inside its range."""
        return 0.0

    @abc.abstractmethod
    def to_z(self, x: Any) -> Any:
        """z of x inside the domain."""

    @abc.abstractmethod
    def to_x(self, z: Any) -> Any:
        """x of any z."""

    @abc.abstractmethod
    def g0(self, z: Any) -> Any:
        """g₀ at x(z), which is positive."""

    @abc.abstractmethod
    def slope(self, z: Any) -> Any:
        """dg₀/dx at x(z)."""

    def away_from_edges(self, z: Any, distance: Any) -> Any:
        """z at least so far inside its range, where that has a finite end; a z beyond it is mirrored first."""
        return z

    @abc.abstractmethod
    def formula(self, x: str) -> str:
        """z in terms of x, as text."""

    def domain_text(self, x: str) -> str:
        """The domain, as a condition on x."""
        low, high = (one if isinstance(one, str) else float(one) for one in self.domain)
        if low == -math.inf:
            return f"a real {x}" if high == math.inf else f"{x} < {number(high)}"
        return f"{x} > {number(low)}" if high == math.inf else f"{number(low)} < {x} < {number(high)}"


def number(value: Constant) -> str:
    """A constant as text; a name stands for itself."""
    return value if isinstance(value, str) else number_text(float(f"{float(value):.10g}"))


def difference(a: Constant, b: Constant) -> str:
    """a − b as text."""
    if not isinstance(a, str) and not isinstance(b, str):
        return number(a - b)
    if not isinstance(b, str) and b <= 0:
        return number(a) if b == 0 else f"{number(a)} + {number(-b)}"
    return f"-{number(b)}" if not isinstance(a, str) and a == 0 else f"{number(a)} - {number(b)}"
