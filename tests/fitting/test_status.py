"""The status of a fit: which checks object, in which order, and that it agrees with what is shown beside it."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from contract import KEY, ou_series, relaxing
from sdefit.data import Series
from sdefit.diagnosis import check_residuals, checks
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import interval, positive, real
from sdefit.fitting import fit, fit_each, load
from sdefit.inference.residuals import Residuals
from sdefit.methods.esgf import ESGF
from sdefit.methods.moments import Moments
from sdefit.result import SEVERITY, STATUS, TOO_FEW, Code, Status, worst_first

QUICK = Moments(starts=2, iterations=40)


def names(one) -> list[str]:
    return [check.name for check in one.checks]


# --- what a status is ------------------------------------------------------------------------------------------


def test_checks_come_worst_first():
    found = [STATUS[Code.NOT_CONVERGED], TOO_FEW, STATUS[Code.DRIFT_NOT_FINITE]]
    assert [one.name for one in worst_first(found)] == [
        "drift_not_finite",
        "too_few_observations",
        "not_converged",
    ]
    assert len(set(SEVERITY)) == len(SEVERITY)
    assert {status.name for status in STATUS.values()} <= set(SEVERITY)


def test_a_warning_does_not_say_that_numbers_cannot_be_trusted():
    assert Status("at_bound", "It is at a bound.", severity="warning").ok
    assert not STATUS[Code.NOT_CONVERGED].ok


# --- bounds ----------------------------------------------------------------------------------------------------


def test_estimates_on_bounds_say_so():
    """Rate 0.8 and level 1 lie outside these intervals: both estimates end at an end."""
    model = equations("dx = rate*(level - x)", params={"rate": interval(2.0, 3.0), "level": interval(-3.0, -2.0)})
    one = fit(model, ou_series(1, rows=60), key=KEY)
    (at_bound,) = [check for check in one.checks if check.name == "at_bound"]
    assert "level" in at_bound.message and at_bound.remedy
    assert str(at_bound) in str(one)


def test_an_estimate_between_its_bounds_says_nothing():
    model = equations("dx = rate*(level - x)", params={"rate": interval(0.01, 5.0), "level": interval(-3.0, 4.0)})
    assert "at_bound" not in names(fit(model, ou_series(1, rows=60), key=KEY))


# --- what the drift does not depend on -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "method"),
    [("dx = 1e-200*a - x", ESGF(starts=1)), ("dx = a - a - b*x", QUICK), ("dx = a*b - x", QUICK)],
)
def test_status_and_table_agree_on_what_cannot_be_identified(equation, method):
    one = fit(equations(equation), ou_series(1, rows=40), method, key=KEY)
    assert one.status.name == "unidentifiable" and not one.status.ok
    words = one.intervals(draws=0)
    assert words.identifiability[words.names.index("a")] == "not identified"


# --- residuals -------------------------------------------------------------------------------------------------


def test_holm_is_that_of_the_textbook():
    """Of 4 p-values the least counts four times, the next three times; none is less than one before it."""
    np.testing.assert_allclose(checks.holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    assert checks.holm(np.zeros(0)).size == 0


def residuals_of(z: np.ndarray) -> Residuals:
    """Residuals z of a process in two states whose drift and gaps raise no alarm of their own."""
    z = z[None]
    state, gap = np.cumsum(np.ones_like(z), axis=1), np.ones(z.shape[:2])
    return Residuals(*(jnp.asarray(a) for a in (z, z, np.ones_like(z), state, 0 * z, gap, 0 * gap)))


def test_a_right_model_is_rejected_once_in_a_hundred_times():
    """All twelve checks of two states at once. Holm's method rejects any in at most 1 %, and each alone at 1 % in more.

    Jarque-Bera is not quite chi-squared at 200 residuals, nor are the tests independent: 4 % are allowed in 400
    repetitions, where twelve checks at 1 % each would come to 8 % or so.
    """
    model = equations("dx = -x\ndy = -y")
    rng, any_at_all, any_alone = np.random.default_rng(1), 0, 0
    for _ in range(400):
        found = check_residuals(model, residuals_of(rng.standard_normal((200, 2))))
        any_at_all += any(not check.ok for check in found)
        any_alone += any(check.p < 0.01 for check in found)
    assert any_at_all <= 16 < any_alone


def test_a_wrong_model_is_still_rejected():
    model = equations("dx = -x\ndy = -y")
    rng = np.random.default_rng(2)
    z = rng.standard_normal((200, 2))
    z[:, 1] = np.convolve(rng.standard_normal(201), [0.9, 0.6], "valid")  # follow each other
    bad = [check for check in check_residuals(model, residuals_of(z)) if not check.ok]
    assert [(check.name, check.state) for check in bad] == [("autocorrelation", "y")]


def test_status_and_diagnosis_speak_with_one_voice():
    """A straight line through two wells: the status rejects what the diagnosis does, and is the same when asked."""
    rng, x, path = np.random.default_rng(3), 0.1, []
    for _ in range(150):
        path.append(x)
        for _ in range(20):
            x = x + 0.01 * 8 * x * (1 - x * x) + 0.1 * 0.6 * rng.standard_normal()
    one = fit(equations("dx = a"), Series(0.2 * np.arange(150), np.array(path)), QUICK, key=KEY)
    before = (one.status, one.checks)
    bad = [check for check in one.diagnose().checks if not check.ok and check.state]
    (said,) = [check for check in one.checks if check.name == "residuals_rejected"]
    assert bad and all(f"{check.name} of {check.state}" in said.message for check in bad)
    assert (one.status, one.checks) == before and one.status.ok


def test_the_default_says_nothing_of_errors_that_the_checks_do_not():
    one = fit(relaxing(), ou_series(1), key=KEY)
    assert not any("Gaussian" in note for note in one.notes if "far from" not in note)


# --- through a file, and in a batch ----------------------------------------------------------------------------


def test_checks_come_back_from_a_file_and_from_a_batch(tmp_path):
    one, other = fit_each(relaxing(), [ou_series(1, rows=3), ou_series(1)], QUICK, key=KEY)
    assert one.status == one.checks[0] and one.status.name == "too_few_observations"
    assert "too_few_observations" not in names(other)
    one.save(tmp_path / "fit.nc")
    assert load(tmp_path / "fit.nc").checks == one.checks


def test_inducing_values_are_no_log_likelihoods_of_starts():
    from sdefit.methods.npsde import NPSDE

    model = equations("dx = rate*(level - x)", params={"rate": positive(), "level": real()})
    one = fit(model, ou_series(1, rows=30), NPSDE(), key=KEY)
    assert one.method.search_values(one.estimate) is None and "starts_disagree" not in names(one)


def test_quantiles_of_chi_squared_are_those_of_the_normal_distribution():
    assert checks.chi_squared_tail(1.5**2, 1) == pytest.approx(2 * norm.sf(1.5), rel=1e-12)
