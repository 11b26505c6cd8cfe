"""The figures of a run: functions that return their numbers first, and functions that make charts of those numbers."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from sdefit.display.charts import Band, Chart, Dots, Line, Mark
from sdefit.report import figures, numbers
from sdefit.report.numbers import Numbers
from sdefit.report.runs import Run, column, labels
from sdefit.store import Record

PATHS = 5  # sample trajectories of each system
WIDTH = 0.62  # of the cloud of a method's estimates, where 1 is the distance between methods


def trajectory_numbers(run: Run) -> Numbers:
    """The first few realizations of each system: one row for each realization, state and time."""
    parts: list[dict[str, np.ndarray]] = []
    for system in run.systems:
        record = run.problems[system]
        for r in range(min(PATHS, len(record["values"]))):
            for k, state in enumerate(record.facts["states"]):
                times = record["times"]
                known = {"system": system, "realization": r, "state": state}
                columns = {name: np.full(len(times), value) for name, value in known.items()}
                parts.append(columns | {"time": times, "value": record["values"][r, :, k]})
    return stacked(parts)


def trajectory_charts(run: Run, found: Numbers) -> list[Chart]:
    """One panel for each system, one colour for each state."""
    charts = []
    for system in dict.fromkeys(found["system"].tolist() if found else ()):
        facts = run.problems[system].facts
        marks: list[Mark] = []
        for k, state in enumerate(facts["states"]):
            part = _where(found, system=system, state=state)
            for r in dict.fromkeys(part["realization"].tolist()):
                one = _where(part, realization=r)
                label = f"state {k + 1}" if r == 0 else ""
                dash = ("", "6 2", "2 2")[k % 3]
                marks.append(Line(one["time"], one["value"], _STATES[k % 3], label, dash, 1.2, 0.85))
        names = ", ".join(facts["states"])
        title = f"{facts['title']}: {names}" if len(facts["states"]) > 1 else facts["title"]
        charts.append(Chart(title, marks, f"sample trajectories of {facts['title']}"))
    return charts


_STATES = ("blue", "vermilion", "green")


def estimate_numbers(run: Run, system: str) -> Numbers:
    """Every estimate of every quantity, one row for each method and realization."""
    parts = []
    for quantity in labels(run.problems[system]):
        for method in run.methods(system):
            rows = run.of(system, method)
            columns = {"quantity": np.full(len(rows), quantity), "method": np.full(len(rows), method)}
            columns |= {"realization": np.array([int(row["realization"]) for row in rows])}
            columns |= {"status": np.array([row["status"] for row in rows]), "estimate": column(rows, quantity)}
            parts.append(columns)
    return stacked(parts)


def estimate_charts(run: Run, system: str, found: Numbers) -> list[Chart]:
    """One panel for each quantity: the estimates of each method, the truth, the RMSE of MLE and the paper."""
    return [
        _estimate_chart(run, system, quantity, label, _where(found, quantity=quantity))
        for quantity, label in labels(run.problems[system]).items()
    ]


def _estimate_chart(run: Run, system: str, quantity: str, label: str, part: Numbers) -> Chart:
    facts, methods = run.problems[system].facts, run.methods(system)
    truth = float(facts["truth"][quantity])
    mle = float((facts["limits"].get(quantity) or {}).get("rmse", np.nan))
    edges = np.array([-0.5, len(methods) - 0.5])
    marks: list[Mark] = []
    if np.isfinite(mle):
        low, high = np.full(2, truth - mle), np.full(2, truth + mle)
        marks.append(Band(edges, low, high, "green", "truth ± RMSE of MLE", 0.2))
    marks.append(Line(edges, np.array([truth, truth]), "green", "truth", "6 3"))
    clouds = [_where(part, method=method)["estimate"] for method in methods]
    marks += [_cloud(place, cloud) for place, cloud in enumerate(clouds)]
    marks += [mark for place, cloud in enumerate(clouds) for mark in _median(place, cloud)]
    marks += [mark for place, method in enumerate(methods) for mark in _published(facts, quantity, method, place)]
    alt = f"estimates of {label} by {', '.join(map(run.title, methods))}; the truth is {truth:g}"
    limits = _window(clouds, truth, mle)
    return Chart(label, marks, alt, across="", limits=limits, names=[run.title(m) for m in methods])


def _cloud(place: int, estimates: np.ndarray) -> Dots:
    """Dots side by side: the places follow the golden ratio, which fills a width evenly at any number of them."""
    across = place - 0.12 + WIDTH * ((np.arange(estimates.size) * 0.6180339887 + 0.5) % 1.0 - 0.5)
    return Dots(across, estimates, "blue", "estimates", 3.2 if estimates.size > 40 else 4.5, 0.55)


def _median(place: int, estimates: np.ndarray) -> list[Mark]:
    finite = estimates[np.isfinite(estimates)]
    if not finite.size:
        return []
    middle = np.full(2, np.median(finite))
    ends = place - 0.12 + np.array([-0.5, 0.5]) * WIDTH
    return [Line(ends, middle, "ink", "median", width=2.4)]


def _published(facts: Mapping, quantity: str, method: str, place: int) -> list[Mark]:
    """The paper's median as a dot and its standard deviation as an upright line, beside the cloud."""
    for row in facts["published"]:
        if (row["method"], row["quantity"]) == (method.partition(":")[0], quantity):
            across = np.full(2, place + 0.35)
            ends = row["median"] + np.array([-1.0, 1.0]) * row["std"]
            dot = Dots(across[:1], np.array([row["median"]]), "vermilion", "", 6.5, 1.0)
            return [Line(across, ends, "vermilion", "paper: median ± std", width=1.8), dot]
    return []


