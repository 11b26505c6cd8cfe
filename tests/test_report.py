"""The report shows what the record holds: every number, nothing from the network, in any state of a fit."""

import csv
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from sdefit.dynamics.equations import equations
from sdefit.errors import FileError, InputError
from sdefit.report import plot_fit, write_fit
from sdefit.report.charts import COLOURS, Chart, Line, log_ticks, thin, tick_labels, ticks
from sdefit.report.fit import FIGURES, fit_page
from sdefit.report.mathml import Unknown, mathml
from sdefit.report.numbers import derivative_numbers, diffusion_numbers, path_numbers, phase_numbers, trace_numbers
from sdefit.report.page import cell, number
from sdefit.report.svg import draw
from sdefit.store import Record

ROWS = ("series", "time", "state")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


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


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-7.3, 1e4), (1e-9, 3e-9), (1e6, 1e6 + 1), (-1e-3, 1e-3)])
def test_ticks_are_inside_even_and_few(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 8 and low <= found[0] and found[-1] <= high
    np.testing.assert_allclose(np.diff(found), found[1] - found[0], rtol=1e-6)
    assert len(set(tick_labels(found))) == len(found)


def test_tick_labels_share_their_decimals():
    assert tick_labels([-0.5, 0.0, 0.5]) == ["−0.5", "0.0", "0.5"]
    assert tick_labels([0.0, 250000.0]) == ["0", "2.5e5"]
    assert tick_labels(log_ticks(0.005, 20.0), log=True) == ["0.01", "0.1", "1", "10"]


def test_svg_is_well_formed_and_puts_points_where_they_belong():
    chart = Chart("<x> & y", [Line(np.array([0.0, 1, 2, 3]), np.array([0.0, 4, np.nan, 8]), "blue")], 'say "it"')
    root = ET.fromstring(draw(chart, "one"))
    path = next(p for p in root.iter("path") if p.get("class") == "line").get("d")
    points = np.array([[float(n) for n in pair.split()] for pair in re.findall(r"[ML]([\d. -]+)", path)])
    assert path.count("M") == 2  # broken where a number is missing
    # Pixels are an affine map of the numbers, upside down; drawn to one decimal.
    np.testing.assert_allclose(points[1, 0] - points[0, 0], (points[2, 0] - points[0, 0]) / 3, atol=0.11)
    np.testing.assert_allclose(points[0, 1] - points[1, 1], (points[0, 1] - points[2, 1]) / 2, atol=0.11)
    assert next(root.iter("text")).text == "<x> & y" and root.get("aria-label") == 'say "it"'


def test_every_colour_has_a_light_and_a_dark_value():
    css = Path(sys.modules["sdefit.report"].__file__).with_name("page.css").read_text()
    for name, light in COLOURS.items():
        assert css.count(f"--{name}: #") == 2, name
        assert name in ("muted", "purple") or f"--{name}: {light}" in css


def test_matplotlib_draws_the_same_numbers():
    record = make_record(lengths=(12,))
    figure = plot_fit(record)
    lines = {line.get_label(): line for line in figure.axes[1].get_lines()}
    np.testing.assert_array_equal(lines["smoothed state"].get_ydata(), record["mean"][0, :, 1])
    np.testing.assert_array_equal(lines["true path"].get_ydata(), record["path"][0, :, 1])
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules
    for kind in FIGURES.keys() - {"profile", "residuals", "quantiles", "drift"}:  # those must be asked for first
        assert plot_fit(record, kind).axes
    with pytest.raises(InputError, match="no numbers for the figure 'profile'.*fit.profile"):
        plot_fit(record, "profile")


def test_an_unknown_figure_is_refused_by_name():
    with pytest.raises(InputError, match=r"kind must be one of states, derivatives, .*, not 'pie'"):
        plot_fit(make_record(), "pie")
    with pytest.raises(InputError, match="no numbers for the figure 'derivatives'"):
        plot_fit(make_record(samples=0), "derivatives")


# The page


def test_the_page_and_its_csv_files_hold_the_records_numbers(tmp_path):
    record = make_record()
    write_fit(record, tmp_path / "report.html")
    page = read_page((tmp_path / "report.html").read_text(encoding="utf-8"))
    rows = [row for row in page.tables["estimates"] if row]
    assert [row[0] for row in rows] == ["a", "b", "level"]
    np.testing.assert_array_equal([float(row[1]) for row in rows], record["params"])
    lower = [one["lower"] for one in record.facts["summary"]]
    np.testing.assert_array_equal([float(row[2]) for row in rows], lower)
    np.testing.assert_array_equal([float(row[4]) for row in rows], [1.0, 2.0, np.nan])
    noise = [row for row in page.tables["noise"] if row]
    np.testing.assert_array_equal([float(row[1]) for row in noise], record["noise"])
    data = tmp_path / "report_data"
    np.testing.assert_array_equal(as_floats(read_csv(data / "estimates.csv")["estimate"]), record["params"])
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
    assert f"{inside} of 2 true values lie inside their 90 % intervals." in fit_page(record).sentence


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


def test_a_page_needs_neither_matplotlib_nor_jax():
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


@pytest.mark.parametrize("diffusion", ["full", "diagonal", "scalar", "none"])
def test_models_print_as_mathml(diffusion):
    text = "dprey = a*prey**2/(1 + k_on) - exp(-prey)*sqrt(abs(theta_1))\ndz = -z*2.5e-7 + tanh(z) - (a - z)/prey"
    model = equations(text, diffusion=diffusion)
    root = ET.fromstring(mathml(model.latex()))
    assert len(root.findall(".//mtr")) == 2
    assert len(root.findall(".//mfrac")) == 2 and len(root.findall(".//msqrt")) == 1
    assert "".join(root.itertext()).startswith("dprey=(")


@pytest.mark.parametrize("latex", [r"\input{x}", r"\frac{a}", "{", "a_", "<b>", "_a"])
def test_unknown_latex_is_refused(latex):
    with pytest.raises(Unknown):
        mathml(latex)


def test_a_page_with_unknown_latex_shows_the_text(tmp_path):
    record = make_record(latex=r"\unheard{x}")
    text = write_fit(record, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<math" not in text and "<pre>dprey = a*prey</pre>" in text


# In a browser


def browse(path, profile, *options):
    """The page's DOM after its scripts ran, and what the browser wrote to its console."""
    quiet = "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
    command = [CHROMIUM, "--headless", "--no-sandbox", *quiet.split(), "--disable-sync", "--enable-logging=stderr"]
    command += [f"--user-data-dir={profile}", *options, "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_in_a_browser_the_page_is_silent_and_sorts(tmp_path):
    record = make_record()
    path = write_fit(record, tmp_path / "report.html")
    probe = """<script>
      const head = document.querySelectorAll("#estimates thead button")[1];
      head.click(); head.click();
    </script></body>"""
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", probe), encoding="utf-8")
    dom, console = browse(path, tmp_path / "profile")
    assert console == []
    rows = [row for row in read_page(dom).tables["estimates"] if row]
    np.testing.assert_array_equal([float(row[1]) for row in rows], np.sort(record["params"])[::-1])
    assert 'aria-sort="descending"' in dom


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_in_a_browser_the_page_is_no_wider_than_a_phone(tmp_path):
    text = write_fit(make_record(states=("susceptible", "infectious", "recovered")), tmp_path / "r.html").read_text()
    phone = tmp_path / "phone.html"
    phone.write_text(
        f"""<iframe width="360" height="800" srcdoc="{escape(text)}"></iframe><script>
        const frame = document.querySelector("iframe");
        frame.onload = () => {{
          const page = frame.contentDocument.documentElement;
          const charts = [...page.querySelectorAll("svg.chart")].map((c) => c.clientWidth);
          const narrowest = Math.min(...charts.filter((width) => width));
          frame.remove();
          document.body.append(`page ${{page.scrollWidth}} chart ${{narrowest}} wide`);
        }};</script>""",
        encoding="utf-8",
    )
    dom, console = browse(phone, tmp_path / "profile")
    assert console == []
    page, chart = map(int, re.search(r"page (\d+) chart (\d+) wide", dom).groups())
    assert page <= 360 and chart > 280
