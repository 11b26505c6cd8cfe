"""What increments of the data tell of θ before any filter runs: the scales that weak priors are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from contract import ou_series, relaxing, scattered
from sdefit.data import Series, standardise
from sdefit.dynamics.equations import equations
from sdefit.dynamics.units import ScaledBounds
from sdefit.inference.increments import SPANS, Increments, filled, increment_errors, split


@pytest.fixture(scope="module")
def scales():
    """The scales of rate and level for one series in other units of time and state, and far from zero."""
    one, model = ou_series(1), relaxing()

    @jax.jit
    def find(pool):
        return Increments.of(model, pool).scales_near(jnp.zeros(2), jnp.array([2.0, jnp.inf]))

    def of(times, values):
        return np.asarray(find(jax.tree.map(jnp.asarray, standardise([Series(times, values)]))))

    t, y = one.times, one.values
    return {"plain": of(t, y), "slow": of(10 * t, y), "large": of(t, 7 * y), "far": of(t, y + 300)}


def test_scales_follow_the_units(scales):
    np.testing.assert_allclose(scales["slow"], scales["plain"] * np.array([0.1, 1.0]), rtol=1e-6)
    np.testing.assert_allclose(scales["large"], scales["plain"] * np.array([1.0, 7.0]), rtol=1e-6)


def test_scales_are_no_smaller_than_what_is_told(scales):
    """Of 300 ± 1 the natural scale of the rate is below 0.01: a prior of that width would be no weak one."""
    assert scales["far"][0] > 0.3 and scales["far"][1] > 150


def test_agreement_is_least_squares_on_the_increments():
    """rate (level − x) is linear in rate·level and rate, and the integral of x is that of straight lines.

    What spans more than the typical spacings counts as much as what spans these.
    """
    one, model = ou_series(2, irregular=True), relaxing()
    pool = jax.tree.map(jnp.asarray, standardise([one]))
    found = jax.jit(lambda: Increments.of(model, pool).agree(jnp.zeros((1, 2)), jnp.array([2.0, jnp.inf])))()
    bounds = ScaledBounds.of(model, pool)
    t, x = one.times, one.values[:, 0]
    area = np.concatenate([[0.0], np.cumsum(0.5 * (x[1:] + x[:-1]) * np.diff(t))])
    for span, u in zip(SPANS, found.u, strict=True):
        t_gap, x_gap, area_gap = (a[span:] - a[:-span] for a in (t, x, area))
        weight = 1 / np.maximum(t_gap / (span * np.median(np.diff(t))), 1.0)
        both, rate = np.linalg.lstsq(weight[:, None] * np.stack([t_gap, -area_gap], axis=1), weight * x_gap)[0]
        np.testing.assert_allclose(bounds.constrain(u), [rate, both / rate], rtol=1e-4)


def test_scales_are_finite_whatever_the_drift():
    model = equations("dx = a*log(-x*x) + b")
    pool = jax.tree.map(jnp.asarray, standardise([ou_series(1)]))
    found = jax.jit(lambda: Increments.of(model, pool).scales_near(jnp.ones(2), jnp.full(2, jnp.inf)))()
    assert np.all(np.isfinite(found)) and np.all(found > 0)


# --- start values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_filled_interpolates_as_numpy_does(seed):
    rng = np.random.default_rng(seed)
    data = scattered(seed, states=3)
    observed = rng.uniform(size=data.observed.shape) > 0.5
    found = filled(data.times, jnp.where(observed, data.values, 0.0), jnp.array(observed))
    for k in range(3):
        use, t = observed[:, k], np.asarray(data.times)
        np.testing.assert_allclose(found[:, k], np.interp(t, t[use], np.asarray(data.values)[use, k]), atol=1e-12)


@pytest.mark.parametrize("over", [1, 3])
def test_increment_errors_add_up_the_drift_by_trapezoids(over):
    data = scattered(1, states=2)
    t, x = np.asarray(data.times), np.asarray(data.values)
    f = np.sin(x)
    naive = np.zeros_like(x)
    for i in range(len(t) - over):
        total = sum(0.5 * (f[j] + f[j + 1]) * (t[j + 1] - t[j]) for j in range(i, i + over))
        naive[i] = x[i + over] - x[i] - total
    np.testing.assert_allclose(increment_errors(data.times, data.values, jnp.array(f), over), naive, atol=1e-12)


@pytest.mark.parametrize(("g", "s"), [(1.0, 0.5), (0.3, 1.0), (1.0, 0.2)])
def test_split_tells_diffusion_from_noise(g, s):
    rng = np.random.default_rng(0)
    n = 40_000
    errors = g * rng.normal(size=(1, n, 1)) + s * np.diff(rng.normal(size=(1, n + 1, 1)), axis=1)
    diffusion, noise = split(jnp.array(errors))
    # The lag-one covariance of n errors of variance v = g² + 2s² has a standard error below 1.5 v/√n; σ² is
    # that covariance and g² differs from v by twice it: four standard errors.
    tolerance = 4 * 2 * 1.5 * (g**2 + 2 * s**2) / np.sqrt(n)
    np.testing.assert_allclose([diffusion[0] ** 2, noise[0] ** 2], [g**2, s**2], atol=tolerance)
