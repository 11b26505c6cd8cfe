"""What a stored fit says about its own uncertainty: intervals, the forest plot, and profiles of the likelihood."""

import sys
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from sdefit.display.charts import Chart, Dots, Line, Mark, extent
from sdefit.report.numbers import Numbers
from sdefit.report.page import Block, Table, number
from sdefit.report.tables import interval_level, true_quantities
from sdefit.report.verdict import identifiability
from sdefit.store import Record


def interval_blocks(record: Record) -> list[Block]:
    """Every quantity with its interval, its standard error and whether the data identify it."""
    known = record.facts.get("intervals")
    if not known:
        return []
    words = identifiability(record)
    columns = {
        "quantity": list(known["names"]),
        "identifiability": [words.get(name, "unknown") for name in known["names"]],
        **{name: np.asarray(known[name], float) for name in ("estimate", "lower", "upper")},
    }
    std = np.asarray(known["std"], float)
    if np.isfinite(std).any():
        columns["std"] = std
    heads = {"lower": f"{100 * float(known['level']):g} % from", "upper": "to", "std": "standard error"}
    caption = "A quantity is identified if its interval is narrow beside its size. " + " ".join(known["notes"])
    return [Table("intervals", "Intervals and identifiability", columns, caption, heads)]


def forest_numbers(record: Record) -> Numbers:
    """Every quantity that has an interval: one row each, with its true value where it is known."""
    words = identifiability(record)
    rows = [row for row in record.facts.get("summary") or () if _usable(row)]
    if not rows:
        return {}
    columns = {name: np.array([float(row[name]) for row in rows]) for name in ("estimate", "lower", "upper")}
    truth = true_quantities(record)
    return {
        "quantity": np.array([str(row["quantity"]) for row in rows]),
        **columns,
        "level": np.full(len(rows), interval_level(record)),
        "identifiability": np.array([words.get(row["quantity"], "unknown") for row in rows]),
        **({"truth": np.array([truth.get(row["quantity"], np.nan) for row in rows])} if truth else {}),
    }


def _usable(row: Mapping[str, Any]) -> bool:
    """Whether a row has an interval, and an estimate that its ends can be compared with."""
    found = [row.get(name) for name in ("estimate", "lower", "upper")]
    return all(isinstance(v, float | int) and abs(v) <= sys.float_info.max for v in found) and found[0] != 0


_GRADES = {"identified": "blue", "weakly identified": "orange", "not identified": "muted", "unknown": "sky"}
_WIDEST = 150.0  # per cent of the estimate, beyond which the forest is cut off


def forest_charts(numbers: Numbers) -> list[Chart]:
    """A forest plot: each interval as a share of its own estimate, so that one scale fits them all."""
    if not numbers:
        return []
    size = np.abs(numbers["estimate"])
    ends = [100 * (numbers[name] - numbers["estimate"]) / size for name in ("lower", "upper")]
    marks: list[Mark] = [mark for word in _GRADES for mark in _grade_marks(numbers, word, *ends)]
    truth = 100 * (numbers["truth"] - numbers["estimate"]) / size if "truth" in numbers else np.full(size.size, np.nan)
    if np.isfinite(truth).any():
        tips = [f"{name}: truth {number(v)}" for name, v in zip(numbers["quantity"], numbers["truth"], strict=True)]
        marks.append(Dots(truth, np.arange(size.size), "vermilion", "truth", 6.0, 1.0, tips))
    low, high = extent([*ends, truth, np.array([-10.0, 10.0])])
    rows = [str(name) for name in numbers["quantity"]]
    alt = "; ".join(_row_text(numbers, i) for i in range(len(rows)))
    limits = (max(low, -_WIDEST), min(high, _WIDEST))
    return [Chart("", marks, alt, across="difference from the estimate in % of it", limits=limits, rows=rows)]


def _grade_marks(numbers: Numbers, word: str, lower: np.ndarray, upper: np.ndarray) -> list[Mark]:
    """The intervals of one grade as one broken line, and the estimates."""
    here = np.flatnonzero(numbers["identifiability"] == word)
    if not here.size:
        return []
    gap, label = np.full(here.size, np.nan), "interval" if word == "unknown" else word
    x, y = np.stack([lower[here], upper[here], gap], 1).ravel(), np.stack([here, here, gap], 1).ravel()
    tips = [_row_text(numbers, int(i)) for i in here]
    line = Line(x, y, _GRADES[word], width=3.0, opacity=0.6)
    return [line, Dots(np.zeros(here.size), here.astype(float), _GRADES[word], label, 8.0, 1.0, tips)]


def _row_text(numbers: Numbers, i: int) -> str:
    ends = f"{number(numbers['lower'][i])} to {number(numbers['upper'][i])}"
    level = f"{100 * numbers['level'][i]:g} %"
    return f"{numbers['quantity'][i]} = {number(numbers['estimate'][i])}, {level} interval {ends}"


def profile_numbers(record: Record) -> Numbers:
    """The profiles that were asked for, one row for each parameter and value; empty without any."""
    known = record.facts.get("profiles") or {}
    if not known:
        return {}
    sizes = [len(one["values"]) for one in known.values()]
    parts = {
        "parameter": np.repeat(list(known), sizes),
        **{name: np.concatenate([one[name] for one in known.values()]) for name in ("values", "log_likelihood")},
        **{name: np.repeat([one[name] for one in known.values()], sizes) for name in ("estimate", "level")},
    }
    return {name: np.asarray(column) for name, column in parts.items()}


def profile_charts(numbers: Numbers) -> list[Chart]:
    """The fall of the log-likelihood on either side of its top, with the height that bounds the interval."""
    names = dict.fromkeys(numbers["parameter"].tolist()) if numbers else {}
    return [_profile_chart(name, {n: c[numbers["parameter"] == name] for n, c in numbers.items()}) for name in names]


def _profile_chart(name: str, part: dict[str, np.ndarray]) -> Chart:
    x, y = part["values"].astype(float), part["log_likelihood"].astype(float)
    level = float(part["level"][0])
    depth = -0.5 * NormalDist().inv_cdf(0.5 + level / 2) ** 2
    marks = [
        Line(x, y, "blue", "profile log-likelihood"),
        Line(
            x[[0, -1]],
            np.array([depth, depth]),
            "muted",
            f"{100 * level:g} % interval where above",
            dash="5 3",
            width=1.2,
        ),
        Dots(np.array([float(part["estimate"][0])]), np.array([0.0]), "vermilion", "estimate", 5.0),
    ]
    alt = f"profile log-likelihood of {name}"
    return Chart(name, marks, alt, across=name, limits=(max(float(np.nanmin(y)), -8.0) - 0.3, 0.4))
