"""The filter after the change of variables is that of the transformed equation, and its likelihood is of the data."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdefit as sf
from exact_transition import gbm_log_likelihood
from sdefit.data import Pool
from sdefit.dynamics.pooling import pool_of
from sdefit.inference.equation import Equation
from sdefit.inference.likelihood import filter_pool, filtered_path, in_z, smoothed_path
from sdefit.inference.parameterisation import Point
from sdefit.ssm.kalman import Gaussian

GROWTH = {"a": sf.real(), "s": sf.positive()}
CIR = {"k": sf.positive(), "m": sf.positive(), "s": sf.positive()}


def growing(seed=0, rows=30):
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.1, 0.6, rows))
    return times, 3.0 * np.exp(np.cumsum(0.25 * rng.normal(size=rows)))


def gbm(**noise):
    return sf.equations("dx = a*x*dt + s*x*dw", params=GROWTH, noise={"x": sf.normal(**noise)})


def total(model, series, theta, variance=0.0, first=(), steps=1, pool=None):
    """The log-likelihood in the user's units, and all that it comes from."""
    pool = jax.tree.map(jnp.asarray, pool or pool_of(model, [series]))
    scale = pool.column_scale
    K = len(model.states)
    point = Point(jnp.array(theta), jnp.zeros((K, K)), jnp.broadcast_to(variance / scale**2, scale.shape),
                  jnp.array(first).reshape(1, -1))  # fmt: skip
    counts = jnp.full(pool.times.shape, steps).at[:, 0].set(0)
    value, done = jax.jit(lambda: filter_pool(model, pool, point, counts, "cubature"))()
    count = np.asarray(pool.observed)[0].copy()
    if not first:
        count[0] = False
    return float(value) - float(np.sum(count * np.log(np.asarray(scale)))), (pool, point, done)


def without(pool: Pool) -> Pool:
    return dataclasses.replace(pool, in_z=False)


def test_the_likelihood_of_gbm_is_the_lognormal_one_at_any_parameters():
    times, x = growing()
    for a, s in ((0.3, 0.5), (-1.0, 0.2), (0.0, 2.0)):
        found, (pool, *_) = total(gbm(sd=0.0), sf.Series(times, x, ["x"]), (a, s))
        assert pool.in_z
        np.testing.assert_allclose(found, gbm_log_likelihood(times, x, a, s), rtol=1e-9)


def test_with_values_missing_it_is_that_of_the_others():
    times, x = growing(1)
    use = np.random.default_rng(0).uniform(size=30) > 0.3
    use[0] = True
    found, _ = total(gbm(sd=0.0), sf.Series(times, np.where(use, x, np.nan), ["x"]), (0.3, 0.5))
    np.testing.assert_allclose(found, gbm_log_likelihood(times[use], x[use], 0.3, 0.5), rtol=1e-9)


def test_the_filter_of_x_is_near_and_not_exact():
    """A Gaussian is not lognormal: over steps of s² h near 0.1 it is near, and in z it is exact."""
    times, x = growing()
    series, model = sf.Series(times, x, ["x"]), gbm(sd=0.0)
    exact = gbm_log_likelihood(times, x, 0.3, 0.5)
    plain, _ = total(model, series, (0.3, 0.5), pool=without(pool_of(model, [series])), steps=8)
    assert 1e-3 < abs(plain - exact) < 5.0


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_it_is_the_filter_of_the_model_transformed_by_hand(noise):
    """z = log x: dz = (a − s²/2) dt + s dw, and what is measured is e^z with normal noise; without noise z itself."""
    times, x = growing(2)
    found, (_, _, done) = total(gbm(sd=noise), sf.Series(times, x, ["x"]), (0.3, 0.5))
    text = "dz = (a - s**2/2)*dt + s*dw\n" + ("y = exp(z)" if noise else "z = z")
    column = "y" if noise else "z"
    start = {"initial": {"z": (np.log(x[0]), noise / x[0])}}
    hand = sf.equations(text, params=GROWTH, noise={column: sf.normal(sd=noise)}, **start)
    data = np.array(x if noise else np.log(x))[:, None]
    data[0] = np.nan  # the first row is where z begins
    series = sf.Series(times, data, [column])
    pool = pool_of(hand, [series])
    assert not pool.in_z
    value, (_, _, other) = total(hand, series, (0.3, 0.5), first=(), pool=pool)
    volume = 0.0 if noise else np.sum(np.log(x[1:]))
    np.testing.assert_allclose(found, value - volume, rtol=1e-9)
    e, f = (np.asarray(one.innovations.error / jnp.sqrt(one.innovations.variance)) for one in (done, other))
    np.testing.assert_allclose(e[0, 1:], f[0, 1:], rtol=1e-6, atol=1e-8)


@functools.cache
def square_root():
    model = sf.equations("dx = k*(m - x)*dt + s*sqrt(x)*dw", params=CIR, noise={"x": sf.normal(sd=0.05)})
    series = sf.simulate(model, {"k": 2.0, "m": 3.0, "s": 0.5}, {"x": 2.0}, np.arange(40) * 0.1, key=1)
    pool = jax.tree.map(jnp.asarray, pool_of(model, [series]))
    return model, series, pool, Point(jnp.array([2.0, 3.0, 0.5]), jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros((1, 0)))


