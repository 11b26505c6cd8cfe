"""Long series about a steady state: the benchmark's double well for a longer time, and other equations.

    python experiments/stationary.py --out experiments/rows/stationary.csv.bz2
    python experiments/stationary.py --summarise experiments/rows/stationary.csv.bz2

Nothing carries the path along here but noise, terms of the drift cancel where the path spends its time, and least
squares along a smoothed path finds next to no drift: what short series from far away do not show. `esgf` is maximum
likelihood by the Gaussian filter without priors.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import stored

import sdefit as sf
from sdefit import methods


@dataclass(frozen=True)
class Case:
    """An equation, its truth, and how it is observed."""

    equations: str
    params: dict[str, float]
    x0: tuple[float, ...]
    until: float
    rows: int
    G: tuple[float, ...]  # the diagonal
    noise: float


CASES = {
    "double well": Case("dx = a*x*(b - x**2)", {"a": 0.1, "b": 4.0}, (0.0,), 200.0, 501, (0.5,), 0.2),
    "cubic, coarse": Case("dx = a*x - b*x**3", {"a": 1.0, "b": 1.0}, (0.0,), 200.0, 401, (0.6,), 0.1),
    "cubic, fine": Case("dx = a*x - b*x**3", {"a": 1.0, "b": 1.0}, (0.0,), 100.0, 1001, (0.6,), 0.1),
    "sine": Case("dx = a*sin(x) - b*x", {"a": 1.0, "b": 0.2}, (0.0,), 200.0, 401, (0.5,), 0.1),
    "Vasicek": Case("dr = k*(m - r)", {"k": 0.3, "m": 5.0}, (5.0,), 100.0, 401, (0.5,), 0.05),
    "turning": Case("dx = -a*x + b*y\ndy = -b*x - a*y", {"a": 0.3, "b": 2.0}, (0.0, 0.0), 50.0, 501, (0.3, 0.3), 0.05),
    "Van der Pol": Case(
        "dx = y\ndy = mu*(1 - x**2)*y - k*x", {"mu": 1.5, "k": 1.0}, (1.0, 0.0), 40.0, 401, (0.1, 0.3), 0.1
    ),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=tuple(CASES), type=lambda text: tuple(text.split(";")))
    parser.add_argument("--methods", default=("mars", "auto", "esgf"), type=lambda text: tuple(text.split(",")))
    parser.add_argument("--realizations", default=48, type=int)
    parser.add_argument("--seed", default=2048, type=int)
    parser.add_argument("--out", type=Path, help="CSV file of one row per estimated number")
    parser.add_argument("--summarise", type=Path, help="print the table of stored rows instead")
    asked = parser.parse_args(arguments)
    if asked.summarise:
        print(summary(stored.read([asked.summarise])))
        return
    rows = pd.concat([run(name, asked) for name in asked.cases])
    if asked.out:
        stored.write(rows, asked.out)
    print(summary(rows))


def run(name: str, asked: argparse.Namespace) -> pd.DataFrame:
    case = CASES[name]
    model, times, G = sf.equations(case.equations), np.linspace(0.0, case.until, case.rows), np.diag(case.G)
    data_key, key = jax.random.split(jax.random.fold_in(jax.random.key(asked.seed), list(CASES).index(name)))
    step = case.until / (case.rows - 1) / 40
    series = sf.simulate(
        model, case.params, case.x0, times, G=G, noise=case.noise, key=data_key, paths=asked.realizations, step=step
    )
    rows = []
    for method in asked.methods:
        for i, fit in enumerate(sf.fit_each(model, series, methods.get(method)(), key=key)):
            about = {"case": name, "method": method, "realization": i, "status": fit.status.name, "by": fit.method.name}
            found = fit.params | {f"G{k + 1}": fit.G[k, k] for k in range(len(case.G))}
            truth = case.params | {f"G{k + 1}": g for k, g in enumerate(case.G)}
            rows += [about | {"quantity": q, "truth": truth[q], "found": float(found[q])} for q in truth]
    return stored.signed(pd.DataFrame(rows))


def summary(rows: pd.DataFrame) -> str:
    """Markdown: mean and RMSE of each quantity by each method."""
    order = list(dict.fromkeys(rows.method))
    heads = ["case", "", "truth", *(f"{method}: mean, RMSE" for method in order)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for (case, quantity), part in rows.groupby(["case", "quantity"], sort=False):
        truth = part.truth.iloc[0]
        of = {method: own.found for method, own in part.groupby("method")}
        cells = [f"{of[m].mean():.3g}, {np.sqrt(np.mean((of[m] - truth) ** 2)):.3g}" for m in order]
        lines.append(f"| {case} | {quantity} | {truth:g} | {' | '.join(cells)} |")
    fits = rows.drop_duplicates(["case", "method", "realization"])
    bad = fits[stored.failed(fits.status)].groupby(["case", "method", "status"]).size()
    said = [f"{len(fits)} fits, {int(bad.sum())} without success."]
    return "\n".join([*lines, "", *said, *(f"- {', '.join(index)}: {count}" for index, count in bad.items())])


if __name__ == "__main__":
    main()
