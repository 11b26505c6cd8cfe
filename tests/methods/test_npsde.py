"""NPSDE: the field and its paths against naive versions, and a drift that is found without its formula."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exact_likelihood import linear_log_likelihood
from sdefit.data import Series, standardise
from sdefit.dynamics.equations import equations
from sdefit.errors import InputError, ModelError
from sdefit.fitting import fit
from sdefit.gp.field import field_on, matched_normals, simulate_window, spread_points
from sdefit.methods._field import Problem
from sdefit.methods.moments import Moments
from sdefit.methods.npsde import NPSDE
from sdefit.report.numbers import field_numbers
from sdefit.ssm.kalman import Observations, log_likelihood

METHOD = NPSDE(inducing=12, lengths=(2.0, 1.0), paths=12, rounds=4)
WELL = equations("dx = a*x - b*x**3")
A, B, G, NOISE = 1.0, 1.0, 0.6, 0.1


def kernel(a, b, length):
    return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / length**2)


def naive(x, Z, v, length):
    L = np.linalg.cholesky(kernel(Z, Z, length) + 1e-8 * np.eye(len(Z)))
    return kernel(np.asarray(x), Z, length) @ np.linalg.solve(L.T, v)


def some_field(seed=0, points=5, states=2, length=1.3):
    rng = np.random.default_rng(seed)
    Z, v = 2 * rng.normal(size=(points, states)), rng.normal(size=(points, states))
    return field_on(jnp.asarray(Z), jnp.array(length)), Z, v, length


@functools.cache
def well_series(rows=300, gap=0.2, fine=50):
    """dx = (x − x³) dt + 0.6 dw by Euler's scheme in fine steps, seen with noise 0.1: several visits to both wells."""
    rng, x, path = np.random.default_rng(1), 0.0, []
    for _ in range(rows):
        path.append(x)
        for _ in range(fine):
            x += (A * x - B * x**3) * gap / fine + G * np.sqrt(gap / fine) * rng.standard_normal()
    return gap * np.arange(rows), np.array(path) + NOISE * rng.standard_normal(rows)


@pytest.fixture(scope="module")
def well():
    return fit(WELL, Series(*well_series()), METHOD, key=jax.random.key(3))


