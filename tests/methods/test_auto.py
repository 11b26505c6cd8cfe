"""The default method: what it says of itself, and when it hands over to matching."""

import functools

import numpy as np
import pytest

from contract import KEY, ou_series, relaxing
from sdefit import methods
from sdefit.data import Series
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import fixed, positive, real
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.simulate import simulate
from sdefit.dynamics.systems import double_well
from sdefit.errors import ModelError
from sdefit.fitting import fit, fit_each
from sdefit.methods.auto import Auto
from sdefit.methods.esgf import ESGF
from sdefit.methods.mars import MaRS


def spiky(seed: int) -> Series:
    """A series in which two observations are thirty noise levels off: no Gaussian belief predicts them."""
    one = ou_series(seed, rows=60)
    values = one.values.copy()
    values[[20, 41], 0] += [1.5, -1.5]
    return Series(one.times, values)


def test_it_is_the_default():
    assert methods.get(methods.DEFAULT) is Auto


def test_it_is_the_highest_likelihood_and_says_so():
    found = fit(relaxing(), ou_series(1), key=KEY)
    alone = fit(relaxing(), ou_series(1), ESGF(starts=4, weak=True), key=KEY)
    assert found.status.ok and found.method == Auto()
    assert found.params == alone.params and found.log_likelihood == alone.log_likelihood
    (said,) = found.notes
    assert said.startswith("Penalised maximum likelihood: ") and "4 starts agree" in said


@functools.cache
def bent() -> SDE:
    """A drift that is not linear: a Gaussian belief does not stay one."""
    return equations("dx = rate*(level - x**3)", params={"rate": positive(), "level": real()})


def test_it_returns_the_matching_answer_where_errors_are_not_gaussian():
    found = fit(bent(), spiky(1), key=KEY)
    alone = fit(bent(), spiky(1), MaRS(), key=KEY)
    assert found.params == alone.params and found.method == MaRS()
    assert "Gradient matching (MaRS)" in found.notes[-1] and "far from Gaussian (excess kurtosis" in found.notes[-1]


def test_what_the_data_do_not_tell_stays_within_reach():
    """A random walk tells nothing of where a double well's bottoms are: b runs off where only the likelihood counts."""
    rng = np.random.default_rng(52)
    walk = 0.3 * np.cumsum(rng.normal(size=40)) + 0.2 * rng.normal(size=40)
    series = Series(0.4 * np.arange(40), walk[:, None])
    found, alone = (fit(double_well(), series, method, key=KEY) for method in (Auto(), ESGF()))
    reach = 4 * found.estimate.state.scales
    assert abs(alone.params["b"]) > 100 * reach[1]
    assert found.status.ok and np.all(np.abs(found.estimate.theta) < reach)


def test_terms_that_cancel_may_be_larger_than_the_speed():
    """In both wells x − x³ is near 0: scales from the speed of the path are a tenth of what a and b are.

    With a prior of three such scales a is found at .73 and b at .77. One standard error of the mean of eight is .07.
    """
    model = equations("dx = a*x - b*x**3")
    times, G = np.linspace(0.0, 100.0, 401), np.array([[0.6]])
    truth = {"a": 1.0, "b": 1.0}
    series = simulate(model, truth, [0.0], times, G=G, noise=0.05, key=KEY, paths=8, step=0.25 / 40)
    fits = fit_each(model, series, key=KEY)
    assert all(one.status.ok for one in fits)
    np.testing.assert_allclose(np.mean([one.estimate.theta for one in fits], axis=0), 1.0, atol=0.18)


@pytest.mark.parametrize("offset", [300.0, -300.0])
def test_an_offset_of_the_state_changes_nothing_but_the_level(offset):
    """Natural scales of a rate are made from a level of 0, and would be far too small here: what is told is its own."""
    one = ou_series(1)
    here, there = (fit(relaxing(), Series(one.times, one.values + by), key=KEY).params for by in (0.0, offset))
    assert there["rate"] == pytest.approx(here["rate"], rel=1e-2)
    assert there["level"] - offset == pytest.approx(here["level"], abs=1e-2)


def test_a_linear_drift_keeps_the_likelihood_and_is_told_of_heavy_tails():
    found = fit(relaxing(), spiky(1), key=KEY)
    assert found.method == Auto() and found.status.ok
    assert "but the prediction errors are far from Gaussian (excess kurtosis" in found.notes[-1]


@pytest.mark.slow
def test_each_of_many_is_reviewed_by_itself():
    clean = ou_series(2, rows=60)
    one, other = fit_each(bent(), [clean, spiky(1)], key=KEY)
    assert isinstance(one.method, Auto) and isinstance(other.method, MaRS)
    assert one.notes[-1].startswith("Penalised maximum likelihood: ")
    assert other.notes[-1].startswith("Gradient matching (MaRS)")


def test_a_hostile_start_changes_nothing():
    """The user's start is one of several: thirty times too fast and on the wrong side, it does no harm."""
    near = fit(relaxing(), ou_series(1), key=KEY)
    far = fit(relaxing(), ou_series(1), key=KEY, start={"rate": 24.0, "level": -30.0})
    assert far.log_likelihood == pytest.approx(near.log_likelihood, abs=1e-3)
    np.testing.assert_allclose(list(far.params.values()), list(near.params.values()), rtol=1e-2)


def test_all_parameters_fixed_leaves_the_likelihood():
    model = equations("dx = rate*(level - x**3)", params={"rate": fixed(0.8), "level": fixed(1.0)})
    found = fit(model, spiky(1), key=KEY)
    assert found.method == Auto() and "not reliable here" in found.notes[-1]


def test_bad_settings_are_refused_in_one_line():
    with pytest.raises(ModelError, match="noise must be one of each, same, none, not 'some'"):
        Auto(noise="some")


@pytest.mark.slow
def test_its_profile_is_highest_where_it_ended():
    found = fit(relaxing(), ou_series(1), key=KEY)
    profile = found.profile("rate", points=9)
    assert profile.values[np.argmax(profile.log_likelihood)] == pytest.approx(found.params["rate"], rel=1e-3)
