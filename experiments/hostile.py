"""Default fits from hostile starts: how many reach the best optimum that is known.

    python experiments/hostile.py --out experiments/rows/hostile.csv.bz2  # 100 realizations × 20 starts, LV and L63
    python experiments/hostile.py --smoke --out rows.csv

A start is log-uniform within a factor 30 of the truth, with the wrong sign half of the time where that is allowed. The
best known optimum of a realization is the highest penalised log-likelihood (that is what the default climbs) over all
its starts and over a search with 12 more.
"""

import argparse
import dataclasses
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import stored

import sdefit as sf
from sdefit.bench import plan

FACTOR = 30.0
NEAR = 0.1  # of log-likelihood


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="lv,l63")
    parser.add_argument("--realizations", default=100, type=int)
    parser.add_argument("--starts", default=20, type=int)
    parser.add_argument("--batch", default=500, type=int)
    parser.add_argument("--seed", default=777, type=int)
    parser.add_argument("--smoke", action="store_true", help="1 realization and 2 starts of OU")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    if asked.smoke:
        asked.systems, asked.realizations, asked.starts = "ou", 1, 2
    parts = [run(name, asked) for name in asked.systems.split(",")]
    rows = pd.concat(parts)
    stored.write(rows, asked.out)
    for name, part in rows.groupby("system", sort=False):
        share = float(np.mean(part.below < NEAR))
        print(f"{name}: {share:.2%} of {len(part)} fits within {NEAR} of the best; farthest {part.below.max():.2g}")


def run(system: str, asked: argparse.Namespace) -> pd.DataFrame:
    setup = sf.systems.get(system)
    series = setup.simulate(key=jax.random.key(asked.seed), paths=asked.realizations)
    starts = [hostile(setup, seed) for seed in range(asked.realizations * asked.starts)]
    many = [one for one in series for _ in range(asked.starts)]
    method = plan.settings(system, "auto")
    key = jax.random.key(asked.seed + 1)
    fits = sf.fit_each(setup.model, many, method, key=key, start=starts, batch=asked.batch)
    wide = sf.fit_each(setup.model, series, dataclasses.replace(method, starts=12), key=key, batch=asked.batch)
    rows = pd.DataFrame(
        {
            "system": system,
            "realization": np.repeat(np.arange(asked.realizations), asked.starts),
            "method": [one.method.name for one in fits],
            "status": [one.status.name for one in fits],
            "log_likelihood": [reached(one) for one in fits],
        }
    )
    best = rows.groupby("realization").log_likelihood.max().to_numpy()
    best = np.maximum(best, [reached(one) for one in wide])
    rows["below"] = best[rows.realization] - rows.log_likelihood
    return stored.signed(rows)


def reached(fit: sf.Fit) -> float:
    """The log-likelihood, weak priors included, at which the best search ended; none where matching took over."""
    return float(np.max(fit.estimate.state.values)) if fit.method.name == "auto" else -np.inf


def hostile(setup, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    start = {}
    for name, truth in setup.params.items():
        value = float(truth * FACTOR ** rng.uniform(-1, 1))
        wrong = rng.random() < 0.5 and setup.model.params[name].lower < -value < setup.model.params[name].upper
        start[name] = -value if wrong else value
    return start


if __name__ == "__main__":
    main()
