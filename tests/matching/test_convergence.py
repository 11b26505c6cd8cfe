"""Whether a descent has settled: paths about a point, paths that move, and paths too short to tell."""

import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.matching.convergence import at_rest, has_settled, matching_errors, potential_scale_reduction
from sdefit.matching.derivative_samples import DerivativeSamples
from sdefit.matching.initial_guess import Box, InitialGuess

SEEDS = range(20)


def autoregression(seed: int, steps: int, memory: float) -> np.ndarray:
    """A stationary path of two parameters, of spread 1, that forgets by 1/e in `memory` steps."""
    rng, keep = np.random.default_rng(seed), np.exp(-1 / memory)
    path = np.empty((steps, 2))
    path[0] = rng.normal(size=2)
    for n in range(1, steps):
        path[n] = keep * path[n - 1] + np.sqrt(1 - keep**2) * rng.normal(size=2)
    return path


def settled(path: np.ndarray) -> bool:
    return bool(has_settled(jnp.asarray(path)))


def test_it_is_its_formula():
    path = autoregression(0, 80, 5.0)
    parts = path[40:].reshape(4, 10, 2)
    expected = np.sqrt(1 + parts.mean(axis=1).var(axis=0, ddof=1) / parts.var(axis=1).mean(axis=0))
    np.testing.assert_allclose(potential_scale_reduction(jnp.asarray(path)), expected, rtol=1e-12)


def test_a_steady_trend_has_its_closed_form():
    """Means of four parts of a line are δ apart and have variance 5δ²/3; inside, it is δ²/12: R̂² = 1 + 20."""
    line = jnp.linspace(0.0, 1.0, 8000)[:, None]
    np.testing.assert_allclose(potential_scale_reduction(line), np.sqrt(21), rtol=1e-5)


def test_paths_about_a_point_have_settled():
    """Their parts of 2500 steps hold 125 independent draws: the variance of means is a 60th of what 1.1 allows."""
    assert all(settled(autoregression(seed, 20000, 10.0)) for seed in SEEDS)


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_paths_that_still_move_have_not(speed):
    """θ moves by 3.5 spreads (or 35) in the last half: its R̂ is that of the trend, less what the scatter hides."""
    trend = speed * np.linspace(0.0, 7.0, 4000)[:, None] * np.array([0.0, 1.0])
    assert not any(settled(autoregression(seed, 4000, 10.0) + trend) for seed in SEEDS)


def test_a_random_walk_has_rarely_settled():
    walks = [np.cumsum(np.random.default_rng(seed).normal(size=(4000, 2)), axis=0) for seed in SEEDS]
    assert sum(map(settled, walks)) <= 1


def test_a_slow_return_has_not_until_it_is_over():
    """θ = e^(−n/τ) + noise: with five τ in all it still moves in the last half; with fifty it is at rest."""
    noise, n = 1e-3 * autoregression(0, 5000, 5.0), np.arange(5000)[:, None]
    assert not settled(np.exp(-n / 1000) + noise) and settled(np.exp(-n / 100) + noise)


def test_what_is_far_below_the_standard_error_does_not_count():
    """A trend of a hundredth of the standard error without scatter: the means are 0.01/4 apart, against 0.1²."""
    line = jnp.linspace(0.0, 0.02, 8000)[:, None]
    expected = np.sqrt(1 + 5 / 3 * (0.01 / 4) ** 2 / 0.1**2)
    np.testing.assert_allclose(potential_scale_reduction(line, 1.0), expected, rtol=1e-3)
    assert has_settled(line, 1.0) and not has_settled(50 * line, 1.0) and not has_settled(line)


def test_errors_are_those_of_the_mean_of_a_linear_drift():
    """f = θ0 + θ1 x along a known path: generalised least squares with ten of its residuals as one."""
    rng = np.random.default_rng(0)
    x, dz = np.tile(rng.normal(size=(1, 1, 30, 1)), (64, 1, 1, 1)), rng.normal(size=(64, 1, 30, 1))
    arrays = [jnp.asarray(a) for a in (dz, x, 0 * x, np.arange(30.0)[None], np.ones((1, 30), bool))]
    samples = DerivativeSamples(*arrays, jnp.asarray(1.0))

    def drift(x, theta):
        return theta[0] + theta[1] * x

    def guess(lower, upper):
        box = Box(jnp.full(2, lower), jnp.full(2, upper))
        return InitialGuess(jnp.zeros(2), jnp.zeros(2), jnp.eye(2), jnp.ones(2), jnp.zeros(2), box)

    slope = np.column_stack([np.ones(30), x[0, 0, :, 0]])
    variance = dz[:, 0, :, 0].var(axis=0) + 1e-4 * np.mean(dz**2)
    expected = np.sqrt(np.diagonal(np.linalg.inv(slope.T @ (slope / variance[:, None]) / 10)))
    end = jnp.asarray([0.3, -0.2])
    np.testing.assert_allclose(matching_errors(samples, drift, guess(-1.0, 1.0), end), expected, rtol=1e-9)
    path = end[None] + 0.001 * jnp.asarray(autoregression(0, 400, 1.0))
    path = path.at[-1].set(end)
    assert at_rest(path, samples, drift, guess(-1.0, 1.0)) and not at_rest(path, samples, drift, guess(-0.2, 1.0))
    moving = path + jnp.linspace(0.0, 8.0, 400)[:, None] * jnp.asarray(expected)[None]
    assert not at_rest(moving, samples, drift, guess(-100.0, 100.0))


def test_what_cannot_be_told_has_not_settled():
    assert not settled(np.zeros((15, 2))) and settled(np.zeros((16, 2)))  # at an edge of its range θ rests
    broken = autoregression(0, 4000, 5.0)
    broken[100, 0] = np.nan
    assert not settled(broken)
