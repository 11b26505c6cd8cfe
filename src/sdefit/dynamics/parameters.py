"""What a parameter may be: real, positive, inside an interval, or fixed.

A free parameter θ is optimised through an unconstrained coordinate u: θ = u, lower + exp(u),
upper − exp(u) or lower + (upper − lower)·sigmoid(u), by which of its bounds are finite.
"""

import contextlib
import dataclasses
import itertools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Theta
from sdefit.errors import ModelError


@dataclasses.dataclass(frozen=True)
class Parameter:
    """The range of one parameter, with an optional start value, fixed value or prior.

    A prior is a numpyro distribution, or anything with `log_prob`. Its support narrows the range; its mean is where a
    search starts unless `start` says otherwise. Methods with a likelihood weigh it in, matching methods do not.

    >>> print(sf.Parameter(lower=0, upper=2, start=1))
    in (0, 2), start 1
    """

    lower: float = -math.inf
    upper: float = math.inf
    start: float | None = None
    value: float | None = None
    prior: Any = None

    def __post_init__(self) -> None:
        for field in ("lower", "upper", "start", "value"):
            given = getattr(self, field)
            if given is not None:
                object.__setattr__(self, field, _number(_WORDS[field], given))
        if self.prior is not None:
            self._take_prior()
        if not self.lower < self.upper:
            raise ModelError(f"a parameter's lower bound must be below its upper, but {self.lower} >= {self.upper}")
        if self.start is not None and self.value is not None:
            raise ModelError("a parameter must have a start or a fixed value, not both; a fixed one is not estimated")
        if self.start is not None and not self.lower < self.start < self.upper:
            raise ModelError(f"a parameter's start must lie inside {self._range}, but {self.start:g} was given")
        if self.value is not None and not self.lower <= self.value <= self.upper:
            raise ModelError(f"a parameter's fixed value must lie inside {self._range}, but {self.value:g} was given")

    def _take_prior(self) -> None:
        if not callable(getattr(self.prior, "log_prob", None)):
            raise ModelError(f"a parameter's prior must be a numpyro distribution, not {self.prior!r}")
        if self.value is not None:
            raise ModelError("a parameter must have a prior or a fixed value, not both; a fixed one is not estimated")
        support = getattr(self.prior, "support", None)
        object.__setattr__(self, "lower", max(self.lower, float(getattr(support, "lower_bound", -math.inf))))
        object.__setattr__(self, "upper", min(self.upper, float(getattr(support, "upper_bound", math.inf))))
        mean = float(getattr(self.prior, "mean", math.nan))
        if self.start is None and math.isfinite(mean) and self.lower < mean < self.upper:
            object.__setattr__(self, "start", mean)

    @property
    def fixed(self) -> bool:
        return self.value is not None

    def __str__(self) -> str:
        if self.value is not None:
            return f"fixed at {self.value:g}"
        prior = "" if self.prior is None else f", prior {self.prior}"
        return self._kind + ("" if self.start is None else f", start {self.start:g}") + prior

    @property
    def _kind(self) -> str:
        match math.isfinite(self.lower), math.isfinite(self.upper):
            case True, True:
                return f"in {self._range}"
            case True, False:
                return "positive" if self.lower == 0 else f"above {self.lower:g}"
            case False, True:
                return "negative" if self.upper == 0 else f"below {self.upper:g}"
            case _:
                return "real"

    @property
    def _range(self) -> str:
        return f"({self.lower:g}, {self.upper:g})"


_WORDS = {"lower": "lower bound", "upper": "upper bound", "start": "start", "value": "fixed value"}


def _number(word: str, given: Any) -> float:
    """The number as a float; only a bound may be infinite."""
    number = None
    if not isinstance(given, bool | str | bytes):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(given)
    if number is None:
        raise ModelError(f"a parameter's {word} must be a number, not {given!r}")
    if math.isnan(number) or (math.isinf(number) and not word.endswith("bound")):
        raise ModelError(f"a parameter's {word} must be a finite number, not {number}")
    return number


def real(start: float | None = None, prior: Any = None) -> Parameter:
    """A parameter that may be any real number; `prior` may be a numpyro distribution.

    >>> print(sf.real(start=-1))
    real, start -1
    """
    return Parameter(start=start, prior=prior)


def positive(start: float | None = None, prior: Any = None) -> Parameter:
    """A parameter that is greater than zero; `prior` may be a numpyro distribution.

    >>> from numpyro.distributions import LogNormal
    >>> sf.positive(prior=LogNormal(0, 1)).start  # the mean of the prior
    1.6487...
    """
    return Parameter(lower=0.0, start=start, prior=prior)


