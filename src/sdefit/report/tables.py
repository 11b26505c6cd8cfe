"""The tables of a fit, from its stored `Record`: estimates, noise, diffusion, settings, provenance."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdefit.report.numbers import is_fixed, series_names, true_values
from sdefit.report.page import Bar, Facts, Matrices, Matrix, Table, cell, number
from sdefit.store import Record


def estimates(record: Record) -> Table:
    """Each parameter's estimate, with its interval and its true value where they are known."""
    names, values = list(record.facts["params"]), np.asarray(record["params"], float)
    truth, limits = true_params(record), intervals(record, names)
    columns = {"parameter": names, **_estimate_columns("estimate", values, limits, truth)}
    columns["range"] = [parameter_range(record, name) for name in names]
    known = np.full_like(values, np.nan) if truth is None else truth
    bars = [] if limits is None else [_bar(*row) for row in zip(*limits, values, known, strict=True)]
    caption = "In the units of the data." + (" Error is estimate minus truth." if truth is not None else "")
    if bars and truth is not None:
        caption += " In the last column the upright mark is the truth; each row has its own scale."
    return Table("estimates", "Parameters", columns, caption, _heads(record), bars)


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
    return f"{100 * float(record.facts.get('interval_level') or 0.9):g} %"


def intervals(record: Record, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """The lower and upper ends stored for these quantities, NaN where one has none; None without any."""
    rows = {row["quantity"]: row for row in record.facts.get("summary") or ()}
    ends = [[_bound(rows.get(name, {}).get(end), np.nan) for name in names] for end in ("lower", "upper")]
    lower, upper = np.array(ends, float)
    return (lower, upper) if np.any(np.isfinite(lower) & np.isfinite(upper)) else None


def true_params(record: Record) -> np.ndarray | None:
    """The true parameters of simulated data, NaN where one is not known; None without any."""
    truth = (record.facts.get("truth") or {}).get("params") or {}
    return np.array([_bound(truth.get(name), np.nan) for name in record.facts["params"]]) if truth else None


def _bar(lower: float, upper: float, value: float, truth: float) -> Bar | None:
    """The interval as shares of a row that just holds it, the estimate and the truth."""
    shown = [v for v in (lower, upper, value, truth) if np.isfinite(v)]
    if not np.all(np.isfinite([lower, upper, value])) or max(shown) <= min(shown):
        return None
    low, span = min(shown), max(shown) - min(shown)

    def share(v: float) -> float:
        return float(round(6 + 88 * (v - low) / span, 2))

    label = f"interval {number(lower)} to {number(upper)}, estimate {number(value)}"
    tick = share(truth) if np.isfinite(truth) else None
    return Bar(share(lower), share(upper) - share(lower), share(value), tick, label)


def parameter_range(record: Record, name: str) -> str:
    """What a parameter was allowed to be, in words."""
    one = (record.facts.get("parameters") or {}).get(name)
    if not isinstance(one, Mapping):
        return str(one) if one else "real"
    lower, upper = _bound(one.get("lower"), -np.inf), _bound(one.get("upper"), np.inf)
    if is_fixed(record, name):
        return "fixed"
    if np.isinf(lower) and np.isinf(upper):
        return "real"
    if lower == 0 and np.isinf(upper):
        return "positive"
    return f"{number(lower)} to {number(upper)}"


def _bound(value: Any, default: float) -> float:
    return default if value is None else float(value)


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
    """What was observed: times and values of each series."""
    times, values = record["times"], record["values"]
    counts = np.isfinite(values).sum(axis=1)
    columns: dict[str, Any] = {
        "series": series_names(record),
        "times": np.isfinite(times).sum(axis=1),
        "from": np.nanmin(times, axis=1),
        "to": np.nanmax(times, axis=1),
    }
    columns |= {f"{state} values": counts[:, k] for k, state in enumerate(record.facts["states"])}
    heads = {f"{state} values": state for state in record.facts["states"]}
    return Table("observations", "Data", columns, "Under each state the number of its observed values.", heads)


def diffusion(record: Record) -> Matrices:
    """G, GGᵀ and H = GᵀG as shaded matrices, the true ones beside them where they are known."""
    states = list(record.facts["states"])
    columns = {"row": np.repeat(states, len(states)), "column": np.tile(states, len(states))}
    estimated, true = [], []
    for name, title in (("G", "G"), ("GGt", "G Gᵀ"), ("H", "H = Gᵀ G")):
        truth = true_values(record, name)
        columns[name] = record[name].ravel()
        estimated.append(_matrix(title, states, record[name], truth))
        if truth is not None:
            columns[f"true_{name}"] = truth.ravel()
            true.append(_matrix(f"{title}, truth", states, truth, record[name]))
    caption = "The data see G Gᵀ only; G is its lower-triangular factor. Stronger shading is larger."
    return Matrices("diffusion", "Diffusion", caption, estimated + true, columns)


def _matrix(title: str, states: list[str], values: np.ndarray, beside: np.ndarray | None) -> Matrix:
    sizes = np.nan_to_num(np.abs([values, values if beside is None else beside]), posinf=0.0)
    shades = np.round(sizes[0] / (sizes.max() or 1.0), 3).tolist()
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
