"""What a drawing is: lines, bands and dots on one pair of axes, before any of it is ink.

A `Chart` holds the numbers and their roles only. `plot.py` draws it with matplotlib, for files and notebooks;
`report/svg.py` makes that drawing part of a page.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

# The colour-blind safe palette of Okabe and Ito, by name. The page's style sheet gives each name a
# second value for dark backgrounds.
COLOURS = {
    "ink": "#1f2328",
    "muted": "#59636e",
    "line": "#e4e8ec",
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "purple": "#b85a90",
    "orange": "#e69f00",
    "sky": "#56b4e9",
}
CYCLE = ("blue", "vermilion", "green", "purple", "orange", "sky")
DASHES = ("", "7 3", "2 3", "8 3 2 3")
DRAWN = 1000  # more points than this are thinned before they are drawn; no screen shows more


@dataclasses.dataclass(frozen=True)
class Line:
    """A line through points; a point that is not a number breaks it. `tips` as in `Dots`."""

    x: np.ndarray
    y: np.ndarray
    colour: str
    label: str = ""
    dash: str = ""
    width: float = 1.8
    opacity: float = 1.0
    tips: Sequence[str] = ()
    kind: str = "line"


@dataclasses.dataclass(frozen=True)
class Band:
    """The area between two lines."""

    x: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    colour: str
    label: str = ""
    opacity: float = 0.22
    kind: str = "band"


@dataclasses.dataclass(frozen=True)
class Dots:
    """Separate points; `tips` are what the page says of each instead of its two numbers."""

    x: np.ndarray
    y: np.ndarray
    colour: str
    label: str = ""
    size: float = 4.0
    opacity: float = 0.8
    tips: Sequence[str] = ()
    kind: str = "dots"


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
    dates: bool = False  # whether x is a date, in days since 1970
    names: Sequence[str] = ()  # of the places 0, 1, ... across, where those are kinds and not numbers
    rows: Sequence[str] = ()  # the same for the places 0, 1, ... from the top down


def band_charts(
    times: np.ndarray, names: Sequence[str], mean: np.ndarray, lower: np.ndarray, upper: np.ndarray, level: float
) -> list[Chart]:
    """The mean of each state over time in its band."""
    charts = []
    for k, name in enumerate(names):
        line = thin(times, mean[:, k])
        t, label = times[line], f"{100 * level:g} % band of the state"
        band = Band(t, lower[line, k], upper[line, k], "blue", label)
        charts.append(Chart(name, [band, Line(t, mean[line, k], "blue", "mean")], f"mean and band of {name} over time"))
    return charts


def observation_charts(
    times: np.ndarray, names: Sequence[str], values: np.ndarray, path: np.ndarray | None, across: str
) -> list[Chart]:
    """The observations of each state over time, with the true path where it is known."""
    charts = []
    for k, name in enumerate(names):
        seen = np.flatnonzero(np.isfinite(values[:, k]))
        seen = seen[thin(times[seen], values[seen, k])]
        marks: list[Mark] = [Dots(times[seen], values[seen, k], "ink", "observations")]
        if path is not None:
            line = thin(times, path[:, k])
            marks.append(Line(times[line], path[line, k], "vermilion", "true path", dash="5 3", width=1.4))
        charts.append(Chart(name, marks, f"observations of {name} over time", across=across))
    return charts


def keys(charts: Sequence[Chart]) -> list[Mark]:
    """The first mark of each label: the legend of several charts together."""
    seen: dict[str, Mark] = {}
    for chart in charts:
        for mark in chart.marks:
            if mark.label:
                seen.setdefault(mark.label, mark)
    return list(seen.values())


def shown(text: str, most: int = 48) -> str:
    """Text as a drawing can hold it: one line of printable characters, not too long."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return line if len(line) <= most else line[: most - 1] + "…"


_LARGEST = 1e300  # drawn: the differences of larger numbers overflow


def thin(x: np.ndarray, y: np.ndarray, limit: int = DRAWN) -> np.ndarray:
    """Places of at most about `limit` points that keep the least and the greatest y of every stretch of x.

    A drawing of them looks like one of all points, peaks included, which a plain stride would lose.
    """
    if len(x) <= limit:
        return np.arange(len(x))
    stretches = np.array_split(np.arange(len(x)), max(limit // 2, 1))
    remaining = [part[[_place(y[part], np.argmin, np.inf), _place(y[part], np.argmax, -np.inf)]] for part in stretches]
    return np.unique(np.concatenate([[0], *remaining, [len(x) - 1]]))


def _place(y: np.ndarray, pick, missing: float) -> int:
    return int(pick(np.where(np.isnan(y), missing, y)))


def extent(values: Sequence[np.ndarray], pad: float = 0.04) -> tuple[float, float]:
    """The range of all numbers that can be drawn with some air around it."""
    finite = np.concatenate([np.ravel(np.asarray(v, float)) for v in values] or [np.zeros(1)])
    finite = finite[np.abs(finite) <= _LARGEST]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    air = pad * (high - low)
    if air <= 1e-9 * max(abs(low), abs(high)):  # one value, or values that a float hardly tells apart
        air = 0.5 * (abs(high) or 1.0)
    return low - air, high + air


def spans(chart: Chart) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ranges of both axes, from the marks or from the chart's own limits; a row chart's limits are across."""
    across = extent([mark.x for mark in chart.marks], pad=0.02)
    if chart.rows:
        return chart.limits or across, (len(chart.rows) - 0.5, -0.5)
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