def interval(lower: float, upper: float, start: float | None = None, prior: Any = None) -> Parameter:
    """A parameter between two bounds; `prior` may be a numpyro distribution.

    >>> print(sf.interval(0, 1))
    in (0, 1)
    """
    return Parameter(lower=lower, upper=upper, start=start, prior=prior)


def fixed(value: float) -> Parameter:
    """A parameter held at a known value; it is not estimated.

    >>> sf.equations("dx = rate*(level - x)", params={"level": sf.fixed(2)}).free
    ('rate',)
    """
    return Parameter(value=_number("fixed value", value))


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The bounds of a vector of free parameters, and the way to and from unconstrained numbers."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    @classmethod
    def of(cls, parameters: Sequence[Parameter]) -> "Bounds":
        return cls(tuple(p.lower for p in parameters), tuple(p.upper for p in parameters))

    def constrain(self, u: Theta) -> Theta:
        """The parameters θ(u), each inside its bounds."""
        return self._by_kind(_constrain, u)

    def unconstrain(self, theta: Theta) -> Theta:
        """The unconstrained coordinates u(θ); a θ on or outside a bound is first moved just inside."""
        return self._by_kind(_unconstrain, theta)

    @property
    def edges(self) -> Theta:
        """The finite bound of each parameter, the lower of two; 0 where there is none."""
        finite = [low if math.isfinite(low) else high if math.isfinite(high) else 0.0 for low, high in self._pairs]
        return jnp.array(finite)

    def _by_kind(self, one: Callable[[Theta, np.ndarray, np.ndarray], Theta], v: Theta) -> Theta:
        """`one` of each run of parameters with bounds of a kind: as few operations as can be."""
        ends = np.array([self.lower, self.upper])
        changes = np.flatnonzero(np.any(np.diff(np.isfinite(ends), axis=1), axis=0)) + 1
        runs = [slice(*pair) for pair in itertools.pairwise([0, *changes, ends.shape[1]])]
        return jnp.concatenate([one(v[run], *ends[:, run]) for run in runs]) if v.size else v

    @property
    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.lower, self.upper, strict=True))


def _constrain(u: Theta, lower: np.ndarray, upper: np.ndarray) -> Theta:
    match math.isfinite(lower[0]), math.isfinite(upper[0]):
        case True, True:
            # Not lower + (upper - lower) * sigmoid(u), whose rounding can step over the upper bound.
            return jax.nn.sigmoid(-u) * lower + jax.nn.sigmoid(u) * upper
        case True, False:
            return jnp.exp(u) + lower
        case False, True:
            return -jnp.exp(u) + upper
        case _:
            return u


def _unconstrain(theta: Theta, lower: np.ndarray, upper: np.ndarray) -> Theta:
    match math.isfinite(lower[0]), math.isfinite(upper[0]):
        case True, True:
            edge = 1e-12 * (upper - lower)
            inside = jnp.clip(theta, lower, upper)
            return jnp.log(jnp.maximum(inside - lower, edge)) - jnp.log(jnp.maximum(upper - inside, edge))
        case True, False:
            return jnp.log(jnp.maximum(theta - lower, _edge(lower)))
        case False, True:
            return jnp.log(jnp.maximum(upper - theta, _edge(upper)))
        case _:
            return theta


def _edge(bound: np.ndarray) -> np.ndarray:
    """The least distance kept from a bound: above its rounding, and a number that is not 0."""
    return np.maximum(np.finfo(np.float64).tiny, 1e-12 * np.abs(bound))


def as_parameters(given: Mapping[str, Parameter | float]) -> dict[str, Parameter]:
    """The mapping with plain numbers read as fixed parameters; anything else is refused by name."""
    if not isinstance(given, Mapping):
        raise ModelError(f"params must be a mapping of names to ranges, not {type(given).__name__}")
    return {name: _as_parameter(name, one) for name, one in given.items()}


def _as_parameter(name: str, given: Parameter | float) -> Parameter:
    if isinstance(given, Parameter):
        return given
    if isinstance(given, numbers.Real) and not isinstance(given, bool):
        return fixed(float(given))
    raise ModelError(
        f"parameter {name!r} must be sf.real(), sf.positive(), sf.interval(a, b), sf.fixed(v) or a number, "
        f"not {given!r}"
    )
