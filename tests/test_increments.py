"""What increments of the data tell of θ before any filter runs: the scales that weak priors are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from contract import ou_series, relaxing
from sdefit.data import Series, standardise
from sdefit.dynamics.equations import equations
from sdefit.dynamics.units import ScaledBounds
from sdefit.methods._increments import SPANS, Increments


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
