"""What the residual checks found: the table of checks, and the figures of the residuals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdefit.display.charts import Band, Chart, Dots, Line, Mark
from sdefit.report.figures import clock
from sdefit.report.numbers import Numbers, calendar, series_names
from sdefit.report.page import Block, Table
from sdefit.store import Record


def diagnosis_blocks(record: Record) -> list[Block]:
    """Every check of every state; what they object to stands in the verdict at the top of the page."""
    known = record.facts.get("diagnosis")
    if not known:
        return []
    rows = known["checks"]
    columns = {
        "check": [row["name"] for row in rows],
        "state": [row["state"] for row in rows],
        "value": np.array([row["value"] for row in rows], float),
        "p": np.array([row["p"] for row in rows], float),
        "verdict": ["passes" if row["ok"] else "objects" for row in rows],
    }
    caption = (
        "One-step residuals, in units of their predicted spread: independent and standard normal if the model is "
        "right. p is how often chance alone would look as bad."
    )
    return [Table("diagnosis", "Residual checks", columns, caption)]


def residual_numbers(record: Record) -> Numbers:
    """The standardised residuals of each series, state and time; empty without a diagnosis."""
    known = record.facts.get("diagnosis")
    if not known:
        return {}
    rows: dict[str, list[np.ndarray]] = {"series": [], "state": [], "time": []}
    dates = calendar(record)
    rows |= {"residual": []} if dates is None else {"date": [], "residual": []}
    for i, (name, found) in enumerate(zip(series_names(record), known["residuals"], strict=True)):
        z = np.asarray(found, float)
        for k, state in enumerate(record.facts["states"]):
            seen = np.isfinite(z[:, k])
            rows["series"].append(np.full(seen.sum(), name))
            rows["state"].append(np.full(seen.sum(), state))
            rows["time"].append(record["times"][i][: len(z)][seen])
            rows["residual"].append(z[seen, k])
            if dates is not None:
                rows["date"].append(dates[i][: len(z)][seen])
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def residual_charts(numbers: Numbers, time: str = "time") -> list[Chart]:
    """The residuals of each state over time, with the band that holds 90 % of them."""
    states = dict.fromkeys(numbers["state"].tolist()) if numbers else {}
    charts = []
    for state in states:
        here = numbers["state"] == state
        t, across = clock({name: column[here] for name, column in numbers.items()}, time)
        z = numbers["residual"][here]
        ends = np.array([t.min(), t.max()])
        marks: list[Mark] = [
            Band(ends, np.full(2, -1.645), np.full(2, 1.645), "blue", "holds 90 % if the model is right", 0.15),
            Dots(t, z, "ink", "residual", 3.5),
        ]
        charts.append(Chart(state, marks, f"standardised residuals of {state} over {time}", **across))
    return charts


def quantile_numbers(record: Record) -> Numbers:
    """Normal quantiles and sorted residuals of each state; empty without a diagnosis."""
    return quantile_columns((record.facts.get("diagnosis") or {}).get("quantiles") or {})


def quantile_columns(known: Mapping[str, Sequence[Any]]) -> Numbers:
    """The same of a diagnosis at hand."""
    if not known:
        return {}
    columns = {"state": np.repeat(list(known), [len(pair[0]) for pair in known.values()])}
    for i, name in enumerate(("normal", "residual")):
        columns[name] = np.concatenate([np.asarray(pair[i], float) for pair in known.values()])
    return columns


def quantile_charts(numbers: Numbers) -> list[Chart]:
    """Sorted residuals against normal quantiles: on the line if they are standard normal."""
    states = dict.fromkeys(numbers["state"].tolist()) if numbers else {}
    charts = []
    for state in states:
        here = numbers["state"] == state
        x, y = numbers["normal"][here], numbers["residual"][here]
        ends = np.array([x.min(), x.max()])
        marks: list[Mark] = [
            Line(ends, ends, "muted", "standard normal", dash="5 3"),
            Dots(x, y, "blue", "residuals", 3.5),
        ]
        charts.append(
            Chart(state, marks, f"quantiles of the residuals of {state}", across="normal quantile", square=True)
        )
    return charts


def drift_numbers(record: Record) -> Numbers:
    """The fitted drift and the one the data imply in bins of each state; empty without a diagnosis."""
    known = (record.facts.get("diagnosis") or {}).get("drift") or {}
    known = {state: one for state, one in known.items() if len(one["state"])}
    if not known:
        return {}
    columns = {"of": np.repeat(list(known), [len(one["state"]) for one in known.values()])}
    for name in ("state", "fitted", "found", "std"):
        columns[name] = np.concatenate([np.asarray(one[name], float) for one in known.values()])
    return columns


def drift_charts(numbers: Numbers) -> list[Chart]:
    """For each state the mean drift in bins of that state: fitted, and as the data imply, with its error."""
    charts = []
    for state in dict.fromkeys(numbers["of"].tolist()) if numbers else {}:
        part = {name: column[numbers["of"] == state] for name, column in numbers.items()}
        x, found, half = part["state"], part["found"], 1.645 * part["std"]
        marks: list[Mark] = [
            Band(x, found - half, found + half, "orange", "90 % band of the implied drift"),
            Line(x, found, "orange", "drift implied by the data"),
            Line(x, part["fitted"], "blue", "fitted drift", dash="6 3"),
        ]
        charts.append(Chart(f"drift of {state}", marks, f"mean drift of {state} in bins of {state}", across=state))
    return charts
