"""The accuracy of a method over many realizations, beside maximum likelihood, the paper and the targets.

    python experiments/accuracy.py --method mars --systems ou,dw,lv,l63 --data frozen --out experiments/rows/x.csv.bz2
    python experiments/accuracy.py --method mars --data 2026 --out experiments/rows/y.csv.bz2  # fresh data from a seed
    python experiments/accuracy.py --method mars --paper --out experiments/rows/z.csv.bz2  # the paper's own recipe
    python experiments/accuracy.py --method vgpa --paper --out experiments/rows/v.csv.bz2  # ... and its known G
    python experiments/accuracy.py --method esgf --known-noise --out experiments/rows/e.csv.bz2  # noise structure known
    python experiments/accuracy.py --summarise experiments/rows/x.csv.bz2  # the table again
    python experiments/accuracy.py --beside experiments/rows/x.csv.bz2  # every published cell

Nothing is dropped: every realization is a row, a fit that did not succeed keeps its numbers and its status. Starts
are random: log-uniform within a factor 3 of the truth for even realizations, |N(0, 1)| for odd ones.
Data, rows and references are those of `sdefit.bench`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import stored

from sdefit import methods, metrics
from sdefit.bench import cells, plan, problems, references
from sdefit.bench.cells import Task
from sdefit.bench.plan import PAPER, Cell
from sdefit.bench.problems import Problem
from sdefit.methods.interface import Method

DATA = Path(__file__).resolve().parent / "data"
SYSTEMS = ("ou", "dw", "lv", "l63")
STEP = 1e-4  # of Euler-Maruyama, as for the frozen data
PUBLISHED = ("mars", "ares", "esgf", "vgpa", "npsde")  # the methods in the paper's tables
# The largest RMSE that the project allows MaRS on the frozen data; 15% more on other seeds.
TARGETS = {
    "ou": {"rate": 0.075, "level": 0.29, "GGt11": 0.075},
    "dw": {"a": 0.060, "b": 1.00, "GGt11": 0.17},
    "lv": {"a": 0.145, "b": 0.072, "c": 0.65, "d": 0.18},
    "l63": {"sigma": 0.45, "rho": 0.26, "beta": 0.066, "G11": 0.6},
}


def main(arguments: list[str] | None = None) -> None:
    asked = parse(arguments)
    if asked.summarise or asked.beside:
        print(summary(stored.read(asked.summarise)) if asked.summarise else beside(stored.read(asked.beside)))
        return
    rows: list[dict] = []
    for name in asked.systems:
        rows += run(name, asked)
        # Systems differ in their columns: one header for all, empty where it does not apply. It is written after every
        # system: an interrupted run keeps what is done.
        stored.write(pd.DataFrame(rows).drop(columns="key"), asked.out)
    print(summary(stored.read([asked.out])))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="mars", choices=methods.names())
    parser.add_argument("--systems", default=SYSTEMS, type=lambda text: tuple(text.split(",")))
    parser.add_argument("--data", default="frozen", help="frozen, or a seed to simulate from")
    parser.add_argument("--realizations", default=100, type=int)
    parser.add_argument("--batch", default=100, type=int, help="fits in one run of a program")
    parser.add_argument("--paper", action="store_true", help="the paper's recipe (mars, ares) or known G (vgpa)")
    parser.add_argument("--known-noise", action="store_true", help="give the method the noise structure")
    parser.add_argument("--smoke", action="store_true", help="2 realizations of OU")
    parser.add_argument("--out", type=Path, help="CSV file of one row per realization")
    parser.add_argument("--summarise", nargs="+", type=Path, help="print the table of stored rows instead")
    parser.add_argument("--beside", nargs="+", type=Path, help="print stored rows beside every published cell instead")
    asked = parser.parse_args(arguments)
    if asked.smoke:
        asked.systems, asked.realizations = ("ou",), 2
    if unknown := set(asked.systems) - set(SYSTEMS):
        parser.error(f"--systems must be among {','.join(SYSTEMS)}, not {','.join(sorted(unknown))}")
    if asked.data != "frozen" and not asked.data.isdecimal():
        parser.error(f"--data must be frozen or a whole number, not {asked.data!r}")
    if asked.paper and asked.method not in ("mars", "ares", "vgpa"):
        parser.error(f"--paper must go with --method mars, ares or vgpa, not {asked.method}")
    if asked.known_noise and not hasattr(methods.get(asked.method)(), "noise"):
        parser.error(f"--known-noise must go with a method that has the setting noise, not {asked.method}")
    if asked.out is None and not (asked.summarise or asked.beside):
        parser.error("--out must name the file of rows")
    return asked


def run(system: str, asked: argparse.Namespace) -> list[dict]:
    """One row for each realization of a system."""
    problem, seed = problems.get(system), 0 if asked.data == "frozen" else int(asked.data)
    if asked.data == "frozen":
        series = problems.frozen(problem, asked.realizations, str(DATA))
    else:
        key = jax.random.split(jax.random.fold_in(jax.random.key(seed), SYSTEMS.index(system)), 3)[0]
        series = problem.setup.simulate(key=key, paths=asked.realizations, step=STEP)
    method, rows = settings(asked.method, system, asked.paper, asked.known_noise), []
    for first in range(0, asked.realizations, asked.batch):
        some = series[first : first + asked.batch]
        task = Task(Cell(system, asked.method, first, len(some)), seed, asked.data, some)
        rows += cells.run(task, method).rows
    return rows


def settings(method: str, system: str, paper: bool, known_noise: bool) -> Method:
    """The method's defaults; as the paper ran it; or given the structure of the noise, as maximum likelihood was."""
    if paper or known_noise:
        return plan.settings(system, method + PAPER if paper else method)
    return methods.get(method)()


