"""The quantities that get an interval: θ, the entries of G, of G Gᵀ and σ, by name and in coordinates of their own."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from sdefit.dynamics.sde import SDE
from sdefit.uncertainty.bootstrap import Values

Entry = tuple[int, int]
_TINY = np.finfo(float).tiny  # the smallest distance from a bound, in any units
Transform = Callable[[np.ndarray, float, float], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Quantities:
    """The quantities of a model, in the order of its intervals.

    Coordinates are those in which errors look most alike wherever the truth is: θ unconstrained (the logarithm of a
    positive one), standard deviations for σ, G_kk and the diagonal of G Gᵀ, other entries as they are.
    """

    model: SDE

    @property
    def entries(self) -> list[Entry]:
        """The entries of G, and of G Gᵀ, that the model's structure leaves free; one stands for a scalar G."""
        K = len(self.model.states)
        lower = [(i, j) for i in range(K) for j in range(i + 1)]
        diagonal = [(i, i) for i in range(K)]
        return {"full": lower, "diagonal": diagonal, "scalar": [(0, 0)], "none": []}[self.model.diffusion]

    @property
    def names(self) -> list[str]:
        """a, ..., G[x,x], ..., GGt[x,x], ..., noise[x], ..."""
        states = self.model.states

        def label(word: str, i: int, j: int) -> str:
            return word if self.model.diffusion == "scalar" else f"{word}[{states[i]},{states[j]}]"

        matrices = [label(word, i, j) for word in ("G", "GGt") for i, j in self.entries]
        return [*self.model.free, *matrices, *(f"noise[{state}]" for state in states)]

    @property
    def scales(self) -> np.ndarray:
        """Which quantities are standard deviations or variances: their coordinates end at 0."""
        diagonal = [i == j for i, j in self.entries]
        return np.array([False] * len(self.model.free) + diagonal * 2 + [True] * len(self.model.states))

    @property
    def squared(self) -> np.ndarray:
        """Which quantities are the square of their coordinate."""
        diagonal = [i == j for i, j in self.entries]
        none = [False] * len(self.entries)
        return np.array([False] * len(self.model.free) + none + diagonal + [False] * len(self.model.states))

    def values(self, values: Values) -> np.ndarray:
        """Every quantity along the last axis."""
        G, noise = np.asarray(values.G), np.asarray(values.noise)
        rows, columns = np.array(self.entries, int).reshape(-1, 2).T
        GGt = G @ np.swapaxes(G, -1, -2)
        return np.concatenate([np.asarray(values.theta), G[..., rows, columns], GGt[..., rows, columns], noise], -1)

    def coordinates(self, values: np.ndarray) -> np.ndarray:
        """The coordinates of quantities, which are along the last axis."""
        rest = np.where(self.squared, np.sqrt(np.maximum(values, 0.0)), values)
        return self._through(unconstrain, rest)

    def back(self, coordinates: np.ndarray) -> np.ndarray:
        """The quantities at these coordinates; a standard deviation below 0 is 0."""
        rest = np.where(self.scales, np.maximum(coordinates, 0.0), coordinates)
        return self._through(constrain, np.where(self.squared, rest**2, rest))

    def coordinate_errors(self, values: np.ndarray, std: np.ndarray) -> np.ndarray:
        """Standard errors of the coordinates, from those of the quantities.

        A variance of 0 whose standard error is s may be as large as s, and so its root as √s.
        """
        result, bounds = np.array(std, float), self.model.bounds
        for k, (lower, upper) in enumerate(zip(bounds.lower, bounds.upper, strict=True)):
            result[k] = std[k] / growth(values[k], lower, upper)
        deviation = np.sqrt(np.maximum(values, 0.0))
        small = np.sqrt(np.maximum(std, 0.0))
        return np.where(
            self.squared, np.where(deviation > 0, std / np.where(deviation > 0, 2 * deviation, 1.0), small), result
        )

    def _through(self, transform: Transform, values: np.ndarray) -> np.ndarray:
        """All values with those of θ transformed, each within its bounds."""
        result, bounds = values.astype(float), self.model.bounds
        for k, (lower, upper) in enumerate(zip(bounds.lower, bounds.upper, strict=True)):
            result[..., k] = transform(values[..., k], lower, upper)
        return result


def unconstrain(theta: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """The unconstrained coordinate of one parameter, as `Bounds.unconstrain`; a value at its bound is far out."""
    below, above = np.maximum(theta - lower, _TINY), np.maximum(upper - theta, _TINY)
    match math.isfinite(lower), math.isfinite(upper):
        case True, True:
            return np.log(below) - np.log(above)
        case True, False:
            return np.log(below)
        case False, True:
            return np.log(above)
        case _:
            return theta


def growth(theta: float, lower: float, upper: float) -> float:
    """How fast one parameter grows with its unconstrained coordinate, up to its sign."""
    below, above = max(theta - lower, _TINY), max(upper - theta, _TINY)
    match math.isfinite(lower), math.isfinite(upper):
        case True, True:
            return below / (upper - lower) * above
        case True, False:
            return below
        case False, True:
            return above
        case _:
            return 1.0


def constrain(u: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """One parameter from its unconstrained coordinate, as `Bounds.constrain`."""
    with np.errstate(over="ignore"):
        match math.isfinite(lower), math.isfinite(upper):
            case True, True:
                return lower / (1 + np.exp(u)) + upper / (1 + np.exp(-u))
            case True, False:
                return lower + np.exp(u)
            case False, True:
                return upper - np.exp(u)
            case _:
                return u
