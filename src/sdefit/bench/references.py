"""What results are held against: the paper's numbers, and the error of maximum likelihood."""

import csv
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from sdefit import metrics

if TYPE_CHECKING:
    from sdefit.bench.problems import Problem

# The variant of limits.csv in which θ, G and the noise are all estimated.
_VARIANT = {"ou": "free", "dw": "free", "lv": "free", "l63": "free-scalarG"}


def _table(name: str) -> list[dict[str, str]]:
    text = resources.files("sdefit.bench").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def published(system: str, params: tuple[str, ...]) -> list[dict[str, Any]]:
    """The paper's median and standard deviation of each method and quantity, under the names of our rows."""
    rows = [row for row in _table("published_estimates") if row["system"] == system]
    thetas = list(dict.fromkeys(row["quantity"] for row in rows if row["quantity"].startswith("theta")))
    names = dict(zip(thetas, params, strict=True)) | {"G": "G11"}
    return [
        {
            "method": row["method"].lower(),
            "quantity": names.get(row["quantity"], row["quantity"]),
            "median": float(row["median"]),
            "std": float(row["std"]),
            "note": row["note"],
        }
        for row in rows
    ]


def published_seconds(system: str) -> list[dict[str, Any]]:
    """The paper's mean training time of each method."""
    rows = [row for row in _table("published_training_seconds") if row["system"] == system]
    return [
        {"method": row["method"].lower(), "mean": float(row["mean_seconds"]), "std": float(row["std_seconds"])}
        for row in rows
    ]


def limits(problem: "Problem", values: np.ndarray, frozen: bool) -> dict[str, dict[str, Any]]:
    """The RMSE of maximum likelihood for each quantity, over how many realizations, and how it was had.

    Where the likelihood has a closed form it is computed from the very data; else it is that of the frozen data,
    over the same realizations if those are the data.
    """
    if problem.setup.model.name == "ornstein_uhlenbeck" and problem.setup.noise == 0 and len(values):
        found, source = ou_estimates(problem.setup.times, values[:, :, 0]), "exact likelihood on these data"
    elif problem.name in _VARIANT:
        found = estimates(problem, len(values) if frozen else None)
        source = "limits.csv, the same realizations" if frozen else "limits.csv, frozen data"
    else:
        return {}
    truth = problem.truth()
    errors = {name: float(metrics.rmse(column, truth[name])) for name, column in found.items() if name in truth}
    return {  # not of what the model fixes, which has no error
        name: {"rmse": rmse, "count": len(found[name]), "source": source}
        for name, rmse in errors.items()
        if 0 < rmse < np.inf
    }


def ou_estimates(times: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """Maximum likelihood of rate, level and G from paths (realizations, times) observed without noise at even times.

    Given y_1 the path is an autoregression y' = c + a y + e, whose least squares are the maximum: a = e^(−rate h),
    level = c/(1 − a), var e = G² (1 − a²)/(2 rate).
    """
    y, second = values[:, :-1], values[:, 1:]
    centred = y - y.mean(axis=1, keepdims=True)
    a = np.clip(np.sum(centred * second, axis=1) / np.sum(centred**2, axis=1), 1e-12, 1 - 1e-12)
    c = second.mean(axis=1) - a * y.mean(axis=1)
    variance = np.mean((second - c[:, None] - a[:, None] * y) ** 2, axis=1)
    rate = -np.log(a) / np.mean(np.diff(times))
    squared = variance * 2 * rate / (1 - a**2)
    return {"rate": rate, "level": c / (1 - a), "G11": np.sqrt(squared), "GGt11": squared, "H11": squared}


def estimates(problem: "Problem", count: int | None) -> dict[str, np.ndarray]:
    """The estimates of limits.csv for the first `count` frozen realizations or all, and `realization`, their numbers.

    Of the double well they are those in which there are two wells, θ1 > 0.
    """
    rows = [
        row for row in _table("limits") if (row["system"], row["variant"]) == (problem.name, _VARIANT[problem.name])
    ]
    rows = [row for row in rows if count is None or int(row["realization"]) < count]
    if problem.name == "dw":
        rows = [row for row in rows if float(row["th1"]) > 0]
    columns = {name: name for name in problem.truth()} | {"realization": "realization"}
    columns |= {name: f"th{i}" for i, name in enumerate(problem.setup.params)}
    columns |= {f"noise_{state}": "noise" for state in problem.setup.model.states}
    stored = set(rows[0]) if rows else set()
    return {
        name: np.array([float(row[column] or "nan") for row in rows])
        for name, column in columns.items()
        if column in stored
    }
