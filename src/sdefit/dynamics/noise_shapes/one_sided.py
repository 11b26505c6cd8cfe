"""Forms on one side of an edge: linear noise, powers, and powers with an estimated exponent."""

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

FURTHEST = 1e12  # a power is taken of y between 1/FURTHEST and FURTHEST only


@dataclasses.dataclass(frozen=True)
class _OneSided(NoiseShape):
    """A form on one side of `edge`: a function of the distance y = ±(x − edge), as `side` is 1 or −1."""

    edge: Constant
    side: int

    @property
    def domain(self) -> tuple[Any, Any]:
        return (self.edge, math.inf) if self.side == 1 else (-math.inf, self.edge)

    def distance(self, x: Any) -> Any:
        return self.side * (x - self.edge)

    def place(self, distance: Any) -> Any:
        return self.edge + self.side * distance

    def distance_text(self, x: str) -> str:
        return difference(x, self.edge) if self.side == 1 else difference(self.edge, x)


@dataclasses.dataclass(frozen=True)
class Linear(_OneSided):
    """g₀ = y, as in geometric Brownian motion; z = log y."""

    def to_z(self, x: Any) -> Any:
        return self.side * array_module(x).log(self.distance(x))

    def to_x(self, z: Any) -> Any:
        return self.place(self.g0(z))

    def g0(self, z: Any) -> Any:
        xp = array_module(z)
        return xp.exp(xp.clip(self.side * z, -LARGEST_EXPONENT, LARGEST_EXPONENT))

    def slope(self, z: Any) -> Any:
        return self.side * array_module(z).ones_like(z)

    def formula(self, x: str) -> str:
        return f"{'' if self.side == 1 else '-'}log({self.distance_text(x)})"


@dataclasses.dataclass(frozen=True)
class Power(_OneSided):
    """g₀ = y^γ with a fixed γ other than 1; z = y^(1 − γ)/(1 − γ), which is 2√y for γ = ½."""

    exponent: float

    @property
    def _rest(self) -> float:
        return 1.0 - self.exponent

    @property
    def middle(self) -> float:
        return self.side / self._rest

    def to_z(self, x: Any) -> Any:
        return self.side * self.distance(x) ** self._rest / self._rest

    def to_x(self, z: Any) -> Any:
        return self.place(_raised(self._base(z), 1.0 / self._rest))

    def g0(self, z: Any) -> Any:
        return _raised(self._base(z), self.exponent / self._rest)

    def slope(self, z: Any) -> Any:
        return self.side * self.exponent / self._base(z)

    def away_from_edges(self, z: Any, distance: Any) -> Any:
        xp = array_module(z)
        return math.copysign(1.0, self.middle) * xp.maximum(xp.abs(z), distance)

    def formula(self, x: str) -> str:
        y, rest = self.distance_text(x), abs(self._rest)
        sign = "" if self.side * self._rest > 0 else "-"
        grown = (
            f"sqrt({y})" if rest == 0.5 else (y if y == x else f"({y})") + ("" if rest == 1 else f"**{number(rest)}")
        )
        if self._rest < 0:
            return f"{sign}{number(1 / rest)}/{grown}"
        return f"{sign}{'' if rest == 1 else number(1 / rest) + '*'}{grown}"

    def _base(self, z: Any) -> Any:
        """y^(1 − γ)."""
        low, high = sorted((FURTHEST**-self._rest, FURTHEST**self._rest))
        xp = array_module(z)
        return xp.clip(xp.abs(self._rest * z), low, high)


@dataclasses.dataclass(frozen=True)
class NamedPower(_OneSided):
    """g₀ = y^γ where γ is a parameter; z = (y^(1 − γ) − 1)/(1 − γ), which is log y where γ = 1 (Box and Cox)."""

    exponent: Constant

    def to_z(self, x: Any) -> Any:
        xp = array_module(x)
        grown, rest = xp.log(self.distance(x)), 1.0 - self.exponent
        small = xp.abs(rest) < 1e-8
        z = xp.where(small, grown, xp.expm1(rest * grown) / xp.where(small, 1.0, rest))
        return self.side * z

    def to_x(self, z: Any) -> Any:
        return self.place(array_module(z).exp(self._log_distance(z)))

    def g0(self, z: Any) -> Any:
        return array_module(z).exp(self.exponent * self._log_distance(z))

    def slope(self, z: Any) -> Any:
        return self.side * self.exponent * array_module(z).exp((self.exponent - 1.0) * self._log_distance(z))

    def away_from_edges(self, z: Any, distance: Any) -> Any:
        xp, rest = array_module(z), 1.0 - self.exponent
        far = xp.abs(rest) < 1e-3  # then the end, at -1/(1 - γ), is out of reach
        end = -self.side / xp.where(far, 1.0, rest)
        inward = -xp.sign(end)
        return xp.where(far, z, end + inward * xp.maximum(xp.abs(z - end), distance))

    def formula(self, x: str) -> str:
        y, rest = self.distance_text(x), f"(1 - {self.exponent})"
        text = f"({y if y == x else f'({y})'}**{rest} - 1)/{rest}"
        return text if self.side == 1 else f"-{text}"

    def _log_distance(self, z: Any) -> Any:
        """log(1 + (1 − γ) z)/(1 − γ), by its series where γ is close to 1: its derivative in γ is wanted too."""
        xp = array_module(z)
        z, rest = self.side * z, 1.0 - self.exponent
        part = rest * z
        part = xp.where(part < -1.0, -2.0 - part, part)  # the mirror image
        small = xp.abs(part) < 1e-3
        series = z * (1.0 - part / 2 + part**2 / 3 - part**3 / 4 + part**4 / 5)
        inside = xp.maximum(xp.where(small, 1.0, part), 1.0 / FURTHEST - 1.0)
        exact = xp.log1p(inside) / xp.where(small, 1.0, rest)
        return xp.clip(xp.where(small, series, exact), -math.log(FURTHEST), math.log(FURTHEST))


def _raised(base: Any, exponent: float) -> Any:
    """A power of a positive number, as a product where that is exact."""
    whole = round(exponent)
    return base**whole if abs(exponent - whole) < 1e-12 and abs(whole) <= 8 else base**exponent
