"""The tables of a run: the summary, those of the paper, every cell with its verdict, times, set-ups, failures."""

import math
from collections.abc import Sequence

import numpy as np

from sdefit.report.page import Block, Cell, Facts, Table, number
from sdefit.report.runs import Run, column, labels
from sdefit.report.scores import FEW, NEAR, PAPER_WORDS, Score, margin, overall, score_columns, scores


def summary(run: Run) -> Table:
    """For each method how its RMSE compares with maximum likelihood's on each system, what failed and what it cost."""
    methods = [m for m in run.plan["methods"] if any(m in run.methods(s) for s in run.systems)]
    columns: dict[str, list] = {"method": methods}
    shown: dict[str, list] = {"method": [run.title(m) for m in methods]}
    for system in run.systems:
        found, facts = scores(run, system), run.problems[system].facts
        ratios = [overall([s for s in found if s.method == m], facts["params"]) for m in methods]
        columns[f"{run.slug(system)}_rmse_over_mle"] = ratios
        counts = [len(run.of(system, m)) for m in methods]
        shown[facts["title"]] = [_ratio(r, n) for r, n in zip(ratios, counts, strict=True)]
    rows = {m: [row for row in run.rows if row["method"] == m] for m in methods}
    columns["fits"] = shown["fits"] = [len(rows[m]) for m in methods]
    columns["failures"] = shown["failures"] = [sum(r["status"] != "ok" for r in rows[m]) for m in methods]
    columns["seconds_per_fit"] = [_mean(column(rows[m], "seconds")) for m in methods]
    shown["s per fit"] = [Cell(number(v, 2), repr(v), True) for v in columns["seconds_per_fit"]]
    caption = (
        "Under each system: RMSE of the parameters over that of maximum likelihood, geometric mean; lower is better. "
        "Every fit counts, those that failed too."
    )
    return Table("summary", "RMSE over that of maximum likelihood (MLE)", columns, caption, shown=shown)


def _ratio(ratio: float, count: int) -> Cell:
    if not math.isfinite(ratio) or not count:
        return Cell("–", "nan", True)
    tone = "good" if ratio <= margin(count) and count >= FEW else ""
    return Cell(f"{ratio:.2f}" if ratio < 100 else number(ratio, 3), repr(ratio), True, tone=tone)


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else math.nan


def verdicts(run: Run) -> Table:
    """How many cells of the tables came out how, for each method."""
    found = [one for system in run.systems for one in scores(run, system)]
    of = {m: [one for one in found if one.method == m] for m in dict.fromkeys(one.method for one in found)}
    columns: dict[str, list] = {"method": [run.title(m) for m in of]}
    columns["quantities"] = [len(ones) for ones in of.values()]
    columns["as exact as MLE"] = [sum(one.against_mle in NEAR for one in ones) for ones in of.values()]
    for word in PAPER_WORDS:
        columns[word] = [sum(one.against_paper == word for one in ones) for ones in of.values()]
    heads = {word: " ".join(word.split()[:2]) for word in PAPER_WORDS}
    caption = (
        "How many quantities are as exact as MLE or more so, and how many are estimated more exactly than "
        "in the paper, as exactly, or less so. The paper has no number for some."
    )
    return Table("verdicts", "Verdicts", columns, caption, heads)


def paper_table(run: Run, system: str, found: Sequence[Score], title: str, suffix: str = "") -> Table:
    """In the shape of the paper's: a row for each quantity, a column for each method; the paper's number below ours."""
    named, methods = labels(run.problems[system]), run.methods(system)
    by = {(one.quantity, one.method): one for one in found}
    first = [by[q, methods[0]] for q in named]
    columns: dict[str, list] = {"quantity": list(named), "truth": [one.truth for one in first]}
    columns["mle_rmse"] = [one.mle_rmse for one in first]
    shown: dict[str, list] = {"quantity": list(named.values())}
    shown["truth"] = [Cell(f"{one.truth:.4g}", repr(one.truth), True) for one in first]
    for method in methods:
        cells = [by[q, method] for q in named]
        for part in ("median", "std", "paper_median", "paper_std"):
            columns[f"{method.replace(':', '_')}_{part}"] = [getattr(one, part) for one in cells]
        shown[run.title(method)] = [_with_paper(one) for one in cells]
    caption = "Median ± standard deviation; the paper's below ours, where it has one." + _paper_notes(run, system)
    if system.startswith("lv"):
        caption += " The paper's standard deviation of H11, 0.004, is smaller than these data allow."
    return Table(f"table_{run.slug(system)}{suffix}", title, columns, caption, shown=shown)


