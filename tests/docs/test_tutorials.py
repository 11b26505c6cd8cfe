"""The tutorials on real data run as written, and what they find is what their pages say.

A page shows the table of intervals that it printed when it was written. Here it is run again, and each number is
compared with the one shown, on the scale of the interval itself. The key is the same, so only rounding, another
processor or another release of JAX can move a number, by way of where a search stops: an estimate may move by a
twentieth of the interval's width. Its ends are 5 % quantiles of the draws. For n = 100 and normal errors the standard
error of one is sqrt(0.05 * 0.95 / 100) / 0.103 = 0.21 standard deviations, 0.064 widths of a 90 % interval; twice that
is allowed: some draws may end elsewhere, not all of them.
"""

import csv
import functools
import re
from pathlib import Path

import numpy as np
import pytest
from test_docs import ROOT, TUTORIALS, run

import sdefit as sf

DATA = ROOT / "docs" / "data"
NUMBER = r"\s*(-?[\d.]+(?:e-?\d+)?)"
ROW = re.compile(rf"^  (\S+) {NUMBER}  \({NUMBER},{NUMBER}\)  ([a-z ]+)$", re.MULTILINE)
ESTIMATE, END = 0.05, 0.13  # shares of the width of an interval, derived above


def claims(page: Path) -> list[tuple[str, float, float, float, str]]:
    """The rows of the table that a page shows: name, estimate, lower, upper, verdict."""
    rows = ROW.findall(page.read_text(encoding="utf-8"))
    return [(name, float(value), float(lower), float(upper), told) for name, value, lower, upper, told in rows]


