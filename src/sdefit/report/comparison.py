"""The page that shows several fits of the same model and data side by side."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sdefit.display.charts import Chart, Dots, Line, Mark
from sdefit.errors import FileError
from sdefit.files import contents, inside, put
from sdefit.report import figures, fit, numbers, tables
from sdefit.report.benchmark_figures import stacked, titled
from sdefit.report.html import write_page
from sdefit.report.numbers import Numbers
from sdefit.report.page import Block, Cell, Figure, Notes, Page, Section, Table, Verdict, as_number, number
from sdefit.report.verdict import status
from sdefit.store import Record, read
from sdefit.store.facts import ComparisonFacts, check, need

FILE = "comparison.json"
Fits = Mapping[str, Record]  # by the title of the method


def begin(folder: str | os.PathLike[str], methods: Mapping[str, str], refused: Mapping[str, str]) -> None:
    """Make the folder of a comparison: the methods it holds with their titles, and why others are missing."""
    folder = Path(folder)
    try:
        (folder / "fits").mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise FileError(f"{folder} cannot be written: {problem.strerror}") from None
    facts = {"kind": "sdefit comparison", "methods": dict(methods), "refused": dict(refused)}
    put(folder / FILE, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())


def write_comparison(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write the report of a folder that `begin` made and fits were saved into; returns the path."""
    folder = Path(folder)
    try:
        facts = json.loads(contents(folder / FILE).decode())
        check(facts, ComparisonFacts, "the comparison")
        need(facts["methods"], "it names no method")
    except (OSError, ValueError, RecursionError) as problem:
        raise FileError(f"{folder / FILE} is not a comparison that sdefit wrote: {problem}") from None
    methods, refused = facts["methods"], facts["refused"]
    fits = {title: read(inside(folder, "fits", f"{name}.nc"), "fit") for name, title in methods.items()}
    return write_page(comparison_page(fits, refused), folder / "report.html" if path is None else path)


def comparison_page(fits: Fits, refused: Mapping[str, str]) -> Page:
    """Estimates side by side first, then the paths, the model, settings and notes."""
    first = next(iter(fits.values()))
    bad = [name for name, record in fits.items() if status(record.facts)["severity"] == "failure"]
    sections = [
        Section("results", "Estimates", [_estimates(fits), *_side_by_side(fits), _outcomes(fits, refused)]),
        Section("figures", "Figures", _paths(fits)),
        Section("model", "Model and data", [fit.equations(first), tables.observations(first)]),
        Section("details", "Settings and provenance", [_settings(fits), tables.provenance(first)]),
        Section("notes", "Notes", [Notes(_notes(fits))]),
    ]
    tone = "bad" if bad else "caution" if refused else "good"
    title = f"{fit.model_title(first)} by {len(fits)} methods"
    data = (first.facts.get("provenance") or {}).get("data")
    headline = f"Not every fit succeeded: {', '.join([*bad, *refused])}." if bad or refused else "Every fit succeeded."
    sentence = "Where the estimates of different methods differ much, the data hardly identify them."
    return Page(
        title=f"{title}, fitted to {data}" if data else title,
        subtitle=fit.data_sentence(first),
        verdict=Verdict(tone, headline, sentence, objections=[f"{name}: {why}" for name, why in refused.items()]),
        sections=sections,
        footer="Written by sdefit from the stored fits; nothing was fitted again.",
    )


def estimate_numbers(fits: Fits) -> Numbers:
    """Every estimate with its interval where there is one, one row for each quantity and method."""
    rows = [
        (row["quantity"], name, float(row["estimate"]), as_number(row.get("lower")), as_number(row.get("upper")))
        for quantity in _quantities(fits)
        for name, record in fits.items()
        for row in record.facts["summary"]
        if row["quantity"] == quantity
    ]
    names = ("quantity", "method", "estimate", "lower", "upper")
    return {name: np.array([row[i] for row in rows]) for i, name in enumerate(names)}


def _quantities(fits: Fits) -> list[str]:
    return list(dict.fromkeys(row["quantity"] for record in fits.values() for row in record.facts["summary"]))


