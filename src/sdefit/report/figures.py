"""The figures of a fit as charts, each drawn from what the function of its name in `numbers.py` returns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sdefit.display.charts import CYCLE, DASHES, DRAWN, Band, Chart, Dots, Line, Mark, extent, thin
from sdefit.report.numbers import Numbers

PANELS = 12  # more panels than this help nobody; the numbers stay whole
SERIES = 4  # more series than this are drawn together, one panel for each state
TOGETHER = 60  # the most series that are drawn together
DAY = np.timedelta64(1, "D")


def _panels(numbers: Numbers) -> list[tuple[str, dict[str, np.ndarray]]]:
    """The numbers of each panel with its title: one for each state, or series and state."""
    several = len(set(numbers["series"].tolist())) > 1
    titles = dict.fromkeys(zip(numbers["series"].tolist(), numbers["state"].tolist(), strict=True))
    panels = []
    for series, state in list(titles)[:PANELS]:
        here = (numbers["series"] == series) & (numbers["state"] == state)
        title = f"{state} · series {series}" if several else state
        panels.append((title, {name: column[here] for name, column in numbers.items()}))
    return panels


def clock(part: Numbers, time: str) -> tuple[np.ndarray, dict[str, Any]]:
    """The times as a chart has them across: days since 1970 where there are dates, else numbers."""
    if "date" in part:
        return (part["date"] - np.datetime64(0, "s")) / DAY, {"across": "", "dates": True}
    return part["time"], {"across": time}


def path_charts(numbers: Numbers, time: str = "time") -> list[Chart]:
    """Observations as dots, the smoothed path as a line in its band, the true path dashed.

    Many series are drawn together: one panel for each state, one thin line for each series.
    """
    if not together(numbers):
        return [_path_chart(title, part, time) for title, part in _panels(numbers)]
    several, states = (list(dict.fromkeys(numbers[name].tolist())) for name in ("series", "state"))
    return [_together_chart(state, numbers, several[:TOGETHER], time) for state in states[:PANELS]]


def together(numbers: Numbers) -> bool:
    """Whether there are so many series that one panel shows them all."""
    return len(set(numbers["series"].tolist())) > SERIES


def _together_chart(state: str, numbers: Numbers, several: Sequence[str], time: str) -> Chart:
    marks: list[Mark] = []
    across: dict[str, Any] = {}
    for name in several:
        here = (numbers["series"] == name) & (numbers["state"] == state)
        part = {key: column[here] for key, column in numbers.items()}
        x, across = clock(part, time)
        line = thin(x, part["mean"], DRAWN // len(several))
        tips = [f"series {name}"] * len(line)
        marks.append(Line(x[line], part["mean"][line], "blue", "smoothed state, one line a series", "", 1.0, 0.5, tips))
    drawn = f"{len(several)} of {len(set(numbers['series'].tolist()))} series"
    return Chart(f"{state}, {drawn}", marks, f"smoothed paths of {state} in {drawn}", **across)


def _path_chart(title: str, part: dict[str, np.ndarray], time: str) -> Chart:
    times, across = clock(part, time)
    line, seen = thin(times, part["mean"]), np.flatnonzero(np.isfinite(part["values"]))
    seen = seen[thin(times[seen], part["values"][seen])]
    t = times[line]
    marks: list[Mark] = [
        Band(t, part["lower"][line], part["upper"][line], "blue", "90 % band of the state"),
        Line(t, part["mean"][line], "blue", "smoothed state"),
    ]
    if "path" in part:
        marks.append(Line(t, part["path"][line], "vermilion", "true path", dash="5 3", width=1.4))
    size = 4.5 if len(seen) < 150 else 3.0
    marks.append(Dots(times[seen], part["values"][seen], "ink", "observations", size))
    alt = f"{title}: {np.isfinite(part['values']).sum()} observations over {time} with the smoothed path"
    return Chart(title, marks, alt, **across)


def phase_charts(numbers: Numbers) -> list[Chart]:
    """Each pair of states against each other, three pairs at most, the first series only."""
    if not numbers:
        return []
    first = numbers["series"] == numbers["series"][0]
    states = [name.removeprefix("mean_") for name in numbers if name.startswith("mean_")]
    pairs = [(a, b) for i, a in enumerate(states) for b in states[i + 1 :]][:3]
    return [_phase_chart({n: c[first] for n, c in numbers.items()}, a, b) for a, b in pairs]


def _phase_chart(part: dict[str, np.ndarray], a: str, b: str) -> Chart:
    line = thin(part["time"], part[f"mean_{b}"])
    marks: list[Mark] = [Line(part[f"mean_{a}"][line], part[f"mean_{b}"][line], "blue", "smoothed state")]
    if f"path_{a}" in part:
        true = part[f"path_{a}"][line], part[f"path_{b}"][line]
        marks.append(Line(*true, "vermilion", "true path", dash="5 3", width=1.4))
    marks.append(Dots(part[f"values_{a}"][line], part[f"values_{b}"][line], "ink", "observations", 3.5, 0.7))
    return Chart(f"{b} against {a}", marks, f"{b} against {a} along the smoothed path", across=a, square=True)


def derivative_charts(numbers: Numbers, time: str = "time") -> list[Chart]:
    """For each state of the first few series, samples of ż before matching and after it, on common axes."""
    charts = []
    for title, part in _panels(numbers)[: PANELS // 2] if numbers else []:
        stages = [s for s in ("before", "after") if f"model_{s}_median" in part]
        limits = _common_limits(part, stages)
        charts += [_derivative_chart(title, part, stage, limits, time) for stage in stages]
    return charts


def _common_limits(part: dict[str, np.ndarray], stages: Sequence[str]) -> tuple[float, float]:
    """Limits that show all samples from the data, and the model's as far as three times the data's range."""
    low, high = extent([part["data_lower"], part["data_upper"]])
    model = [part[f"model_{stage}_{edge}"] for stage in stages for edge in ("lower", "upper")]
    model_low, model_high = extent(model)
    return max(min(low, model_low), low - (high - low)), min(max(high, model_high), high + (high - low))


def _derivative_chart(
    title: str, part: dict[str, np.ndarray], stage: str, limits: tuple[float, float], time: str
) -> Chart:
    marks: list[Mark] = []
    times, across = clock(part, time)
    line = thin(times, part["data_median"])
    t = times[line]
    for source, colour, label in (("data", "blue", "from the data"), (f"model_{stage}", "vermilion", "from the model")):
        band = part[f"{source}_lower"][line], part[f"{source}_upper"][line]
        marks.append(Band(t, *band, colour, opacity=0.2))
        some = [name for name in part if name.startswith(f"{source}_sample_")]
        marks += [Line(t, part[name][line], colour, width=0.7, opacity=0.45) for name in some]
        marks.append(Line(t, part[f"{source}_median"][line], colour, label, dash="" if source == "data" else "6 3"))
    alt = f"derivative of {title} {stage} matching, samples from the data and from the model"
    return Chart(f"{title}, {stage} matching", marks, alt, limits=limits, **across)


def field_charts(numbers: Numbers, time: str = "time") -> list[Chart]:
    """The learned drift in its band beside the model's: against the state if there is one, else along the path."""
    if not numbers:
        return []
    if len(set(numbers["state"].tolist())) > 1:
        return [_field_chart(title, part, *clock(part, time)) for title, part in _panels(numbers)]
    # One state: the drift is one curve of the state, in whatever series it was learned.
    order = np.argsort(numbers["x"], kind="stable")
    state, part = str(numbers["state"][0]), {name: column[order] for name, column in numbers.items()}
    return [_field_chart(state, part, part["x"], {"across": state})]


