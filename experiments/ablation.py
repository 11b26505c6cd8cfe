"""What each tuned choice of the package is worth: the same fits with it and without it.

    python experiments/ablation.py --workers 15 --budget 480 --out /tmp/ablation.csv.bz2
    python experiments/ablation.py --choices correction,review --problems ou,vasicek --out /tmp/some.csv  # some of them
    python experiments/ablation.py --summarise /tmp/ablation.csv.bz2  # the table

A choice is removed or made ineffective before anything is traced, in a process of its own that has one core, one thread
and no stored programs. A job is all realizations of a problem by one method with one choice removed, so that what was
interrupted consists of whole cells. The most informative choices come first. `mars0` and `ares0` are MaRS and AReS
without their refinement, in which choices about matching show; after the refinement θ hardly depends on these.

Problems are those of the benchmark (frozen data) and equations of `stationary.py`. No fit is given start values.
Intervals are 90 % intervals from standard errors, which `Fit.intervals` takes where a series is long.
"""

import argparse
import dataclasses
import importlib
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import stationary
import stored

import sdefit as sf
from sdefit import priors
from sdefit.bench import problems
from sdefit.data import stack, standardise
from sdefit.gp import evidence
from sdefit.inference import increments, initial_guess, likelihood_search, prior
from sdefit.matching import parameter_scales, refinement, weak_form, weak_form_problem
from sdefit.methods import ares, auto, execution, mars
from sdefit.methods.interface import Method, Review
from sdefit.programs import PROGRAMS
from sdefit.ssm import transition
from sdefit.uncertainty import degrees_of_freedom, ends, errors
from sdefit.uncertainty.bootstrap import generating_of
from sdefit.uncertainty.quantities import Quantities

DATA = Path(__file__).resolve().parent / "data"
SYSTEMS = ("ou", "dw", "lv", "l63")
EQUATIONS = {
    "cubic": "cubic, coarse",
    "sine": "sine",
    "vasicek": "Vasicek",
    "turning": "turning",
    "vdp": "Van der Pol",
    "dw_long": "double well",
}
PROBLEMS = ("l63", "lv", "vdp", "turning", "cubic", "sine", "vasicek", "dw", "ou")  # the slowest first
LONG = (*PROBLEMS, "dw_long")  # for what counts most in a long series
SEVERAL = ("lv", "l63", "turning", "vdp")  # those of more than one state
SHARE = {"l63": 0.3}  # of the realizations, where one takes long
LEVEL = 0.9
FLAT = 1e4  # standard deviations of a prior that is as good as none
ALONE = {
    "SDEFIT_CACHE": "off",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}

METHODS: dict[str, Method] = {
    "mars": sf.MaRS(),
    "auto": sf.Auto(),
    "esgf": sf.ESGF(),
    "ares": sf.AReS(),
    "mars0": sf.MaRS(refinements=0),
    "ares0": sf.AReS(refinements=0),
}


@dataclasses.dataclass(frozen=True)
class Choice:
    """A tuned choice: what is done instead, by which methods and on which problems it shows.

    `override` changes the package, `settings` the method, `ends` the intervals of the fits with all choices.
    """

    name: str
    instead: str
    methods: tuple[str, ...]
    override: Callable[[], None] | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    problems: tuple[str, ...] = PROBLEMS
    ends: Callable[..., Any] | None = None


def put(home: Any, name: str, value: Any) -> None:
    """Give something of the package another value; an error if there is no such thing."""
    if not hasattr(home, name):
        raise AttributeError(f"{home.__name__} has no {name}")
    setattr(home, name, value)


def to(home: Any, name: str, value: Any) -> Callable[[], None]:
    """The override that gives one name another value."""
    return lambda: put(home, name, value)


def _no_correlation_prior() -> None:
    for home in (priors, prior):
        put(home, "correlation_prior", lambda G: jnp.zeros(()))


def _no_restoring_speed() -> None:
    from sdefit.matching import derivative_samples

    for home in (derivative_samples, increments):
        put(home, "restoring_speed", lambda variance: 0.0 * variance)


def _means_alone() -> None:
    def matched(self, problem, drift):
        return problem.guess.theta(0 * problem.guess.u), jnp.zeros(1), jnp.array(True)

    def trained(self, samplers, samples, guess, key):
        config = ares.critic.WGANConfig(0.0, None, 1e-3, 0.0, 1, 1, 1.0, 0)
        ended = ares.critic.train(samplers, 0 * guess.u, _blind_critic(samples), config, key)
        return eqx.tree_at(lambda one: (one.converged, one.alive), ended, (jnp.array(True),) * 2)

    put(mars.MaRS, "_by_quasi_newton", matched)
    put(ares.AReS, "_train", trained)