def _window(clouds: Sequence[np.ndarray], truth: float, mle: float) -> tuple[float, float]:
    """Limits that hold 95 % of each method's estimates, but at most eight times the RMSE of MLE on each side."""
    errors = [np.abs(cloud[np.isfinite(cloud)] - truth) for cloud in clouds]
    most = max((float(np.quantile(one, 0.95)) for one in errors if one.size), default=1.0)
    if np.isfinite(mle):
        most = min(max(most, 2.5 * mle), 8.0 * mle)
    most = 1.15 * most or 1.0
    return truth - most, truth + most


def time_numbers(run: Run) -> Numbers:
    """Seconds of each fit, one row for each system, method and realization."""
    parts = []
    for system in run.systems:
        for method in run.methods(system):
            rows = run.of(system, method)
            columns = {"system": np.full(len(rows), system), "method": np.full(len(rows), method)}
            columns |= {"realization": np.array([int(row["realization"]) for row in rows])}
            columns |= {"seconds": column(rows, "seconds"), "compile_seconds": column(rows, "compile_seconds")}
            parts.append(columns)
    return stacked(parts)


def time_charts(run: Run, found: Numbers) -> list[Chart]:
    """One panel for each system: seconds per fit of each method, and the paper's."""
    charts = []
    for system in dict.fromkeys(found["system"].tolist() if found else ()):
        facts, methods = run.problems[system].facts, run.methods(system)
        paper = {row["method"]: row["mean"] for row in facts["published_seconds"]}
        marks: list[Mark] = []
        for place, method in enumerate(methods):
            seconds = _where(found, system=system, method=method)["seconds"]
            if np.isfinite(seconds).any():
                mean = np.array([np.nanmean(seconds)])
                marks.append(Dots(np.array([place - 0.1]), mean, "blue", "sdefit, mean of a batch", 8.0, 1.0))
            if method.partition(":")[0] in paper:
                theirs = np.full(2, paper[method.partition(":")[0]])
                ends = place + np.array([-0.05, 0.35])
                marks.append(Line(ends, theirs, "vermilion", "paper", width=3.0))
        alt = f"seconds per fit on {facts['title']}"
        names = [run.title(m) for m in methods]
        charts.append(Chart(facts["title"], marks, alt, across="", up="seconds per fit", log=True, names=names))
    return [chart for chart in charts if chart.marks]


def path_numbers(run: Run, system: str) -> Numbers:
    """Observations and smoothed path of realization 0, one row for each method, state and time."""
    parts = []
    for method in run.methods(system):
        if (system, method) in run.fits:
            found = numbers.path_numbers(run.fits[system, method])
            parts.append({"method": np.full(len(found["time"]), method), **found})
    return stacked(parts)


def path_charts(run: Run, system: str, found: Numbers) -> list[Chart]:
    """One panel for each method: its smoothed path of the first state with its band."""
    state = run.problems[system].facts["states"][0]
    return [
        titled(figures.path_charts(_where(found, method=method, state=state))[0], run.title(method))
        for method in dict.fromkeys(found["method"].tolist() if found else ())
    ]


def derivative_numbers(run: Run, system: str) -> Numbers:
    """Samples of ż from data and model before and after matching, realization 0; the paper's own recipes first."""
    parts = []
    for method in sorted(run.methods(system), key=lambda name: not name.endswith(":paper")):
        record: Record | None = run.fits.get((system, method))
        found = numbers.derivative_numbers(record) if record is not None else {}
        if found:
            parts.append({"method": np.full(len(found["time"]), method), **found})
    return stacked(parts)


def derivative_charts(run: Run, system: str, found: Numbers) -> list[Chart]:
    """Two panels for each method that matches: the first state's derivative before matching and after."""
    state = run.problems[system].facts["states"][0]
    charts = []
    for method in dict.fromkeys(found["method"].tolist() if found else ()):
        both = figures.derivative_charts(_where(found, method=method, state=state))
        charts += [titled(one, f"{run.title(method)}: {one.title}") for one in both]
    return charts


def stacked(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Columns below each other; one that some part lacks is NaN there."""
    names = dict.fromkeys(name for part in parts for name in part)
    empty = [np.full(len(next(iter(part.values()))), np.nan) for part in parts]
    pairs = list(zip(parts, empty, strict=True))
    return {name: np.concatenate([part.get(name, none) for part, none in pairs]) for name in names}


def titled(chart: Chart, title: str) -> Chart:
    """The chart under another title."""
    return dataclasses.replace(chart, title=title)


def _where(found: Numbers, **values: str | int) -> dict[str, np.ndarray]:
    """The rows in which every named column has its value."""
    keep = np.logical_and.reduce([found[name] == value for name, value in values.items()])
    return {name: values[keep] for name, values in found.items()}
