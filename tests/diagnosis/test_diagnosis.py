"""Checks of residuals against closed forms and naive loops, and what a diagnosis says of right and wrong models."""

import dataclasses
import math

import numpy as np
import pytest

from contract import KEY, ou_series, relaxing
from sdefit.diagnosis import Diagnosis, checks
from sdefit.dynamics.equations import equations
from sdefit.errors import FileError
from sdefit.fitting import fit
from sdefit.methods.esgf import ESGF
from sdefit.methods.moments import Moments

ROWS = 80


@pytest.fixture(scope="module")
def checked():
    one = fit(relaxing(), ou_series(4, rows=ROWS), ESGF(starts=1, noise="none", boundary=0.0), key=KEY)
    return one, one.diagnose()


# --- atoms -----------------------------------------------------------------------------------------------------


def test_moments_of_a_sample():
    z = np.array([-1.0, 0.0, 1.0, 4.0])
    d = z - 1.0
    skew, kurtosis = np.mean(d**3) / np.mean(d**2) ** 1.5, np.mean(d**4) / np.mean(d**2) ** 2
    statistic, p = checks.jarque_bera(z)
    assert statistic == pytest.approx(4 / 6 * (skew**2 + (kurtosis - 3) ** 2 / 4), rel=1e-12)
    assert p == pytest.approx(math.exp(-statistic / 2), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_autocorrelation_is_the_naive_sum(seed):
    z = np.random.default_rng(seed).standard_normal(30)
    d = z - z.mean()
    naive = [sum(d[i] * d[i - k] for i in range(k, 30)) / sum(d * d) for k in (1, 2, 3)]
    np.testing.assert_allclose(checks.autocorrelation(z, 3), naive, rtol=1e-12)
    q = 30 * 32 * sum(r**2 / (30 - k) for k, r in zip((1, 2, 3), naive, strict=True))
    statistic, p = checks.ljung_box(z, 3)
    assert statistic == pytest.approx(q, rel=1e-12)
    # The tail of chi-squared with 3 degrees of freedom in closed form.
    tail = math.erfc(math.sqrt(q / 2)) + math.sqrt(2 * q / math.pi) * math.exp(-q / 2)
    assert p == pytest.approx(tail, rel=1e-9)


def test_tails_and_bands():
    assert checks.chi_squared_tail(3.0, 2) == pytest.approx(math.exp(-1.5), rel=1e-12)
    assert checks.mean_test(np.full(25, 0.2))[1] == pytest.approx(math.erfc(1 / math.sqrt(2)), rel=1e-9)
    inside, p = checks.coverage(np.array([0.0] * 9 + [3.0]), 0.9)
    assert inside == 0.9 and p == pytest.approx(1.0)
    normal, sorted_z = checks.quantiles(np.array([2.0, -1.0, 0.5]))
    np.testing.assert_allclose(normal, [-0.967421566, 0.0, 0.967421566], atol=1e-8)
    assert sorted_z.tolist() == [-1.0, 0.5, 2.0]


def test_p_values_are_uniform_under_the_null():
    """Of 400 normal samples, 10 % of p-values lie below .1, give or take 4 √(.09/400) = .06."""
    rng = np.random.default_rng(0)
    p = np.array([[f(z)[1] for f in (checks.mean_test, checks.variance_test)] for z in rng.standard_normal((400, 60))])
    assert np.all(np.abs(np.mean(p < 0.1, axis=0) - 0.1) < 0.06)


def test_binned_drift_finds_what_is_missing():
    """Residuals of a drift that lacks x² show it, bin by bin."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, 600)
    error = 0.1 * (x**2 - 4 / 3) + 0.01 * rng.standard_normal(600)
    found = checks.binned_drift(x, -x, error, np.full(600, 0.01), np.full(600, 0.1))
    # The means of x² − 4/3 over six equal parts of (−2, 2); their edges are quantiles of 600 draws.
    expected = [40 / 27, -8 / 27, -32 / 27]
    np.testing.assert_allclose(found["found"] - found["fitted"], [*expected, *expected[::-1]], atol=0.2)
    assert np.abs(found["z"]).min() > 3
    assert found["count"].sum() == 600


# --- a fit -----------------------------------------------------------------------------------------------------


def test_residuals_of_a_noiseless_ou_process_are_in_closed_form(checked):
    found, diagnosis = checked
    x, h = found.series[0].values[:, 0], 0.35
    rate, level, g2 = found.params["rate"], found.params["level"], found.GGt[0, 0]
    a = math.exp(-rate * h)
    z = (x[1:] - level - (x[:-1] - level) * a) / math.sqrt(g2 * (1 - a * a) / (2 * rate))
    mine = diagnosis.residuals[0][:, 0]
    assert np.isnan(mine[0])
    np.testing.assert_allclose(mine[1:], z, rtol=1e-4, atol=1e-4)


def test_a_right_model_passes_and_says_so(checked):
    _, told = checked
    names = ["mean", "spread", "normality", "autocorrelation", "coverage", "drift", "sampling"]
    assert [check.name for check in told.checks] == names
    # Each check speaks up one time in a hundred by chance; with this seed none does.
    assert told.ok, told
    assert "No check is rejected." in str(told)
    assert list(told.frame()["name"]) == names


@pytest.mark.slow
def test_a_wrong_model_is_seen_whatever_the_method():
    """A pull to 0 in two wells: a straight line cannot follow, and the residuals follow each other."""
    rng, x, path = np.random.default_rng(3), 0.1, []
    for _ in range(150):
        path.append(x)
        for _ in range(20):
            x = x + 0.01 * 8 * x * (1 - x * x) + math.sqrt(0.01) * 0.6 * rng.standard_normal()
    series = type(ou_series(1))(0.2 * np.arange(150), np.array(path))
    one = fit(equations("dx = a"), series, Moments(starts=2, iterations=40), key=KEY)
    told = one.diagnose()
    assert not told.ok
    assert any("`x`" in hint for hint in told.hints)


@pytest.mark.slow
def test_long_gaps_are_warned_of():
    t = np.arange(30.0) * 2
    rng = np.random.default_rng(5)
    series = type(ou_series(1))(t, 1 + 0.5 * rng.standard_normal(30))
    one = fit(relaxing(), series, Moments(starts=4, iterations=40), key=KEY, start={"rate": 2.0})
    sampling = one.diagnose().checks[-1]
    assert sampling.name == "sampling"
    assert sampling.value == pytest.approx(2 * one.params["rate"], rel=1e-6)
    assert sampling.ok == (sampling.value <= 1.0)


def test_figures_report_and_file(checked, tmp_path):
    found, diagnosis = checked
    for kind in ("residuals", "quantiles", "drift"):
        assert len(found.plot(kind).axes) == 1
    found.report(tmp_path / "fit.html", diagnosis=diagnosis)
    page = (tmp_path / "fit.html").read_text()
    assert "One-step residuals" in page
    found.save(tmp_path / "fit.nc", diagnosis=diagnosis)
    again = Diagnosis.load(tmp_path / "fit.nc")
    np.testing.assert_equal([dataclasses.asdict(c) for c in again.checks], diagnosis.table())
    for name in ("residuals", "quantiles", "autocorrelation", "drift"):
        np.testing.assert_equal(getattr(again, name), getattr(diagnosis, name))
    found.save(tmp_path / "plain.nc")
    with pytest.raises(FileError, match=r"plain.nc holds no diagnosis; fit.save\(path, diagnosis=...\) stores what"):
        Diagnosis.load(tmp_path / "plain.nc")