def _blind_critic(samples):
    dim = int(np.prod(samples.dz.shape[1:]))
    return lambda key: ares.critic.new_critic(dim, jnp.array(float(dim)), key, (2, 2))


def _matched_start() -> None:
    for home in (mars, ares):
        put(home, "select_start", lambda samples, drift, matched, guess: matched)


def _whole_steps() -> None:
    own = refinement.aitken

    def whole(state, step, covariance):
        length, fraction = own(state, step, covariance)
        return length, jnp.ones_like(fraction)

    put(refinement, "aitken", whole)


def _noise_of_evidence() -> None:
    def fit_noise(self, theta, path, v, profile_weight):
        return v, jnp.array(True)

    put(weak_form_problem.WeakFormProblem, "fit_noise", fit_noise)


def _no_backtracking() -> None:
    def backtrack(self, theta, step, fraction, *rest):
        return fraction

    put(weak_form_problem.WeakFormProblem, "backtrack", backtrack)


def _one_span() -> None:
    for home in (increments, initial_guess):
        put(home, "SPANS", (1,))


def _extended() -> None:
    put(auto, "_finish", lambda noise, starts: sf.ESGF(noise=noise, starts=starts, weak=True, rule="extended"))


def _no_priors() -> None:
    put(auto, "_finish", lambda noise, starts: sf.ESGF(noise=noise, starts=starts))


def _no_review() -> None:
    put(auto.Auto, "review", lambda self, *looked_at: Review())


def _first_batch_alone() -> None:
    put(likelihood_search.LikelihoodSearch, "_doubtful", lambda self, fits: jnp.array(False))


def _no_search_given_up() -> None:
    put(importlib.import_module("sdefit.optimise.levenberg_marquardt"), "_PATIENCE", 10**6)


def _any_share_of_noise() -> None:
    put(increments, "_LEAST", 1e-6)
    put(increments, "_MOST", 0.4999)


def _usual_ends(quantities: Quantities, values, std, freedom: float):
    return ends.from_errors(quantities, values, std, LEVEL, freedom)


def _normal_ends(quantities: Quantities, values, std, freedom: float):
    return ends.from_errors(quantities, values, std, LEVEL)


def _straight_ends(quantities: Quantities, values, std, freedom: float):
    half = ends.student_quantile(LEVEL, freedom) * std
    return values - half, values + half


