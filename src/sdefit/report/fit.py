"""The page of one fit, from its stored `Record`, and its figures as matplotlib draws them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sdefit.errors import InputError
from sdefit.report import figures, numbers, tables
from sdefit.report.charts import Chart, keys
from sdefit.report.diagnosis import (
    diagnosis_blocks,
    drift_charts,
    drift_numbers,
    quantile_charts,
    quantile_numbers,
    residual_charts,
    residual_numbers,
)
from sdefit.report.mathml import Unknown, mathml
from sdefit.report.page import Block, Facts, Figure, Key, Notes, Page, Section, Text, number
from sdefit.report.svg import draw, draw_alone, draw_key
from sdefit.report.uncertainty import interval_blocks, profile_charts, profile_numbers
from sdefit.store import Record

if TYPE_CHECKING:
    from sdefit.report.plot import Plot

Drawn = tuple[numbers.Numbers, list[Chart]]


def fit_page(record: Record) -> Page:
    """Summary first, then figures, the model, and how the numbers came about."""
    facts, status = record.facts, record.facts["status"]
    sections = [
        Section("results", "Estimates", _estimates(record)),
        Section("uncertainty", "What the data tell", interval_blocks(record)),
        Section("figures", "Figures", _figures(record)),
        Section("diagnosis", "Residuals", diagnosis_blocks(record)),
        Section("model", "Model", _model(record)),
        Section("details", "Settings and provenance", _details(record)),
        Section("notes", "Notes", _notes(record)),
    ]
    return Page(
        title=f"{facts.get('name') or facts.get('model') or 'model'}, fitted by {method_title(record)}",
        subtitle=data_sentence(record),
        ok=status["severity"] != "failure",
        status=status["message"],
        sentence=" ".join(filter(None, [_time_sentence(record), tables.coverage(record)])),
        remedy=status.get("remedy", ""),
        sections=[section for section in sections if section.blocks],
        footer=_footer(record),
    )


def method_title(record: Record) -> str:
    """The method's name as people write it."""
    method = record.facts["method"]
    return str(method.get("title") or method["name"]) if isinstance(method, dict) else str(method)


def data_sentence(record: Record) -> str:
    """What was fitted, in numbers."""
    observed = int(np.isfinite(record["values"]).sum())
    free, states, several = len(numbers.free_names(record)), record.facts["states"], len(record["times"])
    parts = [_count(free, "free parameter"), _count(len(states), "state"), _count(observed, "observed value")]
    return " · ".join(parts + ([f"{several} series"] if several > 1 else []))


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def _time_sentence(record: Record) -> str:
    seconds = record.facts.get("seconds")
    return f"It took {number(float(seconds), 2)} seconds." if seconds is not None else ""


def _estimates(record: Record) -> list[Block]:
    blocks: list[Block] = [tables.estimates(record), tables.noise(record)]
    if record.facts.get("diffusion") != "none":
        blocks.append(tables.diffusion(record))
    return blocks


def _figures(record: Record) -> list[Block]:
    drawn = [(kind, *make(record)) for kind, make in FIGURES.items()]
    return [_figure(kind, found, charts) for kind, found, charts in drawn if charts]


def _states(record: Record) -> Drawn:
    found = numbers.path_numbers(record)
    return found, figures.path_charts(found, time_label(record))


def _phase(record: Record) -> Drawn:
    found = numbers.phase_numbers(record)
    return found, figures.phase_charts(found)


def _derivatives(record: Record) -> Drawn:
    found = numbers.derivative_numbers(record)
    return found, figures.derivative_charts(found, time_label(record))


def _field(record: Record) -> Drawn:
    found = numbers.field_numbers(record)
    return found, figures.field_charts(found, time_label(record))


def _increments(record: Record) -> Drawn:
    found = numbers.diffusion_numbers(record)
    return found, figures.diffusion_charts(found)


def _profile(record: Record) -> Drawn:
    found = profile_numbers(record)
    return found, profile_charts(found)


def _residuals(record: Record) -> Drawn:
    found = residual_numbers(record)
    return found, residual_charts(found, time_label(record))


def _quantiles(record: Record) -> Drawn:
    found = quantile_numbers(record)
    return found, quantile_charts(found)


def _drift(record: Record) -> Drawn:
    found = drift_numbers(record)
    return found, drift_charts(found)


