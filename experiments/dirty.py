"""What missing values cost and what pooling gains, beside what they cost and gain maximum likelihood.

    python experiments/dirty.py --out experiments/rows/dirty.csv.bz2             # all systems, MaRS and the default
    python experiments/dirty.py --systems ou --realizations 4 --groups 1 --out rows.csv   # small
    python experiments/dirty.py --summarise experiments/rows/dirty.csv.bz2       # the table again

Each realization is fitted whole; with 30 % of its values knocked out at random; and with its last state observed at
every second time. Groups of ten series are pooled. Maximum likelihood (ESGF, told of the structure of the noise) is the
measure: how much its RMSE of θ grows or shrinks on the very same data. Nothing is dropped, and failures are counted.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import stored
from accuracy import SYSTEMS

import sdefit as sf
from sdefit import methods
from sdefit.bench import plan

POOLED = 10
KNOCKED = 0.3
LIMIT = "ml"
STEP = {"ou": 1e-3, "dw": 1e-3, "lv": 1e-3, "l63": 1e-4}  # of Euler-Maruyama


def main(arguments: list[str] | None = None) -> None:
    asked = parse(arguments)
    if asked.summarise:
        print(summary(stored.read(asked.summarise)))
        return
    rows = pd.DataFrame()
    for system in asked.systems:
        for name in asked.methods:
            rows = pd.concat([rows, run(system, name, asked)])
            stored.write(rows, asked.out, 3)  # an interrupted run keeps it
    print(summary(stored.read([asked.out])))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=(LIMIT, "mars", methods.DEFAULT), type=lambda text: tuple(text.split(",")))
    parser.add_argument("--systems", default=SYSTEMS, type=lambda text: tuple(text.split(",")))
    parser.add_argument("--realizations", default=100, type=int)
    parser.add_argument("--groups", default=20, type=int, help="of ten series each, to be pooled")
    parser.add_argument("--seed", default=2030, type=int)
    parser.add_argument("--out", type=Path, help="CSV file of rows")
    parser.add_argument("--summarise", nargs="+", type=Path, help="print the table of stored rows instead")
    asked = parser.parse_args(arguments)
    if asked.out is None and not asked.summarise:
        parser.error("--out must name the file of rows")
    return asked


def run(system: str, name: str, asked: argparse.Namespace) -> pd.DataFrame:
    """One row for each fit of a system by a method."""
    setup = sf.systems.get(system)
    method = plan.settings(system, "esgf") if name == LIMIT else methods.get(name)()
    data_key, key = jax.random.split(jax.random.fold_in(jax.random.key(asked.seed), SYSTEMS.index(system)))
    count = max(asked.realizations, asked.groups * POOLED)
    whole = setup.simulate(key=data_key, paths=count, step=STEP[system])
    some = whole[: asked.realizations]
    rng = np.random.default_rng(asked.seed)
    kinds = {"whole": some, "knocked": [knocked(one, rng) for one in some], "half": [halved(one) for one in some]}
    rows = []
    for kind, series in kinds.items():
        fits = sf.fit_each(setup.model, series, method, key=key)
        rows += [row(system, name, kind, i, fit, setup) for i, fit in enumerate(fits)]
    for i in range(asked.groups):
        group = whole[i * POOLED : (i + 1) * POOLED]
        fit = sf.fit(setup.model, group, method, key=jax.random.fold_in(key, i))
        rows.append(row(system, name, "pooled", i, fit, setup))
    return stored.signed(pd.DataFrame(rows))


def knocked(series: sf.Series, rng: np.random.Generator) -> sf.Series:
    values = np.where(rng.random(series.values.shape) < KNOCKED, np.nan, series.values)
    return sf.Series(series.times, values, list(series.states))


def halved(series: sf.Series) -> sf.Series:
    values = series.values.copy()
    values[1::2, -1] = np.nan
    return sf.Series(series.times, values, list(series.states))


def row(system: str, name: str, kind: str, number: int, fit: sf.Fit, setup) -> dict:
    facts = {"system": system, "method": name, "kind": kind, "realization": number, "status": fit.status.name}
    missed = {f"missed_{key}": fit.params[key] - truth for key, truth in setup.params.items()}
    return facts | {"by": fit.method.name} | missed


def summary(rows: pd.DataFrame) -> str:
    """Markdown: of each θ the RMSE whole, and how much more or less it is otherwise, beside maximum likelihood."""
    lines = ["| system | method | θ | RMSE | 30 % missing | last state halved | ten pooled |", "|---" * 7 + "|"]
    for (system, name), part in rows.groupby(["system", "method"], sort=False):
        for column in [c for c in part if c.startswith("missed_") and part[c].notna().any()]:
            own = {kind: rmse(one[column]) for kind, one in part.groupby("kind")}
            limit = rows[(rows.system == system) & (rows.method == LIMIT)]
            best = {kind: rmse(one[column]) for kind, one in limit.groupby("kind")}
            cells = [f"{own['whole']:.3g}"]
            for kind in ("knocked", "half", "pooled"):
                if kind not in own:
                    cells.append("")
                    continue
                grown = own[kind] / own["whole"]
                beside = f" ({grown / (best[kind] / best['whole']):.2f})" if name != LIMIT and best else ""
                cells.append(f"×{grown:.2f}{beside}")
            lines.append(f"| {system} | {name} | {column.removeprefix('missed_')} | {' | '.join(cells)} |")
    bad = rows[stored.failed(rows.status)].groupby(["system", "method", "kind", "status"]).size()
    said = [f"{len(rows)} fits, {int(bad.sum())} without success."]
    return "\n".join([*lines, "", *said, *(f"- {' '.join(index)}: {count}" for index, count in bad.items())])


def rmse(missed: pd.Series) -> float:
    return float(np.sqrt(np.mean(missed**2)))


if __name__ == "__main__":
    main()