BOTH, LIKELIHOOD = ("mars", "auto"), ("auto", "esgf")
CHOICES = (
    Choice("none", "nothing removed: what the others are compared with", tuple(METHODS), problems=LONG),
    Choice("student", "normal quantiles in place of Student's", BOTH, ends=_normal_ends),
    Choice("coordinates", "intervals straight in θ", BOTH, ends=_straight_ends),
    # Whole steps
    Choice("refinement", "no refinement", ("mars", "ares"), settings={"refinements": 0}),
    Choice("refinement_by_filter", "the filter's penalised likelihood from the matched θ", ("mars", "ares")),
    Choice("matching", "θ at which means agree, no MMD or critic", ("mars", "mars0", "ares0", "ares"), _means_alone),
    Choice("review", "no review", ("auto",), _no_review),
    Choice("weak_priors", "the boundary prior of ESGF in place of all weak priors", ("auto",), _no_priors),
    # The Onsager-Machlup correction
    Choice(
        "correction", "no correction", ("mars",), to(weak_form, "shrinkage", lambda *a: jnp.zeros(())), problems=LONG
    ),
    Choice(
        "shrinkage",
        "the whole correction",
        ("mars",),
        to(weak_form, "shrinkage", lambda *a: jnp.ones(())),
        problems=LONG,
    ),
    Choice(
        "profile_weight",
        "weight 0",
        ("mars",),
        to(refinement, "profile_weight", lambda share: 0.0 * share),
        problems=LONG,
    ),
    # Weak priors
    Choice("prior_theta", "flat", BOTH, to(priors, "WIDTH_THETA", FLAT)),
    Choice("prior_G", "flat", ("mars", "auto", "mars0"), to(priors, "WIDTH_G", FLAT)),
    Choice("prior_noise", "flat", ("mars", "auto", "mars0"), to(priors, "WIDTH_NOISE", FLAT)),
    Choice("prior_correlation", "flat", ("mars", "auto", "mars0"), _no_correlation_prior, problems=SEVERAL),
    Choice("widening", "the prior on θ is never widened", BOTH, to(parameter_scales, "_SURE", np.inf)),
    Choice("restoring_speed", "scales of θ from the path's speed alone", BOTH, _no_restoring_speed),
    # The refinement
    Choice("noise_refit", "G and σ as the evidence has them", ("mars",), _noise_of_evidence),
    Choice("passes", "at least 1 pass, at most 6", ("mars",), settings={"refinements": 1}),
    Choice("most_passes", "at most 180 passes", ("mars",), to(refinement, "_MOST", 60)),
    Choice("aitken", "whole steps", ("mars",), _whole_steps),
    Choice("backtracking", "none", ("mars",), _no_backtracking, problems=LONG),
    Choice("select_start", "always from the matched θ", ("mars",), _matched_start),
    Choice("diffuse", "x(t_1) wider by a factor of 100", ("mars",), to(weak_form, "_DIFFUSE", 1e3)),
    Choice("shrinkage_floor", "1 − 2/ρ² alone", ("mars",), to(weak_form, "HELD_BACK", 1.0)),
    Choice("shrinkage_length", "three quarters alone", ("mars",), to(weak_form, "_BIAS", np.inf)),
    # The filter's likelihood
    Choice("boundary", "no boundary prior", ("esgf",), settings={"boundary": 0.0}),
    Choice("cubature", "moments at the mean alone (extended)", ("auto",), _extended),
    Choice("cubature", "moments at the mean alone (extended)", ("esgf",), settings={"rule": "extended"}),
    Choice("ahead", "prediction over the whole gap", LIKELIHOOD, to(transition, "_AHEAD", np.inf)),
    Choice("starts", "one start", ("auto", "esgf", "mars", "mars0"), settings={"starts": 1}),
    Choice("second_batch", "no second batch of starts", LIKELIHOOD, _first_batch_alone),
    Choice("spans", "increments over one row alone", ("auto",), _one_span),
    Choice(
        "exchanged",
        "every start with the same split of noise",
        ("auto",),
        to(initial_guess, "exchanged", lambda *a: a),
    ),
    Choice(
        "searchable",
        "starts of the search as they were matched",
        ("auto",),
        to(initial_guess, "searchable", lambda bounds, u, scales: u),
    ),
    Choice("tries", "one search for start values per span", ("auto",), to(initial_guess, "_TRIES", 1)),
    Choice("noise_share", "any share of noise at the start", ("auto",), _any_share_of_noise),
    Choice("patience", "no search is given up", ("auto",), _no_search_given_up),
    Choice("halving", "steps are never halved", LIKELIHOOD, to(likelihood_search, "_HALVING", np.inf)),
    # The latent process and matching
    Choice("ou_rate", "γ = 1 per unit of time", ("mars", "mars0"), settings={"ou_rate": 1.0}),
    Choice("kernel", "Matérn 3/2", ("mars", "mars0"), settings={"kernel": "matern32"}),
    Choice("walls", "no walls about lengths", ("mars", "mars0"), to(evidence, "_wall", lambda v, low, high: 0.0)),
    Choice("evidence_starts", "three lengths to start from", ("mars", "mars0"), settings={"evidence_starts": 3}),
    Choice("samples", "512 draws", ("mars0",), settings={"samples": 512}),
    Choice("penalty", "none", ("ares0",), settings={"penalty": 0.0}),
    Choice("critic_steps", "one step of the critic", ("ares0",), settings={"critic_steps": 1}),
    Choice("momentum", "0.9", ("ares0",), settings={"momentum": 0.9}),
)


