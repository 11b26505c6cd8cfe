"""How often intervals hold the truth: fresh realizations, each fitted, with intervals by bootstrap or standard errors.

    python experiments/coverage.py --method mars --systems ou,dw,lv,l63 --seed 2027 --out experiments/rows/c.csv.bz2
    python experiments/coverage.py --method esgf --realizations 40 --draws 60 --systems ou --out /tmp/c.csv  # small
    python experiments/coverage.py --summarise experiments/rows/c.csv.bz2  # the table

One row for each system, realization and quantity, with the verdict beside it; failed fits and refits are counted, not
dropped from view. All refits of all realizations run in programs of `--batch`: small on a CPU (the slowest search of a
batch holds up the others), thousands on an accelerator.
"""

import argparse
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import stored

import sdefit as sf
from sdefit import methods
from sdefit.data import stack, standardise
from sdefit.programs import PROGRAMS
from sdefit.uncertainty import degrees_of_freedom, errors, verdict
from sdefit.uncertainty.bootstrap import finite, generating_of, replicas, values_of
from sdefit.uncertainty.ends import from_draws, from_errors
from sdefit.uncertainty.intervals import BATCH
from sdefit.uncertainty.quantities import Quantities

SYSTEMS = ("ou", "dw", "lv", "l63")
STEP = {"ou": 1e-3, "dw": 1e-3, "lv": 1e-4, "l63": 1e-4}  # of Euler-Maruyama


def main(arguments: list[str] | None = None) -> None:
    asked = parse(arguments)
    if asked.summarise:
        print(summary(stored.read(asked.summarise)))
        return
    rows: list[dict] = []
    for name in asked.systems:
        rows += run(name, asked)
        stored.write(pd.DataFrame(rows), asked.out, 5)  # after every system: an interrupted run keeps what is done
    print(summary(stored.read([asked.out])))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default=methods.DEFAULT, choices=methods.names())
    parser.add_argument("--systems", default=SYSTEMS, type=lambda text: tuple(text.split(",")))
    parser.add_argument("--realizations", default=200, type=int)
    parser.add_argument("--draws", default=200, type=int, help="refits for each realization; 0: standard errors alone")
    parser.add_argument("--level", default=0.9, type=float)
    parser.add_argument("--seed", default=2027, type=int)
    parser.add_argument("--batch", default=BATCH, type=int)
    parser.add_argument("--fit-batch", default=100, type=int, help="first fits in one run of a program")
    parser.add_argument("--out", type=Path, help="CSV file of rows")
    parser.add_argument("--summarise", nargs="+", type=Path, help="print the table of stored rows instead")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.systems) - set(SYSTEMS):
        parser.error(f"--systems must be among {','.join(SYSTEMS)}, not {','.join(sorted(unknown))}")
    if asked.out is None and not asked.summarise:
        parser.error("--out must name the file of rows")
    return asked


def run(system: str, asked: argparse.Namespace) -> list[dict]:
    """One row for each realization and quantity of a system."""
    setup, method = sf.systems.get(system), methods.get(asked.method)()
    keys = jax.random.split(jax.random.fold_in(jax.random.key(asked.seed), SYSTEMS.index(system)), 3)
    series = setup.simulate(key=keys[0], paths=asked.realizations, step=STEP[system])
    fits = sf.fit_each(setup.model, series, method, key=keys[1], batch=asked.fit_batch)
    # The default hands some fits over to another method: each has the intervals of the method that made it.
    used = {fit.method.name: fit.method for fit in fits}
    rows = []
    for name, method in used.items():
        index = [i for i, fit in enumerate(fits) if fit.method.name == name]
        rows += run_some(setup, method, asked, index, [fits[i] for i in index], keys[2])
    return rows


def run_some(setup, method, asked: argparse.Namespace, index: list[int], fits: list[sf.Fit], key) -> list[dict]:
    """The rows of fits by one method; `index` are their realizations."""
    pools = stack([standardise(fit.series) for fit in fits])
    estimates = jax.tree.map(lambda *a: np.stack(a), *(eqx.tree_at(lambda e: e.trace, f.estimate, {}) for f in fits))
    made = replicas(setup.model, method, pools, estimates, asked.draws, key, asked.batch) if asked.draws else None
    covariances = _covariances(setup.model, method, pools, estimates)
    facts = {"system": setup.name, "method": asked.method, "by": method.name, "seed": asked.seed}
    facts |= {"draws": asked.draws, "level": asked.level}
    facts |= {"fit_seconds": fits[0].seconds * len(fits), "refit_seconds": made.seconds if made else 0.0}
    rows = []
    for i, (number, fit) in enumerate(zip(index, fits, strict=True)):
        pool, estimate = jax.tree.map(lambda a, i=i: a[i], (pools, estimates))
        covariance = None if covariances is None else covariances[i]
        rows += [
            facts | {"realization": number, "status": fit.status.name} | row
            for row in measured(setup, method, asked, covariance, pool, estimate, made.of(i) if made else None)
        ]
    return rows


