"""What a stored fit says about its own uncertainty: intervals, the verdict, and profiles of the likelihood."""

from statistics import NormalDist

import numpy as np

from sdefit.report.charts import Chart, Dots, Line
from sdefit.report.numbers import Numbers
from sdefit.report.page import Block, Notes, Table
from sdefit.store import Record


def interval_blocks(record: Record) -> list[Block]:
    """The sentences of the verdict, and every quantity with its interval and whether the data tell it."""
    known = record.facts.get("intervals")
    if not known:
        return []
    columns = {
        "quantity": list(known["names"]),
        "identifiability": list(known["identifiability"]),
        **{name: np.asarray(known[name], float) for name in ("estimate", "lower", "upper")},
    }
    std = np.asarray(known["std"], float)
    if np.isfinite(std).any():
        columns["std"] = std
    heads = {"lower": f"{100 * float(known['level']):g} % from", "upper": "to", "std": "standard error"}
    caption = "Identified: the interval is narrow beside the quantity's size. " + " ".join(known["notes"])
    return [Notes([*known["sentences"]]), Table("intervals", "Intervals", columns, caption, heads)][
        0 if known["sentences"] else 1 :
    ]


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
