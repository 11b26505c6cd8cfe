"""The page of one fit, from its stored `Record`, and its figures."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sdefit.display.charts import Chart
from sdefit.errors import InputError, SdefitError
from sdefit.report import diagnosis, figures, numbers, tables, uncertainty
from sdefit.report.numbers import Numbers
from sdefit.report.page import Block, Facts, Figure, Notes, Page, Section, Text, number
from sdefit.report.verdict import verdict
from sdefit.store import Record

if TYPE_CHECKING:
    from sdefit.display.plot import Plot

_BUILT_IN = {
    "lotka_volterra": "Lotka-Volterra",
    "ornstein_uhlenbeck": "Ornstein-Uhlenbeck",
    "double_well": "Double well",
    "lorenz63": "Lorenz 63",
}


def fit_page(record: Record) -> Page:
    """The verdict first, then estimates, figures, the model, and how the numbers came about."""
    sections = [
        Section("results", "Estimates", _estimates(record)),
        Section("figures", "Figures", _figures(record)),
        Section("uncertainty", "Intervals", uncertainty.interval_blocks(record)),
        Section("diagnosis", "Residuals", diagnosis.diagnosis_blocks(record)),
        Section("model", "Model", _model(record)),
        Section("details", "Settings and provenance", _details(record)),
        Section("notes", "Notes", _notes(record)),
    ]
    sentence = " ".join(filter(None, [tables.coverage(record), _time_sentence(record)]))
    return Page(
        title=fit_title(record),
        subtitle=f"{data_sentence(record)} · {method_title(record)}",
        verdict=verdict(record, sentence),
        sections=[section for section in sections if section.blocks],
        footer=_footer(record),
    )


def fit_title(record: Record) -> str:
    """What was fitted to what, as a scientist would write it."""
    data = (record.facts.get("provenance") or {}).get("data")
    return f"{model_title(record)} fitted to {data}" if data else f"{model_title(record)}, fitted"


def model_title(record: Record) -> str:
    """The model's name, or of one that has none its states."""
    name, states = str(record.facts.get("name") or "model"), ", ".join(record.facts["states"])
    return f"Model of {states}" if name == "model" else _BUILT_IN.get(name, name)


def method_title(record: Record) -> str:
    """The method's name as people write it."""
    method = record.facts["method"]
    return str(method.get("title") or method["name"]) if isinstance(method, dict) else str(method)


def data_sentence(record: Record) -> str:
    """What was fitted, in numbers."""
    observed = int(np.isfinite(record["values"]).sum())
    free, states, several = len(numbers.free_names(record)), record.facts["states"], len(record["times"])
    parts = [_count(observed, "observed value"), _count(len(states), "state"), _count(free, "free parameter")]
    return " · ".join(([f"{several} series"] if several > 1 else []) + parts)


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def _time_sentence(record: Record) -> str:
    seconds = record.facts.get("seconds")
    return f"The fit took {number(float(seconds), 2)} seconds." if seconds is not None else ""


def _estimates(record: Record) -> list[Block]:
    blocks: list[Block] = [*_figure("estimates", record), tables.estimates(record), tables.noise(record)]
    return blocks + ([tables.diffusion(record)] if record.facts.get("diffusion") != "none" else [])


