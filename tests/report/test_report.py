"""The report shows what the record holds: every number, nothing from the network, in any state of a fit."""

import csv
import itertools
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from contract import ou_series, relaxing
from sdefit.display.charts import COLOURS, Band, Chart, Dots, Line, thin
from sdefit.display.plot import plot
from sdefit.dynamics.equations import equations
from sdefit.dynamics.printing import mathml
from sdefit.errors import FileError, InputError
from sdefit.fitting import fit
from sdefit.methods.moments import Moments
from sdefit.report import plot_fit, write_fit
from sdefit.report.fit import FIGURES, fit_page
from sdefit.report.numbers import derivative_numbers, diffusion_numbers, path_numbers, phase_numbers, trace_numbers
from sdefit.report.page import cell, number
from sdefit.report.svg import svg
from sdefit.report.uncertainty import forest_charts, forest_numbers
from sdefit.report.verdict import verdict
from sdefit.store import Record

ROWS = ("series", "time", "state")


def make_record(seed=0, states=("prey", "predator"), lengths=(12, 9), truth=True, intervals=True, samples=8, **facts):
    """A record with random numbers where a fit would put its own; series of unequal lengths, values missing."""
    rng = np.random.default_rng(seed)
    series, most, K = len(lengths), max(lengths), len(states)
    times = np.sort(rng.uniform(0, 5, (series, most)), axis=1)
    times[np.arange(most)[None, :] >= np.array(lengths)[:, None]] = np.nan
    shape = (series, most, K)
    filling = np.isnan(times)[:, :, None]
    values = np.where(filling | (rng.uniform(size=shape) < 0.2), np.nan, rng.normal(size=shape))
    G = np.tril(rng.uniform(0.1, 1, (K, K)))
    params, spread = rng.normal(size=3), rng.uniform(0.1, 1, 3)
    names = ["a", "b", "level"]
    arrays = {
        "times": (ROWS[:2], times),
        "values": (ROWS, values),
        "observed": (ROWS, np.isfinite(values)),
        "mean": (ROWS, np.where(filling, np.nan, rng.normal(size=shape))),
        "std": (ROWS, np.where(filling, np.nan, rng.uniform(0.1, 1, shape))),
        "params": (("param",), params),
        "G": (("state", "state_2"), G),
        "GGt": (("state", "state_2"), G @ G.T),
        "H": (("state", "state_2"), G.T @ G),
        "noise": (("state",), rng.uniform(0.1, 1, K)),
        "key": (("key_0",), np.array([0, 7], np.uint32)),
        "trace_loss": (("trace_loss_0",), np.append(rng.uniform(0.1, 1, 5), [np.nan, np.nan])),
        "trace_theta": (("i", "p"), np.append(rng.normal(size=(5, 2)), np.full((2, 2), np.nan), axis=0)),
    }
    if samples:
        for road in ("data", "model_before", "model_after"):
            arrays[f"trace_derivatives_{road}"] = (("samples", *ROWS), rng.normal(size=(samples, *shape)))
        arrays |= {f"trace_field_{part}": (ROWS, rng.uniform(0.1, 1, shape)) for part in ("mean", "std", "model")}
    if truth:
        arrays["path"] = (ROWS, np.where(filling, np.nan, rng.normal(size=shape)))
    said = {
        "name": "two species",
        "states": list(states),
        "params": names,
        "parameters": {
            "a": {"lower": 0.0, "upper": np.inf, "value": None},
            "b": {"lower": -np.inf, "upper": np.inf, "value": None},
            "level": {"lower": -np.inf, "upper": np.inf, "value": 1.5},
        },
        "diffusion": "full",
        "equations": "dprey = a*prey",
        "latex": r"\mathrm{d}x = a \, x",
        "method": {"name": "mars", "title": "MaRS", "settings": {"samples": 64, "paper": False, "edge": None}},
        "status": {"name": "ok", "message": "The fit converged.", "remedy": "", "severity": "ok"},
        "seconds": 0.25,
        "notes": ["Rows were sorted by time."],
        "assumed": ["Itô equation with a constant full G."],
        "truth": {"params": {"a": 1.0, "b": 2.0}, "G": G.tolist(), "noise": 0.1} if truth else None,
        "provenance": {"sdefit": "0.1.0", "packages": {"jax": "0.12"}},
        "summary": [
            {"quantity": n, "estimate": p, "lower": p - s, "upper": p + s} if intervals and n != "level" else
            {"quantity": n, "estimate": p, "lower": np.nan, "upper": np.nan}
            for n, p, s in zip(names, params, spread, strict=True)
        ],
    }  # fmt: skip
    return Record(arrays, said | facts, {"state": list(states)})


