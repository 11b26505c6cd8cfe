"""What every observation law is: a scale on which its noise is Gaussian, and the standard deviation there.

A law with a file of its own is all that a new one takes, as long as its noise is Gaussian on some scale. A law that is
Gaussian on none (counts, heavy tails) will need an approximation of its likelihood at each observation.
"""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import numpy as np

from sdefit.errors import ModelError

# Estimated (None), known (a number), a formula (text), or a function of (t, x, p).
Spread: TypeAlias = float | str | Callable[[Any, Any, Any], Any] | None


@dataclasses.dataclass(frozen=True)
class Law(abc.ABC):
    """The law of one observed column; `sd` is its standard deviation on the scale where it is Gaussian."""

    sd: Spread = None

    name: ClassVar[str]

    def __post_init__(self) -> None:
        if self.sd is None or isinstance(self.sd, str) or callable(self.sd):
            return
        if isinstance(self.sd, bool) or not isinstance(self.sd, int | float | np.number):
            raise ModelError(f"sd must be None (estimated), a number, a formula or a callable, not {self.sd!r}")
        if not (math.isfinite(self.sd) and self.sd >= 0):
            raise ModelError(f"sd must be zero or positive, a standard deviation, not {self.sd!r}")
        object.__setattr__(self, "sd", float(self.sd))

    @property
    def estimated(self) -> bool:
        """Whether the standard deviation is one number that is estimated."""
        return self.sd is None

    @abc.abstractmethod
    def gaussian_scale(self, value: Any) -> Any:
        """What is measured, or h, on the scale where the noise is Gaussian."""

    @abc.abstractmethod
    def log_slope(self, value: np.ndarray) -> np.ndarray:
        """log of the derivative of `gaussian_scale`: a density there is turned into one of the measured value by it."""

    @abc.abstractmethod
    def measured(self, value: Any) -> Any:
        """The way back from the Gaussian scale."""

    def refusal(self, values: np.ndarray) -> str:
        """Why these observed numbers cannot be of the law; empty if they can."""
        return ""
