"""What the settings of a method may be, checked when it is made: each refusal is one line that names the setting."""

import math
from collections.abc import Sequence
from typing import Any

from sdefit import gp
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.matching.initial_guess import Box


def check_whole(method: Any, **least: int) -> None:
    """Refuse a setting that is not a whole number of at least so much; True is no number."""
    for word, lowest in least.items():
        number = getattr(method, word)
        if not (isinstance(number, int) and not isinstance(number, bool) and number >= lowest):
            raise _refusal(method, word, f"a whole number of at least {lowest}")


def check_above_zero(method: Any, *words: str) -> None:
    """Refuse a setting that is not a finite number above 0."""
    for word in words:
        if not (is_finite(number := getattr(method, word)) and number > 0):
            raise _refusal(method, word, "a number above 0")


def check_not_negative(method: Any, *words: str) -> None:
    """Refuse a setting that is not a finite number, 0 or above."""
    for word in words:
        if not (is_finite(number := getattr(method, word)) and number >= 0):
            raise _refusal(method, word, "0 or a number above it")


def check_choice(method: Any, **known: Sequence[str]) -> None:
    """Refuse a setting that is none of a few words."""
    for word, choices in known.items():
        given = getattr(method, word)
        if not (isinstance(given, str) and given in choices):
            raise _refusal(method, word, f"one of {', '.join(choices)}")


def check_flag(method: Any, *words: str) -> None:
    """Refuse a setting that is neither True nor False."""
    for word in words:
        if not isinstance(getattr(method, word), bool):
            raise _refusal(method, word, "True or False")


def check_matching(method: Any, least: dict[str, int], *above: str) -> None:
    """Refuse settings that MaRS and AReS share; those in `above` are numbers above 0, or None."""
    check_choice(method, kernel=tuple(gp.KERNELS))
    check_whole(method, **least)
    if method.samples % 2:
        raise _refusal(method, "samples", "even (half mirror the other half)")
    check_flag(method, "shared_gp")
    given = [word for word in ("ou_rate", *above) if getattr(method, word) is not None]
    check_above_zero(method, "jitter", *given)
    if method.theta_range is not None and not _is_range(method.theta_range):
        raise _refusal(method, "theta_range", "None or two numbers, the first below the second")


def check_free(method: Any, model: SDE) -> None:
    """Refuse a model in which every parameter is fixed: matching would have nothing to match with."""
    if not model.free:
        name = type(method).__name__
        raise ModelError(f"{name} needs one or more free parameters, but all are fixed; give one a range: sf.real()")


def box_of(model: SDE, theta_range: tuple[float, float] | None) -> Box | None:
    """The range in which θ is stepped, None for none; refused where a parameter can have no value in it."""
    if theta_range is None:
        return None
    low, high = theta_range
    for name, lower, upper in zip(model.free, model.bounds.lower, model.bounds.upper, strict=True):
        if not max(low, lower) < min(high, upper):
            raise ModelError(f"theta_range must meet the range of {name}, {lower:g} to {upper:g}, not {theta_range!r}")
    return Box.of(model, low, high)


def is_finite(number: Any) -> bool:
    """Whether a setting is a finite number; True and False are none."""
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)


def _is_range(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and all(map(is_finite, given)) and given[0] < given[1]


def _refusal(method: Any, word: str, wanted: str) -> ModelError:
    return ModelError(f"{type(method).__name__}: {word} must be {wanted}, not {getattr(method, word)!r}")


def check_widths(method: Any) -> None:
    """Refuse `widths` that are not the sizes of two layers."""
    widths = method.widths
    if not (isinstance(widths, tuple) and len(widths) == 2 and all(isinstance(n, int) and n > 0 for n in widths)):
        raise ModelError(f"{type(method).__name__}: widths must be two whole numbers of at least 1, not {widths!r}")