def main(arguments: list[str] | None = None) -> None:
    asked = parse(arguments)
    if asked.summarise:
        print(summary(stored.read([asked.summarise])))
    elif asked.job:
        work(asked)
    else:
        rows = run(asked)
        stored.write(rows, asked.out, 4)
        print(summary(stored.read([asked.out])))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    def words(text: str) -> tuple[str, ...]:
        return tuple(text.split(","))

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choices", default=tuple(dict.fromkeys(c.name for c in CHOICES)), type=words)
    parser.add_argument("--problems", default=LONG, type=words)
    parser.add_argument("--methods", default=tuple(METHODS), type=words)
    parser.add_argument("--realizations", default=100, type=int, help="of Lorenz 63 three tenths of it")
    parser.add_argument("--seed", default=2052, type=int, help="of the data of the five equations")
    parser.add_argument("--workers", default=1, type=int, help="processes, each on a core of its own")
    parser.add_argument("--budget", default=1e9, type=float, help="seconds after which no job is started")
    parser.add_argument("--out", type=Path, help="CSV file of one row per realization and parameter")
    parser.add_argument("--summarise", type=Path, help="print the table of stored rows instead")
    parser.add_argument("--job", type=words, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    for word, known in (("choices", {c.name for c in CHOICES}), ("problems", LONG), ("methods", METHODS)):
        if unknown := set(getattr(asked, word)) - set(known):
            parser.error(f"--{word} must be among {','.join(sorted(known))}, not {','.join(sorted(unknown))}")
    if asked.out is None and not asked.summarise:
        parser.error("--out must name the file of rows")
    return asked


def jobs(asked: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Every cell that was asked for, those to compare with first."""
    wanted = [c for c in CHOICES[1:] if c.name in asked.choices]
    cells = [
        (c, problem, method)
        for c in wanted
        for problem in c.problems
        for method in c.methods
        if problem in asked.problems and method in asked.methods
    ]
    with_it = dict.fromkeys(("none", problem, method) for _, problem, method in cells)
    return [*with_it, *((c.name, problem, method) for c, problem, method in cells if c.ends is None)]


def run(asked: argparse.Namespace) -> pd.DataFrame:
    """The rows of all jobs, as many at a time as there are workers."""
    begin, todo = time.monotonic(), jobs(asked)
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), asked)
        cores: queue.SimpleQueue[int] = queue.SimpleQueue()
        here = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [-1]
        for worker in range(asked.workers):
            cores.put(here[worker % len(here)])

        def one(number: int) -> str:
            if time.monotonic() - begin > asked.budget:
                return "not started"
            core = cores.get()
            started = time.monotonic()
            said = start(todo[number], Path(folder), number, core, asked)
            cores.put(core)
            print(f"{time.monotonic() - begin:6.0f} s {number + 1}/{len(todo)}", *todo[number],
                  f"{time.monotonic() - started:.1f} s", said, file=sys.stderr, flush=True)  # fmt: skip
            return said

        with ThreadPoolExecutor(asked.workers) as pool:
            said = list(pool.map(one, range(len(todo))))
        print(f"{said.count('')} of {len(todo)} jobs done, {said.count('not started')} not started", file=sys.stderr)
        found = [pd.read_csv(file) for file in sorted(Path(folder).glob("rows*.csv"))]
    return pd.concat(found)


def start(job: Sequence[str], folder: Path, number: int, core: int, asked: argparse.Namespace) -> str:
    """Run one job in a process of its own; what went wrong, if anything."""
    command = [sys.executable, __file__, "--job", ",".join(job), "--core", str(core), "--data", str(folder)]
    command += ["--out", str(folder / f"rows{number:04d}.csv"), "--realizations", str(asked.realizations)]
    command += ["--choices", ",".join(asked.choices)]
    done = subprocess.run(command, env=os.environ | ALONE, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"failed: {(done.stderr.strip().splitlines() or ['?'])[-1][:200]}"


def count_of(problem: str, realizations: int) -> int:
    return max(int(SHARE.get(problem, 1.0) * realizations), min(realizations, 2))


def write_data(folder: Path, asked: argparse.Namespace) -> None:
    """The data of the equations, simulated once for all jobs."""
    for name in asked.problems:
        if name in EQUATIONS:
            case = stationary.CASES[EQUATIONS[name]]
            times, step = np.linspace(0.0, case.until, case.rows), case.until / (case.rows - 1) / 40
            key = jax.random.fold_in(jax.random.key(asked.seed), list(EQUATIONS).index(name))
            several = sf.simulate(
                sf.equations(case.equations), case.params, case.x0, times, G=np.diag(case.G), noise=case.noise,
                key=key, paths=count_of(name, asked.realizations), step=step,
            )  # fmt: skip
            np.savez(folder / f"{name}.npz", t=times, y=np.stack([one.values for one in several]))


def problem_of(name: str, folder: Path, realizations: int) -> tuple[sf.SDE, dict[str, float], list[sf.Series]]:
    """The model, the true θ and the data."""
    count = count_of(name, realizations)
    if name in SYSTEMS:
        problem = problems.get(name)
        several = [one for one in problems.frozen(problem, count, str(DATA)) if one is not None]
        return problem.setup.model, dict(problem.setup.params), several
    case = stationary.CASES[EQUATIONS[name]]
    model = sf.equations(case.equations)
    with np.load(folder / f"{name}.npz") as kept:
        return model, case.params, [sf.Series(kept["t"], y, model.states) for y in kept["y"]]


def work(asked: argparse.Namespace) -> None:
    """One job: its rows into a file."""
    if asked.core >= 0 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {asked.core})
    name, problem, method_name = asked.job
    choice = next(c for c in CHOICES if c.name == name and method_name in c.methods)
    if choice.override:
        choice.override()
    method = dataclasses.replace(METHODS[method_name], **choice.settings)
    model, truth, several = problem_of(problem, asked.data, asked.realizations)
    fits = by_filter(model, several, method) if name == "refinement_by_filter" else fitted(model, several, method)
    known = covariances(model, fits)
    of_interval = [c for c in CHOICES if c.ends and c.name in asked.choices and method_name in c.methods]
    rows = [
        measured((one.name, problem, method_name), truth, fits, known, one.ends or _usual_ends)
        for one in (choice, *(of_interval if name == "none" else ()))
    ]
    pd.concat(rows).to_csv(asked.out, index=False)


def fitted(model: sf.SDE, several: list[sf.Series], method: Method, start: Any = None) -> list[sf.Fit]:
    return sf.fit_each(model, several, method, key=0, start=start)


def by_filter(model: sf.SDE, several: list[sf.Series], method: Any) -> list[sf.Fit]:
    """The search of the default, with its priors, from the matched θ alone."""
    matched = fitted(model, several, dataclasses.replace(method, refinements=0))
    _first_batch_alone()
    return fitted(model, several, sf.ESGF(weak=True, starts=1), [fit.params for fit in matched])


def covariances(model: sf.SDE, fits: list[sf.Fit]) -> list[np.ndarray]:
    """The covariance of each fit's quantities by the method that made it; the default hands some fits over."""
    found: list[Any] = [None] * len(fits)
    for method in dict.fromkeys(fit.method for fit in fits):
        index = [i for i, fit in enumerate(fits) if fit.method == method]
        pools = stack([standardise(fits[i].series) for i in index])
        bare = [eqx.tree_at(lambda e: e.trace, fits[i].estimate, {}) for i in index]
        estimates = jax.tree.map(lambda *a: np.stack(a), *bare)
        each = PROGRAMS.run(_each_covariance, model, method, pools, estimates).value
        for i, one, scale, unit in zip(index, each, pools.scale, pools.time_scale, strict=True):
            found[i] = errors.in_users_units(model, one, scale, unit)
    return found


def _each_covariance(model, method, pools, estimates):
    return execution.vmap_series(lambda pool, e: method.covariance(model, pool, e).covariance, pools, estimates)


def measured(
    cell: tuple[str, str, str], truth: dict[str, float], fits: list[sf.Fit], known: list[np.ndarray], ends_of: Any
) -> pd.DataFrame:
    """One row for each realization and parameter: what it misses by, and whether its interval holds the truth."""
    rows = []
    for i, (fit, covariance) in enumerate(zip(fits, known, strict=True)):
        quantities = Quantities(fit.model)
        pool = standardise(fit.series)
        one = jax.tree.map(lambda a: np.asarray(a)[None], (pool, eqx.tree_at(lambda e: e.trace, fit.estimate, {})))
        here = jax.tree.map(lambda a: a[0], generating_of(*one))
        values, std = quantities.values(here), errors.standard_errors(quantities, covariance, here)
        freedom = degrees_of_freedom(fit.model, np.asarray(pool.observed))
        lower, upper = ends_of(quantities, values, std, freedom)
        for k, name in enumerate(fit.model.free):
            has = np.isfinite(std[k])
            inside = float(lower[k] <= truth[name] <= upper[k]) if has else np.nan
            rows.append((*cell, i, name, fit.params[name] - truth[name], inside, fit.status.name))
    return pd.DataFrame(
        rows, columns=["choice", "problem", "method", "realization", "quantity", "miss", "inside", "status"]
    )


def summary(rows: pd.DataFrame) -> str:
    """Markdown: for each choice, method and problem the RMSE of θ without the choice over that with it.

    The ratio is the geometric mean over the parameters. Behind it is the change of coverage in percentage points. What
    differs by more than two standard errors (jackknife over realizations) is bold; "=" has the very same numbers.
    """
    base = only(rows, choice="none")
    cells = dict.fromkeys(zip(base.problem, base.method, strict=True))
    with_it = {cell: only(base, problem=cell[0], method=cell[1]) for cell in cells}
    there = [name for name in (*PROBLEMS[::-1], "dw_long") if name in set(rows.problem)]
    lines = [f"| without | instead | method | {' | '.join(there)} | all |", "|---" * (4 + len(there)) + "|"]
    for choice, method in dict.fromkeys((c.name, method) for c in CHOICES[1:] for method in c.methods):
        part = only(rows, choice=choice, method=method)
        found = {
            name: compare(only(part, problem=name), with_it[name, method])
            for name in dict.fromkeys(part.problem)
            if (name, method) in with_it
        }
        if not found:
            continue
        instead = next(c.instead for c in CHOICES if c.name == choice and method in c.methods)
        total = np.exp(np.mean([one.log_ratio for one in found.values()]))
        changes = [one.change for one in found.values() if np.isfinite(one.change)]
        texts = [str(found[name]) if name in found else "" for name in there]
        texts.append(f"{total:.2f}" + (f", {np.mean(changes):+.0f}" if changes else ""))
        lines.append(f"| {choice} | {instead} | {method} | {' | '.join(texts)} |")
    return "\n".join([*lines, "", *baselines(with_it, there)])


def only(rows: pd.DataFrame, **values: str) -> pd.DataFrame:
    """The rows with these values."""
    return pd.DataFrame(rows[np.logical_and.reduce([rows[name] == value for name, value in values.items()])])


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Without a choice beside with it, on the same realizations."""

    log_ratio: float
    error: float
    change: float  # of coverage, in percentage points
    change_error: float
    failed: int
    same: bool

    def __str__(self) -> str:
        if self.same and not abs(self.change) > 0:
            return "="
        strong = abs(self.log_ratio) > 2 * self.error
        text = f"{np.exp(self.log_ratio):.2f}"
        text = f"**{text}**" if strong else text
        if np.isfinite(self.change):
            moved = f"{self.change:+.0f}"
            text += f", **{moved}**" if abs(self.change) > 2 * self.change_error else f", {moved}"
        return text + (f" ({self.failed} failed)" if self.failed else "")


def compare(own: pd.DataFrame, base: pd.DataFrame) -> Comparison:
    """Paired over the realizations that have numbers in both."""
    a, b = (part.pivot(index="realization", columns="quantity", values="miss") for part in (own, base))
    both = np.isfinite(a).all(axis=1) & np.isfinite(b).all(axis=1)
    a, b = (np.square(part[both].to_numpy()) for part in (a, b))
    same = bool(np.array_equal(a, b))

    def log_ratio(keep: np.ndarray) -> float:
        return float(np.mean(0.5 * np.log(a[keep].sum(axis=0) / b[keep].sum(axis=0))))

    n = len(a)
    left_out = [log_ratio(np.arange(n) != i) for i in range(n)]
    moved = own.set_index(["realization", "quantity"]).inside - base.set_index(["realization", "quantity"]).inside
    each = moved.groupby("realization").mean().dropna()
    failed = int(stored.failed(own.drop_duplicates("realization").status).sum())
    return Comparison(
        log_ratio(np.arange(n) >= 0),
        float(np.sqrt((n - 1) * np.var(left_out))) if n > 1 else np.inf,
        100 * float(each.mean()) if len(each) else np.nan,
        100 * float(each.std() / np.sqrt(len(each))) if len(each) > 1 else np.inf,
        failed,
        same,
    )


def baselines(with_it: dict, there: list[str]) -> list[str]:
    """Markdown: the RMSE of each parameter with all choices, coverage, and how many fits failed."""
    lines = ["| | method | realizations | failed | RMSE of each parameter | coverage |", "|---" * 6 + "|"]
    for (problem, method), part in sorted(with_it.items(), key=lambda one: there.index(one[0][0])):
        fits = part.drop_duplicates("realization")
        sizes = part.groupby("quantity", sort=False).miss.agg(lambda miss: np.sqrt(np.mean(np.square(miss))))
        each = ", ".join(f"{name} {value:.3g}" for name, value in sizes.items())
        covers = "" if part.inside.isna().all() else f"{100 * part.inside.mean():.0f} %"
        lines.append(f"| {problem} | {method} | {len(fits)} | {stored.failed(fits.status).sum()} | {each} | {covers} |")
    return lines


if __name__ == "__main__":
    main()
