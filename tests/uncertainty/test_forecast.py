"""Forecasts of an Ornstein-Uhlenbeck fit against its closed form, and their scores on what came."""

import numpy as np
import pytest

from contract import KEY, ou_series, relaxing
from sdefit.data import Series
from sdefit.errors import DataError, InputError
from sdefit.fitting import fit
from sdefit.methods.moments import Moments

DRAWS = 4000
TAIL = 8


@pytest.fixture(scope="module")
def whole():
    return ou_series(2, rows=40)


@pytest.fixture(scope="module")
def found(whole):
    """A fit of all but the last rows."""
    kept = Series(whole.times[:-TAIL], whole.values[:-TAIL])
    return fit(relaxing(), kept, Moments(starts=4, iterations=40), key=KEY)


@pytest.fixture(scope="module")
def ahead(found, whole):
    return found.forecast(whole.times[-TAIL:], draws=DRAWS, key=KEY)


def test_mean_and_spread_are_those_of_the_process(found, whole, ahead):
    rate, level, g2 = found.params["rate"], found.params["level"], found.GGt[0, 0]
    x, s2 = found.mean[0][-1, 0], found.std[0][-1, 0] ** 2
    decay = np.exp(-rate * (ahead.times - whole.times[-TAIL - 1]))
    mean, variance = level + (x - level) * decay, s2 * decay**2 + g2 * (1 - decay**2) / (2 * rate)
    # Monte-Carlo errors of a mean and of a variance of 4000 draws; four of them, and 1 % for the scheme.
    np.testing.assert_allclose(ahead.mean[:, 0], mean, atol=4 * np.sqrt(variance.max() / DRAWS))
    np.testing.assert_allclose(ahead.states.var(axis=0)[:, 0], variance, rtol=4 * np.sqrt(2 / DRAWS) + 0.01)
    half = (ahead.upper - ahead.lower)[:, 0] / 2
    np.testing.assert_allclose(half, 1.645 * np.sqrt(variance), rtol=0.1)
    extra = ahead.observations.var(axis=0)[:, 0] - ahead.states.var(axis=0)[:, 0]
    np.testing.assert_allclose(extra, found.noise[0] ** 2, atol=8 * np.sqrt(2 / DRAWS) * variance.max())
    assert ahead.failed == 0


def test_scores_on_a_held_back_tail(whole, ahead):
    tail = Series(whole.times[-TAIL:], whole.values[-TAIL:])
    scores = ahead.score(tail)
    draws, y = ahead.observations[:200, :, 0], tail.values[:, 0]
    naive = np.abs(draws - y).mean(0) - 0.5 * np.abs(draws[:, None] - draws[None]).sum((0, 1)) / (200 * 199)
    few = type(ahead)(ahead.times, ahead.names, ahead.states[:200], ahead.observations[:200], 0.9, 0).score(y)
    np.testing.assert_allclose(few["crps"][:, 0], naive, rtol=1e-10)
    np.testing.assert_allclose(scores["energy"], scores["crps"][:, 0], rtol=1e-10)  # one state
    assert scores["mean_crps"] == {"x": pytest.approx(scores["mean_energy"])}
    # A forecast of what came scores better than one shifted by many standard deviations.
    assert scores["mean_energy"] < ahead.score(y + 5.0)["mean_energy"]
    assert 0 <= scores["coverage"] <= 1


def test_missing_values_of_the_tail_are_left_out(whole, ahead):
    values = whole.values[-TAIL:].copy()
    values[2] = np.nan
    scores = ahead.score(values)
    assert np.isnan(scores["crps"][2, 0]) and np.isfinite(scores["mean_energy"])


def test_same_key_same_paths(found, whole, ahead):
    again = found.forecast(whole.times[-TAIL:], draws=DRAWS, key=KEY)
    np.testing.assert_array_equal(again.states, ahead.states)


def test_refusals(found, whole, ahead):
    with pytest.raises(DataError, match="times must increase from after the last observation at 10.85"):
        found.forecast([1.0], key=KEY)
    with pytest.raises(InputError, match="draws must be a whole number of at least 2, not 1"):
        found.forecast([20.0], draws=1, key=KEY)
    with pytest.raises(InputError, match="key must be a whole number or one JAX random key"):
        found.forecast([20.0], key=0.3)
    with pytest.raises(DataError, match="series must be a number from 0 to 0, not 1"):
        found.forecast([20.0], key=KEY, series=1)
    with pytest.raises(DataError, match="at the forecast's own times"):
        ahead.score(Series(whole.times[:TAIL], whole.values[:TAIL]))
    with pytest.raises(DataError, match="held_back must have the shape"):
        ahead.score(np.ones((TAIL, 2)))