class Reader(HTMLParser):
    """The exact values of every table on a page, by the table's id, and what the page would fetch."""

    def __init__(self):
        super().__init__()
        self.tables, self.fetched, self.ids, self.here = {}, [], [], None

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.fetched += [attrs[a] for a in ("src", "srcset", "data", "xlink:href") if a in attrs]
        self.fetched += [attrs["href"]] if tag in ("link", "use", "image") else []
        if tag == "table":
            self.here = self.tables.setdefault(attrs.get("id"), [])
        if tag == "tr" and self.here is not None:
            self.here.append([])
        if tag in ("td", "th") and "data-value" in attrs and self.here:
            self.here[-1].append(attrs["data-value"])


def read_page(text):
    reader = Reader()
    reader.feed(text)
    return reader


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    return {name: [row[i] for row in rows] for i, name in enumerate(head)}


def as_floats(column):
    return np.array([float(v) if v else np.nan for v in column])


# Numbers of the figures


@pytest.mark.parametrize("seed", range(3))
def test_path_numbers_are_the_records_rows(seed):
    record = make_record(seed)
    numbers = path_numbers(record)
    row = 0
    for i, length in enumerate((12, 9)):
        for k, state in enumerate(("prey", "predator")):
            for n in range(length):
                assert (numbers["series"][row], numbers["state"][row]) == (str(i + 1), state)
                assert numbers["time"][row] == record["times"][i, n]
                for name in ("values", "mean", "std", "path"):
                    np.testing.assert_equal(numbers[name][row], record[name][i, n, k])
                row += 1
    assert row == len(numbers["time"])
    # A normal band of 1.6449 standard deviations on each side holds 90 %.
    np.testing.assert_allclose(numbers["upper"] - numbers["lower"], 2 * 1.6448536 * numbers["std"], rtol=1e-7)


def test_phase_numbers_have_one_column_for_each_state():
    record = make_record()
    numbers = phase_numbers(record)
    np.testing.assert_array_equal(numbers["mean_predator"][:12], record["mean"][0, :, 1])
    np.testing.assert_array_equal(numbers["values_prey"][12:], record["values"][1, :9, 0])
    assert phase_numbers(make_record(states=("x",))) == {}


def test_derivative_numbers_are_quantiles_of_the_samples():
    record = make_record(samples=21)
    numbers = derivative_numbers(record)
    place = np.flatnonzero((numbers["series"] == "2") & (numbers["state"] == "predator"))[4]
    for road in ("data", "model_before", "model_after"):
        samples = np.sort(record[f"trace_derivatives_{road}"][:, 1, 4, 1])
        # Of 21 sorted samples the 2nd, 11th and 20th are the 5, 50 and 95 % quantiles exactly.
        found = [numbers[f"{road}_{edge}"][place] for edge in ("lower", "median", "upper")]
        np.testing.assert_allclose(found, samples[[1, 10, 19]], rtol=1e-12)
        assert numbers[f"{road}_sample_3"][place] == record[f"trace_derivatives_{road}"][2, 1, 4, 1]


