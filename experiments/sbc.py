"""Simulation-based calibration of `fit.posterior` (Talts and others 2018, arXiv:1804.06788).

    python experiments/sbc.py --out experiments/rows/sbc.csv.bz2 --figure docs/results/sbc.svg    # 200 data sets each
    python experiments/sbc.py --systems ou --sets 4 --draws 20 --warmup 20 --out /tmp/s.csv   # small
    python experiments/sbc.py --summarise experiments/rows/sbc.csv.bz2                            # the table

θ, G and σ are drawn from a proper prior, data are simulated from them, and the posterior under the same prior is
sampled. Over many data sets the rank of the truth among independent draws is then uniform. One row for each system,
data set and quantity.

θ has the prior of the model. G and σ have the default's, log G ~ N(·, 1²) and log σ ~ N(·, 2²), about fixed values in
place of levels that come from the data: see `KnownLevels`. x(t_1), whose prior is flat for the likelihood, is drawn
from a distribution that is wide beside σ.
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pandas as pd
import stored
from matplotlib.figure import Figure
from numpyro import diagnostics
from numpyro import distributions as dist
from scipy import stats

import sdefit as sf
from sdefit.inference.likelihood import FilterState, Likelihood
from sdefit.inference.prior import WeakPrior
from sdefit.methods.interface import LikelihoodMethod
from sdefit.priors import WIDTH_G, WIDTH_NOISE, NoiseLevels

TIMES = 0.4 * np.arange(41)
STEP = 0.005  # of the simulation
CHAINS = 4
KEPT = 99  # draws that a truth is ranked among, evenly from all chains: 100 ranks
BINS = 10


class KnownLevels(LikelihoodMethod):
    """The Gaussian filter's likelihood with weak priors on G and σ about given values, in the user's units."""

    G: float
    noise: float

    name: ClassVar[str] = "known_levels"
    title: ClassVar[str] = "Gaussian filter, priors of G and σ about given values"
    objective_name: ClassVar[str] = "log_likelihood"
    State: ClassVar = FilterState
    reference: ClassVar[str] = sf.ESGF.reference

    def stages(self) -> Any:
        """Those of `ESGF`: the estimate is only where the sampler starts."""
        return sf.ESGF(weak=True).stages()

    def smooth(self, model, pool, estimate) -> Any:
        return sf.ESGF(weak=True).smooth(model, pool, estimate)

    def likelihood(self, model, pool, estimate) -> Likelihood:
        return sf.ESGF(weak=True).likelihood(model, pool, estimate)

    def prior(self, parameterisation, scales) -> WeakPrior:
        pool = parameterisation.pool
        log_G = jnp.log(self.G * jnp.sqrt(pool.time_scale) / pool.scale)
        return WeakPrior(parameterisation, NoiseLevels(log_G, jnp.log(self.noise / pool.scale)))


class System(NamedTuple):
    """A model with priors on θ, the priors of G and σ, and the distribution of x(t_1)."""

    model: sf.SDE
    method: KnownLevels
    first: dist.Normal


def system(name: str, G: float = 0.5) -> System:
    """One by its name, with the median of the prior on G."""
    rate, size = dist.LogNormal(np.log(0.5), 0.5), dist.LogNormal(0.0, 0.4)
    match name:
        case "ou":
            params = {"rate": sf.positive(prior=rate), "level": sf.real(prior=dist.Normal(1.0, 1.0))}
            model = sf.equations("dx = rate*(level - x)", params=params)
            return System(model, KnownLevels(G, 0.05), dist.Normal(1.0, 3.0))
        case "dw":
            model = sf.equations("dx = a*x - b*x**3", params={name: sf.positive(prior=size) for name in "ab"})
            return System(model, KnownLevels(G, 0.03), dist.Normal(0.0, 1.5))
    raise ValueError(f"--systems must be among ou and dw, not {name!r}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="ou,dw")
    parser.add_argument("--G", default=0.5, type=float, help="median of the prior on G")
    parser.add_argument("--sets", default=200, type=int)
    parser.add_argument("--draws", default=500, type=int, help="in each of four chains")
    parser.add_argument("--warmup", default=500, type=int)
    parser.add_argument("--seed", default=2063, type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--summarise", type=Path)
    asked = parser.parse_args(arguments)
    if asked.summarise:
        rows = stored.read([asked.summarise]).to_dict("records")
    else:
        rows = []
        for found in (part for name in asked.systems.split(",") for part in run(name, asked)):
            rows += found
            stored.write(pd.DataFrame(rows), asked.out, 4)
    print(summary(rows))
    if asked.figure:
        draw(rows, asked.figure)


def run(name: str, asked: argparse.Namespace) -> Iterator[list[dict]]:
    """The rows of one data set after the other."""
    model, method, first = system(name, asked.G)
    key = jax.random.fold_in(jax.random.key(asked.seed), len(name) + sum(map(ord, name)))
    truths, made = simulated(model, method, first, asked.sets, key)
    for number, fit in enumerate(sf.fit_each(model, made, method, key=key)):
        with warnings.catch_warnings(action="ignore"):  # chains that disagree: R̂ and ESS are in the rows
            found = fit.posterior(asked.draws, warmup=asked.warmup, chains=CHAINS)
        rows, posterior, diverging = [], found["posterior"], int(found["sample_stats"]["diverging"].sum())
        for quantity, truth in truths[number].items():
            draws = posterior[quantity].to_numpy().reshape(CHAINS, asked.draws)
            kept = draws.ravel()[np.linspace(0, draws.size - 1, min(KEPT, draws.size)).astype(int)]
            about = {"system": name, "set": number, "quantity": quantity, "truth": truth}
            about |= {"rank": int(np.sum(kept < truth)), "of": kept.size + 1, "diverging": diverging}
            about |= {"ess": float(diagnostics.effective_sample_size(draws))}
            rows.append(about | {"r_hat": float(diagnostics.split_gelman_rubin(draws))})
        yield rows


def simulated(
    model: sf.SDE, method: KnownLevels, first: dist.Normal, sets: int, key: jax.Array
) -> tuple[list[dict[str, float]], list[sf.Series]]:
    """Truths drawn from the prior, and a data set from each."""
    truths, made = [], []
    for number in range(sets):
        keys = jax.random.split(jax.random.fold_in(key, number), len(model.free) + 4)
        theta = {n: float(model.params[n].prior.sample(k)) for n, k in zip(model.free, keys, strict=False)}
        G = method.G * float(np.exp(WIDTH_G * jax.random.normal(keys[-4])))
        noise = method.noise * float(np.exp(WIDTH_NOISE * jax.random.normal(keys[-3])))
        x0 = [float(first.sample(keys[-2]))]
        made.append(sf.simulate(model, theta, x0, TIMES, G=G, noise=noise, key=keys[-1], step=STEP))
        truths.append(theta | {"G": G, "noise": noise})
    return truths, made


def ranks(rows: list[dict]) -> dict[tuple[str, str], np.ndarray]:
    """(rank + 1/2) / number of ranks of each system and quantity: uniform if the posterior is calibrated."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        place = (int(row["rank"]) + 0.5) / int(row["of"])
        found.setdefault((row["system"], row["quantity"]), []).append(place)
    return {name: np.array(places) for name, places in found.items()}