def _estimates(fits: Fits) -> Table:
    found, quantities = estimate_numbers(fits), _quantities(fits)
    shown: dict[str, list] = {"quantity": quantities}
    for name in fits:
        mine = {
            q: v for q, m, v in zip(found["quantity"], found["method"], found["estimate"], strict=True) if m == name
        }
        values = [float(mine.get(q, np.nan)) for q in quantities]
        shown[name] = [Cell(number(v), repr(v), True) for v in values]
    return Table("estimates", "Estimates", found, "In the units of the data.", shown=shown)


def _side_by_side(fits: Fits) -> list[Block]:
    """One small panel for each quantity with the estimate of each method."""
    found = estimate_numbers(fits)
    charts = [_panel(fits, found, q) for q in _quantities(fits)][: figures.PANELS] if len(fits) > 1 else []
    return _figure("side_by_side", "Side by side", "Lines are intervals, where a fit has them.", found, charts)


def _panel(fits: Fits, found: Numbers, quantity: str) -> Chart:
    here = {name: column[found["quantity"] == quantity] for name, column in found.items()}
    places = np.array([list(fits).index(m) for m in here["method"]], float)
    ends = np.stack([here["lower"], here["upper"], np.full(places.size, np.nan)], 1).ravel()
    marks: list[Mark] = [
        Line(np.repeat(places, 3), ends, "blue", width=2.4, opacity=0.6),
        Dots(places, here["estimate"], "blue", "estimate and interval", 8.0, 1.0),
    ]
    limits = _window(np.concatenate([here["estimate"], here["lower"], here["upper"]]))
    return Chart(quantity, marks, f"{quantity} by each method", across="", limits=limits, names=list(fits))


def _window(values: np.ndarray) -> tuple[float, float] | None:
    """Limits around all numbers, wide enough that small differences look small."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None
    middle, size = (finite.min() + finite.max()) / 2, np.abs(finite).max()
    half = max(0.6 * np.ptp(finite), 0.3 * size) or 1.0
    return float(middle - half), float(middle + half)


def _paths(fits: Fits) -> list[Block]:
    parts = {name: numbers.path_numbers(record) for name, record in fits.items()}
    found = stacked([{"method": np.full(len(part["time"]), name), **part} for name, part in parts.items()])
    time = fit.time_label(next(iter(fits.values())))
    charts = [
        titled(chart, f"{name}: {chart.title}")
        for name, part in parts.items()
        for chart in figures.path_charts(part, time)
    ]
    caption = "The band holds the state, not a new observation, with 90 % probability."
    return _figure("states", "Observations and smoothed states", caption, found, charts)


def _figure(name: str, title: str, caption: str, found: Numbers, charts: Sequence[Chart]) -> list[Block]:
    return [Figure(name, title, caption, found, charts)] if charts else []


def _outcomes(fits: Fits, refused: Mapping[str, str]) -> Table:
    """How each method fared and what it cost."""
    facts = [{**record.facts, "status": status(record.facts)} for record in fits.values()]
    blank = [float("nan")] * len(refused)
    columns = {
        "method": [*fits, *refused],
        "status": [f["status"]["name"] for f in facts] + ["refused"] * len(refused),
        "seconds": [as_number(f.get("seconds")) for f in facts] + blank,
        "compile_seconds": [as_number(f.get("compile_seconds")) for f in facts] + blank,
        "message": [f"{f['status']['message']} {f['status'].get('remedy', '')}".strip() for f in facts]
        + list(refused.values()),
    }
    return Table("outcomes", "How each fit went", columns, heads={"compile_seconds": "s to compile"})


def _settings(fits: Fits) -> Table:
    pairs = [
        (name, key, value) for name, record in fits.items() for key, value in tables.settings(record).items.items()
    ]
    columns = {
        "method": [name for name, _, _ in pairs],
        "setting": [key for _, key, _ in pairs],
        "value": [value for _, _, value in pairs],
    }
    return Table("settings", "Methods and settings", columns)


def _notes(fits: Fits) -> list[str]:
    said = [n for r in fits.values() for n in [*(r.facts.get("notes") or ()), *(r.facts.get("assumed") or ())]]
    return list(dict.fromkeys(map(str, said)))
