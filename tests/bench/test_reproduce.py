"""`sdefit reproduce` and `sdefit compare`: what they store, what their pages show, and how they say no."""

import importlib.util
import json
import os
import random
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_report import make_record, read_csv, read_page
from test_report_browser import HOSTILE, check_harmless, drive, needs_browser
from test_schema import ODD, changed, places

from sdefit.cli.app import run
from sdefit.data import write_csv
from sdefit.errors import FileError
from sdefit.report import runs
from sdefit.report.comparison import comparison_page
from sdefit.report.html import write_page
from sdefit.report.reproduction import duration, run_page, write_run
from sdefit.report.runs import Run, labels, read_run
from sdefit.report.scores import best_rows, margin, scores
from sdefit.store import Record, Results
from sdefit.store import record as store_record

ROOT = Path(__file__).parents[2]
SMALL = ["--systems", "ou,dw", "--methods", "moments", "--realizations", "4", "--block", "3", "--seed", "7"]
TIMES = ["seconds", "compile_seconds"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with a whole run in it; tests must leave it as it is."""
    out = tmp_path_factory.mktemp("runs") / "repro"
    assert run(["reproduce", *SMALL, "--out", str(out)]) == 0
    return out


@pytest.fixture
def copied(stored, tmp_path):
    return Path(shutil.copytree(stored, tmp_path / "copy"))


def all_rows(folder):
    return pd.concat(map(pd.read_csv, sorted(Path(folder, "rows").glob("*.csv"))))  # as the docs say it


def without_times(folder):
    return (
        all_rows(folder)
        .drop(columns=[*TIMES, "cell_checksum"])
        .sort_values(["setup", "method", "realization"], ignore_index=True)
    )


def listing(folder):
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(folder.rglob("*"))}


# What is stored


def test_every_fit_is_one_row_with_its_provenance(stored):
    rows = all_rows(stored)
    assert sorted(zip(rows.setup, rows.realization, strict=True)) == [(s, i) for s in ("dw", "ou") for i in range(4)]
    assert (rows.status == "ok").all() and (rows.method == "moments").all() and (rows.dtype == "float64").all()
    assert np.isfinite(rows[rows.setup == "ou"][["rate", "level", "G11", "noise_x", *TIMES]].to_numpy()).all()
    np.testing.assert_allclose(rows.GGt11, rows.G11**2, rtol=1e-14)
    assert rows[["version", "commit", "dirty", "source", "jax", "device", "key", "data"]].notna().all().all()
    assert rows.key.nunique() == 8
    assert {p.name for p in stored.iterdir()} == {
        ".lock", "plan.json", "problems", "rows", "fits", "report.html", "report_data", "summary.md",
    }  # fmt: skip


def test_the_same_seed_gives_the_same_rows_and_another_does_not(stored, tmp_path):
    assert run(["reproduce", *SMALL, "--out", str(tmp_path / "again")]) == 0
    pd.testing.assert_frame_equal(without_times(stored), without_times(tmp_path / "again"))
    assert run(["reproduce", "--systems", "ou", *SMALL[2:-1], "8", "--out", str(tmp_path / "other")]) == 0
    mine = without_times(stored)
    assert not np.isin(without_times(tmp_path / "other").rate, mine.rate).any()


def test_resume_runs_only_what_is_missing(stored, copied, capsys):
    lost = copied / "rows" / "dw-moments-00003.csv"
    lost.unlink()
    before = listing(copied / "rows")
    assert run(["reproduce", "--out", str(copied), "--resume"]) == 0
    assert capsys.readouterr().err.startswith("[4/4] dw-moments-00003: 1 fits, 0 failed")
    after = listing(copied / "rows")
    assert set(after) - set(before) == {lost} and before == {path: after[path] for path in before}
    pd.testing.assert_frame_equal(without_times(stored), without_times(copied))
    assert run(["reproduce", "--out", str(copied), "--resume"]) == 0
    assert listing(copied / "rows") == after


def test_a_run_can_be_asked_for_more_systems_later(copied):
    assert run(["reproduce", "--out", str(copied), "--resume", "--systems", "dw_code"]) == 0
    plan = json.loads((copied / "plan.json").read_text())
    assert plan["systems"] == ["ou", "dw", "dw_code"] and "--seed 7" not in plan["systems"]
    assert set(all_rows(copied).setup) == {"ou", "dw", "dw_code"} and len(all_rows(copied)) == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--out must be a new or empty folder, but {out} holds a run; add --resume to go on"),
        (["--resume", "--realizations", "5"], "begun with --realizations 4, not 5 ({out}); name another folder"),
        (["--resume", "--seed", "8"], "begun with --seed 7, not 8"),
        (["--resume", "--data", str(ROOT / "experiments" / "data")], "begun with data of ou from seed 7, not ou.npz"),
        (["--resume", "--systems", "volterra"], "--systems must be among ou, dw"),
        (["--resume", "--methods", "magic"], "--methods must be among"),
        (["--resume", "--workers", "2", "--cluster", "x"], "--cluster and --workers must not both be given"),
        (["--realizations", "0"], "--realizations"),
        (["--resume", "--realizations", "100001"], "--realizations must be at most 100,000, not 100,001"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_one_line_and_changes_nothing(stored, capsys, arguments, message):
    before = listing(stored)
    assert run(["reproduce", "--out", str(stored), *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and message.format(out=stored) in said.err
    assert listing(stored) == before


def test_a_folder_of_other_things_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert run(["reproduce", *SMALL, "--out", str(tmp_path), "--resume"]) == 2
    assert "holds other files; name another" in capsys.readouterr().err
    assert run(["reproduce", *SMALL, "--out", str(tmp_path / "mine.txt")]) == 2
    assert "--out must be a folder that can be written" in capsys.readouterr().err
    assert run(["reproduce", *SMALL, "--out", "/proc/nothing/here"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_disk_that_fills_up_is_one_line(copied, capsys, monkeypatch):
    (copied / "rows" / "ou-moments-00000.csv").unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    before = listing(copied / "rows")
    assert run(["reproduce", "--out", str(copied), "--resume"]) == 2
    assert re.fullmatch(
        r"sdefit: .*rows/ou-moments-00000\.csv cannot be written: No space .*\n", capsys.readouterr().err
    )
    assert listing(copied / "rows") == before


@pytest.mark.slow
def test_killed_at_random_moments_it_resumes_to_the_same_rows(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("killing", ROOT / "experiments" / "kill_and_resume.py")
    assert spec is not None and spec.loader is not None
    killing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(killing)
    monkeypatch.setattr(
        killing, "SMALL", ["--systems", "ou", "--methods", "moments", "--realizations", "6", "--block", "1"]
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    assert killing.finish(killing.start(tmp_path / "whole")) == ""
    killing.kill_runs(tmp_path / "broken", 2, random.Random(1))
    killing.compare(killing.rows(tmp_path / "whole"), killing.rows(tmp_path / "broken"))


# Scores


def synthetic_run(estimates, failed=(), limit=0.1):
    """A run of one method on OU with these estimates of the rate; level and H are exact."""
    facts = {
        "name": "ou", "title": "OU", "system": "ornstein_uhlenbeck", "table": "1a", "note": "a note", "data": "seed 0",
        "states": ["x"], "params": ["rate", "level"], "matrix": ["H11"], "latex": "x", "equations": "dx = x",
        "truth": {"rate": 0.5, "level": 1.0, "H11": 0.25}, "noise": 0.0, "told": {},
        "limits": {"rate": {"rmse": limit, "count": 100, "source": "here"}},
        "published": [{"method": "mars", "quantity": "rate", "median": 0.46, "std": 0.06, "note": ""}],
        "published_seconds": [{"method": "mars", "mean": 17.3, "std": 0.3}],
    }  # fmt: skip
    rows = [
        {"setup": "ou", "method": "mars", "realization": str(i), "status": "bad" if i in failed else "ok", "reason": "",
         "rate": "" if np.isnan(v) else repr(float(v)), "level": "1.0", "H11": "0.25", "seconds": "0.5",
         "compile_seconds": "1.0"}
        for i, v in enumerate(estimates)
    ]  # fmt: skip
    plan = {
        "systems": ["ou"], "methods": ["mars"], "realizations": len(rows), "seed": 0, "cells": ["ou-mars-00000"],
        "settings": {"ou": {"mars": "default"}}, "about": {"mars": {"short": "MaRS", "title": "MaRS"}},
    }  # fmt: skip
    times = np.linspace(0, 1, 5)
    arrays = {"times": (("time",), times), "values": (("r", "time", "state"), np.zeros((2, 5, 1)))}
    return Run(plan, {"ou": Record(arrays, facts)}, rows, {})


def test_scores_are_those_of_numpy_over_all_fits_with_numbers():
    estimates = np.random.default_rng(0).normal(0.48, 0.06, 100)
    estimates[[3, 50]] = np.nan
    one = scores(synthetic_run(estimates, failed=(3, 50, 60)), "ou")[0]
    used = estimates[np.isfinite(estimates)]
    assert (one.fits, one.failures, one.missing) == (100, 3, 2)
    error = np.sqrt(np.mean((used - 0.5) ** 2))
    np.testing.assert_allclose([one.median, one.std, one.rmse], [np.median(used), used.std(), error], rtol=1e-12)
    np.testing.assert_allclose([one.rmse_over_mle, one.paper_rmse], [error / 0.1, np.hypot(0.04, 0.06)], rtol=1e-12)
    standard_error = 1.2533 * np.hypot(used.std() / np.sqrt(98), 0.06 / 10)
    np.testing.assert_allclose(one.gap_in_standard_errors, (np.median(used) - 0.46) / standard_error, rtol=1e-12)


def test_verdicts_follow_the_margin():
    assert margin(100) == pytest.approx(np.exp(0.2))
    errors = np.where(np.arange(100) % 2, 1.0, -1.0)
    paper = np.hypot(0.04, 0.06)
    for size, limit, words in [
        (0.1, 0.1, ("as exact as MLE", "less exact than paper")),
        (0.05, 0.1, ("more exact than MLE", "more exact than paper")),
        (paper * 1.2, paper * 1.2, ("as exact as MLE", "as exact as paper")),
        (0.3, 0.1, ("3 × MLE", "less exact than paper")),
    ]:
        one = scores(synthetic_run(0.5 + size * errors, limit=limit), "ou")[0]
        assert (one.against_mle, one.against_paper) == words
    assert scores(synthetic_run([0.4, 0.6]), "ou")[0].verdict == "too few fits"


def test_the_best_share_is_by_relative_errors_and_lost_fits_are_the_worst():
    made = synthetic_run([0.9, np.nan, 0.5, 0.4, 0.52])
    kept = best_rows(made, "ou", made.rows, 0.6)
    assert [row["realization"] for row in kept] == ["2", "3", "4"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.21, "3.2 seconds"), (119, "119 seconds"), (120, "2 minutes"), (9000, "2.5 hours")]
)
def test_durations_read_well(seconds, words):
    assert duration(seconds) == words


# The page


def test_the_page_shows_the_stored_rows(stored):
    page = read_page((stored / "report.html").read_text(encoding="utf-8"))
    assert page.fetched == ["data:,"] and len(page.ids) == len(set(page.ids))
    rows = all_rows(stored)
    truth = {"ou": {"rate": 0.5, "level": 1.0, "H11": 0.25}, "dw": {"a": 0.1, "b": 4.0, "H11": 0.25}}
    for system, values in truth.items():
        mine = rows[rows.setup == system]
        shown = [row for row in page.tables[f"scores_{system}"] if row]
        expected = np.array([np.sqrt(np.mean((mine[q].to_numpy() - v) ** 2)) for q, v in values.items()])
        np.testing.assert_allclose([float(row[3]) for row in shown], expected, rtol=1e-12)
        np.testing.assert_allclose([float(row[2]) for row in shown], mine[list(values)].median(), rtol=1e-12)
        table = [row for row in page.tables[f"table_{system}"] if row]
        np.testing.assert_allclose([float(row[1]) for row in table], list(values.values()))
        np.testing.assert_allclose([float(row[2]) for row in table], mine[list(values)].median(), rtol=1e-12)
        every = pd.read_csv(stored / "report_data" / f"estimates_{system}.csv")
        for quantity in values:
            np.testing.assert_array_equal(every[every.quantity == quantity].estimate, mine[quantity])
    times = [row for row in page.tables["training_times"] if row]
    np.testing.assert_allclose([float(row[3]) for row in times], [rows[rows.setup == s].seconds.mean() for s in truth])


def test_every_table_and_figure_has_its_csv(stored):
    text = (stored / "report.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'href="report_data/(\w+)\.csv"', text))
    assert {"summary", "verdicts", "table_ou", "scores_dw", "estimates_ou", "paths_ou", "trajectories", "time_per_fit",
            "training_times", "setups", "settings", "failures", "provenance_facts"} <= linked  # fmt: skip
    assert linked == {path.stem for path in (stored / "report_data").iterdir()}
    assert all(len(next(iter(read_csv(path).values()))) for path in (stored / "report_data").iterdir())


def test_the_report_can_be_made_again_and_of_half_a_run(copied, capsys):
    before = (copied / "report.html").read_bytes()
    assert run(["report", str(copied)]) == 0
    assert capsys.readouterr().out == f"{copied / 'report.html'}\n" and (copied / "report.html").read_bytes() == before
    for path in (copied / "rows").glob("dw*"):
        path.unlink()
    page = run_page(read_run(copied))
    said = page.verdict
    assert (said.tone, said.headline) == ("caution", "2 of 4 cells are done.") and "--resume" in said.remedy
    assert "Double well" not in [section.title for section in page.sections]
    for path in (copied / "rows").glob("*"):
        path.unlink()
    assert run_page(read_run(copied)).verdict.headline == "0 of 4 cells are done."


def test_failures_and_lorenzs_best_runs_are_on_the_page(tmp_path):
    made = synthetic_run([0.5, np.nan, 0.6], failed=(1,))
    facts = dict(made.problems["ou"].facts) | {"system": "lorenz63"}
    page = run_page(Run(made.plan, {"ou": Record(made.problems["ou"].arrays, facts)}, made.rows, {}))
    text = write_page(page, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Table A1, best 65 % of the runs" in text and "Table A1, all runs" in text
    failures = [row for row in read_page(text).tables["failures"] if row]
    assert failures == [["ou", "MaRS", "bad", "1", "1", ""]]
    assert "3 fits, of which 1 did not succeed" in text and "paper 0.46 ± 0.06" in text
    assert labels(made.problems["ou"])["H11"] == "H = G²"


def test_the_paper_s_own_recipe_stands_beside_ours(tmp_path):
    """It has columns of its own with the paper's numbers, comes first in figure 2, and its realizations are said."""
    made = synthetic_run([0.5, 0.55, 0.6])
    plan = dict(made.plan) | {
        "methods": ["mars", "mars:paper"],
        "counts": {"ou": {"mars:paper": 1}},
        "cells": ["ou-mars-00000", "ou-mars_paper-00000"],
        "settings": {"ou": {"mars": "default", "mars:paper": "refinements=0"}},
        "about": made.plan["about"] | {"mars:paper": {"short": "MaRS (paper)", "title": "MaRS, the paper's recipe"}},
    }
    theirs = [dict(row) | {"method": "mars:paper", "rate": repr(0.4)} for row in made.rows[:1]]
    fits = {("ou", name): make_record(seed, ("x",), (12,)) for seed, name in enumerate(plan["methods"])}
    made = Run(plan, made.problems, [*made.rows, *theirs], fits)
    page = run_page(made)
    [table] = [b for section in page.sections for b in section.blocks if getattr(b, "name", "") == "table_ou"]
    assert (table.columns["mars_paper_median"][0], table.columns["mars_paper_paper_median"][0]) == (0.4, 0.46)
    [figure] = [b for section in page.sections for b in section.blocks if getattr(b, "name", "") == "derivatives_ou"]
    assert [chart.title.partition(":")[0] for chart in figure.charts] == ["MaRS (paper)"] * 2 + ["MaRS"] * 2
    text = write_page(page, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Their realizations: MaRS (paper) 1 of ou." in text
    # One fit has no spread, and so no gap in standard errors.
    [score] = [one for one in scores(made, "ou") if (one.quantity, one.method) == ("rate", "mars:paper")]
    assert (score.median, score.fits) == (0.4, 1) and np.isnan(score.std) and np.isnan(score.gap_in_standard_errors)
    assert table.shown["MaRS (paper)"][0].text == "0.400"


@needs_browser
def test_in_a_browser_the_page_is_silent_sorts_and_fits_a_phone(stored, tmp_path):
    text = (stored / "report.html").read_text(encoding="utf-8")
    script = """
      const head = page.querySelectorAll("#scores_ou thead button")[3];
      head.click(); head.click();
      const rows = [...page.querySelectorAll("#scores_ou tbody tr")];
      return [rows.map((row) => Number(row.cells[3].dataset.value)), page.documentElement.scrollWidth];"""
    (shown, width), console = drive(text, script, tmp_path, width=500)
    assert console == [] and len(shown) == 3 and shown == sorted(shown, reverse=True) and width <= 500


def hostile_run(i):
    """A results folder whose plan, problems and rows have a hostile text in every field that holds one."""
    text = HOSTILE[i:] + HOSTILE[:i]
    system, method, made = text[0], text[1], synthetic_run([0.4, 0.6, np.nan], failed=(1,))
    facts = dict(made.problems["ou"].facts)
    facts |= {"name": text[2], "title": text[3], "system": text[4], "table": text[5], "note": text[6], "data": text[7]}
    facts |= {"states": [text[8]], "equations": text[9], "latex": text[0], "told": {text[1]: text[2]}}
    facts["limits"] = {"rate": {"rmse": 0.1, "count": 3, "source": text[3]}}
    facts["published"] = [{"method": method, "quantity": "rate", "median": 0.4, "std": 0.1, "note": text[4]}]
    facts["published_seconds"] = [{"method": method, "mean": 17.3, "std": 0.3}]
    rows = [row | {"setup": system, "method": method, "reason": text[5], "commit": text[6]} for row in made.rows]
    plan = made.plan | {"systems": [system], "methods": [method], "command": text[7], "cells": [text[8]]}
    plan |= {"settings": {system: {method: text[9]}}, "about": {method: {"short": text[0], "title": text[2]}}}
    fit = make_record(states=(text[8],))
    return Run(plan, {system: Record(made.problems["ou"].arrays, facts)}, rows, {(system, method): fit})


@needs_browser
@pytest.mark.parametrize("i", [0, 3, 7])
def test_in_a_browser_a_hostile_results_folder_stays_text(tmp_path, i):
    text = write_page(run_page(hostile_run(i)), tmp_path / "r.html").read_text(encoding="utf-8")
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+\.csv", path.name) for path in (tmp_path / "r_data").iterdir())
    check_harmless(text, tmp_path)


# Comparisons


def test_compare_writes_the_fits_and_one_page(tmp_path, monkeypatch, capsys):
    from contract import ou_series

    monkeypatch.chdir(tmp_path)
    write_csv(ou_series(1), "obs.csv")
    Path("model.toml").write_text('equations = "dx = rate*(level - x)"\n[parameters]\nrate = {lower = 0}\n')
    assert run(["compare", "obs.csv", "--model", "model.toml", "--methods", "moments", "--out", "cmp"]) == 0
    assert {p.name for p in Path("cmp").iterdir()} == {"comparison.json", "fits", "report.html", "report_data"}
    before = Path("cmp/report.html").read_bytes()
    assert "<h1>Model of x by 1 methods, fitted to obs.csv</h1>" in before.decode()
    assert run(["fit", "obs.csv", "--model", "model.toml", "--method", "moments"]) == 0
    assert "<h1>Model of x fitted to obs.csv</h1>" in Path("run/report.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert run(["report", "cmp"]) == 0
    assert Path("cmp/report.html").read_bytes() == before
    assert run(["compare", "obs.csv", "--model", "model.toml", "--methods", "moments,magic", "--out", "new"]) == 2
    assert "--methods must be among" in capsys.readouterr().err and not Path("new").exists()
    assert run(["compare", "obs.csv", "--model", "model.toml", "--out", "cmp"]) == 2
    assert "--out must be a new or empty folder" in capsys.readouterr().err


def test_a_comparison_shows_each_fits_numbers_side_by_side(tmp_path):
    fits = {"MaRS": make_record(1), "ESGF": make_record(2, intervals=False)}
    page = comparison_page(fits, {"vgpa": "it cannot take this"})
    text = write_page(page, tmp_path / "r.html").read_text(encoding="utf-8")
    found = read_page(text)
    shown = [row for row in found.tables["estimates"] if row]
    for column, record in enumerate(fits.values(), start=1):
        np.testing.assert_array_equal([float(row[column]) for row in shown], record["params"])
    assert page.verdict.tone == "caution" and "vgpa" in page.verdict.headline and "it cannot take this" in text
    assert len(found.ids) == len(set(found.ids))
    stored = read_csv(tmp_path / "r_data" / "estimates.csv")
    assert stored["method"] == ["MaRS", "ESGF"] * 3


def test_a_folder_that_is_no_comparison_is_refused(tmp_path, capsys):
    (tmp_path / "comparison.json").write_text("[]")
    assert run(["report", str(tmp_path)]) == 2
    assert "is not a comparison that sdefit wrote" in capsys.readouterr().err
    with pytest.raises(FileError, match=r"plan\.json cannot be read"):
        write_run(tmp_path)


# Folders that others have touched


def test_rows_that_were_cut_are_run_again_and_strangers_are_named(stored, copied, capsys):
    cut, copy = copied / "rows" / "dw-moments-00003.csv", copied / "rows" / "dw-moments-00003 (1).csv"
    copy.write_bytes(cut.read_bytes())
    cut.write_bytes(cut.read_bytes()[:-30])
    assert run(["report", str(copied)]) == 2
    assert re.fullmatch(r"sdefit: .*00003\.csv was cut or changed .* --resume redoes it\n", capsys.readouterr().err)
    assert run(["reproduce", "--out", str(copied), "--resume"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"sdefit: {cut} was cut or changed after it was stored, and is run again"
    assert said[1] == f"sdefit: {copy} is not of this run, and does not count" and said[2].startswith("[4/4] dw-")
    copy.unlink()
    pd.testing.assert_frame_equal(without_times(stored), without_times(copied))


PLANS = [
    ("systems", ["../../etc"]), ("systems", ["ou", "ou"]), ("systems", []), ("systems", None), ("systems", [1]),
    ("methods", ["magic"]), ("methods", {}), ("realizations", -1), ("realizations", "4"), ("realizations", True),
    ("cells", ["../../x-00000"]), ("cells", ["ou-moments"]), ("cells", [["ou-moments-00000"]]), ("cells", 3),
    ("settings", {}), ("settings", {"ou": 1, "dw": 1}), ("sources", {"ou": "x"}), ("about", {}), ("seed", -5),
    ("realizations", 100_001), ("realizations", 10**15), ("seed", 2**32),
    ("format", "2"), ("format", None), ("format", 99), ("kind", "mine"), ("data", 3), ("block", 1.5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), PLANS, ids=str)
def test_a_plan_made_to_do_harm_is_one_line(copied, capsys, name, value):
    plan = json.loads((copied / "plan.json").read_text())
    for facts in (plan | {name: value}, {key: one for key, one in plan.items() if key != name}):
        (copied / "plan.json").write_text(json.dumps(facts))
        before = listing(copied.parent)
        for command in (["report", str(copied)], ["reproduce", "--out", str(copied), "--resume"]):
            assert run(command) == 2, facts[name]
            said = capsys.readouterr().err
            assert said.startswith("sdefit: ") and said.count("\n") == 1
        assert {p for p in listing(copied.parent) if p.name != ".lock"} == {p for p in before if p.name != ".lock"}


@pytest.mark.parametrize("counts", [3, {"ou": 3}, {"ou": {"mars": 1}}, {"ou": {"moments": 0}}, {"../x": {}}], ids=str)
def test_numbers_of_realizations_that_cannot_be_are_one_line(copied, capsys, counts):
    plan = json.loads((copied / "plan.json").read_text())
    (copied / "plan.json").write_text(json.dumps(plan | {"counts": counts}))
    for command in (["report", str(copied)], ["reproduce", "--out", str(copied), "--resume"]):
        assert run(command) == 2
        said = capsys.readouterr().err
        assert said.startswith("sdefit: ") and "counts" in said and said.count("\n") == 1


def test_a_plan_too_deep_to_read_is_one_line(copied, capsys):
    (copied / "plan.json").write_text("[" * 100_000)
    assert run(["report", str(copied)]) == 2
    assert "is not the plan of a results folder" in capsys.readouterr().err


def test_the_folder_of_data_that_a_plan_names_is_not_opened(tmp_path, capsys):
    out, frozen = tmp_path / "out", str(ROOT / "experiments" / "data")
    small = ["--systems", "ou", "--methods", "moments", "--realizations", "1"]
    assert run(["reproduce", *small, "--data", frozen, "--out", str(out)]) == 0
    (out / "rows" / "ou-moments-00000.csv").unlink()
    assert run(["reproduce", "--out", str(out), "--resume"]) == 0  # the data are in the folder
    (out / "rows" / "ou-moments-00000.csv").unlink()
    (out / "problems" / "ou.nc").unlink()
    capsys.readouterr()
    assert run(["reproduce", "--out", str(out), "--resume"]) == 2
    assert re.match(r"sdefit: --data must be given again: the data of ou \(ou\.npz \w+\) ", capsys.readouterr().err)
    assert run(["reproduce", "--out", str(out), "--resume", "--systems", "dw"]) == 2
    assert "--data must be given with the new systems dw" in capsys.readouterr().err
    assert run(["reproduce", "--out", str(out), "--resume", "--data", frozen]) == 0
    assert json.loads((out / "plan.json").read_text())["data"] == frozen


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/b", ""])
def test_a_comparison_stays_in_its_folder(tmp_path, capsys, name):
    (tmp_path / "comparison.json").write_text(json.dumps({"methods": {name: "X"}, "refused": {}}))
    assert run(["report", str(tmp_path)]) == 2
    assert re.fullmatch(r"sdefit: .*(cannot be read|must be that of a file).*\n", capsys.readouterr().err)


@pytest.mark.parametrize("facts", ["3", '{"methods": [], "refused": {}}', '{"methods": {}, "refused": {}}', "[" * 9999])
def test_what_is_no_comparison_is_one_line(tmp_path, capsys, facts):
    (tmp_path / "comparison.json").write_text(facts)
    assert run(["report", str(tmp_path)]) == 2
    assert "is not a comparison that sdefit wrote" in capsys.readouterr().err


def test_a_full_disk_at_any_file_of_a_report_is_one_line(copied, capsys, monkeypatch):
    from sdefit import files

    opened, real = [0], files.os.open

    def full(path, flags, *rest):
        opened[0] += bool(flags & files.os.O_CREAT)
        if flags & files.os.O_CREAT and opened[0] == at:
            raise OSError(28, "No space left on device")
        return real(path, flags, *rest)

    monkeypatch.setattr(files.os, "open", full)
    status, at = 2, 0
    while status:
        opened[0], at = 0, at + 1
        status = run(["report", str(copied)])
        said = capsys.readouterr()
        assert not status or (status == 2 and said.out == "")
        assert not status or re.fullmatch(r"sdefit: [^\n]+cannot be written: No space[^\n]+\n", said.err)
    assert at > 10


@pytest.mark.slow
def test_no_fact_of_a_problem_of_another_kind_is_a_traceback(stored):
    made = read_run(stored)
    problem, refused = made.problems["ou"], 0
    rng = np.random.default_rng(0)
    for where in [where for where in places(problem.facts) if where]:
        for value in [KeyError, *(ODD[i] for i in rng.choice(len(ODD), 3, replace=False))]:
            facts = json.loads(json.dumps(changed(problem.facts, where, value)))
            record = Record(problem.arrays, facts, problem.coordinates)
            try:
                store_record._check(Path("ou.nc"), "problem", record)
            except FileError as refusal:
                refused += str(refusal).startswith("ou.nc is a sdefit file, but not a whole problem: ")
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                odd = Run(made.plan, made.problems | {"ou": record}, made.rows, made.fits)
                try:
                    runs._check(odd, "here")
                except FileError:
                    continue
                run_page(odd)
    assert refused > 200


@pytest.mark.parametrize(
    ("name", "value"), [("realization", "9"), ("realization", "x"), ("setup", "../x"), ("method", ""), ("a", "fast")]
)
def test_rows_made_to_do_harm_are_one_line(copied, capsys, name, value):
    results = Results(copied)
    (row, *_) = results.rows()
    (copied / "rows" / "dw-moments-00003.csv").unlink()
    for odd in [row | {name: value}, {key: one for key, one in row.items() if key != name}][: 1 if name == "a" else 2]:
        results.add("dw-moments-00003", [odd])
        assert run(["report", str(copied)]) == 2
        said = capsys.readouterr().err
        assert re.fullmatch(r"sdefit: [^\n]*(whose|column)[^\n]*\n", said), said
        (copied / "rows" / "dw-moments-00003.csv").unlink()


def test_a_folder_that_can_only_be_read_is_one_line(copied, capsys, monkeypatch):
    from sdefit import files

    real = os.open

    def read_only(path, flags, *rest, **more):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(30, "Read-only file system")
        return real(path, flags, *rest, **more)

    (copied / "rows" / "dw-moments-00003.csv").unlink()
    monkeypatch.setattr(files.os, "open", read_only)
    for command in (["report", str(copied)], ["reproduce", "--out", str(copied), "--resume"]):
        assert run(command) == 2
        assert re.fullmatch(r"sdefit: [^\n]+ cannot be written: Read-only file system\n", capsys.readouterr().err)
