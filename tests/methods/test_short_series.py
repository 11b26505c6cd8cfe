"""Series of 10 to 25 rows whose optimum was missed: the start was dead at a bound, or took noise for diffusion."""

import importlib
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    return importlib.import_module("short_series")


def test_subjects_that_were_missed_are_found(study, monkeypatch):
    """Of these sixteen, which ended at rates of 1e-9 and below or in the lower of two optima, none is missed."""
    missed = [447, 442, 97, 991, 772, 154, 579, 267, 443, 364, 737, 897, 746, 276, 1202, 1151]
    subject = study.subject
    monkeypatch.setattr(study, "subject", lambda seed, i: subject(seed, missed[i] if i < len(missed) else i))
    rows = study.run(study.parse(["--subjects", str(len(missed))]), 0)
    fits = rows[rows.by == "auto"]
    assert len(fits) >= 15
    assert (fits.highest - fits.objective).max() < study.MISSED


def test_the_summary_counts_what_was_missed(study):
    rows = study.run(study.parse(["--subjects", "6"]), 0)
    assert (rows.highest - rows.objective).min() > -study.MISSED
    assert "6 subjects" in study.summary(rows) and "Missed: 0" in study.summary(rows)
    worse = rows.assign(objective=rows.objective - [0, 0, 3, 0, 0, 0])
    assert "Missed: 1" in study.summary(worse)