def test_what_the_method_kept_not_is_not_drawn():
    record = make_record(samples=0)
    assert derivative_numbers(record) == {}
    without = Record({n: a for n, a in record.arrays.items() if not n.startswith("trace_")}, record.facts)
    assert trace_numbers(without) == {}
    assert [block.name for block in fit_page(without).sections[1].blocks] == ["states", "phase", "increments"]


def test_trace_numbers_end_with_the_last_iteration_and_skip_fixed_parameters():
    record = make_record()
    numbers = trace_numbers(record)
    assert list(numbers) == ["iteration", "loss", "a", "b"]
    np.testing.assert_array_equal(numbers["iteration"], range(5))
    np.testing.assert_array_equal(numbers["b"], record["trace_theta"][:5, 1])


@pytest.mark.parametrize("K", [2, 3])
def test_ellipses_lie_one_standard_deviation_from_zero(K):
    record = make_record(states=("x", "y", "z")[:K])
    numbers = diffusion_numbers(record)
    for up, across in [(1, 0), (2, 0), (2, 1)][: K * (K - 1) // 2]:
        here = numbers["pair"] == f"{'xyz'[up]} against {'xyz'[across]}"
        points = np.stack([numbers["x"][here], numbers["y"][here]])
        covariance = record["GGt"][np.ix_([across, up], [across, up])]
        np.testing.assert_allclose(np.sum(points * np.linalg.solve(covariance, points), axis=0), 1.0, rtol=1e-9)


def test_one_state_shows_the_density_of_its_increments():
    record = make_record(states=("x",), truth=False)
    numbers = diffusion_numbers(record)
    g = record["G"][0, 0]
    np.testing.assert_allclose(numbers["y"].max(), 1 / (g * np.sqrt(2 * np.pi)), rtol=1e-12)
    # Beyond 3.5 standard deviations on both sides lies 4.7e-4 of a normal density.
    np.testing.assert_allclose(np.trapezoid(numbers["y"], numbers["x"]), 1 - 4.65e-4, atol=1e-5)


# Charts


def test_thinning_keeps_ends_and_peaks():
    x = np.arange(50_000.0)
    y = np.sin(x / 900)
    y[[12_345, 33_333]] = 7.0, -9.0
    kept = thin(x, y, limit=1000)
    assert {0, 12_345, 33_333, 49_999} <= set(kept.tolist())
    assert 900 < len(kept) < 1010
    np.testing.assert_array_equal(thin(x[:10], y[:10]), range(10))
    assert len(thin(x, np.full_like(x, np.nan))) > 2


def points_of(root, kind, drawn):
    """The numbers that the page's script reads off a drawing: corners of paths, by the box and the axes' ends."""
    box = {name: float(value) for name, value in root.find("clipPath/rect").attrib.items()}
    x0, x1, y0, y1 = (float(end) for name in ("data-x", "data-y") for end in root.get(name).split())
    path = [g for g in root.iter("g") if g.get("class") == kind][drawn].find("path")
    corners = np.array([[float(n) for n in pair] for pair in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d"))])
    x = x0 + (corners[:, 0] - box["x"]) / box["width"] * (x1 - x0)
    return x, y1 - (corners[:, 1] - box["y"]) / box["height"] * (y1 - y0)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e7])
def test_the_page_reads_values_back_from_a_drawing(scale):
    x, y = np.array([0.0, 1, 2, 3]), scale * np.array([0.0, 4, np.nan, 8])
    lower, upper = scale * np.array([-1.0, 0, 1, 2]), scale * np.array([1.0, 5, 6, 9])
    marks = [Line(x, y, "blue", "line"), Dots(x, y, "ink", "dots"), Band(x, lower, upper, "blue", "band")]
    root = ET.fromstring(svg(Chart("t", marks, "alt"), "one"))
    # Paths are drawn to a hundredth of a unit, of about 150 that are scale * 10.4 high.
    for kind in ("line", "dots"):
        found = points_of(root, kind, 0)
        np.testing.assert_allclose(found[0], [0, 1, 3], atol=0.005 * 3.1 / 330)
        np.testing.assert_allclose(found[1], scale * np.array([0.0, 4, 8]), atol=scale * 0.005 * 10.9 / 150)
    assert [g.get("class") for g in root.iter("g") if g.get("data-label")] == ["line", "dots", "band"]


def test_a_drawing_shows_text_as_text_and_carries_no_style_or_foreign_id():
    name = '</svg><script>alert(1)</script> $\\frac{" &\x00\n\udc80'
    marks = [
        Line(np.arange(3.0), np.arange(3.0), "blue", name),
        Dots(np.arange(3.0), np.ones(3), "ink", "d", tips=[name] * 3),
    ]
    chart = Chart(name, marks, name, across=name, up=name, names=[name, "b", "c"])
    text = str(svg(chart, "chart-7"))
    root = ET.fromstring(text)
    attributes = {name for one in root.iter() for name in one.attrib}
    assert "script" not in {one.tag for one in root.iter()} and "style" not in attributes
    assert [one.get("id") for one in root.iter() if one.get("id")] == ["chart-7-clip"]
    assert any("<script>" in (one.text or "") for one in root.iter("text"))
    colours = {value for one in root.iter() for a, value in one.items() if a in ("fill", "stroke")}
    assert colours <= {"none"} | {f"var(--{colour})" for colour in COLOURS}


def test_dots_of_every_mark_have_a_size():
    """matplotlib defines a dot once for all marks of its size."""
    sizes = [5.0, 5.0, 8.0, 5.0, 8.0]
    marks = [Dots(np.array([float(k)]), np.ones(1), "blue", f"mark {k}", size) for k, size in enumerate(sizes)]
    root = ET.fromstring(str(svg(Chart("dots", marks, "dots"), "one")))
    drawn = [float(path.attrib["stroke-width"]) for g in root.iter("g") if g.get("class") == "dots" for path in g]
    np.testing.assert_allclose(drawn, sizes, rtol=0.05)


@pytest.mark.parametrize("names", [["Auto", "MaRS", "ESGF"], ["MaRS (paper)", "AReS (paper)", "Moments"] * 3])
def test_names_below_a_chart_do_not_run_into_each_other(names):
    marks = [Dots(np.arange(len(names), dtype=float), np.ones(len(names)), "blue", "fits")]
    figure = plot([Chart("seconds", marks, "seconds", names=names)])
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    lines = [
        [
            box
            for box, text in zip(boxes, figure.axes[0].get_xticklabels(), strict=True)
            if ("\n" in text.get_text()) == low
        ]
        for low in (False, True)
    ]
    for line in lines:
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(line))
    assert bool(lines[1]) == (len(names) > 3)
    assert min(box.y0 for box in boxes) > 0  # none leaves the figure