def _paper_notes(run: Run, system: str) -> str:
    """What the paper says about its numbers, with the methods it says it of."""
    said: dict[str, dict[str, None]] = {}
    for method in run.methods(system):
        for row in run.problems[system].facts["published"]:
            if row["method"] == method.partition(":")[0]:
                for note in filter(None, row["note"].split("; ")):
                    said.setdefault(note, {})[run.title(method)] = None
    return "".join(f" In the paper, {', '.join(who)}: {note}." for note, who in said.items() if "shared" not in note)


def _ours(one: Score) -> str:
    if not math.isfinite(one.median):
        return "–"
    return number(one.median, 3) + (f" ± {number(one.std, 2)}" if math.isfinite(one.std) else "")


def _paper(one: Score) -> str:
    """The paper's numbers with the digits it gives."""
    return f"{one.paper_median:g} ± {one.paper_std:g}" if math.isfinite(one.paper_median) else ""


def _with_paper(one: Score) -> Cell:
    return Cell(_ours(one), repr(one.median), True, below=_paper(one) and f"paper {_paper(one)}")


def every_cell(run: Run, system: str, found: Sequence[Score]) -> Table:
    """Every number behind the paper's table, with a verdict for each cell."""
    named = labels(run.problems[system])
    shown = {
        "quantity": [named[one.quantity] for one in found],
        "method": [run.title(one.method) for one in found],
        "median ± std": [Cell(_ours(one), repr(one.median), True) for one in found],
        "RMSE": [Cell(number(one.rmse, 3), repr(one.rmse), True) for one in found],
        "MLE RMSE": [Cell(number(one.mle_rmse, 3), repr(one.mle_rmse), True) for one in found],
        "RMSE / MLE": [_ratio(one.rmse_over_mle, one.fits) for one in found],
        "paper": [Cell(_paper(one) or "–", repr(one.paper_median), True) for one in found],
        "gap (s.e.)": [_gap(one) for one in found],
        "failures": [one.failures for one in found],
        "verdict": [_verdict(one) for one in found],
    }
    return Table(
        f"scores_{run.slug(system)}", "Every cell", score_columns(found), _about(run, system, found), shown=shown
    )


def _about(run: Run, system: str, found: Sequence[Score]) -> str:
    source = next(iter(run.problems[system].facts["limits"].values()), None)
    mle = f"MLE: {source['source']}, {source['count']} realizations." if source else "No MLE is known here."
    missing = {run.title(one.method): one.missing for one in found if one.missing}
    counts = sorted({one.fits for one in found})
    fits = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    words = [f"Over {fits} fits of each method.", mle]
    return " ".join([*words, *(f"{name} gave no numbers in {n} fits." for name, n in missing.items())])


def _gap(one: Score) -> Cell:
    gap = one.gap_in_standard_errors
    return Cell(f"{gap:+.1f}".replace("-", "−") if math.isfinite(gap) else "–", repr(gap), True)


def _verdict(one: Score) -> Cell:
    close = one.against_mle in NEAR
    worse = one.against_paper == PAPER_WORDS[2]
    tone = "good" if close else "bad" if worse else ""
    return Cell(
        one.against_mle or one.verdict, one.verdict, False, below=one.against_mle and one.against_paper, tone=tone
    )


def times(run: Run) -> Table:
    """Seconds per fit of each system and method, beside the paper's."""
    kinds = [(system, method) for system in run.systems for method in run.methods(system)]
    ours = [_mean(column(run.of(*kind), "seconds")) for kind in kinds]
    theirs = [paper_seconds(run, *kind) for kind in kinds]
    columns = {
        "system": [run.problems[system].facts["title"] for system, _ in kinds],
        "method": [run.title(method) for _, method in kinds],
        "fits": [len(run.of(*kind)) for kind in kinds],
        "seconds_per_fit": ours,
        "compile_seconds": [float(np.nansum(column(run.of(*kind), "compile_seconds"))) for kind in kinds],
        "paper_seconds": theirs,
        "paper_over_ours": [there / here if here else math.nan for there, here in zip(theirs, ours, strict=True)],
    }
    heads = {"seconds_per_fit": "s per fit", "compile_seconds": "s to compile"}
    heads |= {"paper_seconds": "paper, s per fit", "paper_over_ours": "paper / ours"}
    shown = {n: [_short(v) if isinstance(v, float) else v for v in values] for n, values in columns.items()}
    caption = (
        "A fit's share of the run time of its batch. Programs are compiled once in each process, for all fits "
        "together. The paper's times are from its own machine."
    )
    return Table("training_times", "Seconds", columns, caption, heads, shown=shown)


