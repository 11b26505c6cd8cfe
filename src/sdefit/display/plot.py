"""A `Chart` drawn with matplotlib, through its object interface: pyplot is slow and keeps global state.

This is the only place that draws. `plot` gives a figure for files and notebooks, `panel` one chart for a page. A
charting library for the browser (uPlot, Plotly) would be a second renderer beside it, and Plotly 3 MB a page.
"""

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from sdefit.display.charts import COLOURS, Band, Chart, Dots, Line, Mark, keys, shown, spans
from sdefit.errors import InputError

STYLE: dict[Any, Any] = {
    "font.size": 12,
    "text.parse_math": False,  # names are text, whatever stands in them
    "axes.edgecolor": COLOURS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.formatter.limits": (-4, 5),
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "axes.labelcolor": COLOURS["muted"],
    "path.simplify": False,  # charts are thinned before, so that every corner of a line is an observation time
    "svg.fonttype": "none",
}
# Sizes in points of 1/72 inch, which are the units of the page's drawings; room around the axes is fixed, so that
# no layout engine has to run.
WIDTH, WIDE, HEIGHT, SQUARE, ROW = 420, 900, 250, 330, 26
LEFT, RIGHT, TOP, BOTTOM, KEYS = 52, 12, 34, 42, 26
LETTER = 7  # the width of one, about


class Plot(Figure):
    """A matplotlib figure that also shows itself in a notebook."""

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as out:
            self.savefig(out, format="png", dpi=100)
            return out.getvalue()


@contextmanager
def styled() -> Iterator[None]:
    """Our style, for the time of drawing; letters that a font lacks are the page's business, not the user's."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def plot(charts: Sequence[Chart], across: int = 2) -> Plot:
    """The charts as one matplotlib figure, `across` in a row, with their common legend below."""
    across = min(across, len(charts))
    down, tall = math.ceil(len(charts) / across), max(map(height, charts))
    whole = (WIDTH * across, tall * down + KEYS * math.ceil(len(keys(charts)) / (2 * across)))
    with styled():
        figure = Plot(figsize=(whole[0] / 72, whole[1] / 72))
        for place, chart in enumerate(charts):
            row, column = divmod(place, across)
            corner = WIDTH * column, whole[1] - tall * (row + 1)
            draw_chart(chart, _axes(figure, chart, whole, corner, (WIDTH, tall)))
        if keys(charts):
            handles = [_handle(mark) for mark in keys(charts)]
            figure.legend(handles=handles, loc="lower left", ncols=2 * across, frameon=False)
    return figure


def on_axes(charts: Sequence[Chart], ax: Any = None) -> Any:
    """The charts as one figure; on axes that are given, one for each chart, in their place."""
    if not charts:
        raise InputError("this result holds no numbers to plot: it is empty")
    if ax is None:
        return plot(charts)
    several = list(getattr(ax, "flat", ax if isinstance(ax, Sequence) else [ax]))
    if len(several) != len(charts) or not all(isinstance(one, Axes) for one in several):
        names = ", ".join(chart.title for chart in charts)
        raise InputError(f"ax must be {len(charts)} of matplotlib's axes, one for each of {names}; or leave it out")
    with styled():
        for chart, one in zip(charts, several, strict=True):
            draw_chart(chart, one)
    return ax


def panel(chart: Chart, width: int = WIDTH) -> Figure:
    """One chart by itself, without a background or legend; to be called inside `styled`."""
    whole = width, height(chart)
    figure = Figure(figsize=(whole[0] / 72, whole[1] / 72))
    figure.patch.set_visible(False)
    axes = _axes(figure, chart, whole, (0, 0), whole)
    axes.patch.set_visible(False)
    draw_chart(chart, axes)
    return figure


def height(chart: Chart) -> int:
    """How tall a chart is; one of rows grows with them."""
    if chart.rows:
        return _top(chart) + BOTTOM + ROW * len(chart.rows)
    return SQUARE if chart.square else HEIGHT


def _top(chart: Chart) -> int:
    return TOP if chart.title or chart.up else 8


def _axes(figure: Figure, chart: Chart, whole: Any, corner: Any, size: Any) -> Axes:
    left = min(18 + LETTER * max(map(len, map(_row_name, chart.rows))), 150) if chart.rows else LEFT
    place = (corner[0] + left) / whole[0], (corner[1] + BOTTOM) / whole[1]
    return figure.add_axes(
        (*place, (size[0] - left - RIGHT) / whole[0], (size[1] - _top(chart) - BOTTOM) / whole[1]), label=str(corner)
    )


def _row_name(name: str) -> str:
    return shown(name, 20)


def draw_chart(chart: Chart, axes: Axes) -> None:
    """The chart on matplotlib's axes; the artist of mark number i has the group id `mark-i`."""
    across, up = spans(chart)
    if chart.log:
        axes.set_yscale("log")
    axes.set(xlim=across, ylim=up)
    axes.set_title(shown(chart.title), loc="left", fontsize=13, fontweight="bold", color=COLOURS["ink"])
    axes.set_title(shown(chart.up), loc="right", fontsize=12, color=COLOURS["muted"])
    axes.set_xlabel(shown(chart.across), loc="right")
    _ticks(chart, axes)
    axes.tick_params(which="both", left=False, bottom=False)
    axes.grid(axis="x" if chart.rows else "y", color=COLOURS["line"], linewidth=1)
    axes.set_axisbelow(True)
    for i, mark in enumerate(chart.marks):
        _mark(mark, axes, f"mark-{i}")