def test_dates_stand_on_axes_where_the_data_have_dates(tmp_path):
    series = [{"origin": "2020-03-01", "name": None}, {"origin": "2020-03-01", "name": None}]
    record = make_record(time_unit="day", series=series)
    numbers = path_numbers(record)
    expected = np.datetime64("2020-03-01", "s") + np.round(86400 * numbers["time"]).astype("timedelta64[s]")
    np.testing.assert_array_equal(numbers["date"], expected)
    chart = FIGURES["states"].draw(record)[1][0]
    text = str(svg(chart, "one"))
    assert chart.dates and 'data-dates="1"' in text and "Mar" in text
    days = chart.marks[1].x
    np.testing.assert_allclose(days, (expected[:12] - np.datetime64(0, "s")) / np.timedelta64(1, "D"))
    write_fit(record, tmp_path / "r.html")
    assert read_csv(tmp_path / "r_data" / "states.csv")["date"][0].startswith("2020-03-0")
    # Years that no calendar axis can show stay numbers.
    ancient = make_record(time_unit="year", series=[{"origin": "-40000-01-01"}] * 2)
    assert "date" not in path_numbers(ancient)


def test_many_series_are_drawn_together_and_summarised(tmp_path):
    record = make_record(lengths=(6,) * 30, samples=0)
    _, charts = FIGURES["states"].draw(record)
    assert [chart.title for chart in charts] == ["prey, 30 of 30 series", "predator, 30 of 30 series"]
    for i, line in enumerate(charts[1].marks):
        np.testing.assert_array_equal(line.y, record["mean"][i, :, 1])
    page = read_page(write_fit(record, tmp_path / "r.html").read_text(encoding="utf-8"))
    rows = [row for row in page.tables["observations"] if row]
    counts = np.sort(np.isfinite(record["values"][..., 0]).sum(axis=1))
    assert [row[0] for row in rows] == ["least", "median", "most"]
    assert [int(row[4]) for row in rows] == [counts[0], counts[14], counts[29]]
    assert len(read_csv(tmp_path / "r_data" / "observations.csv")["series"]) == 30


