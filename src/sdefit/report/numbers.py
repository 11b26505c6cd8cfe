"""The numbers of each figure of a fit, read from its stored `Record`.

Nothing is computed again but quantiles of stored samples and outlines of stored matrices. Where the
record lacks what a figure needs, its numbers are empty and the figure is left out.
Rows have a column `time`, in the units of the data, and a column `date` where times were read from dates.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sdefit.store import Record

Numbers = Mapping[str, np.ndarray]  # column name → values, all of one length
# Seconds from 1970 to the first and last day of the years that calendars of computers know, 1 to 9999.
_CALENDAR = (-62135596800.0, 253402214400.0)
WIDE = 1.6448536269514722  # the standard normal quantile of 95 %, so that bands hold 90 %


def series_names(record: Record) -> list[str]:
    """The names of the series, or their numbers from 1."""
    names = [str(name) for name in record.coordinates.get("series") or ()]
    several = len(record["times"])
    return names if len(set(names)) == several else [str(i + 1) for i in range(several)]


def true_values(record: Record, name: str) -> np.ndarray | None:
    """A true quantity of simulated data ("G", "GGt", "H" or "noise"), if it is known."""
    truth = record.facts.get("truth") or {}
    if truth.get(name) is not None:
        return np.asarray(truth[name], float)
    if name in ("GGt", "H") and truth.get("G") is not None:
        G = np.asarray(truth["G"], float)
        return G @ G.T if name == "GGt" else G.T @ G
    return None


def free_names(record: Record) -> list[str]:
    """The names of the estimated parameters, in the order of θ."""
    return [name for name in record.facts["params"] if not is_fixed(record, name)]


def is_fixed(record: Record, name: str) -> bool:
    """Whether a parameter was held at a value the user gave."""
    one = (record.facts.get("parameters") or {}).get(name)
    return isinstance(one, Mapping) and one.get("value") is not None


def path_numbers(record: Record) -> Numbers:
    """Observations and the smoothed path: one row for each series, state and time."""
    parts = list(_each(record))
    columns = _row_names(record, parts)
    for name in ("values", "mean", "std", *(["path"] if "path" in record else [])):
        columns[name] = np.concatenate([record[name][i][n] for _, n, i, _ in parts])
    columns["lower"] = columns["mean"] - WIDE * columns["std"]
    columns["upper"] = columns["mean"] + WIDE * columns["std"]
    return columns


def _row_names(record: Record, parts: Sequence[tuple[str, np.ndarray, tuple, str]]) -> dict[str, np.ndarray]:
    """The series, state, time and date of every row."""
    columns = {
        "series": np.concatenate([np.full(n.sum(), name) for name, n, _, _ in parts]),
        "state": np.concatenate([np.full(n.sum(), state) for _, n, _, state in parts]),
        "time": np.concatenate([record["times"][i[0]][n] for _, n, i, _ in parts]),
    }
    dates = calendar(record)
    if dates is not None:
        columns["date"] = np.concatenate([dates[i[0]][n] for _, n, i, _ in parts])
    return columns


def calendar(record: Record) -> np.ndarray | None:
    """The dates of all times, (series, time), where the data have dates that a calendar axis can show."""
    from sdefit.data.clock import SECONDS  # here, not above: `sdefit.data` needs jax, which most reports do not

    origins = [one.get("origin") for one in record.facts.get("series") or ()]
    unit = SECONDS.get(str(record.facts.get("time_unit")))
    if unit is None or len(origins) != len(record["times"]) or not all(origins):
        return None
    try:
        start = np.array([np.datetime64(str(one), "s") for one in origins])
    except ValueError:
        return None
    seconds = start.astype(float)[:, None] + np.round(record["times"] * unit)
    if np.nanmin(seconds) < _CALENDAR[0] or np.nanmax(seconds) > _CALENDAR[1]:
        return None
    missing = np.isnan(seconds)
    dates = np.where(missing, 0.0, seconds).astype(np.int64).astype("datetime64[s]")
    dates[missing] = np.datetime64("NaT", "s")
    return dates


def _each(record: Record) -> Iterator[tuple[str, np.ndarray, tuple, str]]:
    """Series name, rows that are not filling, place in the arrays, and state, for each series and state."""
    for i, name in enumerate(series_names(record)):
        for k, state in enumerate(record.facts["states"]):
            yield name, np.isfinite(record["times"][i]), (i, slice(None), k), state


def phase_numbers(record: Record) -> Numbers:
    """The smoothed path and the observations with one column for each state; empty for a single state."""
    states = record.facts["states"]
    if len(states) < 2:
        return {}
    keep = np.isfinite(record["times"])
    names = np.repeat(np.array(series_names(record))[:, None], keep.shape[1], axis=1)
    columns = {"series": names[keep], "time": record["times"][keep]}
    for kind in ("mean", "values", *(["path"] if "path" in record else [])):
        columns |= {f"{kind}_{state}": record[kind][..., k][keep] for k, state in enumerate(states)}
    return columns


def derivative_numbers(record: Record, samples: int = 5) -> Numbers:
    """Samples of ż drawn from the data and from the model, before and after matching.

    Median and band of all samples and the first few of them, one row for each series, state and time.
    Empty where the method kept none.
    """
    trace = record.starting("trace_derivatives_")
    if "data" not in trace or trace["data"].shape[2] < record["times"].shape[1]:
        return {}
    parts = list(_each(record))
    columns = _row_names(record, parts)
    for source in (one for one in ("data", "model_before", "model_after") if one in trace):
        per_part = [trace[source][(slice(None), *i)][:, : len(n)][:, n] for _, n, i, _ in parts]
        flat = np.concatenate(per_part, axis=1)
        lower, median, upper = np.quantile(flat, [0.05, 0.5, 0.95], axis=0)
        columns |= {f"{source}_median": median, f"{source}_lower": lower, f"{source}_upper": upper}
        columns |= {f"{source}_sample_{s + 1}": flat[s] for s in range(min(samples, len(flat)))}
    return columns


def field_numbers(record: Record) -> Numbers:
    """A drift that was learned without a formula, and the model's own, along the smoothed path.

    One row for each series, state and time; `x` is that state. Empty where the method learned no drift.
    """
    trace = record.starting("trace_field_")
    if "mean" not in trace or trace["mean"].shape[1] < record["times"].shape[1]:
        return {}
    parts = list(_each(record))

    def column(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array[i][: len(n)][n] for _, n, i, _ in parts])

    mean, half = column(trace["mean"]), WIDE * column(trace["std"])
    return _row_names(record, parts) | {
        "x": column(record["mean"]),
        "learned": mean,
        "lower": mean - half,
        "upper": mean + half,
        "model": column(trace["model"]),
    }


def trace_numbers(record: Record) -> Numbers:
    """The loss and the parameters at each iteration; rows after the last iteration are dropped."""
    trace = record.starting("trace_")
    columns: dict[str, np.ndarray] = {}
    if "loss" in trace and trace["loss"].ndim == 1:
        columns["loss"] = np.asarray(trace["loss"], float)
    theta = trace.get("theta")
    if theta is not None and theta.ndim == 2 and len(theta) == len(columns.get("loss", theta)):
        free = free_names(record)[: theta.shape[1]]
        columns |= {name: np.asarray(theta[:, i], float) for i, name in enumerate(free)}
    if not columns:
        return {}
    done = np.any([np.isfinite(c) for c in columns.values()], axis=0)
    if not done.any():
        return {}
    return {"iteration": np.flatnonzero(done), **{name: c[done] for name, c in columns.items()}}


def diffusion_numbers(record: Record) -> Numbers:
    """Outlines of the noise that one unit of time adds: a density for one state, else one ellipse for each pair.

    An ellipse holds 39 % of the increments (one standard deviation). Empty for an ODE.
    """
    GGt, states = record["GGt"], record.facts["states"]
    if record.facts.get("diffusion") == "none" or not np.any(GGt) or not np.all(np.isfinite(GGt)):
        return {}
    truth = true_values(record, "GGt")
    if len(states) == 1:
        return _density(states[0], GGt, truth)
    pairs = [(i, j) for i in range(len(states)) for j in range(i + 1, len(states))][:6]
    rows = [_ellipses(GGt, truth, i, j, states) for i, j in pairs]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _density(state: str, GGt: np.ndarray, truth: np.ndarray | None) -> Numbers:
    widest = max(float(g[0, 0]) ** 0.5 for g in (GGt, truth) if g is not None)
    x = np.linspace(-3.5 * widest, 3.5 * widest, 141)
    columns = {"pair": np.full(x.size, state), "x": x, "y": _normal(x, GGt[0, 0])}
    return columns if truth is None else columns | {"true_y": _normal(x, truth[0, 0])}


def _normal(x: np.ndarray, variance: float) -> np.ndarray:
    variance = max(float(variance), 1e-300)
    return np.exp(-0.5 * x**2 / variance) / np.sqrt(2 * np.pi * variance)


def _ellipses(GGt: np.ndarray, truth: np.ndarray | None, i: int, j: int, states: Sequence[str]) -> Numbers:
    x, y = _outline(GGt[np.ix_([i, j], [i, j])])
    columns = {"pair": np.full(x.size, f"{states[j]} against {states[i]}"), "x": x, "y": y}
    if truth is None:
        return columns
    true_x, true_y = _outline(truth[np.ix_([i, j], [i, j])])
    return columns | {"true_x": true_x, "true_y": true_y}


def _outline(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points one standard deviation from the centre, by the eigenvectors, as it may be singular."""
    spread, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0.0, 2 * np.pi, 97)
    x, y = vectors @ (np.sqrt(np.maximum(spread, 0.0))[:, None] * np.array([np.cos(angle), np.sin(angle)]))
    return x, y
