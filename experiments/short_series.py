"""Optima missed by `fit_each` on short series: every fit beside a search of its own objective from many more starts.

    python experiments/short_series.py --subjects 3000 --out experiments/rows/short_series.csv.bz2
    python experiments/short_series.py --summarise experiments/rows/short_series.csv.bz2

Each subject is an Ornstein-Uhlenbeck process with its own rate, level, noises, units and number of rows. The objective
of a fit is the log-likelihood less the weak priors that the fit itself names; the search begins at random, with no
help from the data but their center and spread. A fit missed its optimum if the search ends more than 0.1 higher.
"""

import argparse
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import stored

import sdefit as sf
from sdefit.data import Pool, stack, standardise
from sdefit.inference.likelihood import Likelihood
from sdefit.inference.parameterisation import Parameterisation
from sdefit.inference.prior import WeakPrior
from sdefit.optimise import levenberg_marquardt

MISSED = 0.1  # of the objective
BATCH = 100


def main(arguments: list[str] | None = None) -> None:
    asked = parse(arguments)
    if asked.summarise:
        print(summary(stored.read([asked.summarise])))
        return
    parts = [run(asked, first) for first in range(0, asked.subjects, BATCH)]
    rows = stored.signed(pd.concat(parts, ignore_index=True))
    if asked.out:
        stored.write(rows, asked.out, 8)
    print(summary(rows))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", default=300, type=int)
    parser.add_argument("--starts", default=48, type=int, help="of the search beside each fit")
    parser.add_argument("--seed", default=22, type=int)
    parser.add_argument("--out", type=Path, help="CSV file of one row per subject")
    parser.add_argument("--summarise", type=Path, help="print the summary of stored rows instead")
    return parser.parse_args(arguments)


def subject(seed: int, number: int) -> tuple[sf.Series, dict[str, float]]:
    """Exact draws of dx = rate (level − x) dt + g dw, seen with noise."""
    rng = np.random.default_rng([seed, number])
    rows, spacing, unit = int(rng.integers(10, 26)), 10 ** rng.uniform(-2, 2), 10 ** rng.uniform(-2, 2)
    memory = 10 ** rng.uniform(-0.7, 1.3)  # of the process, in spacings
    gaps = spacing * (np.ones(rows - 1) if number % 2 else rng.uniform(0.3, 1.7, rows - 1))
    rate, level = 1 / (memory * spacing), unit * rng.normal(0, 3)
    x = [level + unit * rng.normal() * rng.choice([1.0, 5.0])]
    for gap in gaps:
        decay = np.exp(-rate * gap)
        x.append(level + (x[-1] - level) * decay + unit * np.sqrt(1 - decay**2) * rng.normal())
    values = np.array(x) + unit * 10 ** rng.uniform(-2.5, 0) * rng.normal(size=rows)
    truth = {"rate": rate, "level": level, "g": unit * np.sqrt(2 * rate)}
    return sf.Series(np.concatenate([[0.0], np.cumsum(gaps)]), values), truth


@functools.cache
def model() -> sf.SDE:
    return sf.equations("dx = rate*(level - x)", params={"rate": sf.positive(), "level": sf.real()})


def run(asked: argparse.Namespace, first: int) -> pd.DataFrame:
    many = range(first, min(first + BATCH, asked.subjects))
    series, truths = zip(*(subject(asked.seed, i) for i in many), strict=True)
    # One shape for every batch: padding changes no answer.
    filler, _ = subject(asked.seed, next(i for i in range(10**6) if len(subject(asked.seed, i)[0]) == 25))
    fits = sf.fit_each(model(), [*series, filler], key=jax.random.key(asked.seed))[:-1]
    rows = []
    with jax.enable_x64(True):
        pools = jax.tree.map(jnp.asarray, stack([standardise(one) for one in [*series, filler]]))
        pools = jax.tree.map(lambda a: a[:-1], pools)
        scales = jnp.asarray([getattr(one.estimate.state, "scales", np.full(2, np.nan)) for one in fits])
        coordinates = jnp.asarray([getattr(one.estimate.state, "coordinates", np.full(4, np.nan)) for one in fits])
        keys = jax.random.split(jax.random.fold_in(jax.random.key(asked.seed), first), len(fits))
        own, best, rate = (np.asarray(a) for a in _search(asked.starts)(pools, scales, coordinates, keys))
    for k, (i, one) in enumerate(zip(many, fits, strict=True)):
        about = {"subject": i, "rows": len(one.series[0]), "by": one.method.name, "status": one.status.name}
        about |= {"rate": truths[k]["rate"], "found": one.params["rate"], "searched": rate[k]}
        rows.append(about | {"objective": own[k], "highest": best[k]})
    return pd.DataFrame(rows)


@functools.cache
def _search(starts: int):
    """The objective at the fit, the highest that a search finds, and the rate there."""

    def one(pool: Pool, scales, u, key):
        where = Parameterisation(model(), pool, "each")
        prior = WeakPrior.of(where, scales)
        likelihood = Likelihood(where, pool, jnp.ones(pool.times.shape, jnp.int32), "extended")  # exact for OU

        def fn(u):
            return likelihood(u) + prior(u)

        begin = jax.vmap(functools.partial(_random, where, pool))(jax.random.split(key, starts))
        found = levenberg_marquardt(fn, begin, max_step=where.max_step, iterations=100)
        values = jnp.where(jnp.isfinite(found.at.value), found.at.value, jnp.inf)
        k = jnp.argmin(values)
        return -fn(u).value, -values[k], where.point(where.variance_params(found.x[k])).theta[0]

    return jax.jit(lambda pools, *rest: jax.lax.map(lambda row: one(*row), (pools, *rest)))


def _random(where: Parameterisation, pool: Pool, key):
    """Coordinates far and wide: rates from a thousandth to a hundred per spacing, levels and noises likewise."""
    draws = jax.random.uniform(key, (4,))
    rate = 10 ** (5 * draws[0] - 3) / pool.time_scale
    level = pool.center + pool.scale * jax.random.normal(jax.random.fold_in(key, 1), (1,)) * 3
    G, noise = (jnp.full(1, 10 ** (3 * a - 2.5)) for a in draws[2:])
    return where.at(jnp.concatenate([rate[None], level]), G[:, None], noise, jnp.zeros(1))


def summary(rows: pd.DataFrame) -> str:
    """How many fits ended below the search beside them, and the worst of them; "ok" is without even a warning."""
    fits = rows[rows.by == "auto"]
    short = fits.highest - fits.objective
    missed = fits.assign(short=short)[short > MISSED]
    lines = [f"{len(rows)} subjects, {len(fits)} by likelihood, {int((fits.status == 'ok').sum())} of them ok."]
    lines += [f"Missed: {len(missed)}, of them ok: {int((missed.status == 'ok').sum())}."]
    lines += [f"Search lower than the fit: {int((short < -MISSED).sum())}.", ""]
    worst = missed.sort_values("short", ascending=False).head(12)
    return "\n".join(
        [*lines, worst.drop(columns=["commit", "dirty", "source"], errors="ignore").to_string(index=False)]
    )


if __name__ == "__main__":
    main()