# The verdict


def judged(words, hints=(), **facts):
    """A record whose intervals say these words of a and b, and whose residual checks say these hints."""
    known = {"names": ["a", "b"], "identifiability": list(words), "sentences": [], "notes": [], "level": 0.9}
    known |= {name: [0.0, 0.0] for name in ("estimate", "lower", "upper", "std")}
    diagnosis = {"checks": [], "hints": list(hints), "residuals": [np.zeros((12, 2)), np.zeros((9, 2))], "drift": {}}
    record = make_record(diagnosis=diagnosis, **facts)
    record.facts["intervals"] = known
    return record


def test_the_verdict_is_good_only_if_nothing_objects():
    good = verdict(judged(["identified", "identified"]))
    assert good.tone == "good" and good.headline == "The fit converged. 2 of 2 quantities are estimated well."
    assert [group.title for group in good.groups] == ["Estimated well"] and good.groups[0].items[0].startswith("a = ")
    rough = verdict(judged(["identified", "not identified"]))
    assert rough.tone == "caution" and [group.tone for group in rough.groups] == ["good", "bad"]
    hint = verdict(judged(["identified", "identified"], ["Residuals of `x` are wider."]))
    assert hint.tone == "caution" and hint.objections == ["Residuals of `x` are wider."]
    assert hint.headline.endswith("and 1 check objects.")
    failed = {"name": "not_converged", "message": "It stopped.", "remedy": "Go on.", "severity": "failure"}
    lost = verdict(judged(["identified", "identified"], status=failed))
    assert lost.tone == "bad" and (lost.headline, lost.remedy) == ("It stopped.", "Go on.")
    bound = {"name": "at_bound", "message": "a is on its bound.", "remedy": "Widen it.", "severity": "warning"}
    bound = verdict(judged(["identified", "identified"], status=bound, checks=[bound]))
    assert bound.tone == "caution"
    assert bound.objections == ["a is on its bound. Widen it."]
    unknown = verdict(make_record())
    assert unknown.tone == "caution" and "No intervals were computed" in unknown.sentence


def test_the_forest_puts_every_interval_on_one_scale():
    record = make_record()
    found = forest_numbers(record)
    assert found["quantity"].tolist() == ["a", "b"]  # a fixed parameter has no interval
    np.testing.assert_array_equal(found["estimate"], record["params"][:2])
    np.testing.assert_array_equal(found["truth"], [1.0, 2.0])
    (chart,) = forest_charts(found)
    assert chart.rows == ["a", "b"]
    line, _, truth = chart.marks
    size = np.abs(found["estimate"])
    np.testing.assert_allclose(line.x[0::3], 100 * (found["lower"] - found["estimate"]) / size)
    np.testing.assert_allclose(truth.x, 100 * (np.array([1.0, 2.0]) - found["estimate"]) / size)
    found["truth"][0] = np.nan  # a point that is not drawn takes its words with it
    root = ET.fromstring(svg(forest_charts(found)[0], "one"))
    (truth,) = [json.loads(g.get("data-tips")) for g in root.iter("g") if g.get("data-label") == "truth"]
    assert truth == ["b: truth 2.000"]
    assert "truth" not in forest_numbers(make_record(truth=False))
    assert forest_numbers(make_record(intervals=False)) == {}