def _ticks(chart: Chart, axes: Axes) -> None:
    wide = axes.get_position().width * axes.figure.get_figwidth() * 72  # type: ignore[union-attr]
    axes.xaxis.set_major_locator(MaxNLocator(max(int(wide / 70), 3), steps=[1, 2, 2.5, 5, 10]))
    if chart.dates:
        axes.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=max(int(wide / 50), 5)))
        axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator(), show_offset=False))
    if chart.names:
        _names(axes, [shown(name, 14) for name in chart.names], wide)
    if chart.rows:
        axes.set_yticks(range(len(chart.rows)), [_row_name(name) for name in chart.rows])
    elif chart.log:
        axes.yaxis.set_major_locator(LogLocator(numticks=5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
        axes.minorticks_off()
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))


def _names(axes: Axes, names: Sequence[str], wide: float) -> None:
    """Names below their places; where they would run into each other, smaller, and every second one a line lower."""
    crowded = max(map(len, names)) * LETTER > wide / len(names)
    lines = [f"\n{name}" if crowded and place % 2 else name for place, name in enumerate(names)]
    axes.set_xticks(range(len(names)), lines, fontsize=10 if crowded else 12)


def _mark(mark: Mark, axes: Axes, gid: str) -> None:
    colour = COLOURS[mark.colour]
    match mark:
        case Line():
            look = {"color": colour, "lw": mark.width, "alpha": mark.opacity, "ls": _dash(mark)}
            axes.plot(mark.x, mark.y, label=mark.label, gid=gid, solid_capstyle="round", **look)
        case Band():
            look = {"color": colour, "alpha": mark.opacity, "label": mark.label}
            axes.fill_between(mark.x, mark.lower, mark.upper, linewidth=0, gid=gid, **look)
        case Dots():
            look = {"color": colour, "ms": mark.size, "alpha": mark.opacity, "label": mark.label}
            axes.plot(mark.x, mark.y, "o", mew=0, gid=gid, **look)


def _dash(mark: Line) -> Any:
    return (0, [float(d) / mark.width for d in mark.dash.split()]) if mark.dash else "-"


def _handle(mark: Mark) -> Line2D | Patch:
    """The mark as it looks in a legend."""
    colour = COLOURS[mark.colour]
    match mark:
        case Line():
            return Line2D([], [], color=colour, ls=_dash(mark), lw=2, label=shown(mark.label))
        case Band():
            return Patch(color=colour, alpha=mark.opacity, label=shown(mark.label))
        case Dots():
            return Line2D([], [], color=colour, ls="", marker="o", label=shown(mark.label))
