"""How often the intervals that a fit shows without being asked hold the truth, by the number of observations.

    python experiments/coverage_by_n.py --out experiments/rows/coverage_by_n.csv.bz2            # 400 data sets each
    python experiments/coverage_by_n.py --systems ou --sizes 5 --sets 20 --out /tmp/c.csv           # small
    python experiments/coverage_by_n.py --summarise experiments/rows/coverage_by_n.csv.bz2              # the tables

Each data set is fitted by the default method and has the intervals of `fit.summary()`: no refits. One row for each
system, size, data set and quantity.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import stored

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
        print(summary(stored.read([asked.summarise])))
        return
    rows: list[dict] = []
    for system in asked.systems.split(","):
        for size in map(int, asked.sizes.split(",")):
            rows += run(system, size, asked.sets, asked.seed)
            stored.write(pd.DataFrame(rows), asked.out, 4)
    print(summary(pd.DataFrame(rows)))


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
            if row["quantity"].startswith("G["):  # GGt says the same
                continue
            del row["std"]
            facts = {"system": system, "size": size, "set": number, "status": fit.status.name, "by": fit.method.name}
            rows.append(facts | {"truth": truth[row["quantity"]], **row})
    return rows


def summary(rows: pd.DataFrame) -> str:
    """Markdown: coverage of each quantity by size, truth below and above, and how often it is called what."""
    lines = [
        "| system | quantity | N | covers | truth below, above | identified, weakly, not | covers where identified "
        "| median width |",
        "|---" * 8 + "|",
    ]
    for (system, quantity, size), part in rows.groupby(["system", "quantity", "size"], sort=False):
        below, above = part.truth < part.lower, part.truth > part.upper
        counts = [sum(part.identifiability == w) for w in ("identified", "weakly identified", "not identified")]
        inside, sure = (part.lower <= part.truth) & (part.truth <= part.upper), part.identifiability == "identified"
        cover, known = f"{100 * np.mean(inside):.0f} %", f"{100 * np.mean(inside[sure]):.0f} %" if sure.any() else ""
        ends = f"{below.sum()}, {above.sum()} of {len(part)}"
        width = f"{np.median(part.upper - part.lower):.3g}"
        cells = [system, quantity, str(size), cover, ends, ", ".join(map(str, counts)), known, width]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
