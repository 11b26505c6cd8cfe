"""Parameters, their words, and the way between bounded and unbounded numbers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

from sdefit.dynamics.parameters import Bounds, Parameter, as_parameters, fixed, interval, positive, real
from sdefit.errors import ModelError

RANGES = [(-math.inf, math.inf), (0.0, math.inf), (-3.0, math.inf), (-math.inf, 2.5), (0.1, 0.3), (-1e6, 1e6)]
BOUNDS = Bounds(tuple(low for low, _ in RANGES), tuple(high for _, high in RANGES))


def naive_constrain(u, low, high):
    if math.isfinite(low) and math.isfinite(high):
        return low + (high - low) * special.expit(u)
    if math.isfinite(low):
        return low + np.exp(u)
    return high - np.exp(u) if math.isfinite(high) else u


@pytest.mark.parametrize("seed", range(3))
def test_constrain_agrees_with_numpy(seed):
    u = np.random.default_rng(seed).normal(0, 3, len(RANGES))
    expected = [naive_constrain(one, *pair) for one, pair in zip(u, RANGES, strict=True)]
    np.testing.assert_allclose(BOUNDS.constrain(jnp.asarray(u)), expected, rtol=1e-14, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_unconstrain_is_the_inverse_found_by_root_search(seed):
    u = np.random.default_rng(seed).normal(0, 2, len(RANGES))
    theta = BOUNDS.constrain(jnp.asarray(u))
    found = [
        optimize.brentq(lambda v, i=i, pair=pair: naive_constrain(v, *pair) - float(theta[i]), -40, 40, xtol=1e-14)
        for i, pair in enumerate(RANGES)
    ]
    np.testing.assert_allclose(BOUNDS.unconstrain(theta), found, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-28, 1e-12, 1.0, 1e12])
def test_positive_round_trips_at_every_scale(scale):
    bounds = Bounds.of([positive()])
    np.testing.assert_allclose(bounds.constrain(bounds.unconstrain(jnp.asarray([scale]))), [scale], rtol=1e-13)


@pytest.mark.parametrize("u", [-1e4, -800.0, -40.0, 40.0, 700.0])
def test_constrain_never_leaves_the_bounds(u):
    theta = np.asarray(BOUNDS.constrain(jnp.full(len(RANGES), u)))
    assert (theta >= BOUNDS.lower).all()
    assert (theta <= BOUNDS.upper).all()


@pytest.mark.parametrize("theta", [-5.0, 0.1, 0.3, 7.0])
def test_a_value_on_or_outside_a_bound_is_moved_just_inside(theta):
    bounds = Bounds((0.1, 0.1, -math.inf), (0.3, math.inf, 0.3))
    u = bounds.unconstrain(jnp.full(3, theta))
    back = np.asarray(bounds.constrain(u))
    assert np.isfinite(u).all()
    assert (back > bounds.lower).all()
    assert (back < bounds.upper).all()
    np.testing.assert_allclose(back[0], np.clip(theta, 0.1, 0.3), atol=1e-12)


def test_missing_starts_stay_missing():
    assert np.isnan(BOUNDS.unconstrain(jnp.full(len(RANGES), jnp.nan))).all()


def test_both_ways_trace_and_differentiate():
    u = jnp.linspace(-1.0, 1.0, len(RANGES))
    there = jax.jit(lambda v: BOUNDS.unconstrain(BOUNDS.constrain(v)))
    np.testing.assert_allclose(jax.jacobian(there)(u), np.eye(len(RANGES)), atol=1e-9)


def test_no_free_parameters():
    empty = Bounds((), ())
    assert empty.constrain(jnp.zeros(0)).shape == empty.unconstrain(jnp.zeros(0)).shape == (0,)


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        (real(), "real"),
        (real(2), "real, start 2"),
        (positive(0.5), "positive, start 0.5"),
        (interval(1, 2), "in (1, 2)"),
        (interval(1, math.inf), "above 1"),
        (interval(-math.inf, 0), "negative"),
        (interval(-math.inf, 3), "below 3"),
        (fixed(3), "fixed at 3"),
    ],
)
def test_a_parameter_says_what_it_is(parameter, words):
    assert str(parameter) == words


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: interval(2, 1), "lower bound must be below its upper, but 2.0 >= 1.0"),
        (lambda: interval(1, 1), "lower bound must be below its upper"),
        (lambda: interval(math.nan, 1), "lower bound must be a finite number, not nan"),
        (lambda: interval("0", 1), "lower bound must be a number, not '0'"),  # pyright: ignore[reportArgumentType]
        (lambda: positive(0.0), r"start must lie inside \(0, inf\), but 0 was given"),
        (lambda: positive(math.inf), "start must be a finite number, not inf"),
        (lambda: real(True), "start must be a number, not True"),
        (lambda: fixed(math.nan), "fixed value must be a finite number, not nan"),
        (lambda: real([1]), r"start must be a number, not \[1\]"),  # pyright: ignore[reportArgumentType]
        (lambda: fixed(None), "fixed value must be a number, not None"),  # pyright: ignore[reportArgumentType]
        (lambda: fixed(10**400), "fixed value must be a number"),
        (lambda: Parameter(lower=0, value=-1), r"fixed value must lie inside \(0, inf\), but -1 was given"),
        (lambda: Parameter(start=1, value=2), "a start or a fixed value, not both"),
    ],
)
def test_a_wrong_parameter_is_refused_in_one_line(make, message):
    with pytest.raises(ModelError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_numbers_become_floats_and_plain_numbers_are_fixed():
    read = as_parameters({"a": 2, "b": np.float32(0.5), "c": positive(np.int64(3))})
    assert read == {"a": fixed(2.0), "b": fixed(0.5), "c": positive(3.0)}
    assert type(read["c"].start) is float


@pytest.mark.parametrize("given", [True, "positive", None, [1.0]])
def test_anything_else_is_refused_by_name(given):
    with pytest.raises(ModelError, match=r"parameter 'a' must be sf\.real"):
        as_parameters({"a": given})


def test_params_must_be_a_mapping():
    with pytest.raises(ModelError, match="params must be a mapping of names to ranges, not list"):
        as_parameters(["a"])  # pyright: ignore[reportArgumentType]


def test_a_prior_brings_its_support_and_start():
    from numpyro import distributions

    rate = positive(prior=distributions.LogNormal(0.0, 0.5))
    assert (rate.lower, rate.upper) == (0.0, np.inf) and rate.start == pytest.approx(np.exp(0.125))
    share = real(prior=distributions.Beta(2.0, 6.0))
    assert (share.lower, share.upper, share.start) == (0.0, 1.0, 0.25)
    assert real(start=3.0, prior=distributions.Normal(0.0, 1.0)).start == 3.0
    with pytest.raises(ModelError, match="a parameter's prior must be a numpyro distribution, not 2.0"):
        real(prior=2.0)