def test_drift_and_diffusion_are_itos_in_standardised_units():
    """Of z = 2√x: dz = (2 k (m − x)/z − s²/(2 z)) dt + s dw."""
    model, _, pool, point = square_root()
    equation = in_z(Equation(model, pool, point))
    origin = pool.time_origin[0]
    center, scale, tau = 2 * np.sqrt(pool.center), pool.scale / np.sqrt(pool.center), float(pool.time_scale)
    np.testing.assert_allclose(equation.center, center, rtol=1e-12)
    np.testing.assert_allclose(equation.scale, scale, rtol=1e-12)
    for at in (-0.8, 0.0, 1.1):
        z = center + scale * at
        x = z**2 / 4
        drift = 2 * 2.0 * (3.0 - x) / z - 0.5**2 / (2 * z)
        f = equation.drift(origin)(jnp.array(0.4), jnp.array([at]))
        np.testing.assert_allclose(f, drift * tau / scale, rtol=1e-9)
        Q = equation.diffusivity(origin)(jnp.array(0.4), jnp.array([at]))
        np.testing.assert_allclose(Q, [[0.5**2 * tau / scale[0] ** 2]], rtol=1e-9)
        value, variance = equation.measurement(origin)(jnp.array(0.4), jnp.array([at]))
        np.testing.assert_allclose(value, (x - pool.center) / pool.scale, rtol=1e-9)
        np.testing.assert_allclose(variance, (0.05 / pool.scale) ** 2, rtol=1e-9)


def test_beliefs_go_there_by_the_delta_method_and_back_by_quantiles():
    model, _, pool, point = square_root()
    equation = in_z(Equation(model, pool, point))
    x = Gaussian(jnp.array([0.3]), jnp.array([[0.01]]))
    z = equation.belief(x)
    center, scale = float(pool.center[0]), float(pool.scale[0])
    own = center + 0.3 * scale
    assert float(equation.center[0] + equation.scale[0] * z.mean[0]) == pytest.approx(2 * np.sqrt(own), rel=1e-12)
    # d(2√x)/dx = 1/√x, in units of z at the center.
    slope = scale / np.sqrt(own) / float(equation.scale[0])
    np.testing.assert_allclose(z.covariance, [[slope**2 * 0.01]], rtol=1e-10)
    median, std = equation.states_and_std(Gaussian(z.mean[None], z.covariance[None]))
    np.testing.assert_allclose(median, [[0.3]], rtol=1e-10)
    low, high = ((float(equation.center[0]) + float(equation.scale[0]) * (float(z.mean[0]) + e)) ** 2 / 4
                 for e in np.array([-1, 1]) * float(jnp.sqrt(z.covariance[0, 0])))  # fmt: skip
    np.testing.assert_allclose(std, [[0.5 * (high - low) / scale]], rtol=1e-9)


def test_paths_come_back_in_standardised_states():
    """Filtered and smoothed medians beside those of the filter of x.

    An update is a straight line in z or in x; over an innovation e the two differ by e²/(4 x), the curvature of x(z).
    No e is beyond three predicted standard deviations s √(x h).
    """
    model, _, pool, point = square_root()
    steps = jnp.full(pool.times.shape, 4).at[:, 0].set(0)
    _, done = jax.jit(lambda: filter_pool(model, pool, point, steps, "cubature"))()
    plain = without(pool)
    _, other = jax.jit(lambda: filter_pool(model, plain, point, steps, "cubature"))()
    most = (3 * 0.5) ** 2 * 0.1 / 4 / float(pool.scale[0])
    assert most < 0.2  # of the spread of the data
    a, b = filtered_path(model, pool, point, done), filtered_path(model, plain, point, other)
    assert float(jnp.max(jnp.abs(a - b))) < most
    (a, s), (b, r) = smoothed_path(model, pool, point, done), smoothed_path(model, plain, point, other)
    assert float(jnp.max(jnp.abs(a - b))) < most
    # √x, to which the spread is proportional in one of them, moves by s √h/(2 √x) of itself: under a tenth a step.
    np.testing.assert_allclose(s, r, rtol=0.1)


@pytest.mark.parametrize(
    ("lowest", "through"),
    [(2.0, True), (0.02, False)],
)
def test_data_near_the_end_of_a_range_are_left_as_they_are(lowest, through):
    model, series, *_ = square_root()
    shifted = sf.Series(series.times, series.values - series.values.min() + lowest, ["x"])
    assert pool_of(model, [shifted]).in_z is through
    assert pool_of(model, [shifted, series]).in_z is through


def test_data_outside_the_range_are_left_as_they_are():
    model, series, *_ = square_root()
    assert not pool_of(model, [sf.Series(series.times, series.values - 5.0, ["x"])]).in_z


def test_a_known_noise_and_a_given_beginning_change_with_the_units():
    """k is per time, m as x, s as √(x/time)."""
    _, series, *_ = square_root()

    def found(size, time):
        model = sf.equations(
            "dx = k*(m - x)*dt + s*sqrt(x)*dw", params=CIR, noise={"x": sf.normal(sd=0.05 * size)},
            initial={"x": (2.0 * size, 0.3 * size)},
        )  # fmt: skip
        data = sf.Series(7.0 + time * series.times, size * series.values, ["x"])
        value, (pool, *_) = total(model, data, (2.0 / time, 3.0 * size, 0.5 * (size / time) ** 0.5), steps=2)
        assert pool.in_z
        return value + (40 - 1) * np.log(size)  # `total` leaves the volume of the first row out

    assert found(1e4, 1e-3) == pytest.approx(found(1.0, 1.0), rel=1e-9)