# --- the field -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_field_is_a_whitened_gaussian_process(seed):
    field, Z, v, length = some_field(seed)
    x = jnp.asarray(np.random.default_rng(seed + 9).normal(size=(4, 2)))
    expected = naive(x, Z, v, length)
    np.testing.assert_allclose(field.features(x) @ v, expected, rtol=1e-8, atol=1e-9)
    value, slope, k = field.value_slope_kernel(field.weights(jnp.asarray(v)), x)
    np.testing.assert_allclose(value, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(k, kernel(x, Z, length), rtol=1e-12)
    steps = [[naive(np.asarray(x) + s * 1e-5 * np.eye(2)[j], Z, v, length) for s in (1, -1)] for j in range(2)]
    np.testing.assert_allclose(slope, np.stack([(up - down) / 2e-5 for up, down in steps], axis=-1), atol=1e-7)


def test_points_spread_over_the_region_that_was_visited():
    x = np.random.default_rng(0).normal(size=(40, 2))
    use = np.arange(40) < 30
    chosen = [int(np.argmin((x[:30] ** 2).sum(1)))]
    for _ in range(7):
        chosen.append(int(np.argmax(((x[:30, None] - x[None, chosen]) ** 2).sum(-1).min(1))))
    np.testing.assert_array_equal(spread_points(jnp.asarray(x), jnp.asarray(use), 8), x[chosen])


@pytest.mark.parametrize("states", [1, 3])
def test_noise_of_the_paths_has_exact_moments(states):
    noise = np.asarray(matched_normals(jax.random.key(0), 32, 3, states)).transpose(1, 0, 2).reshape(32, -1)
    np.testing.assert_allclose(noise.mean(0), 0.0, atol=1e-14)
    np.testing.assert_allclose(noise.T @ noise / 32, np.eye(3 * states), atol=1e-13)


def window(f, mean, root, G, h, noise):
    """Paths one by one, by Euler's predictor and the mean of the two drifts."""
    ends = []
    for path in range(noise.shape[1]):
        x = mean + root @ noise[0, path]
        for draw in noise[1:, path]:
            kick = np.sqrt(h) * G @ draw
            x = x + 0.5 * h * (f(x) + f(x + h * f(x) + kick)) + kick
        ends.append(x)
    return np.mean(ends, axis=0), np.cov(np.array(ends).T, bias=True)


def test_paths_of_a_window_and_their_derivatives():
    field, Z, v, length = some_field(4)
    noise = np.asarray(matched_normals(jax.random.key(1), 12, 3, 2))
    mean, root, G = np.array([0.3, -0.2]), np.array([[0.5, 0.0], [0.2, 0.4]]), np.array([[0.3, 0.0], [-0.1, 0.6]])

    def at(v, mean, root, G):
        end = simulate_window(field, field.weights(v), mean, root, G, jnp.array(0.2), jnp.asarray(noise))
        return end.mean, end.covariance

    given = tuple(map(jnp.asarray, (v, mean, root, G)))
    expected = window(lambda x: naive(x[None], Z, v, length)[0], mean, root, G, 0.2, noise)
    for found, right in zip(at(*given), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-8)
    way = tuple(jnp.asarray(np.random.default_rng(2).normal(size=a.shape)) for a in given)
    _, slope = jax.jvp(at, given, way)
    up, down = (at(*(a + s * 1e-5 * d for a, d in zip(given, way, strict=True))) for s in (1, -1))
    for found, high, low in zip(slope, up, down, strict=True):
        np.testing.assert_allclose(found, (high - low) / 2e-5, atol=1e-7)


@pytest.mark.slow
def test_without_a_drift_the_paths_give_the_exact_likelihood():
    rng = np.random.default_rng(5)
    times = np.cumsum(rng.uniform(0.2, 3.0, 15))  # some gaps are several windows
    values = rng.normal(size=(15, 2))
    values[4, 0], values[9] = np.nan, np.nan
    pool = standardise(Series(times, values, ["x", "y"]))
    model = equations("dx = -x\ndy = -y")
    noise = matched_normals(jax.random.key(0), 12, 3, 2)
    problem = Problem(model, jax.tree.map(jnp.asarray, pool), jnp.asarray(rng.normal(size=(3, 2))), noise)
    G, sigma = np.array([[0.5, 0.0], [0.3, 0.7]]), np.array([0.2, 0.4])
    field = field_on(problem.points, jnp.array(1.0))
    filtered = jax.jit(lambda *a: problem.filter(field, jnp.zeros((3, 2)), *a).filtered)(G @ G.T, sigma**2)
    data = Observations(*(jnp.asarray(a[0]) for a in (pool.times, pool.values, pool.observed)))
    exact = jax.jit(lambda *a: linear_log_likelihood(jnp.zeros((2, 2)), jnp.zeros(2), *a, data))(G, sigma)
    np.testing.assert_allclose(log_likelihood(filtered), exact, rtol=1e-9)


# --- a drift without its formula -------------------------------------------------------------------------------


def test_the_drift_lies_within_its_own_bands(well):
    x = np.quantile(well.series[0].values[:, 0], np.linspace(0.02, 0.98, 41))
    mean, std = well.drift(x)
    off = (mean - (A * x - B * x**3)[:, None]) / std
    # About eight independent numbers: their mean square exceeds 2.5 once in a hundred, the largest 3.5 in two hundred.
    assert np.mean(off**2) < 2.5 and np.abs(off).max() < 3.5
    # And the bands say something: the drift's own range there is about 2.
    assert std.max() < 0.7 and np.ptp(mean) > 0.5


def test_away_from_the_data_the_drift_is_not_told(well):
    far, near = well.drift([6.0]).std[0, 0], well.drift([0.9]).std[0, 0]
    scale = float(well.estimate.state.scale[0] * np.std(well.series[0].values) / 0.2)
    np.testing.assert_allclose(far, scale, rtol=1e-2)
    assert near < 0.3 * far


def test_the_projection_finds_the_parameters(well):
    assert well.status.ok
    # Standard errors over 60 units of time are near G/√(60 · var of the term) ≈ 0.6/√(60 · 0.3) = 0.14 for either
    # term alone, and about twice that for two that vary together; three of these.
    assert abs(well.params["a"] - A) < 0.85 and abs(well.params["b"] - B) < 0.85
    # One zero of the drift is far better told than its parts.
    assert abs(np.sqrt(well.params["a"] / well.params["b"]) - 1.0) < 0.2
    # Relative errors of G from 300 increments, and of σ, are below 1/√150; three of these, and a tenth for G's bias.
    assert abs(well.G[0, 0] / G - 1) < 0.35 and abs(well.noise[0] / NOISE - 1) < 0.6


def test_units_change_nothing(well):
    t, y = well_series()
    other = fit(WELL, Series(60 * t - 7.0, 100 * y), METHOD, key=jax.random.key(3))
    np.testing.assert_allclose(other.params["a"], well.params["a"] / 60, rtol=1e-3)
    np.testing.assert_allclose(other.params["b"], well.params["b"] / 60e4, rtol=1e-3)
    for mine, right in zip(other.drift([50.0, -30.0]), well.drift([0.5, -0.3]), strict=True):
        np.testing.assert_allclose(mine, right * 100 / 60, rtol=1e-3)


def test_the_figure_holds_both_drifts_along_the_path(well):
    numbers = field_numbers(well.record())
    x = well.mean[0]
    learned = well.drift(x)
    np.testing.assert_allclose(numbers["learned"], learned.mean[:, 0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(numbers["upper"] - numbers["lower"], 2 * 1.6448536 * learned.std[:, 0], rtol=1e-5)
    np.testing.assert_allclose(numbers["model"], well.params["a"] * x[:, 0] - well.params["b"] * x[:, 0] ** 3)
    line = well.plot("field").axes[0].get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), np.sort(numbers["x"]))


# --- refusals --------------------------------------------------------------------------------------------------


def test_states_that_are_none_are_refused(well):
    with pytest.raises(InputError, match=r"x must be rows of 1 finite number\(s\), one per state, not .* \(2, 2\)"):
        well.drift([[1.0, 2.0], [3.0, 4.0]])


def test_a_method_without_a_field_has_no_drift(well):
    found = dataclasses.replace(well, method=Moments())
    with pytest.raises(InputError, match=r"drift needs a method that learns one, such as sf.NPSDE\(\), not moments"):
        found.drift([0.0])


@pytest.mark.parametrize(
    "settings",
    [{"inducing": 1}, {"lengths": (1.0, 2.0)}, {"lengths": ()}, {"paths": 2}, {"steps": 0}, {"rounds": True}],
)
def test_settings_that_mean_nothing_are_refused_by_name(settings):
    with pytest.raises(ModelError, match=f"NPSDE: {next(iter(settings))} must be"):
        NPSDE(**settings)