def _covariances(model, method, pools, estimates) -> np.ndarray | None:
    """The covariance of every fit's quantities in one program, where the method has one."""
    if not method.knows_covariance:
        return None
    found = PROGRAMS.run(_each_covariance, model, method, pools, estimates).value
    units = zip(found, pools.scale, pools.time_scale, strict=True)
    return np.stack([errors.in_users_units(model, one, scale, time) for one, scale, time in units])


def _each_covariance(model, method, pools, estimates):
    return jax.vmap(lambda pool, estimate: method.covariance(model, pool, estimate).covariance)(pools, estimates)


def measured(setup, method, asked, covariance, pool, estimate, made) -> list[dict]:
    """Each quantity of one fit: its truth, its interval and its verdict."""
    quantities = Quantities(setup.model)
    here = jax.tree.map(lambda a: a[0], generating_of(*jax.tree.map(lambda a: np.asarray(a)[None], (pool, estimate))))
    truth = values_of(list(setup.params.values()), setup.G, np.full(len(setup.model.states), setup.noise))
    values, true = quantities.values(here), quantities.values(truth)
    std = np.full(len(values), np.nan) if covariance is None else errors.standard_errors(quantities, covariance, here)
    failed, freedom = 0, degrees_of_freedom(setup.model, np.asarray(pool.observed))
    if made:
        lower, upper = from_draws(quantities, values, made, asked.level)
        failed = int((~finite(made.found)).sum())
    else:
        lower, upper = from_errors(quantities, values, std, asked.level, freedom)
    sizes = verdict.sizes_of(setup.model, method, pool, estimate)
    evidence = verdict.Evidence(values, lower, upper, asked.level, *sizes, freedom, covariance)
    found = verdict.judge(quantities, evidence)
    columns = zip(quantities.names, true, values, lower, upper, found.words, strict=True)
    keys = ("quantity", "truth", "estimate", "lower", "upper", "identifiability")
    return [dict(zip(keys, row, strict=True)) | {"failed": failed} for row in columns]


def summary(rows: pd.DataFrame) -> str:
    """Markdown: for each system and quantity how many intervals hold the truth, of all and where identified."""
    lines = [
        "| system | method | quantity | covers | below, above | identified | covers where identified | median width |",
        "|---" * 8 + "|",
    ]
    for key, part in rows.groupby(["system", "method", "quantity"], sort=False):
        below, above = part.truth < part.lower, part.truth > part.upper
        inside, sure = (part.lower <= part.truth) & (part.truth <= part.upper), part.identifiability == "identified"
        cells = [*key, f"{100 * inside.mean():.1f} %", f"{below.sum()}, {above.sum()} of {len(part)}", str(sure.sum())]
        cells += [f"{100 * inside[sure].mean():.0f} %" if sure.any() else ""]
        lines.append(f"| {' | '.join([*cells, f'{(part.upper - part.lower).median():.3g}'])} |")
    notes = [sentence for key, part in rows.groupby(["system", "method"], sort=False) for sentence in _notes(key, part)]
    return "\n".join([*lines, "", *notes])


def _notes(key, part: pd.DataFrame) -> list[str]:
    """What a system's fits cost, and in how many G Gᵀ is less than identified, and everything is identified."""
    last, sure = part.iloc[-1], part.identifiability == "identified"
    of_G = part.quantity.str.startswith("GGt")
    doubted = (~sure & of_G).groupby(part.realization).any().sum()
    whole = sure.groupby(part.realization).all()
    return [
        f"{', '.join(key)}: {last.fit_seconds:.3g} s for all fits, {last.refit_seconds:.3g} s for all refits.",
        f"{', '.join(key)}: an entry of G Gᵀ less than identified in {doubted}, "
        f"all identified in {whole.sum()} of {len(whole)}.",
    ]


if __name__ == "__main__":
    main()
