"""Lognormal observation noise: log y = log h(t, x) + e."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from sdefit.dynamics.laws.law import Law


class Lognormal(Law):
    """log y ~ N(log h, sd²)."""

    name: ClassVar[str] = "lognormal"

    def gaussian_scale(self, value: Any) -> Any:
        return np.log(value) if isinstance(value, np.ndarray) else jnp.log(value)

    def log_slope(self, value: np.ndarray) -> np.ndarray:
        return -np.log(value)

    def measured(self, value: Any) -> Any:
        return np.exp(value) if isinstance(value, np.ndarray) else jnp.exp(value)

    def refusal(self, values: np.ndarray) -> str:
        lowest = np.nanmin(values, initial=np.inf)
        return "" if lowest > 0 else f"a lognormal observation must be positive, but {lowest:g} was observed"