def _trace(record: Record) -> Drawn:
    found = numbers.trace_numbers(record)
    return found, figures.trace_charts(found)


# The figures of a fit in the order of the page; the names are also those of `plot_fit`.
FIGURES = {
    "states": _states,
    "derivatives": _derivatives,
    "field": _field,
    "phase": _phase,
    "increments": _increments,
    "trace": _trace,
    "profile": _profile,
    "residuals": _residuals,
    "quantiles": _quantiles,
    "drift": _drift,
}
_TITLES = {
    "states": "Observations and smoothed states",
    "phase": "States against each other",
    "field": "The drift, learned without a formula and from the model",
    "derivatives": "Derivatives, before and after matching",
    "increments": "What noise adds in one unit of time",
    "trace": "Optimisation",
    "profile": "Profile likelihood",
    "residuals": "One-step residuals",
    "quantiles": "Residuals against the normal law",
    "drift": "Drift in the data and in the model",
}
_CAPTIONS = {
    "states": "The band holds the state, not a new observation, with 90 % probability.",
    "phase": "The same path without its clock.",
    "derivatives": "Samples of the derivative of the smooth part of the path, by two roads: from the data alone, and "
    "through the drift. Thick lines are medians, bands hold 90 % of the samples, thin lines are single samples. "
    "Matching moves the parameters until the two roads agree. Far outside the data's range the model's is cut off.",
    "field": "The learned drift assumes no formula. Where the model's lies outside the band for long, the data ask for "
    "another one.",
    "increments": "The density of the increments.",
    "increments_of_pairs": "Each outline lies one standard deviation from zero.",
    "trace": "Parameters are shown as multiples of their estimates, so their lines end at 1.",
    "profile": "The highest log-likelihood with the parameter held at each value, less its maximum. The data do not "
    "bound the parameter on a side that stays flat.",
    "residuals": "What each observation was beyond its prediction from those before, in units of the predicted spread.",
    "quantiles": "On the line if the residuals are standard normal.",
    "drift": "In bins of each state: the mean of the fitted drift, and the same with what predictions missed added.",
}


def plot_fit(record: Record, kind: str = "states") -> "Plot":
    """One figure of a fit as matplotlib draws it: states, phase, derivatives, field, increments or trace."""
    from sdefit.report.plot import plot  # here, not above: matplotlib takes half a second that a page does not need

    if kind not in FIGURES:
        raise InputError(f"kind must be one of {', '.join(FIGURES)}, not {kind!r}")
    _, charts = FIGURES[kind](record)
    if not charts:
        asked = {"profile": "fit.profile(name)"} | dict.fromkeys(("residuals", "quantiles", "drift"), "fit.diagnose()")
        why = f"call {asked[kind]} first" if kind in asked else "its method or model has none of them"
        raise InputError(f"this fit holds no numbers for the figure {kind!r}; {why}")
    return plot(charts)


def _caption(kind: str, charts: Sequence[Chart]) -> str:
    if kind == "increments" and charts[0].square:
        kind = "increments_of_pairs"
    if kind == "trace" and not any(mark.label for chart in charts for mark in chart.marks):
        return ""
    more = f" At most {figures.PANELS} panels are drawn; the CSV file has all numbers."
    return _CAPTIONS[kind] + (more if len(charts) == figures.PANELS else "")


def _figure(kind: str, found: numbers.Numbers, charts: Sequence[Chart]) -> Figure:
    alone = kind == "states" and len(charts) == 1
    panels = [draw_alone(charts[0], kind)] if alone else [draw(chart, f"{kind}-{i}") for i, chart in enumerate(charts)]
    legend = [Key(draw_key(mark), mark.label) for mark in keys(charts)]
    return Figure(kind, _TITLES[kind], _caption(kind, charts), found, panels, legend, len(charts) == 1 and not alone)


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
    """The model as mathematics where it can be drawn, else as text, with its LaTeX folded below."""
    text, latex = str(record.facts.get("equations") or ""), str(record.facts.get("latex") or "")
    try:
        markup = mathml(latex) if latex else ""
    except Unknown:
        markup = ""
    source = "\n\n".join(filter(None, [text if markup else "", latex]))
    return Text("Equations", text, markup, source, "Source: text and LaTeX" if text else "LaTeX")


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
    return f"Written by sdefit {version} from the stored result; nothing was fitted again.".replace(
        "sdefit  ", "sdefit "
    )
