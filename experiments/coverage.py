"""How often intervals hold the truth: fresh realizations, each fitted, with intervals by bootstrap or standard errors.

    python experiments/coverage.py --method mars --systems ou,dw,lv,l63 --seed 2027 --out experiments/rows/c.csv
    python experiments/coverage.py --method esgf --realizations 40 --draws 60 --systems ou --out /tmp/c.csv   # small
    python experiments/coverage.py --summarise experiments/rows/c.csv                                      # the table

One row for each system, realization and quantity, with the verdict beside it; failed fits and refits are counted, not
dropped from view. All refits of all realizations run in programs of `--batch`: small on a CPU (the slowest search of a
batch holds up the others), thousands on an accelerator.
"""

import argparse
import csv
import gzip
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

import sdefit as sf
from sdefit import methods
from sdefit.data import stack, standardise
from sdefit.uncertainty import degrees_of_freedom, errors, verdict
from sdefit.uncertainty.bootstrap import Values, finite, generating_of, replicas
from sdefit.uncertainty.ends import from_draws, from_errors
from sdefit.uncertainty.intervals import BATCH
from sdefit.uncertainty.quantities import Quantities

SYSTEMS = ("ou", "dw", "lv", "l63")
STEP = {"ou": 1e-3, "dw": 1e-3, "lv": 1e-4, "l63": 1e-4}  # of Euler-Maruyama


def main(arguments: list[str] | None = None) -> None:
    asked = parse(arguments)
    if asked.summarise:
        print(summary([row for path in asked.summarise for row in read(path)]))
        return
    rows = []
    for name in asked.systems:
        rows += run(name, asked)
        write(rows, asked.out)  # after every system: an interrupted run keeps what is done
    print(summary(read(asked.out)))


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
        told = None if covariances is None else covariances[i]
        rows += [
            facts | {"realization": number, "status": fit.status.name} | row
            for row in measured(setup, method, asked, told, pool, estimate, made.of(i) if made else None)
        ]
    return rows


def _covariances(model, method, pools, estimates) -> np.ndarray | None:
    """The covariance of every fit's quantities in one program, where the method has an information."""
    from sdefit.methods.interface import Method

    if type(method).information is Method.information:
        return None
    found = np.asarray(PROGRAMS.run(_informations, model, method, pools, estimates).value)
    return np.stack(
        [
            errors.in_users_units(model, one, scale, time)
            for one, scale, time in zip(found, pools.scale, pools.time_scale, strict=True)
        ]
    )


def _informations(model, method, pools, estimates):
    return jax.vmap(lambda pool, estimate: method.information(model, pool, estimate).covariance)(pools, estimates)


def measured(setup, method, asked, covariance, pool, estimate, made) -> list[dict]:
    """Each quantity of one fit: its truth, its interval and its verdict."""
    quantities = Quantities(setup.model)
    here = jax.tree.map(lambda a: a[0], generating_of(*jax.tree.map(lambda a: np.asarray(a)[None], (pool, estimate))))
    truth = Values(np.array(list(setup.params.values())), setup.G, np.full(len(setup.model.states), setup.noise))
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
    columns = zip(quantities.names, true, values, lower, upper, std, found.words, strict=True)
    keys = ("quantity", "truth", "estimate", "lower", "upper", "std", "identifiability")
    return [dict(zip(keys, row, strict=True)) | {"failed": failed} for row in columns]


def opener(path: Path):
    """What opens a file of rows: many rows are kept as .csv.gz."""
    return gzip.open if path.suffix == ".gz" else open


def read(path: Path) -> list[dict]:
    with opener(path)(path, "rt", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opener(path)(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def summary(rows: list[dict]) -> str:
    """Markdown: for each system and quantity how many intervals hold the truth, of all and where identified."""
    lines = [
        "| system | method | quantity | covers | below, above | identified | covers where identified | median width |",
        "|---" * 8 + "|",
    ]
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["system"], row["method"], row["quantity"]), []).append(row)
    for (system, method, quantity), part in groups.items():
        number = {k: np.array([float(row[k]) for row in part]) for k in ("truth", "lower", "upper")}
        below, above = number["truth"] < number["lower"], number["truth"] > number["upper"]
        inside = (number["lower"] <= number["truth"]) & (number["truth"] <= number["upper"])
        told = np.array([row["identifiability"] == "identified" for row in part])
        where = f"{100 * inside[told].mean():.0f} %" if told.any() else ""
        cells = [
            system,
            method,
            quantity,
            f"{100 * inside.mean():.1f} %",
            f"{below.sum()}, {above.sum()} of {len(part)}",
        ]
        cells += [str(told.sum()), where, f"{np.nanmedian(number['upper'] - number['lower']):.3g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_costs(rows), *_verdicts(rows)])


def _costs(rows: list[dict]) -> list[str]:
    found = {(r["system"], r["method"]): (float(r["fit_seconds"]), float(r["refit_seconds"])) for r in rows}
    return [f"{s}, {m}: {a:.3g} s for all fits, {b:.3g} s for all refits." for (s, m), (a, b) in found.items()]


def _verdicts(rows: list[dict]) -> list[str]:
    """In how many realizations each system's G Gᵀ is less than identified, and everything is told."""
    lines = []
    for key in dict.fromkeys((row["system"], row["method"]) for row in rows):
        fits: dict[str, list[dict]] = {}
        for row in rows:
            if (row["system"], row["method"]) == key:
                fits.setdefault(row["realization"], []).append(row)
        known = [[(r["quantity"], r["identifiability"] == "identified") for r in f] for f in fits.values()]
        doubted = sum(any(not sure for name, sure in f if name.startswith("GGt")) for f in known)
        whole = sum(all(sure for _, sure in f) for f in known)
        lines.append(
            f"{key[0]}, {key[1]}: an entry of G Gᵀ less than identified in {doubted}, "
            f"all identified in {whole} of {len(fits)}."
        )
    return lines


if __name__ == "__main__":
    main()