def summary(rows: pd.DataFrame) -> str:
    """Markdown: a table for each system, method and data, with the errors over all realizations."""
    parts = []
    for (system, data, method, text), part in rows.groupby(["setup", "data", "method", "settings"], sort=False):
        lines = [f"### {system}, {method} ({text}), data: {data}", "", failures(part), ""]
        parts.append("\n".join([*lines, *table(problems.get(system), str(data), part)]))
    return "\n\n".join(parts) + "\n"


def failures(part: pd.DataFrame) -> str:
    bad = part.status[stored.failed(part.status)].value_counts()
    why = f" ({', '.join(f'{name} {number}' for name, number in bad.items())})" if len(bad) else ""
    cost = f"{part.seconds.sum():.3g} s for all fits in one batch, {part.compile_seconds.sum():.3g} s to compile"
    made = ", ".join(f"{name} {part[name].iloc[0]}" for name in ("version", "commit", "source", "device"))
    return f"{len(part)} realizations, {bad.sum()} failures{why}; {cost}; {made}."


def quantities(problem: Problem) -> dict[str, float]:
    """The true value of each parameter and of what is asked of G: for one state, where H is GGᵀ, of GGᵀ alone."""
    matrix = ("GGt11",) if len(problem.setup.G) == 1 else sorted(problem.matrix)
    return {name: problem.truth()[name] for name in (*problem.setup.params, *matrix)}


def table(problem: Problem, data: str, part: pd.DataFrame) -> Iterator[str]:
    yield "| | truth | median ± std | RMSE | MLE RMSE | RMSE / MLE | target | paper | gap to paper (s.e.) |"
    yield "|---" * 9 + "|"
    noise = problem.setup.noise
    noises = {f"noise_{state}": noise for state in problem.setup.model.states if noise}
    limits = references.estimates(problem, len(part) if data == "frozen" else None)
    for name, truth in (quantities(problem) | noises).items():
        yield line(problem, data, name, truth, part, limits)


def line(problem: Problem, data: str, name: str, truth: float, part: pd.DataFrame, limits: dict) -> str:
    """One quantity: where the estimates lie, how far off, and how that compares."""
    estimates, limit = part[name].to_numpy(), float(metrics.rmse(limits[name], truth))
    error, method = float(metrics.rmse(estimates, truth)), part.method.iloc[0]
    # The ratio is over the realizations of the limit: of two double wells it has no estimate.
    counted = part[part.realization.isin(limits["realization"])] if data == "frozen" else part
    ratio = float(metrics.rmse(counted[name].to_numpy(), truth)) / limit
    plain = method == "mars" and part.settings.iloc[0] == "default"
    goal = target(problem.name, name, data, error) if plain else ""
    spread = float(np.std(estimates))
    parts = [name, f"{truth:.4g}", f"{np.median(estimates):#.3g} ± {spread:#.2g}", f"{error:#.3g}"]
    parts += [f"{limit:#.3g}", f"{ratio:.2f}", goal]
    paper = published(problem, name, method if method in PUBLISHED else "mars")
    if paper is None:
        return f"| {' | '.join(parts)} | | |"
    # The standard error of a median of n normal numbers is 1.2533 std/√n.
    runs = 65 if problem.name == "l63" else 100
    error_of_gap = 1.2533 * np.hypot(spread / np.sqrt(len(part)), paper[1] / np.sqrt(runs))
    gap = (np.median(estimates) - paper[0]) / error_of_gap
    return f"| {' | '.join(parts)} | {paper[0]:g} ± {paper[1]:g} | {gap:+.1f} |"


def beside(rows: pd.DataFrame) -> str:
    """Markdown: every published cell of a method beside what the rows have there.

    The error is that about the truth, the root of (median − truth)² + std²: a published cell has no more.
    """
    lines = ["| | | truth | published | error | here | error | failures | |", "|---" * 9 + "|"]
    for (system, method, text), part in rows.groupby(["setup", "method", "settings"], sort=False):
        problem, bad = problems.get(system), int(stored.failed(part.status).sum())
        for name, truth in quantities(problem).items():
            cell = published(problem, name, method)
            if cell is None:
                continue
            median, spread = cell
            own, wide = float(np.median(part[name])), float(np.std(part[name]))
            theirs, ours = float(np.hypot(median - truth, spread)), float(np.hypot(own - truth, wide))
            nearer = abs(own - truth) <= abs(median - truth) and ours <= theirs
            found = [f"{method} ({text})", f"{system} {name}", f"{truth:.4g}", f"{median:g} ± {spread:g}"]
            found += [f"{theirs:#.3g}", f"{own:#.3g} ± {wide:#.2g}", f"{ours:#.3g}", str(bad)]
            lines.append(f"| {' | '.join([*found, 'nearer' if nearer else '**not nearer**'])} |")
    return "\n".join(lines)


def target(system: str, name: str, data: str, error: float) -> str:
    if name not in TARGETS[system]:
        return ""
    goal = TARGETS[system][name] * (1.0 if data == "frozen" else 1.15)
    return f"{goal:.3g} {'met' if error <= goal else '**missed**'}"


def published(problem: Problem, name: str, method: str) -> tuple[float, float] | None:
    """The median and standard deviation that the paper has for a method; of one state it has H, which is GGᵀ."""
    name = {"GGt11": "H11"}.get(name, name) if len(problem.setup.G) == 1 else name
    rows = references.published(problem.setup.model.name, tuple(problem.setup.params))
    found = [(row["median"], row["std"]) for row in rows if (row["method"], row["quantity"]) == (method, name)]
    return found[0] if found else None


if __name__ == "__main__":
    main()
