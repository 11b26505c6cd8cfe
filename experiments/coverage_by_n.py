"""How often the intervals that a fit shows without being asked hold the truth, by the number of observations.

    python experiments/coverage_by_n.py --out experiments/rows/coverage_by_n.csv.gz            # 400 data sets each
    python experiments/coverage_by_n.py --systems ou --sizes 5 --sets 20 --out /tmp/c.csv           # small
    python experiments/coverage_by_n.py --summarise experiments/rows/coverage_by_n.csv.gz              # the tables

Each data set is fitted by the default method and has the intervals of `fit.summary()`: no refits. One row for each
system, size, data set and quantity.
"""

import argparse
import csv
import gzip
from pathlib import Path

import jax
import numpy as np

import sdefit as sf

LOGISTIC = sf.equations("dx = r*x*(1 - x/k)", params={"r": sf.positive(), "k": sf.positive()}, name="logistic")
SETTLED = -10.0  # OU starts so long before the first observation


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="ou,logistic,lv")
    parser.add_argument("--sizes", default="3,5,10,25,50")
    parser.add_argument("--sets", default=400, type=int)
    parser.add_argument("--seed", default=2051, type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summarise", type=Path)
    asked = parser.parse_args(arguments)
    if asked.summarise:
        print(summary(read(asked.summarise)))
        return
    rows: list[dict] = []
    for system in asked.systems.split(","):
        for size in map(int, asked.sizes.split(",")):
            rows += run(system, size, asked.sets, asked.seed)
            write(rows, asked.out)
    print(summary(rows))


def simulated(system: str, size: int, sets: int, seed: int) -> tuple[sf.SDE, dict[str, float], list[sf.Series]]:
    """A model, every true quantity, and data sets: OU at rest and logistic growth at gaps of 0.5, LV over [0, 2]."""
    key = jax.random.fold_in(jax.random.key(seed), size)
    times, start = 0.5 * np.arange(size), [1.0]
    match system:
        case "ou":
            model, params, G, noise = sf.systems.get("ou").model, {"rate": 0.5, "level": 1.0}, np.array([[0.5]]), 0.1
            before = np.concatenate([[SETTLED], times])
            made = sf.simulate(model, params, start, before, noise=noise, G=G, key=key, paths=sets, step=0.01)
            made = [sf.Series(one.times[1:], one.values[1:], one.states) for one in made]
        case "logistic":
            model, params, G, noise = LOGISTIC, {"r": 1.0, "k": 10.0}, np.array([[0.3]]), 0.2
            made = sf.simulate(model, params, start, times, noise=noise, G=G, key=key, paths=sets, step=1e-3)
        case _:
            known = sf.systems.get("lv")
            model, params, G, noise = known.model, dict(known.params), known.G, known.noise
            times = np.linspace(0.0, 2.0, size)
            made = sf.simulate(model, params, known.x0, times, noise=noise, G=G, key=key, paths=sets, step=1e-3)
    states, GGt = model.states, G @ G.T
    pairs = [(i, j) for i in range(len(G)) for j in range(i + 1)]
    truth = dict(params) | {f"G[{states[i]},{states[j]}]": G[i, j] for i, j in pairs}
    truth |= {f"GGt[{states[i]},{states[j]}]": GGt[i, j] for i, j in pairs}
    return model, truth | {f"noise[{state}]": noise for state in states}, made


def run(system: str, size: int, sets: int, seed: int) -> list[dict]:
    model, truth, made = simulated(system, size, sets, seed)
    rows = []
    for number, fit in enumerate(sf.fit_each(model, made, key=jax.random.key(seed))):
        found = fit.intervals(draws=0) if np.isfinite(list(fit.params.values())).all() else None
        for row in found.table() if found else []:
            facts = {"system": system, "size": size, "set": number, "status": fit.status.name, "by": fit.method.name}
            rows.append(facts | {"truth": truth[row["quantity"]], **row})
    return rows


def read(path: Path) -> list[dict]:
    with opener(path)(path, "rt", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def opener(path: Path):
    """What opens a file of rows: many rows are kept as .csv.gz."""
    return gzip.open if path.suffix == ".gz" else open


def write(rows: list[dict], path: Path) -> None:
    with opener(path)(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def summary(rows: list[dict]) -> str:
    """Markdown: coverage of each quantity by size, truth below and above, and how often it is called what."""
    lines = [
        "| system | quantity | N | covers | truth below, above | identified, weakly, not | covers where identified "
        "| median width |",
        "|---" * 8 + "|",
    ]
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        if not row["quantity"].startswith("G["):  # GGt says the same
            groups.setdefault((row["system"], row["quantity"], int(row["size"])), []).append(row)
    for (system, quantity, size), part in groups.items():
        truth, lower, upper = (np.array([float(row[k]) for row in part]) for k in ("truth", "lower", "upper"))
        below, above = truth < lower, truth > upper
        words = [row["identifiability"] for row in part]
        counts = [words.count(w) for w in ("identified", "weakly identified", "not identified")]
        inside, sure = (lower <= truth) & (truth <= upper), np.array(words) == "identified"
        cover, known = f"{100 * np.mean(inside):.0f} %", f"{100 * np.mean(inside[sure]):.0f} %" if sure.any() else ""
        ends = f"{below.sum()}, {above.sum()} of {len(part)}"
        width = f"{np.median(upper - lower):.3g}"
        cells = [system, quantity, str(size), cover, ends, ", ".join(map(str, counts)), known, width]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
