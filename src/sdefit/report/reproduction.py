"""The page of a results folder: how good each method is, beside the truth, maximum likelihood and the paper."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sdefit.display.charts import Chart
from sdefit.errors import ModelError
from sdefit.report import benchmark_figures, benchmark_tables
from sdefit.report.html import write_page
from sdefit.report.markdown import write_markdown
from sdefit.report.numbers import Numbers
from sdefit.report.page import Block, Figure, Notes, Page, Section, Text, Verdict
from sdefit.report.runs import Run, column, read_run
from sdefit.report.scores import FEW, margin, scores

BEST = 0.65  # the share of runs in the paper's table of Lorenz 63


def write_run(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a results folder: report.html, its data, and the tables as Markdown; returns the path."""
    page = run_page(read_run(folder))
    path = Path(folder) / "report.html" if path is None else Path(path)
    written = write_page(page, path)
    write_markdown(page, path.with_name("summary.md"))
    return written


def run_page(run: Run) -> Page:
    """Summary first, then each system, times, set-ups, provenance, and how to read it all."""
    done, cells = len({_cell_of(run, row) for row in run.rows}), len(run.plan["cells"])
    titles = ", ".join(run.problems[system].facts["title"] for system in run.systems)
    methods = ", ".join(map(run.title, run.plan["methods"]))
    sections = [
        Section(
            "overview", "Summary", [benchmark_tables.summary(run), benchmark_tables.verdicts(run)] if run.rows else []
        ),
        *(Section(system, run.problems[system].facts["title"], _system(run, system)) for system in run.systems),
        Section("times", "Training times", _times(run) if run.rows else []),
        Section("data", "Data and set-ups", _data(run) if run.rows else []),
        Section(
            "details", "Settings and provenance", [benchmark_tables.settings(run), benchmark_tables.provenance(run)]
        ),
        Section("failed", "Failures", [benchmark_tables.failures(run)] if run.rows else []),
        Section("reading", "How to read this page", [Notes(_notes(run))]),
    ]
    return Page(
        title="AReS and MaRS, reproduced" if len(run.systems) > 1 else f"{titles or 'AReS and MaRS'}, reproduced",
        subtitle=f"{titles} · {methods} · {run.plan['realizations']} realizations of each",
        verdict=Verdict(
            tone="good" if done == cells and all(row["status"] == "ok" for row in run.rows) else "caution",
            headline=f"All {cells} cells are done." if done == cells else f"{done} of {cells} cells are done.",
            sentence=_counts(run),
            remedy="" if done == cells else "Run sdefit reproduce again with --resume for the others.",
        ),
        sections=[section for section in sections if section.blocks],
        footer="Written by sdefit from the stored rows; nothing was fitted again.",
    )


def _cell_of(run: Run, row: Mapping[str, str]) -> str:
    """The cell that a row belongs to: of its system and method, the last one that begins at or before it."""
    kind = f"{row['setup']}-{row['method'].replace(':', '_')}-"
    starts = [name for name in run.plan["cells"] if name.rpartition("-")[0] + "-" == kind]
    return max((name for name in starts if int(name[len(kind) :]) <= int(row["realization"])), default="")


def _counts(run: Run) -> str:
    failed = sum(row["status"] != "ok" for row in run.rows)
    seconds, compiling = (float(np.nansum(column(run.rows, name))) for name in ("seconds", "compile_seconds"))
    return (
        f"{len(run.rows)} fits, of which {failed} did not succeed; {duration(seconds)} to run them"
        f" and {duration(compiling)} to compile."
    )


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} seconds" if seconds < 10 else f"{seconds:.0f} seconds"


def _system(run: Run, system: str) -> list[Block]:
    """The model, the paper's table, every cell, and the figures."""
    facts, found = run.problems[system].facts, scores(run, system)
    blocks: list[Block] = [_model(facts)]
    if facts["system"] == "lorenz63":
        blocks.append(benchmark_tables.paper_table(run, system, found, "Table A1, all runs"))
        title = f"Table A1, best {100 * BEST:g} % of the runs"
        blocks.append(benchmark_tables.paper_table(run, system, scores(run, system, BEST), title, "_best"))
    else:
        blocks.append(benchmark_tables.paper_table(run, system, found, f"Table {facts['table']}"))
    blocks.append(benchmark_tables.every_cell(run, system, found))
    for name, (title, caption, numbers, charts) in _FIGURES.items():
        drawn = numbers(run, system)
        said = caption.format(state=facts["states"][0])
        blocks += _figure(f"{name}_{run.slug(system)}", title, said, drawn, charts(run, system, drawn) if drawn else [])
    return blocks


