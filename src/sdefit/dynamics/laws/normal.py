"""Normal observation noise: y = h(t, x) + e."""

from typing import Any, ClassVar

import numpy as np

from sdefit.dynamics.laws.law import Law


class Normal(Law):
    """y ~ N(h, sd²)."""

    name: ClassVar[str] = "normal"

    def gaussian_scale(self, value: Any) -> Any:
        return value

    def log_slope(self, value: np.ndarray) -> np.ndarray:
        return np.zeros_like(value)

    def measured(self, value: Any) -> Any:
        return value
