"""What a drawing is: lines, bands and dots on one pair of axes, before any of it is ink.

A `Chart` holds the numbers and their roles only. `svg.py` writes it into a page in a millisecond, and
`plot.py` draws the same chart with matplotlib, which takes half a second to import.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

# The colour-blind safe palette of Okabe and Ito, by name. The page's style sheet gives each name a
# second value for dark backgrounds.
COLOURS = {
    "ink": "#1f2328",
    "muted": "#6a737d",
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
}
CYCLE = ("blue", "vermilion", "green", "purple", "orange", "sky")
DASHES = ("", "7 3", "2 3", "8 3 2 3")
DRAWN = 1000  # more points than this are thinned before they are drawn; no screen shows more


@dataclasses.dataclass(frozen=True)
class Line:
    """A line through points; a point that is not a number breaks it."""

    x: np.ndarray
    y: np.ndarray
    colour: str
    label: str = ""
    dash: str = ""
    width: float = 1.8
    opacity: float = 1.0


@dataclasses.dataclass(frozen=True)
class Band:
    """The area between two lines."""

    x: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    colour: str
    label: str = ""
    opacity: float = 0.22


@dataclasses.dataclass(frozen=True)
class Dots:
    """Separate points."""

    x: np.ndarray
    y: np.ndarray
    colour: str
    label: str = ""
    size: float = 4.0
    opacity: float = 0.8


Mark = Line | Band | Dots


@dataclasses.dataclass(frozen=True)
class Chart:
    """Marks on one pair of axes, drawn in order; `alt` is what a screen reader says instead."""

    title: str
    marks: Sequence[Mark]
    alt: str
    across: str = "time"
    up: str = ""
    limits: tuple[float, float] | None = None
    log: bool = False
    square: bool = False
    names: Sequence[str] = ()  # of the places 0, 1, ... across, where those are kinds and not numbers


def keys(charts: Sequence[Chart]) -> list[Mark]:
    """The first mark of each label: the legend of several charts together."""
    seen: dict[str, Mark] = {}
    for chart in charts:
        for mark in chart.marks:
            if mark.label:
                seen.setdefault(mark.label, mark)
    return list(seen.values())


_LARGEST = 1e300  # drawn: the differences of larger numbers overflow


def thin(x: np.ndarray, y: np.ndarray, limit: int = DRAWN) -> np.ndarray:
    """Places of at most about `limit` points that keep the least and the greatest y of every stretch of x.

    A drawing of them looks like one of all points, peaks included, which a plain stride would lose.
    """
    if len(x) <= limit:
        return np.arange(len(x))
    stretches = np.array_split(np.arange(len(x)), max(limit // 2, 1))
    kept = [part[[_place(y[part], np.argmin, np.inf), _place(y[part], np.argmax, -np.inf)]] for part in stretches]
    return np.unique(np.concatenate([[0], *kept, [len(x) - 1]]))


def _place(y: np.ndarray, pick, missing: float) -> int:
    return int(pick(np.where(np.isnan(y), missing, y)))


def extent(values: Sequence[np.ndarray], pad: float = 0.04) -> tuple[float, float]:
    """The range of all numbers that can be drawn with some air around it."""
    finite = np.concatenate([np.ravel(np.asarray(v, float)) for v in values] or [np.zeros(1)])
    finite = finite[np.abs(finite) <= _LARGEST]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    air = pad * (high - low) or 0.5 * (abs(high) or 1.0)
    return low - air, high + air


def spans(chart: Chart) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ranges of both axes, from the marks or from the chart's own limits."""
    across = extent([mark.x for mark in chart.marks], pad=0.02)
    if chart.names:
        across = -0.5, len(chart.names) - 0.5
    if chart.limits and chart.limits[0] < chart.limits[1]:
        return across, chart.limits
    heights = [h for mark in chart.marks for h in ((mark.lower, mark.upper) if isinstance(mark, Band) else (mark.y,))]
    if not chart.log:
        return across, extent(heights)
    positive = [np.log10(h[h > 0]) for h in map(np.asarray, heights)]
    low, high = np.clip(extent(positive), -math.log10(_LARGEST), math.log10(_LARGEST)).tolist()
    return across, (10.0**low, 10.0**high)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers inside a range, `about` that many."""
    rough = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(s * unit for s in (1, 2, 2.5, 5, 10) if s * unit >= 0.85 * rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1)]


def log_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Powers of ten inside a range, thinned to `about` that many; round numbers where there are too few."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    if last - first < 1:
        return [tick for tick in ticks(low, high, about) if tick > 0]
    return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / about)))]


def tick_labels(values: Sequence[float], log: bool = False) -> list[str]:
    """The ticks as text with as many decimals as tell them apart, or as powers of ten where that is shorter."""
    if log:
        return [f"{v:g}".replace("-", "−") for v in values]
    most = max((abs(v) for v in values), default=0.0)
    step = min(np.diff(values), default=most) or 1.0
    if most < 1e-3 or (most >= 1e5 and step > most / 100):
        return [_power(v) for v in values]
    decimals = next((d for d in range(12) if all(abs(round(v, d) - v) < 1e-6 * step for v in values)), 12)
    return [f"{v:.{decimals}f}".replace("-", "−") for v in values]


def _power(value: float) -> str:
    if value == 0:
        return "0"
    head, _, power = f"{value:.2e}".partition("e")
    return f"{head.rstrip('0').rstrip('.')}e{int(power)}".replace("-", "−")
