"""A `Chart` drawn with matplotlib, through its object interface: pyplot is slow and keeps global state."""

import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sdefit.report.charts import COLOURS, Band, Chart, Dots, Line, Mark, keys, log_ticks, spans, tick_labels, ticks

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": COLOURS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "axes.labelcolor": COLOURS["muted"],
}
SIZE = (4.8, 2.7)
# Room around each panel for its labels, in inches; fixed, so that no layout engine has to run.
LEFT, RIGHT, TOP, BOTTOM, KEYS = 0.6, 0.15, 0.35, 0.48, 0.35


class Plot(Figure):
    """A matplotlib figure that also shows itself in a notebook."""

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as out:
            self.savefig(out, format="png", dpi=144)
            return out.getvalue()


def plot(charts: Sequence[Chart], across: int = 2) -> Plot:
    """The charts as one matplotlib figure, `across` in a row, with their common legend below."""
    with mpl.rc_context(STYLE):
        figure, axes = _sheet(charts, min(across, len(charts)))
        for chart, one in zip(charts, axes, strict=True):
            _draw(chart, one)
        marks = keys(charts)
        if marks:
            handles = {handle.get_label(): handle for one in axes for handle in one.get_legend_handles_labels()[0]}
            figure.legend(handles=[handles[m.label] for m in marks], loc="lower left", ncols=4, frameon=False)
    return figure


def _sheet(charts: Sequence[Chart], across: int) -> tuple[Plot, list[Axes]]:
    tall = 1.45 if any(chart.square for chart in charts) else 1.0
    panel, down = (SIZE[0], SIZE[1] * tall), math.ceil(len(charts) / across)
    width, height = panel[0] * across, panel[1] * down + KEYS
    figure = Plot(figsize=(width, height))
    axes = []
    for place in range(len(charts)):
        row, column = divmod(place, across)
        left, bottom = column * panel[0] + LEFT, height - (row + 1) * panel[1] + BOTTOM
        inner = (panel[0] - LEFT - RIGHT, panel[1] - TOP - BOTTOM)
        axes.append(figure.add_axes((left / width, bottom / height, inner[0] / width, inner[1] / height)))
    return figure, axes


def _draw(chart: Chart, axes: Axes) -> None:
    across, up = spans(chart)
    if chart.log:
        axes.set_yscale("log")
        axes.minorticks_off()
    axes.set(xlim=across, ylim=up)
    axes.set_title(chart.title, loc="left", fontsize=11, fontweight="bold")
    axes.set_title(chart.up, loc="right", fontsize=9, color=COLOURS["muted"])
    axes.set_xlabel(chart.across, loc="right")
    below, beside = ticks(*across), log_ticks(*up) if chart.log else ticks(*up, about=6)
    if chart.names:
        axes.set_xticks(range(len(chart.names)), chart.names)
    else:
        axes.set_xticks(below, tick_labels(below))
    axes.set_yticks(beside, tick_labels(beside, chart.log))
    axes.tick_params(length=0)
    axes.grid(axis="y", color="#d5dae0", linewidth=0.7)
    axes.set_axisbelow(True)
    for mark in chart.marks:
        _mark(mark, axes)


def _mark(mark: Mark, axes: Axes) -> None:
    colour, label = COLOURS[mark.colour], mark.label or None
    match mark:
        case Line():
            dash = (0, [float(d) * 0.6 for d in mark.dash.split()]) if mark.dash else "-"
            axes.plot(mark.x, mark.y, color=colour, ls=dash, lw=mark.width * 0.8, alpha=mark.opacity, label=label)
        case Band():
            axes.fill_between(
                mark.x, mark.lower, mark.upper, color=colour, alpha=mark.opacity, linewidth=0, label=label
            )
        case Dots():
            axes.plot(mark.x, mark.y, "o", color=colour, ms=mark.size * 0.7, mew=0, alpha=mark.opacity, label=label)