# Of each figure of a system: title, caption, the function of its numbers, and that of its charts.
_FIGURES = {
    "estimates": (
        "Estimates",
        "Each dot is a fit, the band the truth plus and minus the RMSE of maximum likelihood (MLE). Fits far outside "
        "are not drawn; the CSV file has them all.",
        benchmark_figures.estimate_numbers,
        benchmark_figures.estimate_charts,
    ),
    "paths": (
        "Fitted path",
        "Realization 0, state {state}: observations, and the smoothed state with a band that holds it with 90 % "
        "probability.",
        benchmark_figures.path_numbers,
        benchmark_figures.path_charts,
    ),
    "derivatives": (
        "Derivatives before and after matching",
        "As in figure 2 of the paper, realization 0: samples of the derivative of the smooth part of {state}, from the "
        "data and through the drift. Thick lines are medians, bands hold 90 % of the samples.",
        benchmark_figures.derivative_numbers,
        benchmark_figures.derivative_charts,
    ),
}


def _model(facts: Mapping) -> Text:
    from sdefit.dynamics import printing, systems  # here, not above: they need jax

    try:
        math = printing.mathml(systems.get(facts["name"]).model)
    except ModelError:
        math = None
    return Text(f"Set-up {facts['name']}: {facts['note']}", facts["equations"], math)


def _figure(name: str, title: str, caption: str, found: Numbers, charts: Sequence[Chart]) -> list[Block]:
    """A figure, or nothing where there is nothing to draw."""
    return [Figure(name, title, caption, found, charts)] if charts else []


def _times(run: Run) -> list[Block]:
    found = benchmark_figures.time_numbers(run)
    caption = "Mean over all fits; the scale is logarithmic."
    return [
        benchmark_tables.times(run),
        *_figure("time_per_fit", "Time per fit", caption, found, benchmark_figures.time_charts(run, found)),
    ]


def _data(run: Run) -> list[Block]:
    found = benchmark_figures.trajectory_numbers(run)
    caption = (
        f"As in figure 3 of the paper: the first {benchmark_figures.PATHS} realizations of each system, as observed."
    )
    charts = benchmark_figures.trajectory_charts(run, found)
    return [*_figure("trajectories", "Sample trajectories", caption, found, charts), benchmark_tables.setups(run)]


def _fewer(run: Run) -> list[str]:
    """What the paper's recipes were limited to, where they were."""
    most, counts = run.plan["realizations"], run.plan.get("counts", {})
    some = [f"{run.title(m)} {n} of {s}" for s, one in counts.items() for m, n in one.items() if n < most]
    said = f"The paper's own recipes take long on a CPU. Their realizations: {', '.join(some)}."
    return [f"{said} The MLE RMSE beside them is over all realizations."] if some else []


def _notes(run: Run) -> list[str]:
    return [
        "RMSE is over all realizations, failed fits included. MLE RMSE is that of maximum likelihood: in large samples "
        "no unbiased estimator is better, but these samples are small and one that shrinks can be.",
        f"Verdicts: two RMSEs count as equal if their ratio is below {margin(run.plan['realizations']):.2f}, twice its "
        f"standard error. Below {FEW} fits there is no verdict. The paper's RMSE follows from its median and std.",
        "The gap is our median minus the paper's in standard errors of that difference: within ±2 it is chance.",
        "The MLE RMSE of Ornstein-Uhlenbeck is computed from the data by the exact likelihood, which knows that there "
        "is no observation noise. The double well's is over the realizations whose estimate has two wells (b > 0).",
        "H = GᵀG is what the paper reports; the data identify GGᵀ. For one state they are the same.",
        "Starts of θ are log-uniform within a factor 3 of the truth for even realizations, |N(0, 1)| for odd ones; "
        "those of MaRS (paper) and AReS (paper) are |N(0, 1)| always.",
        *_fewer(run),
        "The best 65 % of Lorenz 63 are those with the smallest sum of squared relative errors of θ. The paper shows "
        "only those, and says itself that this flatters every method; the table of all runs is the fair comparison.",
        "The Lotka-Volterra of the paper's text is on [0, 20] from (3, 5) without noise, where about half of all paths "
        "blow up; that of its code is the set-up lv. Other set-ups: dw_code, lv_noiseless, lv_text.",
        "pd.concat(map(pd.read_csv, sorted(Path('rows').glob('*.csv')))) reads every row of this folder into pandas.",
    ]
