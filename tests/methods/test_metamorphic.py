"""Other units, another clock, another order of parameters or states: every method's estimates turn with them."""

import functools
import itertools

import jax
import numpy as np
import pytest

import sdefit as sf
from contract import KEY, ou_series, quick, relaxing
from sdefit import methods

ALL = sorted(methods.REGISTRY)
POWERS = (-15, -10, -4, 0, 3, 9, 15)
SLOW = [name if name in ("auto", "moments") else pytest.param(name, marks=pytest.mark.slow) for name in ALL]
TRUTH = {"a": 2.0, "b": 1.0, "c": 4.0, "d": 1.0}


@functools.cache
def plain(name):
    one = ou_series(1, 25, irregular=True)
    return one, relaxed(name, one.times, one.values)


def relaxed(name, times, values):
    fit = sf.fit(relaxing(), sf.Series(times, values), quick(name), key=KEY)
    return np.array([fit.params["rate"], fit.params["level"], fit.G[0, 0], fit.noise[0]])


@pytest.mark.parametrize("name", ALL)
def test_units_of_time_and_state(name):
    """A rate is per time, a level as the state, G as the state per root of time; no program is compiled again."""
    one, own = plain(name)
    for time, state in itertools.product(POWERS, POWERS):
        T, S = 10.0**time, 10.0**state
        found = relaxed(name, T * one.times, S * one.values) * [T, 1 / S, T**0.5 / S, 1 / S]
        np.testing.assert_allclose(found, own, rtol=1e-6, atol=1e-300, err_msg=f"{name}: time {T:g}, state {S:g}")


@pytest.mark.parametrize("name", ALL)
def test_the_clock_may_be_shifted(name):
    """A clock that shows 1e6 leaves nine digits of the spacings."""
    one, own = plain(name)
    for shift in (-7.5, 1e3, 1e6):
        np.testing.assert_allclose(relaxed(name, shift + one.times, one.values), own, rtol=1e-6, atol=1e-300)


@functools.cache
def preying(order="abcd", turned=False):
    """Lotka and Volterra's equations with the parameters, or the states, in another order."""
    lines = ["dx = a*x - b*x*y", "dy = c*x*y - d*y"]
    return sf.equations("\n".join(lines[::-1] if turned else lines), params={name: sf.real() for name in order})


@functools.cache
def hunted():
    G = np.array([[0.2, 0.0], [0.1, 0.3]])
    times = np.linspace(0.0, 2.0, 26)
    return sf.simulate(preying(), TRUTH, (3.0, 3.0), times, G=G, noise=0.1, key=jax.random.key(1))


def quantities(fit, turned=False):
    """θ by name, G Gᵀ and σ in the order x, y."""
    Q, noise = fit.G @ fit.G.T, np.asarray(fit.noise)
    if turned:
        Q, noise = Q[::-1, ::-1], noise[::-1]
    return np.array([*(fit.params[name] for name in "abcd"), Q[0, 0], Q[0, 1], Q[1, 1], *noise])


@functools.cache
def hunted_by(name):
    return quantities(sf.fit(preying(), hunted(), quick(name), key=KEY))


# What is left, in units of each quantity, where that is more than 1e-6 (in G and σ; θ is nearer). The critic of AReS is
# in single precision: a rounding error sends its game another way. For MaRS and AReS draws of a state depend on its
# place. The refit forgets both but for what its search of G and σ leaves.
LEFT = {"ares": 1e-5}
LEFT_OF_ORDER = {"mars": 2e-5, "ares": 2e-5}


def assert_equal(found, name, left):
    own = hunted_by(name)
    size = own.copy()
    size[5] = np.sqrt(own[4] * own[6])  # a covariance may be near 0
    assert np.max(np.abs(found - own) / size) < left.get(name, 1e-6)


@pytest.mark.parametrize("name", SLOW)
def test_units_of_each_state_of_a_nonlinear_equation(name):
    """b and c are per time and per the other state's unit."""
    for T, X, Y in [(1e-12, 1e-9, 1e7), (1e15, 1e-15, 1e-15), (1.0, 1e15, 1e-15)]:
        series = sf.Series(T * hunted().times, hunted().values * [X, Y], states=["x", "y"])
        units = np.array([1 / T, 1 / (T * Y), 1 / (T * X), 1 / T, X * X / T, X * Y / T, Y * Y / T, X, Y])
        assert_equal(quantities(sf.fit(preying(), series, quick(name), key=KEY)) / units, name, LEFT)


@pytest.mark.parametrize("name", SLOW)
def test_the_order_of_parameters(name):
    assert_equal(quantities(sf.fit(preying("dbca"), hunted(), quick(name), key=KEY)), name, LEFT)


def turned_round():
    """The series with its states in the other order."""
    return sf.Series(hunted().times, hunted().values[:, ::-1], states=["y", "x"])


IN_ANY_ORDER = [one for one in SLOW if "npsde" not in str(one)]
NPSDE = pytest.param(
    "npsde",
    marks=[
        pytest.mark.slow,
        pytest.mark.xfail(strict=True, reason="its weak prior is on the diagonal of a Cholesky factor"),
    ],
)


@pytest.mark.parametrize("name", [*IN_ANY_ORDER, NPSDE])
def test_the_order_of_states(name):
    series = sf.Series(hunted().times, hunted().values[:, ::-1], states=["y", "x"])
    found = quantities(sf.fit(preying(turned=True), series, quick(name), key=KEY), turned=True)
    assert_equal(found, name, LEFT_OF_ORDER)