@pytest.mark.parametrize(("facts", "title"), [
    ({"name": "lotka_volterra", "provenance": {"data": "obs.csv"}}, "Lotka-Volterra fitted to obs.csv"),
    ({"name": "model", "provenance": {"data": "obs.csv"}}, "Model of prey, predator fitted to obs.csv"),
    ({"name": "two species"}, "two species, fitted"),
])  # fmt: skip
def test_titles_name_the_model_and_the_data(facts, title):
    assert fit_page(make_record(**facts)).title == title


def test_names_in_backticks_are_set_as_code(tmp_path):
    text = write_fit(judged(["identified"] * 2, ["Look at `<x>`."]), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Look at <code>&lt;x&gt;</code>." in text and "`" not in re.sub("<script>.*</script>", "", text, flags=re.S)


def test_every_colour_has_a_light_and_a_dark_value():
    css = Path(sys.modules["sdefit.report"].__file__).with_name("page.css").read_text()
    for name, light in COLOURS.items():
        assert css.count(f"--{name}: #") == 2, name
        assert f"--{name}: {light}" in css


def test_matplotlib_draws_the_same_numbers():
    record = make_record(lengths=(12,))
    figure = plot_fit(record)
    lines = {line.get_label(): line for line in figure.axes[1].get_lines()}
    np.testing.assert_array_equal(lines["smoothed state"].get_ydata(), record["mean"][0, :, 1])
    np.testing.assert_array_equal(lines["true path"].get_ydata(), record["path"][0, :, 1])
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules
    for kind in FIGURES.keys() - {"profile", "residuals", "quantiles", "drift"}:  # make_record has none
        assert plot_fit(record, kind).axes
    with pytest.raises(InputError, match="no numbers for the figure 'profile'; no profiles were found or stored"):
        plot_fit(record, "profile")


def test_an_unknown_figure_is_refused_by_name():
    with pytest.raises(InputError, match=r"kind must be one of estimates, states, .*, not 'pie'"):
        plot_fit(make_record(), "pie")
    with pytest.raises(InputError, match="no numbers for the figure 'derivatives'"):
        plot_fit(make_record(samples=0), "derivatives")


# The page


def test_the_page_and_its_csv_files_hold_the_records_numbers(tmp_path):
    record = make_record()
    write_fit(record, tmp_path / "report.html")
    page = read_page((tmp_path / "report.html").read_text(encoding="utf-8"))
    rows = [row for row in page.tables["parameters"] if row]
    assert [row[0] for row in rows] == ["a", "b", "level"]
    np.testing.assert_array_equal([float(row[1]) for row in rows], record["params"])
    lower = [one["lower"] for one in record.facts["summary"]]
    np.testing.assert_array_equal([float(row[2]) for row in rows], lower)
    np.testing.assert_array_equal([float(row[4]) for row in rows], [1.0, 2.0, np.nan])
    noise = [row for row in page.tables["noise"] if row]
    np.testing.assert_array_equal([float(row[1]) for row in noise], record["noise"])
    data = tmp_path / "report_data"
    np.testing.assert_array_equal(as_floats(read_csv(data / "parameters.csv")["estimate"]), record["params"])
    np.testing.assert_array_equal(as_floats(read_csv(data / "diffusion.csv")["GGt"]), record["GGt"].ravel())
    for name, numbers in {"states": path_numbers(record), "derivatives": derivative_numbers(record)}.items():
        stored = read_csv(data / f"{name}.csv")
        assert list(stored) == list(numbers)
        for column in set(numbers) - {"series", "state"}:
            np.testing.assert_array_equal(as_floats(stored[column]), numbers[column])


def test_the_page_fetches_nothing_and_its_ids_are_its_own(tmp_path):
    text = write_fit(make_record(), tmp_path / "r.html").read_text(encoding="utf-8")
    page = read_page(text)
    assert page.fetched == ["data:,"]
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    for target in re.findall(r'(?:href="|url\()#([\w-]+)', text):
        assert target in page.ids
    for name in re.findall(r'href="(r_data/\w+\.csv)"', text):
        assert (tmp_path / name).exists()


def test_names_are_shown_as_text_never_as_markup(tmp_path):
    record = make_record(states=("<b>x</b>", 'y"&'), name="<script>alert(1)</script>", notes=["</p><img src=x>"])
    text = write_fit(record, tmp_path / "r.html").read_text(encoding="utf-8")
    assert text.count("<script>") == 1 and "<img" not in text and "<b>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_a_report_without_truth_or_intervals_says_neither(tmp_path):
    text = write_fit(make_record(truth=False, intervals=False), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "truth" not in text.replace(".true", "") and "true path" not in text and "90 % from" not in text


def test_the_summary_counts_true_values_inside_intervals():
    record = make_record()
    lower, upper = np.array([[one["lower"], one["upper"]] for one in record.facts["summary"][:2]]).T
    inside = int(np.sum((lower <= [1, 2]) & (upper >= [1, 2])))
    assert f"{inside} of 2 true values lie inside their 90 % intervals." in fit_page(record).verdict.sentence


def test_a_failed_fit_still_has_its_report_with_the_remedy(tmp_path):
    status = {
        "name": "not_finite",
        "message": "It is not finite.",
        "remedy": "Rescale the data.",
        "severity": "failure",
    }
    record = make_record(status=status)
    lost = ("mean", "std", "params", "G", "GGt", "H", "noise", "trace_loss", "trace_theta", "trace_derivatives_data")
    arrays = {n: (d, np.full_like(a, np.nan) if n in lost else a) for n, (d, a) in record.arrays.items()}
    text = write_fit(Record(arrays, record.facts), tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'class="status bad"' in text and "It is not finite." in text and "Rescale the data." in text
    assert re.findall(r"(?<!is)nan(?!ce)", text.lower().replace('data-value="nan"', "")) == []


def test_an_ode_has_no_diffusion_on_its_page():
    page = fit_page(make_record(diffusion="none"))
    assert "diffusion" not in [getattr(block, "name", "") for block in page.sections[0].blocks]


def test_a_page_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"^the report .*r\.html cannot be written: [^\n]+$"):
        write_fit(make_record(), tmp_path / "file" / "r.html")


def test_many_points_are_thinned_on_the_page_but_not_in_the_csv(tmp_path):
    record = make_record(lengths=(20_000,), states=("x",), samples=0)
    page = write_fit(record, tmp_path / "r.html")
    assert page.stat().st_size < 400_000
    assert len(read_csv(tmp_path / "r_data" / "states.csv")["mean"]) == 20_000


def test_to_ask_for_a_page_loads_neither_matplotlib_nor_jax():
    code = "import sys, sdefit.report; sys.exit(any(m in sys.modules for m in ('matplotlib', 'jax', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-1.25, "−1.250"), (123456.7, "123457"), (1e-7, "1.000e−7"), (np.nan, "–"), (np.inf, "∞")],
)
def test_numbers_read_well(value, text):
    assert number(value) == text
    assert float(cell(value).value) == value or np.isnan(value)


# Mathematics


def flat(element):
    """The text of a MathML tree on one line."""
    return "".join(element.itertext())


@pytest.mark.parametrize("diffusion", ["full", "diagonal", "scalar", "none"])
def test_models_print_as_mathml(diffusion):
    text = "dprey = a*prey**2/(1 + k_on) - exp(-prey)*sqrt(abs(theta_1))\ndz = -z*2.5e-7 + tanh(z) - (a - z)/prey"
    root = mathml(equations(text, diffusion=diffusion))
    first, second = root.findall(".//mtr")
    assert len(root.findall(".//mfrac")) == 2 and len(root.findall(".//msqrt")) == 1
    assert flat(first).startswith("dprey=(aprey2") and flat(second).startswith("dz=(−z(2.5·10−7)+tanh(z)−")
    noise = {"full": "+G2,1dw1+G2,2dw2", "diagonal": "+G2,2dw2", "scalar": "+gdw2", "none": ""}[diffusion]
    assert flat(second).endswith("dt" + noise)


def test_one_state_has_one_g_and_a_python_function_is_written_f():
    assert flat(mathml(equations("dx = a*(b - x)"))) == "dx=(a(b−x))dt+Gdw"
    from sdefit.dynamics.sde import SDE

    assert flat(mathml(SDE(len, ["x", "y"], {"a": 1.0}))) == "dx=f(t,x,θ)dt+Gdw"


def test_mathml_keeps_the_meaning_of_brackets():
    formulas = {
        "-(x + a)": "−(x+a)", "(x + a)*b": "(x+a)b", "x - (a - b)": "x−(a−b)", "(a*b)**2": "(ab)2", "2*3": "2·3",
        "a*-x": "a(−x)",
    }  # fmt: skip
    for text, shown in formulas.items():
        assert flat(mathml(equations(f"dx = {text} + a - b", diffusion="none"))) == f"dx=({shown}+a−b)dt"


def test_a_formula_too_deep_to_draw_is_shown_as_text(tmp_path):
    deep = "dx = x" + "/x" * 900
    with pytest.raises(ValueError, match="nested"):
        mathml(equations(deep))
    model = {"name": "m", "equations": deep, "states": ["x"], "diffusion": "full", "inputs": [], "hold": "linear"}
    text = write_fit(make_record(model=model | {"parameters": {}}), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<math" not in text and "<pre>dprey = a*prey</pre>" in text


def test_markup_of_a_model_is_made_from_its_equations_only(tmp_path):
    model = {"name": "m", "equations": "dx = a*x", "states": ["x"], "diffusion": "full", "inputs": [], "hold": "linear"}
    record = make_record(model=model | {"parameters": {"a": {}}}, latex="<img src=x>")
    text = write_fit(record, tmp_path / "r.html").read_text(encoding="utf-8")
    assert '<math display="block">' in text and "<img" not in text


def test_without_a_home_a_report_is_made_in_silence(tmp_path):
    fit(relaxing(), ou_series(1), Moments(starts=2, iterations=20)).save(tmp_path / "fit.nc")
    code = f"import sys; from sdefit.cli.app import run; sys.exit(run(['report', {str(tmp_path / 'fit.nc')!r}]))"
    nowhere = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/proc/none", "XDG_CONFIG_HOME": "/proc/none"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | nowhere, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout == f"{tmp_path / 'report.html'}\n"


def test_cells_that_a_spreadsheet_would_run_are_text(tmp_path):
    record = make_record(states=("=cmd()", "@x"), notes=["-1"])
    write_fit(record, tmp_path / "r.html")
    assert set(read_csv(tmp_path / "r_data" / "noise.csv")["state"]) == {"'=cmd()", "'@x"}


def test_derivatives_of_a_series_that_was_fitted_beside_longer_ones_are_drawn():
    record = make_record()
    longer = {
        name: (dims, np.concatenate([a, np.full_like(a[:, :, :3], 7.0)], axis=2))
        if "derivatives" in name
        else (dims, a)
        for name, (dims, a) in record.arrays.items()
    }
    found, expected = derivative_numbers(Record(longer, record.facts)), derivative_numbers(record)
    assert expected and found.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column)