def summary(rows: list[dict]) -> str:
    """Markdown: of each quantity the share of truths in the middle 90 % and 50 %, and two tests of uniform ranks."""
    lines = [
        "| system | quantity | data sets | truths in the middle 90 %, 50 % | mean rank | chi-square p | KS p "
        "| ESS: least, median | largest R̂ |",
        "|---" * 9 + "|",
    ]
    for (name, quantity), places in ranks(rows).items():
        mine = [row for row in rows if (row["system"], row["quantity"]) == (name, quantity)]
        ess, r_hat = (np.array([float(row[k]) for row in mine]) for k in ("ess", "r_hat"))
        inside = [f"{100 * np.mean(np.abs(places - 0.5) < half):.0f} %" for half in (0.45, 0.25)]
        counts = np.histogram(places, BINS, (0.0, 1.0))[0]
        tests = stats.chisquare(counts).pvalue, stats.kstest(places, "uniform").pvalue
        cells = [name, quantity, str(places.size), ", ".join(inside), f"{places.mean():.3f}"]
        cells += [*(f"{p:.2g}" for p in tests), f"{ess.min():.0f}, {np.median(ess):.0f}", f"{r_hat.max():.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(rows: list[dict], path: Path) -> None:
    """Histograms of the ranks, a row for each system, with the band that holds 99 % of counts of uniform ranks."""
    found = ranks(rows)
    names = list(dict.fromkeys(name for name, _ in found))
    figure = Figure(figsize=(10, 2.3 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), 4, squeeze=False)
    for row, name in enumerate(names):
        for ax, (quantity, places) in zip(axes[row], [(q, p) for (n, q), p in found.items() if n == name], strict=True):
            low, high = stats.binom.ppf([0.005, 0.995], places.size, 1 / BINS)
            ax.axhspan(low, high, color="0.88")
            ax.hist(places, np.linspace(0.0, 1.0, BINS + 1), color="#0072b2", rwidth=0.9)
            ax.set(title=f"{name}: {quantity}", xlim=(0, 1), xlabel="rank of the truth")
    with mpl.rc_context({"svg.hashsalt": "sbc", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
