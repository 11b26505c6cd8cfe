"""Error measures and scores against the formulas written out in loops."""

import math

import numpy as np
import pytest

from sdefit import metrics
from sdefit.errors import InputError

SEEDS = [0, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_over_realizations_match_loops(seed):
    rng = np.random.default_rng(seed)
    truth, estimates = rng.normal(size=3), rng.normal(size=(7, 3))
    for k in range(3):
        errors = [estimates[i, k] - truth[k] for i in range(7)]
        assert metrics.bias(estimates, truth)[k] == pytest.approx(sum(errors) / 7, rel=1e-13)
        assert metrics.rmse(estimates, truth)[k] == pytest.approx(math.sqrt(sum(e * e for e in errors) / 7), rel=1e-13)
        assert metrics.median(estimates)[k] == sorted(estimates[:, k])[3]


@pytest.mark.parametrize("seed", SEEDS)
def test_squared_rmse_is_squared_bias_plus_variance(seed):
    rng = np.random.default_rng(seed)
    truth, estimates = rng.normal(size=(2, 2)), rng.normal(size=(9, 2, 2))
    left = metrics.rmse(estimates, truth) ** 2
    np.testing.assert_allclose(left, metrics.bias(estimates, truth) ** 2 + metrics.std(estimates) ** 2, rtol=1e-13)


def test_one_parameter_gives_one_number():
    assert float(metrics.rmse([1.0, 3.0], 2.0)) == 1.0


def test_a_failed_fit_shows_as_nan():
    answer = metrics.rmse([[1.0, 2.0], [np.nan, 2.0]], [1.0, 1.0])
    assert np.isnan(answer[0]) and answer[1] == 1.0


def test_ggt_and_h_differ_and_take_stacks():
    G = np.array([[0.2, 0.0], [0.1, 0.3]])
    np.testing.assert_allclose(metrics.ggt(G), [[0.04, 0.02], [0.02, 0.10]], rtol=1e-14)
    np.testing.assert_allclose(metrics.h(G), [[0.05, 0.03], [0.03, 0.09]], rtol=1e-14)
    stack = np.stack([G, 2 * G])
    np.testing.assert_allclose(metrics.ggt(stack)[1], 4 * metrics.ggt(G), rtol=1e-14)
    np.testing.assert_allclose(metrics.h(stack)[1], 4 * metrics.h(G), rtol=1e-14)


def naive_score(draws, observed, norm):
    n = len(draws)
    far = sum(norm(x - observed) for x in draws) / n
    apart = sum(norm(draws[i] - draws[j]) for i in range(n) for j in range(n)) / (n * (n - 1))
    return far - apart / 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [2, 5, 30])
def test_crps_matches_all_pairs(seed, n):
    rng = np.random.default_rng(seed)
    draws, observed = rng.normal(size=(n, 4, 2)), rng.normal(size=(4, 2))
    answer = metrics.crps(draws, observed)
    for i in np.ndindex(4, 2):
        assert answer[i] == pytest.approx(naive_score(draws[(slice(None), *i)], observed[i], abs), abs=1e-13)


@pytest.mark.parametrize("seed", SEEDS)
def test_energy_score_matches_all_pairs(seed):
    rng = np.random.default_rng(seed)
    draws, observed = rng.normal(size=(12, 4, 3)), rng.normal(size=(4, 3))
    answer = metrics.energy_score(draws, observed)
    for i in range(4):
        assert answer[i] == pytest.approx(naive_score(draws[:, i], observed[i], np.linalg.norm), abs=1e-13)


def test_energy_score_of_one_state_is_the_crps():
    rng = np.random.default_rng(3)
    draws, observed = rng.normal(size=(20, 5)), rng.normal(size=5)
    one_state = metrics.energy_score(draws[..., None], observed[:, None])
    np.testing.assert_allclose(one_state, metrics.crps(draws, observed), rtol=1e-12)


def test_crps_of_normal_draws_is_the_closed_form():
    """CRPS(N(0,1), y) = y(2Φ(y) − 1) + 2φ(y) − 1/√π, within 4.5 standard errors over 400 repeats."""
    repeats, n, y = 400, 20, 0.7
    scores = metrics.crps(np.random.default_rng(4).normal(size=(n, repeats)), np.full(repeats, y))
    exact = y * math.erf(y / math.sqrt(2)) + 2 * math.exp(-y * y / 2) / math.sqrt(2 * math.pi) - 1 / math.sqrt(math.pi)
    assert abs(scores.mean() - exact) < 4.5 * scores.std() / math.sqrt(repeats)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"truth must have the shape of one estimate, \(2,\), not \(3,\)"):
        metrics.rmse(np.ones((4, 2)), np.ones(3))
    with pytest.raises(InputError, match="at least one realization"):
        metrics.median([])
    with pytest.raises(InputError, match=r"a stack of arrays of the shape \(2,\) observed, not \(4, 3\)"):
        metrics.crps(np.ones((4, 3)), np.ones(2))
    with pytest.raises(InputError, match="draws must be at least 2, not 1"):
        metrics.crps(np.ones((1, 3)), np.ones(3))
    with pytest.raises(InputError, match="use crps"):
        metrics.energy_score(np.ones(4), 1.0)
