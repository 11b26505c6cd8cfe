"""`States`: the smoothed states of one series, with a band."""

import dataclasses
from statistics import NormalDist
from typing import Any

import numpy as np

from sdefit.display.charts import band_charts
from sdefit.display.notebook import by_state
from sdefit.errors import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class States:
    """The smoothed states of one series: mean, standard deviation and a band at each time, (N,) and (N, K).

    >>> between = fit.states([2.5, 2.7])
    >>> between.mean.shape, between.lower.shape
    ((2, 1), (2, 1))
    """

    times: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    names: tuple[str, ...]
    level: float

    def frame(self) -> Any:
        """A pandas data frame of one row for each time and state."""
        import pandas as pd  # here, not above: half a second that most uses do not need

        columns = {name: getattr(self, name) for name in ("mean", "std", "lower", "upper")}
        return pd.DataFrame(by_state(self.times, self.names, **columns))

    def plot(self, ax: Any = None) -> Any:
        """The mean of each state in its band: a matplotlib figure, or on the axes `ax`, one for each state."""
        from sdefit.display.plot import on_axes  # here, not above: matplotlib takes half a second

        return on_axes(band_charts(self.times, self.names, self.mean, self.lower, self.upper, self.level), ax)


def band(times: np.ndarray, mean: np.ndarray, std: np.ndarray, names: tuple[str, ...], level: float) -> States:
    """The states of a mean and a standard deviation, normal about each mean."""
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level!r}")
    half = NormalDist().inv_cdf(0.5 + level / 2) * std
    return States(times, mean, std, mean - half, mean + half, names, level)
