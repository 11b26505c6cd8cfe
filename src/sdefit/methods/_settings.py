"""Checks of settings that several methods share."""

import math
from typing import Any

from sdefit import gp
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError


def check_settings(name: str, settings: Any, least: dict[str, int], above: tuple[str, ...] = ()) -> None:
    """Refuse, in one line, settings that are no whole number of at least so much, or no number above 0."""
    gp.get_kernel(settings.kernel)
    for word, lowest in least.items():
        number = getattr(settings, word)
        if not (isinstance(number, int) and not isinstance(number, bool) and number >= lowest):
            raise ModelError(f"{name}: {word} must be a whole number of at least {lowest}, not {number!r}")
    if settings.samples % 2:
        raise ModelError(f"{name}: samples must be even (half mirror the other half), not {settings.samples}")
    for word in ("ou_rate", "jitter", *above):
        number = getattr(settings, word)
        usable = isinstance(number, int | float) and 0 < number < math.inf
        if not usable and not (number is None and word in ("ou_rate", "clip")):
            raise ModelError(f"{name}: {word} must be a number above 0, not {number!r}")


def check_free(name: str, model: SDE) -> None:
    """Refuse a model in which every parameter is fixed: matching would have nothing to match with."""
    if not model.free:
        raise ModelError(f"{name} needs one or more free parameters, but all are fixed; give one a range: sf.real()")