def _figures(record: Record) -> list[Block]:
    return [block for kind in FIGURES if kind != "estimates" for block in _figure(kind, record)]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure of a fit: its words, the function of its numbers, and that of its charts, which may get a time label."""

    title: str
    caption: str
    numbers: Callable[[Record], Numbers]
    charts: Callable[..., list[Chart]]
    timed: bool = False
    needs: str = ""  # which of intervals, profiles and diagnosis it draws

    def draw(self, record: Record) -> tuple[Numbers, list[Chart]]:
        """The numbers and the charts."""
        found = self.numbers(record)
        return found, (self.charts(found, time_label(record)) if self.timed else self.charts(found)) if found else []


# The figures of a fit in the order of the page; the names are also those of `plot_fit`.
FIGURES = {
    "estimates": Drawing(
        "Estimates and intervals",
        "Each line is an interval as a share of its own estimate: short lines are well known. A line that reaches the "
        "edge goes on beyond it.",
        uncertainty.forest_numbers,
        uncertainty.forest_charts,
        needs="intervals",
    ),
    "states": Drawing(
        "Observations and smoothed states",
        "The band holds the state, not a new observation, with 90 % probability.",
        numbers.path_numbers,
        figures.path_charts,
        timed=True,
    ),
    "derivatives": Drawing(
        "Derivatives, before and after matching",
        "Samples of the derivative of the smooth part of the path: from the data alone, and through the drift. Thick "
        "lines are medians, bands hold 90 % of the samples, thin lines are single samples. Matching moves the "
        "parameters until both agree. Far outside the data's range the model's samples are cut off.",
        numbers.derivative_numbers,
        figures.derivative_charts,
        timed=True,
    ),
    "field": Drawing(
        "The drift, learned without a formula and from the model",
        "The learned drift assumes no formula. Where the model's lies outside the band for long, the data imply "
        "another one.",
        numbers.field_numbers,
        figures.field_charts,
        timed=True,
    ),
    "phase": Drawing(
        "States against each other",
        "The path without its clock; of several series that of the first.",
        numbers.phase_numbers,
        figures.phase_charts,
    ),
    "increments": Drawing(
        "What process noise adds in one unit of time",
        "For one state the density of the increments; for two states an outline one standard deviation from zero.",
        numbers.diffusion_numbers,
        figures.diffusion_charts,
    ),
    "trace": Drawing(
        "Optimisation",
        "Parameters are shown as multiples of their estimates, so their lines end at 1.",
        numbers.trace_numbers,
        figures.trace_charts,
    ),
    "profile": Drawing(
        "Profile likelihood",
        "The highest log-likelihood with the parameter held at each value, less its maximum. The data do not bound "
        "the parameter on a side that stays flat.",
        uncertainty.profile_numbers,
        uncertainty.profile_charts,
        needs="profiles",
    ),
    "residuals": Drawing(
        "One-step residuals",
        "What each observation was beyond its prediction from those before, in units of the predicted standard "
        "deviation.",
        diagnosis.residual_numbers,
        diagnosis.residual_charts,
        timed=True,
        needs="diagnosis",
    ),
    "quantiles": Drawing(
        "Residuals against the normal distribution",
        "On the line if the residuals are standard normal.",
        diagnosis.quantile_numbers,
        diagnosis.quantile_charts,
        needs="diagnosis",
    ),
    "drift": Drawing(
        "Drift in the data and in the model",
        "In bins of each state: the mean of the fitted drift, and the same with the mean one-step residual added.",
        diagnosis.drift_numbers,
        diagnosis.drift_charts,
        needs="diagnosis",
    ),
}


def needs(kind: str) -> str:
    """Which of "intervals", "profiles" and "diagnosis" the figure of that name draws; empty where none."""
    if kind not in FIGURES:
        raise InputError(f"kind must be one of {', '.join(FIGURES)}, not {kind!r}")
    return FIGURES[kind].needs


def plot_fit(record: Record, kind: str = "states") -> "Plot":
    """One figure of a fit as a matplotlib figure; `kind` is a name of `FIGURES`."""
    from sdefit.display.plot import plot  # here, not above: matplotlib takes half a second

    needed = needs(kind)
    _, charts = FIGURES[kind].draw(record)
    if not charts:
        lacks = f"no {needed} were found or stored" if needed else "its method or model has none of them"
        raise InputError(f"this fit holds no numbers for the figure {kind!r}; {lacks}")
    return plot(charts)


def _figure(kind: str, record: Record) -> list[Block]:
    """A figure with its caption; nothing where there is nothing to draw."""
    found, charts = FIGURES[kind].draw(record)
    if not charts:
        return []
    caption = _caption(kind, found, charts)
    alone = len(charts) == 1 and kind in ("states", "estimates", "residuals")
    return [Figure(kind, FIGURES[kind].title, caption, found, charts, alone)]


def _caption(kind: str, found: Numbers, charts: Sequence[Chart]) -> str:
    """The figure's caption, as it is true of these charts."""
    caption = FIGURES[kind].caption
    if kind == "trace" and not any(mark.label for chart in charts for mark in chart.marks):
        return ""
    if kind not in ("states", "derivatives"):
        return caption
    several, states = (len(set(found[name].tolist())) for name in ("series", "state"))
    if kind == "states" and figures.together(found):
        caption, several = "Each line is the smoothed state of one series.", 1
    drawn = len(charts) // (2 if kind == "derivatives" else 1)
    return caption + (" Not all are drawn; the CSV file has all numbers." if drawn < several * states else "")


def time_label(record: Record) -> str:
    """The name of the time axis, with its unit where there is one."""
    unit = record.facts.get("time_unit")
    return f"time ({unit})" if unit else "time"


def _model(record: Record) -> list[Block]:
    facts = record.facts
    about = {
        "states": ", ".join(facts["states"]),
        "free parameters": ", ".join(numbers.free_names(record)),
        "diffusion": str(facts.get("diffusion", "")),
    }
    return [equations(record), Facts("model_facts", "Model", about), tables.observations(record)]


def equations(record: Record) -> Text:
    """The model as mathematics where it can be read again, else as text, with its LaTeX folded below."""
    text, latex = str(record.facts.get("equations") or ""), str(record.facts.get("latex") or "")
    math = _math(record.facts.get("model"))
    source = "\n\n".join(filter(None, [text if math is not None else "", latex]))
    return Text("Equations", text, math, source, "Source: text and LaTeX" if text else "LaTeX")


def _math(stored: Any) -> Any:
    """The stored model as a tree of MathML: its equations are read again, so no markup is ever taken from a file."""
    from sdefit.dynamics import model_file, printing  # here, not above: they need jax, which most reports do not

    try:
        return printing.mathml(model_file.from_dict(stored))
    except (SdefitError, TypeError, ValueError, KeyError, AttributeError):
        return None


def _details(record: Record) -> list[Block]:
    return [block for block in (tables.settings(record), tables.provenance(record)) if block.items]


def _notes(record: Record) -> list[Block]:
    assumed: Any = record.facts.get("assumed") or []
    checks = (record.facts.get("checks") or [])[1:]  # the first is the status at the top of the page
    notes = [f"{check['message']} {check['remedy']}" for check in checks]
    notes += [*(record.facts.get("notes") or []), *([assumed] if isinstance(assumed, str) else assumed)]
    return [Notes([str(n) for n in notes])] if notes else []


def _footer(record: Record) -> str:
    provenance = record.facts.get("provenance") or {}
    version = provenance.get("sdefit") or provenance.get("version") or ""
    return f"Written by {f'sdefit {version}'.strip()} from the stored result; nothing was fitted again."