def _short(value: float) -> Cell:
    return Cell(number(value, 3), repr(value), True)


def paper_seconds(run: Run, system: str, method: str) -> float:
    """The paper's mean training time; NaN where it has none."""
    found = {row["method"]: row["mean"] for row in run.problems[system].facts["published_seconds"]}
    return float(found.get(method.partition(":")[0], math.nan))


def setups(run: Run) -> Table:
    """What was simulated, and what methods were given."""
    facts = [run.problems[system].facts for system in run.systems]
    columns = {
        "set-up": [one["name"] for one in facts],
        "system": [one["title"] for one in facts],
        "note": [one["note"] for one in facts],
        "true parameters": [", ".join(f"{p} = {one['truth'][p]:.4g}" for p in one["params"]) for one in facts],
        "noise": [Cell(f"{one['noise']:g}", repr(float(one["noise"])), True) for one in facts],
        "data": [one["data"] for one in facts],
        "given to methods": [", ".join(f"{k}: {v}" for k, v in one["told"].items()) or "nothing" for one in facts],
    }
    caption = (
        "Methods with a setting for the structure of the observation noise are given it: none where there is none, "
        "the same for all states where it is. Nothing else about the truth is given, but for starts."
    )
    stored = columns | {"noise": [float(one["noise"]) for one in facts]}
    return Table("setups", "Set-ups", stored, caption, shown=columns)


def settings(run: Run) -> Table:
    """The settings of each method on each system."""
    kinds = [(system, method) for method in run.plan["methods"] for system in run.plan["systems"]]
    columns = {
        "method": [run.title(method) for _, method in kinds],
        "system": [system for system, _ in kinds],
        "settings": [run.plan["settings"][system][method] for system, method in kinds],
        "name": [run.plan["about"][method]["title"] for _, method in kinds],
    }
    shown = {name: columns[name] for name in ("method", "system", "settings")}
    return Table("settings", "Settings", columns, "What differs from a method's defaults.", shown=shown)


def provenance(run: Run) -> Facts:
    """What made the rows; more than one value means that several machines or versions did."""
    items = {"command": str(run.plan.get("command", "")), "begun": str(run.plan.get("begun", ""))}
    for name in ("version", "commit", "dirty", "source", "jax", "device", "dtype", "data"):
        items[name] = ", ".join(dict.fromkeys(str(row.get(name, "")) for row in run.rows))
    items["seed"] = str(run.plan["seed"])
    return Facts("provenance_facts", "Provenance", {name: value for name, value in items.items() if value})


def failures(run: Run) -> Block:
    """The fits that did not succeed, with their reason."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for row in run.rows:
        if row["status"] != "ok":
            kind = row["setup"], row["method"], row["status"], row["reason"]
            kinds.setdefault(kind, []).append(row["realization"])
    if not kinds:
        return Facts("failures", "Failures", {"fits that did not succeed": "none"})
    columns = {
        "system": [kind[0] for kind in kinds],
        "method": [run.title(kind[1]) for kind in kinds],
        "status": [kind[2] for kind in kinds],
        "fits": [len(numbers) for numbers in kinds.values()],
        "realizations": [" ".join(numbers) for numbers in kinds.values()],
        "reason": [kind[3] for kind in kinds],
    }
    shown = columns | {"realizations": [_some(numbers) for numbers in kinds.values()]}
    caption = "A fit that failed keeps its numbers, where it has any, and they count."
    return Table("failures", "Failures", columns, caption, shown=shown)


def _some(realizations: Sequence[str], most: int = 6) -> str:
    return ", ".join(realizations[:most]) + (", …" if len(realizations) > most else "")