def _field_chart(title: str, part: dict[str, np.ndarray], x: np.ndarray, across: dict[str, Any]) -> Chart:
    line = thin(x, part["learned"])
    x = x[line]
    marks: list[Mark] = [
        Band(x, part["lower"][line], part["upper"][line], "blue", "90 % band of the learned drift"),
        Line(x, part["learned"][line], "blue", "learned drift"),
        Line(x, part["model"][line], "vermilion", "drift of the model", dash="6 3"),
    ]
    return Chart(f"drift of {title}", marks, f"learned drift of {title} and the model's own", **across)


def trace_charts(numbers: Numbers) -> list[Chart]:
    """The loss by iteration, and each parameter as a multiple of the value it ended at."""
    if not numbers:
        return []
    charts, step = [], numbers["iteration"]
    if "loss" in numbers:
        loss = numbers["loss"]
        finite = loss[np.isfinite(loss)]
        steep = finite.size > 1 and finite.min() > 0 and finite.max() > 50 * finite.min()
        marks = [Line(step, loss, "blue")]
        charts.append(Chart("loss", marks, "the loss at each iteration", across="iteration", log=bool(steep)))
    names = [name for name in numbers if name not in ("iteration", "loss")]
    lines = [_ratio_line(step, numbers[name], name, i) for i, name in enumerate(names) if _ends(numbers[name])]
    if lines:
        low, high = extent([line.y for line in lines])
        alt = "each parameter at each iteration, as a multiple of its estimate"
        limits = (max(low, -4.0), min(high, 6.0))
        charts.append(Chart("parameter / its estimate", lines, alt, across="iteration", limits=limits))
    return charts


def _ends(values: np.ndarray) -> bool:
    """Whether the last value is one that others can be a multiple of."""
    return bool(np.isfinite(values[-1]) and values[-1] != 0)


def _ratio_line(step: np.ndarray, values: np.ndarray, name: str, i: int) -> Line:
    return Line(step, values / values[-1], CYCLE[i % len(CYCLE)], name, dash=DASHES[i % len(DASHES)], width=1.6)


def diffusion_charts(numbers: Numbers) -> list[Chart]:
    """What noise adds to the states in one unit of time, estimated and true."""
    pairs = dict.fromkeys(numbers["pair"].tolist()) if numbers else {}
    return [_diffusion_chart(pair, {n: c[numbers["pair"] == pair] for n, c in numbers.items()}) for pair in pairs]


def _diffusion_chart(pair: str, part: dict[str, np.ndarray]) -> Chart:
    marks: list[Mark] = [Line(part["x"], part["y"], "blue", "estimate")]
    if "true_y" in part:
        true = Line(part.get("true_x", part["x"]), part["true_y"], "vermilion", "truth", dash="5 3", width=1.6)
        marks.append(true)
    up, _, across = pair.partition(" against ")
    alt = f"noise added in one unit of time: {pair}"
    return Chart(f"noise in {pair}", marks, alt, across=across or up, square=bool(across))
