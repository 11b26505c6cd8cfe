"""What a stored plan, fit or problem must hold: facts of the right types, and arrays whose shapes agree with them.

A checksum says that a file is as it was written, not that sdefit wrote it. Whoever reads a record may rely on what is
checked here. Facts that are not listed are let through: nobody reads them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdefit.store.facts import FitFacts, PlanFacts, ProblemFacts, check, need

MOST_REALIZATIONS = 100_000  # the first of each cell is five digits of its name, and rows are read in that order
Dims = tuple[str, ...]
Arrays = Mapping[str, tuple[Dims, np.ndarray]]


def check_plan(facts: Any) -> None:
    """Raise `ValueError`, in words, unless these are the facts of a plan."""
    check(facts, PlanFacts, "the plan")
    systems, methods = facts["systems"], facts["methods"]
    need(0 < facts["realizations"] <= MOST_REALIZATIONS, f"its realizations must be from 1 to {MOST_REALIZATIONS:,}")
    need(
        0 <= facts["seed"] < 2**32 and facts["block"] >= 0, "its seed must be from 0 to 2³² − 1, its block not negative"
    )
    for name in ("settings", "sources"):
        need(sorted(facts[name]) == sorted(systems), f"{name} must be of its systems")
    need(all(sorted(one) == sorted(methods) for one in facts["settings"].values()), "settings must be of its methods")
    for system, counts in facts.get("counts", {}).items():
        known = system in systems and set(counts) <= set(methods) and all(n > 0 for n in counts.values())
        need(known, "counts must be realizations of its systems and methods")
    need(all(re.fullmatch(r"[\w.+-]+", one) for one in systems), "systems must be names of files")
    need(all(re.fullmatch(r"[\w.+-]+-[0-9]+", one) for one in facts["cells"]), "cells must be numbered names of files")
    need(all("title" in facts["about"].get(one, ()) for one in methods), "about must hold the title of its methods")


def check_record(kind: str, arrays: Arrays, facts: Any, coordinates: Mapping[str, Sequence[str]]) -> None:
    """Raise `ValueError`, in words, unless these are a whole record of that kind ("fit" or "problem")."""
    {"fit": _check_fit, "problem": _check_problem}[kind](arrays, facts)
    sizes = {dim: size for dims, array in arrays.values() for dim, size in zip(dims, array.shape, strict=True)}
    for name, labels in coordinates.items():
        need(sizes.get(name, len(labels)) == len(labels), f"{name} must have {sizes.get(name)} labels")


_ROWS = ("series", "time", "state")
_SQUARE = ("state", "state_2")
# Of each array of a fit: its axes, and whether it holds whole numbers (i), floats (f) or truth values (b).
_FIT: dict[str, tuple[Dims, str]] = {
    "length": (("series",), "i"),
    "times": (("series", "time"), "f"),
    **dict.fromkeys(("values", "mean", "std"), (_ROWS, "f")),
    "observed": (_ROWS, "b"),
    "params": (("param",), "f"),
    **dict.fromkeys(("G", "GGt", "H"), (_SQUARE, "f")),
    "noise": (("state",), "f"),
}
_ESTIMATE: dict[str, tuple[Dims, str]] = {
    "theta": (("free",), "f"),
    "G": (_SQUARE, "f"),
    "noise": (("state",), "f"),
    "mean": (("series", "rows", "state"), "f"),
    "std": (("series", "rows", "state"), "f"),
    "criterion": ((), "f"),
    "code": ((), "i"),
}
_PROBLEM: dict[str, tuple[Dims, str]] = {
    "times": (("time",), "f"),
    "values": (("realization", "time", "state"), "f"),
    "path": (("realization", "time", "state"), "f"),
}


def _check_fit(arrays: Arrays, facts: Any) -> None:
    check(facts, FitFacts, "its facts")
    _names("states", facts["states"])
    _names("params", facts["params"], least=0)
    need(sorted(facts["parameters"]) == sorted(facts["params"]), "parameters must be those of params")
    need(bool(facts["series"]), "series must be one or more")
    sizes = {"series": len(facts["series"]), "state": len(facts["states"]), "param": len(facts["params"])}
    sizes |= {"state_2": sizes["state"], "free": sum(facts["parameters"][p]["value"] is None for p in facts["params"])}
    found = _shapes(arrays, _FIT, sizes)
    found = _shapes(arrays, {f"estimate_{name}": one for name, one in _ESTIMATE.items()}, found)
    need(found["rows"] >= found["time"], "estimate_mean must have a row for each time")
    if "path" in arrays:
        _shapes(arrays, {"path": (_ROWS, "f")}, found)
    need(("path" in arrays) >= any(one["path"] for one in facts["series"]), "path must be there")
    _check_data(arrays, facts, found)
    need(_kind(arrays, "key") == "u" and arrays["key"][1].ndim == 1, "key must be a row of whole numbers")
    for name in ("std", "noise"):
        need(not np.any(arrays[name][1] < 0), f"{name} must not be negative")
    _check_trace({n.removeprefix("trace_"): a for n, (_, a) in arrays.items() if n.startswith("trace_")}, found)
    for name in arrays:
        need(not name.startswith(("state_", "trace_")) or _kind(arrays, name) in "fiub", f"{name} must hold numbers")
    _check_truth(facts["truth"] or {}, found["state"])
    _check_kept(facts, found)


def _check_data(arrays: Arrays, facts: Any, sizes: Mapping[str, int]) -> None:
    """Times that increase, values that are numbers or missing, and nothing beyond the end of a series."""
    length, times, values = (arrays[name][1] for name in ("length", "times", "values"))
    need(bool(np.all((length >= 1) & (length <= sizes["time"]))), "length must be that of the rows of times")
    for i, n in enumerate(length.tolist()):
        mine = times[i, :n]
        need(bool(np.isfinite(mine).all() and (np.diff(mine) > 0).all()), "times must be numbers that increase")
        need(bool(np.isnan(times[i, n:]).all()), "times must end where the series ends")
        for j in range(len(facts["series"][i]["inputs"])):
            _shapes(arrays, {f"input_{i}_{j}": ((f"input_{i}_{j}_0",), "f")}, {f"input_{i}_{j}_0": n})
    need(not np.isinf(values).any(), "values must be finite or missing")
    need(bool(np.array_equal(arrays["observed"][1], ~np.isnan(values))), "observed must say where values are")


def _check_trace(trace: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    """What figures draw of the way to the estimate."""
    S, N, K = (sizes[name] for name in ("series", "time", "state"))
    field = [name for name in trace if name.startswith("field_")]
    need(len(field) in (0, 3), "trace_field must be mean, std and model")
    for name, array in trace.items():
        if name.startswith("derivatives_") or name in field:
            shape = array.shape[1:] if name not in field else array.shape
            fits = array.ndim == (3 if name in field else 4) and array.shape[0] > 0
            need(fits and shape[0] == S and shape[1] >= N and shape[2] == K, f"trace_{name} must be along the path")
            need(array.dtype.kind == "f", f"trace_{name} must hold numbers")


def _check_truth(truth: Any, states: int) -> None:
    for name in ("G", "GGt", "H"):
        need(name not in truth or _is_square(truth[name], states), f"truth.{name} must be {states} by {states}")
    noise = truth.get("noise", 0.0)
    need(not isinstance(noise, list) or len(noise) == states, "truth.noise must be one number for each state")


def _is_square(rows: Sequence[Sequence[float]], size: int) -> bool:
    return len(rows) == size and all(len(row) == size for row in rows)


def _check_kept(facts: Any, sizes: Mapping[str, int]) -> None:
    """Columns of intervals, profiles and diagnosis that belong together are of one length."""
    if known := facts.get("intervals"):
        columns = [known[name] for name in ("names", "estimate", "lower", "upper", "std", "identifiability")]
        need(len({len(column) for column in columns}) == 1, "the columns of intervals must be of one length")
        need(0 < known["level"] < 1, "intervals.level must lie between 0 and 1")
    for name, one in facts.get("profiles", {}).items():
        need(
            0 < one["level"] < 1 and len(one["values"]) == len(one["log_likelihood"]) > 1, f"profiles.{name} is broken"
        )
    if known := facts.get("diagnosis"):
        _check_diagnosis(known, facts, sizes)


def _check_diagnosis(known: Any, facts: Any, sizes: Mapping[str, int]) -> None:
    states, residuals = set(facts["states"]), known["residuals"]
    fits = len(residuals) == sizes["series"] and all(0 < len(one) <= sizes["time"] for one in residuals)
    rows_fit = all(len(row) == sizes["state"] for one in residuals for row in one)
    need(fits and rows_fit, "diagnosis.residuals must be a number for each time and state")
    for name in ("quantiles", "autocorrelation", "drift"):
        need(set(known[name]) <= states, f"diagnosis.{name} must be of the states")
    pairs = known["quantiles"].values()
    need(all(len(one) == 2 and len(one[0]) == len(one[1]) for one in pairs), "diagnosis.quantiles must be pairs")
    for one in known["drift"].values():
        lengths = {len(one.get(name, "")) for name in ("state", "fitted", "found", "std")}
        need(len(lengths) == 1 and "state" in one, "the columns of diagnosis.drift must be of one length")


def _check_problem(arrays: Arrays, facts: Any) -> None:
    check(facts, ProblemFacts, "its facts")
    _names("states", facts["states"])
    found = _shapes(arrays, _PROBLEM, {"state": len(facts["states"])})
    times = arrays["times"][1]
    need(found["time"] > 1 and bool(np.isfinite(times).all() and (np.diff(times) > 0).all()), "times must increase")
    need(not any(np.isinf(arrays[name][1]).any() for name in ("values", "path")), "values must be finite or missing")
    shown = [*facts["params"], *facts["matrix"]]
    need(all(math.isfinite(facts["truth"].get(name, math.nan)) for name in shown), "truth must hold every quantity")
    sizes = [one["rmse"] for one in facts["limits"].values()] + [one["mean"] for one in facts["published_seconds"]]
    need(all(0 < one < math.inf for one in sizes), "limits and published_seconds must be finite and above 0")


def _names(word: str, names: Sequence[str], least: int = 1) -> None:
    need(len(set(names)) == len(names) >= least and all(names), f"{word} must be different names")


def _shapes(arrays: Arrays, spec: Mapping[str, tuple[Dims, str]], known: Mapping[str, int]) -> dict[str, int]:
    """The sizes of all axes, if every array of the spec is there, of its type, with axes of the known sizes."""
    sizes = dict(known)
    for name, (dims, kind) in spec.items():
        need(name in arrays, f"{name} is missing")
        array = arrays[name][1]
        need(array.ndim == len(dims), f"{name} must have {len(dims)} axes, not {array.ndim}")
        for dim, size in zip(dims, array.shape, strict=True):
            need(sizes.setdefault(dim, size) == size, f"{name} must have {sizes[dim]} along {dim}, not {size}")
        need(_kind(arrays, name) == kind, f"{name} must hold numbers of another type")
    return sizes


def _kind(arrays: Arrays, name: str) -> str:
    return arrays[name][1].dtype.kind if name in arrays else ""
