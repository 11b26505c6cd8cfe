"""The tables of a fit, from its stored `Record`: estimates, noise, diffusion, settings, provenance."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdefit.report.numbers import calendar, is_fixed, series_names, true_values
from sdefit.report.page import Block, Facts, Matrices, Matrix, Table, as_number, cell, number
from sdefit.store import Record

MANY = 12  # series; more than these are summarised in the table of the data
SHADES = 8  # steps of the shading of a matrix


def estimates(record: Record) -> Table:
    """Each parameter's estimate, with its interval and its true value where they are known."""
    names, values = list(record.facts["params"]), np.asarray(record["params"], float)
    truth, limits = true_params(record), intervals(record, names)
    columns = {"parameter": names, **_estimate_columns("estimate", values, limits, truth)}
    columns["range"] = [parameter_range(record, name) for name in names]
    caption = "In the units of the data." + (" Error is estimate minus truth." if truth is not None else "")
    return Table("parameters", "Parameters", columns, caption, _heads(record))


def noise(record: Record) -> Table:
    """The standard deviation of the observation noise of each state."""
    states, values = list(record.facts["states"]), np.asarray(record["noise"], float)
    truth = true_values(record, "noise")
    truth = None if truth is None else np.broadcast_to(truth, values.shape)
    limits = intervals(record, [f"noise[{state}]" for state in states])
    columns = {"state": states, **_estimate_columns("noise", values, limits, truth)}
    caption = "Standard deviation, in the units of each state."
    return Table("noise", "Observation noise", columns, caption, _heads(record))


def _estimate_columns(word: str, values: np.ndarray, limits: Any, truth: np.ndarray | None) -> dict[str, Any]:
    columns = {word: values}
    if limits is not None:
        columns |= {"lower": limits[0], "upper": limits[1]}
    if truth is not None:
        columns |= {"truth": truth, "error": values - truth}
    return columns


def _heads(record: Record) -> dict[str, str]:
    return {"lower": f"{_level(record)} from", "upper": "to"}


def _level(record: Record) -> str:
    return f"{100 * interval_level(record):g} %"


def interval_level(record: Record) -> float:
    """The share of intervals that should hold the truth."""
    return float((record.facts.get("intervals") or {}).get("level", 0.9))


