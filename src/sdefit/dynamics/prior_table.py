"""Priors as tables such as `{ normal = [0, 1] }`: the numpyro distributions that a file may hold, by name."""

import importlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sdefit.errors import ModelError


class _Kind(NamedTuple):
    """A distribution of numpyro: its class, its arguments in order, and those that must be positive."""

    kind: str
    arguments: tuple[str, ...]
    positive: tuple[str, ...]


_KINDS = {
    "normal": _Kind("Normal", ("loc", "scale"), ("scale",)),
    "lognormal": _Kind("LogNormal", ("loc", "scale"), ("scale",)),
    "half_normal": _Kind("HalfNormal", ("scale",), ("scale",)),
    "uniform": _Kind("Uniform", ("low", "high"), ()),
    "gamma": _Kind("Gamma", ("concentration", "rate"), ("concentration", "rate")),
    "exponential": _Kind("Exponential", ("rate",), ("rate",)),
    "beta": _Kind("Beta", ("concentration1", "concentration0"), ("concentration1", "concentration0")),
}


def prior_table(prior: Any) -> dict[str, list[float]] | None:
    """The prior as a table of its name and numbers; None if it is no distribution that a file may hold."""
    if not type(prior).__module__.startswith("numpyro.distributions."):
        return None
    for name, one in _KINDS.items():
        if type(prior).__name__ == one.kind:
            numbers = [np.asarray(getattr(prior, word)) for word in one.arguments]
            return {name: [float(number) for number in numbers]} if all(n.ndim == 0 for n in numbers) else None
    return None


def prior_value(prior: Any) -> Any:
    """What a prior is compared by: its name and numbers, if a file may hold it, else itself."""
    table = prior_table(prior)
    return prior if table is None else tuple((name, tuple(numbers)) for name, numbers in table.items())


def prior_of(name: str, given: Any) -> Any:
    """The distribution of a table; `name` is the parameter's."""
    if not isinstance(given, Mapping) or len(given) != 1:
        raise ModelError(
            f"parameter {name!r}: prior must be a table of one distribution such as {{normal = [0, 1]}}, not {given!r}"
        )
    ((word, numbers),) = given.items()
    if word not in _KINDS:
        raise ModelError(f"parameter {name!r}: prior must be one of {', '.join(_KINDS)}, not {word!r}")
    one = _KINDS[word]
    said = f"parameter {name!r}: the prior {word} must have {len(one.arguments)} number(s), {', '.join(one.arguments)}"
    if not isinstance(numbers, list | tuple) or len(numbers) != len(one.arguments) or not all(map(_finite, numbers)):
        raise ModelError(f"{said}, not {numbers!r}")
    values = dict(zip(one.arguments, map(float, numbers), strict=True))
    if wrong := [word for word in one.positive if values[word] <= 0]:
        raise ModelError(f"{said}, and {wrong[0]} positive, not {values[wrong[0]]:g}")
    if word == "uniform" and not values["low"] < values["high"]:
        raise ModelError(f"{said}, the first below the second, not {numbers!r}")
    return getattr(importlib.import_module("numpyro.distributions"), one.kind)(**values)


def _finite(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
