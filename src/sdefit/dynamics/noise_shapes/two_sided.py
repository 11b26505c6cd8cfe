"""Forms between two edges, logistic and Jacobi, and one without an edge."""

import dataclasses
import math
from typing import Any

from sdefit.dynamics.noise_shapes.shape import (
    LARGEST_EXPONENT,
    Constant,
    NoiseShape,
    array_module,
    difference,
    number,
)

LARGEST_LOGIT = 30.0  # beyond it 1 - sigmoid(z) has too few digits left to be divided by
LEAST_SINE = 1e-6  # keeps x a relative distance of 2.5e-13 from the ends of an interval


@dataclasses.dataclass(frozen=True)
class _Interval(NoiseShape):
    """A form on an interval."""

    low: Constant
    high: Constant

    @property
    def domain(self) -> tuple[Any, Any]:
        return self.low, self.high


@dataclasses.dataclass(frozen=True)
class Logistic(_Interval):
    """g₀ = (x − a)(b − x)/(b − a), which is x(1 − x/k) on (0, k); z = log((x − a)/(b − x))."""

    def to_z(self, x: Any) -> Any:
        return array_module(x).log((x - self.low) / (self.high - x))

    def to_x(self, z: Any) -> Any:
        return self.low + (self.high - self.low) / (1.0 + self._odds_against(z))

    def g0(self, z: Any) -> Any:
        odds = self._odds_against(z)
        return (self.high - self.low) * odds / (1.0 + odds) ** 2

    def slope(self, z: Any) -> Any:
        return -array_module(z).tanh(z / 2)

    def formula(self, x: str) -> str:
        left, right = difference(x, self.low), difference(self.high, x)
        return f"log({left if left == x else f'({left})'}/({right}))"

    def _odds_against(self, z: Any) -> Any:
        xp = array_module(z)
        return xp.exp(-xp.clip(z, -LARGEST_LOGIT, LARGEST_LOGIT))


@dataclasses.dataclass(frozen=True)
class Jacobi(_Interval):
    """g₀ = √((x − a)(b − x)); z = 2 arcsin √((x − a)/(b − a)), between 0 and π."""

    @property
    def middle(self) -> float:
        return math.pi / 2

    def to_z(self, x: Any) -> Any:
        xp = array_module(x)
        return 2.0 * xp.arctan2(xp.sqrt(x - self.low), xp.sqrt(self.high - x))

    def to_x(self, z: Any) -> Any:
        xp = array_module(z)
        fraction = xp.clip(xp.sin(z / 2) ** 2, LEAST_SINE**2 / 4, 1.0 - LEAST_SINE**2 / 4)
        return self.low + (self.high - self.low) * fraction

    def g0(self, z: Any) -> Any:
        return (self.high - self.low) / 2 * self._sine(z)

    def slope(self, z: Any) -> Any:
        return array_module(z).cos(z) / self._sine(z)

    def away_from_edges(self, z: Any, distance: Any) -> Any:
        xp = array_module(z)
        angle = xp.mod(z, 2 * math.pi)
        room = xp.minimum(distance, math.pi / 2)
        return xp.clip(xp.where(angle > math.pi, 2 * math.pi - angle, angle), room, math.pi - room)

    def formula(self, x: str) -> str:
        left, width = difference(x, self.low), difference(self.high, self.low)
        left, width = (one if one.isalnum() else f"({one})" for one in (left, width))
        return f"2*asin(sqrt({left if width == '1' else f'{left}/{width}'}))"

    def _sine(self, z: Any) -> Any:
        xp = array_module(z)
        return xp.maximum(xp.abs(xp.sin(z)), LEAST_SINE)


@dataclasses.dataclass(frozen=True)
class Hyperbolic(NoiseShape):
    """g₀ = √(b² + (x − a)²); z = arsinh((x − a)/b)."""

    centre: Constant
    width: Constant

    @property
    def domain(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def to_z(self, x: Any) -> Any:
        return array_module(x).arcsinh((x - self.centre) / self.width)

    def to_x(self, z: Any) -> Any:
        xp = array_module(z)
        return self.centre + self.width * xp.sinh(xp.clip(z, -LARGEST_EXPONENT, LARGEST_EXPONENT))

    def g0(self, z: Any) -> Any:
        xp = array_module(z)
        return self.width * xp.cosh(xp.clip(z, -LARGEST_EXPONENT, LARGEST_EXPONENT))

    def slope(self, z: Any) -> Any:
        return array_module(z).tanh(z)

    def formula(self, x: str) -> str:
        inner = difference(x, self.centre)
        return f"asinh({inner})" if self.width == 1 else f"asinh(({inner})/{number(self.width)})"
