"""Matching of means: natural scales, starts inside their bounds, and least squares."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.dynamics.parameters import Bounds
from sdefit.dynamics.units import ScaledBounds
from sdefit.matching.mean_matching import match_means, spread_starts
from sdefit.matching.parameter_scales import natural_scales, standard_errors, widened_scales, widened_scales_at

INF = float("inf")
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def rms(columns):
    return np.sqrt(np.mean(np.asarray(columns) ** 2, axis=0))


# --- natural scales --------------------------------------------------------------------------------------------


def test_scales_of_a_linear_drift_have_a_closed_form():
    slopes = jnp.asarray(np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 1e-4, 1e5])
    found = quick(lambda size: natural_scales(lambda theta: slopes, size, jnp.ones(3)))(jnp.asarray(2.5))
    np.testing.assert_allclose(found, 2.5 / rms(slopes), rtol=1e-5)


def relaxing_slopes(x, rate_unit, state_unit):
    """∂/∂(rate, level) of rate (level − x) in standardised states, which have the unit `state_unit`."""

    def slopes(theta):
        return rate_unit / state_unit * jnp.stack([theta[1] - x, jnp.full_like(x, theta[0])], axis=1)

    return slopes


@quick
def relaxing_scales(x, time, state):
    return natural_scales(relaxing_slopes(x, time, state), jnp.asarray(0.8), jnp.array([1 / time, state]))


@pytest.mark.parametrize("mean", [2.0, 0.0, -5.0])
def test_scales_of_a_product_of_parameters(mean):
    """For rate (level − x) with E x = m, E x² = q the lowest point of log tr M − ½ log det M is by calculus at
    level² = q/2, rate² (q − level m) = size²: whatever the sign of m, where terms of equal size exist for m > 0 alone.
    """
    x = mean + np.random.default_rng(4).normal(size=40)
    m, q = np.mean(x), np.mean(x**2)
    level = np.sqrt(q / 2)
    found = relaxing_scales(jnp.asarray(x), 1.0, 1.0)
    np.testing.assert_allclose(found, [0.8 / np.sqrt(q - level * m), level], rtol=1e-4)


@pytest.mark.parametrize(("time", "state"), [(60.0, 1000.0), (1 / 3600, 1e-6), (1e6, 1e-3)])
def test_scales_turn_with_the_units(time, state):
    """Time in another unit and states in another: rates and levels are rescaled as the parameters are."""
    x = 2 + np.random.default_rng(1).normal(size=40)
    rate, level = relaxing_scales(jnp.asarray(x), 1.0, 1.0)
    other = relaxing_scales(jnp.asarray(state * x), time, state)
    np.testing.assert_allclose(other, [rate / time, level * state], rtol=1e-10)


@pytest.mark.parametrize("unit", [1.0, 1e5, 1e-5])
def test_scales_of_growth_that_saturates(unit):
    """r x (1 − x/k) and v x/(k + x): each parameter gets a scale the data could speak of, in any unit of x."""
    x = jnp.asarray(unit * np.linspace(0.5, 5.0, 30))

    def scales(f):
        def slopes(theta):
            return jax.jacfwd(lambda th: f(x, *th))(theta) / unit

        return natural_scales(slopes, jnp.asarray(1.0), jnp.ones(2))

    _, capacity = quick(lambda: scales(lambda x, r, k: r * x * (1 - x / k)))()
    _, half = quick(lambda: scales(lambda x, v, k: v * x / (k + x)))()
    assert 2 * unit < capacity < 10 * unit
    assert 0.3 * unit < half < 10 * unit


def test_a_parameter_the_drift_ignores_keeps_a_finite_scale():
    found = natural_scales(lambda theta: jnp.stack([jnp.ones(4), jnp.zeros(4)], axis=1), jnp.asarray(1.0), jnp.ones(2))
    assert np.all(np.isfinite(found)) and np.all(np.asarray(found) > 0)


# --- starts ----------------------------------------------------------------------------------------------------

BOUNDS = Bounds((-INF, 0.0, -INF, -2.0, 3.0), (INF, INF, 1.0, 5.0, INF))
SCALES = np.array([2.0, 0.1, 4.0, 9.0, 0.5])


def starts(start, count=50, scales=SCALES):
    u = spread_starts(
        ScaledBounds(BOUNDS, jnp.ones(5)), jnp.asarray(scales), jnp.asarray(start), count, jax.random.key(0)
    )
    return np.asarray(jax.vmap(BOUNDS.constrain)(u))


def test_starts_lie_inside_their_bounds():
    found = starts([np.nan] * 5)
    assert found.shape == (50, 5) and np.all(np.isfinite(found))
    assert np.all(found > np.array(BOUNDS.lower)) and np.all(found < np.array(BOUNDS.upper))


def test_the_first_start_is_of_natural_size_and_the_others_are_scattered_about_it():
    found = starts([np.nan] * 5, count=400)
    np.testing.assert_allclose(found[0], [2.0, 0.1, 1 - 4.0, 1.5, 3.5], rtol=1e-12)
    assert len({tuple(row) for row in found}) == 400
    # Log-normal about the natural size, with standard deviation 1: the mean of 399 logs has the error 0.05. Real
    # parameters have either sign: a fair coin 399 times, with the standard deviation 10.
    sizes = np.stack([np.abs(found[1:, 0]) / 2, found[1:, 1] / 0.1, (1 - found[1:, 2]) / 4, (found[1:, 4] - 3) / 0.5])
    np.testing.assert_allclose(np.mean(np.log(sizes), axis=1), 0.0, atol=0.2)
    np.testing.assert_allclose(np.std(np.log(sizes), axis=1), 1.0, atol=0.2)
    assert 160 < np.sum(found[1:, 0] < 0) < 240


def test_the_users_start_is_the_first():
    found = starts([-7.0, np.nan, 0.5, 4.9, np.nan])
    np.testing.assert_allclose(found[0], [-7.0, 0.1, 0.5, 4.9, 3.5], rtol=1e-9)
    assert np.all(found[1:, 0] != -7.0)


# --- least squares ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_linear_drift_gets_linear_least_squares(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(25, 3)) * [1.0, 1e3, 1e-2], rng.normal(size=25)
    solve = quick(lambda X, y, begin: match_means(lambda u: X @ u - y, begin))
    found = solve(jnp.asarray(X), jnp.asarray(y), jnp.asarray(rng.normal(size=(2, 3))))
    theta, squares = np.linalg.lstsq(X, y, rcond=None)[:2]
    np.testing.assert_allclose(found.x, theta, rtol=1e-7)
    np.testing.assert_allclose(found.at.value, 0.5 * 25 * np.log(squares[0] / 25), rtol=1e-9)
    np.testing.assert_allclose(found.at.curvature, 25 * X.T @ X / squares[0], rtol=1e-9)


def test_a_nonlinear_drift_is_found_from_far():
    """Two rates of decay in log coordinates, without noise: the residual vanishes at the truth alone."""
    t = jnp.linspace(0.0, 4.0, 40)
    truth = np.log([0.3, 2.0, 3.0])

    def curve(u):
        a, b, c = jnp.exp(u)
        return jnp.exp(-a * t) + c * jnp.exp(-b * t)

    begin = jnp.asarray([[0.0, 0.0, 0.0], [-3.0, 2.0, 2.0], [np.nan, 0.0, 0.0]])
    found = quick(lambda begin: match_means(lambda u: curve(u) - curve(jnp.asarray(truth)), begin))(begin)
    np.testing.assert_allclose(found.x, truth, rtol=1e-6)
    assert found.at.value < 0.5 * 40 * np.log(1e-15)


def test_steps_into_places_that_are_not_finite_are_refused():
    """√ of a negative number is NaN: a Gauss-Newton step that crosses 0 is shortened until it does not."""

    def residual(u):
        return jnp.sqrt(u) - jnp.asarray([0.1])

    found = match_means(residual, jnp.asarray([[9.0]]))
    np.testing.assert_allclose(found.x, [0.01], rtol=1e-6)


# --- scales after matching -------------------------------------------------------------------------------------


def widened_at(u, curvature):
    bounds, std = (
        ScaledBounds(Bounds((0.0, -np.inf), (np.inf, np.inf)), jnp.ones(2)),
        standard_errors(jnp.asarray(curvature)),
    )
    return widened_scales_at(jnp.asarray(u), std, bounds, jnp.asarray([0.1, 2.0]))


def test_what_was_told_is_its_own_scale():
    """A curvature c is a standard error 1/√c, and what stands three of them off its bound, or off 0, was told."""
    both = widened_at([0.0, 300.0], np.diag([250.0, 250.0]))
    np.testing.assert_allclose(both, [1.0, 300.0])
    one = widened_at([0.0, 300.0], np.diag([2.5e-4, 250.0]))
    np.testing.assert_allclose(one, [0.1, 300.0])
    none = widened_at([0.0, 1.0], np.diag([2.5e-4, 2.5e-4]))
    np.testing.assert_allclose(none, [0.1, 2.0])


def test_a_scale_is_as_wide_as_what_was_told_in_spite_of_it():
    """Three standard errors off its bound, here 1, or off 0; never narrower than it was."""
    bounds, scales = Bounds((1.0, -np.inf, -np.inf), (np.inf, np.inf, np.inf)), jnp.asarray([0.1, 2.0, 2.0])
    told = widened_scales(jnp.asarray([1.7, -5.0, 1.0]), jnp.asarray([0.2, 1.6, 0.1]), bounds, scales)
    np.testing.assert_allclose(told, [0.7, 5.0, 2.0])
    not_told = widened_scales(jnp.asarray([1.5, -5.0, jnp.inf]), jnp.asarray([0.2, 1.7, 1.0]), bounds, scales)
    np.testing.assert_allclose(not_told, [0.1, 2.0, 2.0])