def intervals(record: Record, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """The lower and upper ends stored for these quantities, NaN where one has none; None without any."""
    rows = {row["quantity"]: row for row in record.facts.get("summary") or ()}
    ends = [[as_number(rows.get(name, {}).get(end), np.nan) for name in names] for end in ("lower", "upper")]
    lower, upper = np.array(ends, float)
    return (lower, upper) if np.any(np.isfinite(lower) & np.isfinite(upper)) else None


def true_params(record: Record) -> np.ndarray | None:
    """The true parameters of simulated data, NaN where one is not known; None without any."""
    truth = (record.facts.get("truth") or {}).get("params") or {}
    return np.array([as_number(truth.get(name), np.nan) for name in record.facts["params"]]) if truth else None


def true_quantities(record: Record) -> dict[str, float]:
    """The true value of every quantity of the summary where it is known, by name."""
    states, found = list(record.facts["states"]), true_params(record)
    known = {} if found is None else dict(zip(record.facts["params"], map(float, found), strict=True))
    G, noise = true_values(record, "G"), true_values(record, "noise")
    if G is not None:
        known |= {f"G[{a},{b}]": float(G[i, j]) for i, a in enumerate(states) for j, b in enumerate(states)}
        known |= {"G": float(G[0, 0])}
    if noise is not None:
        noise = np.broadcast_to(noise, len(states))
        known |= {f"noise[{state}]": float(one) for state, one in zip(states, noise, strict=True)}
    return known


def parameter_range(record: Record, name: str) -> str:
    """What a parameter was allowed to be, in words."""
    one = (record.facts.get("parameters") or {}).get(name)
    if not isinstance(one, Mapping):
        return str(one) if one else "real"
    lower, upper = as_number(one.get("lower"), -np.inf), as_number(one.get("upper"), np.inf)
    if is_fixed(record, name):
        return "fixed"
    if np.isinf(lower) and np.isinf(upper):
        return "real"
    if lower == 0 and np.isinf(upper):
        return "positive"
    return f"{number(lower)} to {number(upper)}"


def coverage(record: Record) -> str:
    """A sentence on how many true values lie inside their intervals; empty where either is unknown."""
    names, truth = list(record.facts["params"]), true_params(record)
    limits = intervals(record, names)
    if truth is None or limits is None:
        return ""
    counted = np.isfinite(truth) & np.isfinite(limits[0]) & [not is_fixed(record, name) for name in names]
    inside = counted & (limits[0] <= truth) & (truth <= limits[1])
    return f"{int(inside.sum())} of {int(counted.sum())} true values lie inside their {_level(record)} intervals."


def observations(record: Record) -> Table:
    """What was observed: times and values of each series, or of many series their least, median and most."""
    times, values = record["times"], record["values"]
    counts = np.isfinite(values).sum(axis=1)
    dates = calendar(record)
    columns: dict[str, Any] = {
        "series": series_names(record),
        "times": np.isfinite(times).sum(axis=1),
        **dict(zip(("from", "to"), _ends(times if dates is None else dates), strict=True)),
    }
    columns |= {f"{state} values": counts[:, k] for k, state in enumerate(record.facts["states"])}
    heads = {f"{state} values": state for state in record.facts["states"]}
    caption, shown = "Under each state the number of its observed values.", columns
    if len(times) > MANY:
        shown = {"series": ["least", "median", "most"]}
        shown |= {name: _spread(np.asarray(column)) for name, column in columns.items() if name != "series"}
        caption = f"Over {len(times)} series; the CSV file has a row for each. {caption}"
    return Table("observations", "Data", columns, caption, heads, shown=shown)


def _ends(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last time, or date, of each series; series are filled up at their ends."""
    rows = [row[~np.isnan(row)] for row in times]
    return np.array([row[0] for row in rows]), np.array([row[-1] for row in rows])


def _spread(column: np.ndarray) -> list[Any]:
    """The least, the median and the most of a column; of an even number the lower of both medians."""
    return [np.sort(column)[place] for place in (0, (len(column) - 1) // 2, -1)]


def diffusion(record: Record) -> Block:
    """G and GGᵀ as shaded matrices, the true ones beside them where they are known; one number for one state."""
    states = list(record.facts["states"])
    if len(states) == 1:
        return _single_diffusion(record, states[0])
    columns = {"row": np.repeat(states, len(states)), "column": np.tile(states, len(states))}
    estimated, true = [], []
    for name, title in (("G", "G"), ("GGt", "G Gᵀ")):
        truth = true_values(record, name)
        columns[name] = record[name].ravel()
        estimated.append(_matrix(title, states, record[name], truth))
        if truth is not None:
            columns[f"true_{name}"] = truth.ravel()
            true.append(_matrix(f"{title}, truth", states, truth, record[name]))
    caption = "The data identify G Gᵀ only; G is its lower-triangular factor. Stronger shading is larger."
    return Matrices("diffusion", "Diffusion", caption, estimated + true, columns)


def _single_diffusion(record: Record, state: str) -> Table:
    truth = true_values(record, "G")
    names = [f"G[{state},{state}]", "G"]
    time = record.facts.get("time_unit") or "time"
    limits = next((found for name in names if (found := intervals(record, [name])) is not None), None)
    values = np.asarray(record["G"], float).ravel()
    columns = {"state": [state], **_estimate_columns("G", values, limits, None if truth is None else truth.ravel())}
    return Table("diffusion", "Diffusion", columns, f"G is in {state} per √{time}.", _heads(record))


def _matrix(title: str, states: list[str], values: np.ndarray, beside: np.ndarray | None) -> Matrix:
    sizes = np.nan_to_num(np.abs([values, values if beside is None else beside]), posinf=0.0)
    shades = np.rint(SHADES * sizes[0] / (sizes.max() or 1.0)).astype(int).tolist()
    return Matrix(title, states, [[cell(v) for v in row] for row in values], shades)


def settings(record: Record) -> Facts:
    """The method and every setting it ran with."""
    method = record.facts["method"]
    if not isinstance(method, Mapping):
        return Facts("settings", "Method", {"method": str(method)})
    return Facts("settings", "Method", flat(method))


def provenance(record: Record) -> Facts:
    """Versions, device, key and when: what it takes to get the same numbers again."""
    facts = flat(record.facts.get("provenance") or {})
    facts |= {
        f"{word} seconds": number(float(record.facts[name]))
        for word, name in (("run", "seconds"), ("compile", "compile_seconds"))
        if record.facts.get(name) is not None
    }
    if "key" in record:
        facts["key"] = " ".join(str(int(k)) for k in np.ravel(record["key"]))
    return Facts("provenance", "Provenance", facts)


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested facts as one level of names with text values."""
    result: dict[str, str] = {}
    for name, value in nested.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            result |= flat(value, "" if name == "settings" else f"{name} ")
        elif isinstance(value, list | tuple):
            result[label] = ", ".join(map(str, value)) or "none"
        else:
            result[label] = _word(value)
    return result


def _word(value: Any) -> str:
    if value is None:
        return "not set"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