@pytest.fixture(params=TUTORIALS, ids=lambda page: page.stem)
def tutorial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A page, the file of the fit that its Python lines saved, and of the one that its command wrote."""
    return request.param, *_fits_of(request.param, tmp_path_factory.getbasetemp())


@functools.cache  # tests of one page need not follow each other, and a fixture is made anew when its page changes
def _fits_of(page: Path, base: Path) -> tuple[Path, Path]:
    folder = base / page.stem
    folder.mkdir()
    reader = run(page, folder)
    assert (reader / f"{page.stem}.html").stat().st_size > 10_000
    assert (reader / page.stem / "report.html").stat().st_size > 10_000
    return reader / f"{page.stem}.nc", reader / page.stem / "fit.nc"


@pytest.mark.docs
def test_a_page_shows_what_it_finds(tutorial: tuple[Path, Path, Path]) -> None:
    page, saved, _ = tutorial
    found = {row["quantity"]: row for row in sf.Intervals.load(saved).table()}
    shown = claims(page)
    assert [name for name, *_ in shown] == list(found)
    for name, estimate, lower, upper, verdict in shown:
        width = upper - lower
        assert abs(found[name]["estimate"] - estimate) <= ESTIMATE * width + 5e-4 * abs(estimate), name
        assert abs(found[name]["lower"] - lower) <= END * width, name
        assert abs(found[name]["upper"] - upper) <= END * width, name
        assert found[name]["identifiability"] == verdict, name


@pytest.mark.docs
def test_the_command_finds_the_same(tutorial: tuple[Path, Path, Path]) -> None:
    page, saved, command = tutorial
    fit, intervals = sf.load(saved), sf.Intervals.load(saved)
    for name, value in sf.load(command).params.items():
        lower, upper = intervals[name]
        assert abs(value - fit.params[name]) <= ESTIMATE * (upper - lower), f"{page.stem}: {name}"


@pytest.mark.docs
def test_the_checks_object_to_what_the_page_says(tutorial: tuple[Path, Path, Path]) -> None:
    page, saved, _ = tutorial
    checks = sf.Diagnosis.load(saved).checks
    objections = {check.name for check in checks if not check.ok}
    if page.stem == "ice_core":  # whose autocorrelation is, as the page says, at the edge
        assert 0.007 < next(check.p for check in checks if check.name == "autocorrelation") < 0.013
        objections.discard("autocorrelation")
    expected = {
        "hare_lynx": set(),
        "us_rate": {"normality"},
        "ice_core": {"normality"},
        "el_nino": {"normality", "autocorrelation"},
    }
    assert objections == expected[page.stem]


@pytest.mark.docs
def test_derived_numbers_follow(tutorial: tuple[Path, Path, Path]) -> None:
    page, saved, _ = tutorial
    fit = sf.load(saved)
    p = fit.params
    if page.stem == "hare_lynx":
        derived = [2 * np.pi / np.sqrt(p["birth"] * p["death"]), p["death"] / p["growth"], p["birth"] / p["eaten"]]
        np.testing.assert_allclose(derived, [9.8, 33, 20], rtol=0.02)
    if page.stem == "el_nino":
        np.testing.assert_allclose([1 / p["rate"], fit.G[0, 0] / np.sqrt(2 * p["rate"])], [0.93, 1.08], rtol=0.02)
    if page.stem == "us_rate":
        np.testing.assert_allclose(np.log(2) / p["speed"], 14, rtol=0.02)
    if page.stem == "ice_core":
        cubic = np.array([-p["b"], p["c"], p["a"], p["push"]])
        rests = np.roots(cubic)
        np.testing.assert_allclose(rests[np.isreal(rests)].real - 40, [-38.2], atol=0.1)
        assert 0.15 < np.polyval(cubic, np.linspace(-1.5, -0.5, 101)).min() < 0.25
        residuals = sf.Diagnosis.load(saved).residuals[0]
        assert (int(np.sum(residuals > 2.7)), int(np.sum(residuals < -2.7))) == (5, 1)


def test_pages_show_a_table() -> None:
    # Guards the pattern: a table that it did not recognise would leave nothing to compare.
    assert [len(claims(page)) for page in TUTORIALS] == [4, 10, 7, 5]


def test_the_sea_swings_back_as_the_page_says() -> None:
    with (DATA / "el_nino.csv").open(encoding="utf-8") as file:
        x = np.array([float(row["anomaly"]) for row in csv.DictReader(file)])
    left = [np.mean(x[n:] * x[:-n]) / np.mean(x**2) for n in (1, 6, 12, 18)]
    np.testing.assert_allclose(left, [0.92, 0.40, -0.04, -0.16], atol=0.005)
    np.testing.assert_allclose([x.std(), x.max(), x.min()], [1.08, 4.6, -2.4], atol=0.04)


@pytest.fixture(scope="module")
def rate() -> np.ndarray:
    with (DATA / "us_10_year_rate.csv").open(encoding="utf-8") as file:
        return np.array([float(row["rate"]) for row in csv.DictReader(file)])


def test_the_size_of_changes_is_what_the_page_says(rate: np.ndarray) -> None:
    before, changes = rate[:-1], np.diff(rate) * np.sqrt(12)
    low, high = np.quantile(before, [1 / 3, 2 / 3])
    thirds = [before < low, (before >= low) & (before < high), before >= high]
    np.testing.assert_allclose([changes[third].std() for third in thirds], [0.81, 0.89, 1.53], atol=0.01)
    months = 1962 + (np.arange(changes.size) + 1) / 12  # the end of the month at which a change starts
    wild = (months > 1979.74) & (months < 1982.99)  # from the end of September 1979
    np.testing.assert_allclose([changes[wild].std(), changes[~wild].std()], [2.65, 0.96], atol=0.01)
    # The published noise, averaged over the months kept here rather than over all days.
    np.testing.assert_allclose(np.sqrt(np.mean((0.5603 * rate**0.3364) ** 2)), 1.01, atol=0.01)


def test_maximum_likelihood_of_the_rate_is_the_regression_that_the_page_names(rate: np.ndarray) -> None:
    # Vasicek's model at equal gaps is an autoregression: rate' = level + exp(-speed*gap) (rate - level) + noise.
    # Months differ in length by 4 %, which moves the estimates by far less than a hundredth of their standard errors.
    slope, constant = np.polyfit(rate[:-1], rate[1:], 1)
    speed = -12 * np.log(slope)
    errors = rate[1:] - constant - slope * rate[:-1]
    G = np.sqrt(np.mean(errors**2) * 2 * speed / (1 - slope**2))
    np.testing.assert_allclose([speed, constant / (1 - slope), G], [0.0573, 5.31, 1.123], rtol=1e-3)
    model = sf.equations("drate = speed*(level - rate)", params={"speed": sf.positive()})
    series = sf.read_csv(DATA / "us_10_year_rate.csv", time="date", states=["rate"], time_unit="year")
    plain = sf.fit(model, series, "esgf")
    np.testing.assert_allclose([plain.params["speed"], plain.params["level"]], [0.0573, 5.31], rtol=2e-3)
    np.testing.assert_allclose(plain.G[0, 0], 1.124, rtol=1e-3)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.csv")), ids=lambda path: path.stem)
def test_shipped_data_are_small_and_told_about(path: Path) -> None:
    text = (DATA / "README.md").read_text(encoding="utf-8")
    told = text.partition(f"## {path.name}\n")[2].partition("\n## ")[0]
    assert path.stat().st_size <= 60_000
    assert "**Source**" in told
    assert "**Terms**" in told
    rows = len(path.read_text(encoding="utf-8").splitlines()) - 1
    assert f"({rows} rows)" in told
