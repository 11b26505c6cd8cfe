"""Standardised arrays: the same for any clock and unit, and undone exactly."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sdefit.data import Pool, Series, stack, standardise, with_times
from sdefit.errors import DataError

NAN = np.nan
ARRAYS = ("times", "values", "observed")


def sample(seed: int, n: int, **kwargs) -> Series:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 2)) * [1.0, 5.0] + [0.0, 3.0]
    values[2:-1][rng.uniform(size=(n - 3, 2)) < 0.2] = NAN
    # Sixteenths, so that a shifted clock still shows the same times exactly.
    times = np.cumsum(rng.integers(1, 40, n)) / 16
    return Series(times, values, ["a", "b"], **kwargs)


def refusal(make, *args) -> str:
    with pytest.raises(DataError) as caught:
        make(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_same_arrays(one: Pool, other: Pool, rtol: float = 1e-9) -> None:
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("seed", range(3))
def test_against_the_formula(seed):
    many = [sample(seed, 7), sample(seed + 10, 4), sample(seed + 20, 9)]
    pool = standardise(many)
    every = np.concatenate([s.values for s in many])
    center, scale = np.nanmean(every, axis=0), np.nanstd(every, axis=0)
    spacing = np.median(np.concatenate([np.diff(s.times) for s in many]))
    np.testing.assert_allclose(pool.center, center, rtol=1e-13)
    np.testing.assert_allclose(pool.scale, scale, rtol=1e-13)
    np.testing.assert_allclose(pool.time_scale, spacing, rtol=1e-15)
    np.testing.assert_array_equal(pool.time_origin, [s.times[0] for s in many])
    assert pool.times.shape == (3, 9)
    assert pool.values.shape == pool.observed.shape == (3, 9, 2)
    for i, s in enumerate(many):
        n = len(s)
        np.testing.assert_allclose(pool.times[i, :n], (s.times - s.times[0]) / spacing, rtol=1e-14)
        np.testing.assert_array_equal(pool.observed[i, :n], s.observed)
        expected = np.where(s.observed, (s.values - center) / scale, 0)
        np.testing.assert_allclose(pool.values[i, :n], expected, rtol=1e-12, atol=1e-14)
        # Padding repeats the last time and is observed nowhere.
        assert (pool.times[i, n:] == pool.times[i, n - 1]).all()
        assert not pool.observed[i, n:].any()
        assert not pool.values[i, n:].any()


def test_arrays_are_numpy_float64_whatever_the_flag():
    with jax.enable_x64(False):
        pool = standardise(sample(0, 8))
        leaves = jax.tree.leaves(pool)
        assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
        assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float64), np.dtype(bool)}
        assert pool.unstandardise_path(pool.values[0]).dtype == np.float64
        assert pool.unstandardise_diffusion(np.eye(2)).dtype == np.float64


@pytest.mark.parametrize("shift", [-2000.0, 2000.0, 1e9])
def test_the_clock_may_be_shifted(shift):
    many = [sample(1, 20), sample(2, 12)]
    moved = standardise([Series(s.times + shift, s.values, s.states) for s in many])
    pool = standardise(many)
    assert_same_arrays(moved, pool)
    np.testing.assert_allclose(moved.time_origin - shift, pool.time_origin, rtol=1e-12)


@pytest.mark.parametrize("factor", [60.0, 1 / 86400, 1e-12, 1e12, 1e90])
def test_units_of_time_and_state_may_change(factor):
    s = sample(3, 20)
    pool = standardise(s)
    slow = standardise(Series(s.times * factor, s.values, s.states))
    large = standardise(Series(s.times, s.values * factor, s.states))
    assert_same_arrays(slow, pool)
    assert_same_arrays(large, pool)
    np.testing.assert_allclose(slow.time_scale, pool.time_scale * factor, rtol=1e-12)
    np.testing.assert_allclose(large.scale, pool.scale * factor, rtol=1e-12)
    np.testing.assert_allclose(large.center, pool.center * factor, rtol=1e-12)


@given(st.integers(0, 1000), st.integers(4, 30), st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_standardised_and_back(seed, n, offset, factor):
    assume(factor > 1e-9 * abs(offset))  # else the values are constant up to rounding, and refused
    s = sample(seed, n)
    s = Series(s.times, s.values * factor + offset, s.states)
    pool = standardise(s)
    back = pool.unstandardise_path(pool.values[0])
    np.testing.assert_allclose(back[s.observed], s.values[s.observed], rtol=1e-9, atol=1e-12 * factor)
    np.testing.assert_allclose(pool.time_origin[0] + pool.time_scale * pool.times[0], s.times, rtol=1e-12)


def test_units_of_the_answer():
    """An OU process written in standardised units has the user's drift, diffusion and spread."""
    pool = standardise(sample(5, 30))
    batch = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5, 2)))
    np.testing.assert_allclose(pool.unstandardise_path(batch), pool.center + pool.scale * np.asarray(batch), rtol=1e-14)
    np.testing.assert_allclose(pool.unstandardise_std(batch), pool.scale * np.asarray(batch), rtol=1e-14)
    G = np.array([[1.0, 0.0], [0.3, 2.0]])
    # Var of dx over a standardised unit of time is G Gᵀ there, so S G Gᵀ S per `time_scale` in the user's units.
    S = np.diag(pool.scale)
    out = pool.unstandardise_diffusion(jnp.asarray(G))
    np.testing.assert_allclose(out @ out.T * pool.time_scale, S @ G @ G.T @ S, rtol=1e-13)
    standard = pool.drift(lambda t, x: jnp.sin(t) - 2.0 * x)
    t, x, origin = 0.7, batch[0, 0], pool.time_origin[0]
    user = np.sin(origin + pool.time_scale * t) - 2 * (pool.center + pool.scale * np.asarray(x))
    np.testing.assert_allclose(standard(t, x, origin), user * pool.time_scale / pool.scale, rtol=1e-12)


def test_stacked_pools_gain_an_axis_and_common_padding():
    pools = [standardise(sample(seed, n)) for seed, n in ((0, 5), (1, 9), (2, 7))]
    many = stack(pools)
    assert many.times.shape == (3, 1, 9)
    assert many.values.shape == (3, 1, 9, 2)
    assert many.center.shape == (3, 2)
    assert many.time_scale.shape == (3,)
    for i, pool in enumerate(pools):
        n = pool.times.shape[1]
        one = jax.tree.map(lambda leaf, i=i: leaf[i], many)
        np.testing.assert_array_equal(one.times[:, :n], pool.times)
        np.testing.assert_array_equal(one.values[:, :n], pool.values)
        np.testing.assert_array_equal(one.observed[:, :n], pool.observed)
        np.testing.assert_array_equal(one.time_origin, pool.time_origin)
        assert (one.times[:, n:] == pool.times[:, -1:]).all()
        assert not one.observed[:, n:].any()
    out = jax.vmap(lambda pool: pool.unstandardise_path(pool.values))(many)
    np.testing.assert_allclose(out[1], pools[1].unstandardise_path(pools[1].values), rtol=1e-14)
    two = standardise([sample(0, 5), sample(1, 6)])
    assert refusal(stack, [pools[0], two]) == (
        "pools must be one or more of equally many series and states to be stacked"
    )
    assert refusal(stack, []) == "pools must be one or more of equally many series and states to be stacked"


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_more_times(shift):
    s = sample(4, 12)
    s = Series(s.times + shift, s.values, s.states)
    pool = standardise(s)
    between = (s.times[2] + s.times[3]) / 2
    asked = np.array([s.times[-1] + 9, s.times[5], between, s.times[0] - 3, between, s.times[5]])
    more, index = with_times(pool, asked)
    assert more.times.shape == (1, 15)
    assert (np.diff(more.times[0]) > 0).all()
    np.testing.assert_allclose(more.time_origin[0] + more.time_scale * more.times[0, index], asked, rtol=1e-13)
    kept = np.setdiff1d(np.arange(15), index[[0, 2, 3]])
    np.testing.assert_array_equal(more.times[0, kept], pool.times[0])
    np.testing.assert_array_equal(more.values[0, kept], pool.values[0])
    np.testing.assert_array_equal(more.observed[0, kept], pool.observed[0])
    assert not more.observed[0, index[[0, 2, 3]]].any()


def test_times_that_are_there_get_no_second_row():
    s = Series(np.arange(21) / 10, np.sin(np.arange(21)))
    pool = standardise(s)
    # linspace and division differ in the last digit; that is still the same time.
    same, index = with_times(pool, np.linspace(0, 2, 21))
    np.testing.assert_array_equal(index, np.arange(21))
    assert_same_arrays(same, pool, rtol=0)
    finer, index = with_times(pool, np.linspace(0, 2, 201))
    assert finer.times.shape == (1, 201)
    np.testing.assert_array_equal(index, np.arange(201))


def test_more_times_after_padding():
    padded = jax.tree.map(lambda leaf: leaf[0], stack([standardise(sample(0, 5)), standardise(sample(1, 8))]))
    last = float(padded.time_origin[0] + padded.time_scale * padded.times[0, -1])
    more, index = with_times(padded, [last, last + 1])
    assert list(index) == [4, 8]
    assert (np.diff(more.times[0]) >= 0).all()


@given(st.lists(st.floats(-100, 300), min_size=1, max_size=30))
def test_every_time_asked_for_is_found(asked):
    pool = standardise(sample(0, 15))
    more, index = with_times(pool, asked)
    found = more.time_origin[0] + more.time_scale * more.times[0, index]
    # Times nearer than 1e-9 of the spacing share a row, also in a chain of at most 30 such steps.
    np.testing.assert_allclose(found, asked, atol=30e-9 * float(pool.time_scale), rtol=1e-13)
    assert more.observed.sum() == pool.observed.sum()


T = np.arange(3.0)
REFUSED = {
    "series must be one or more series, but the list is empty": [],
    "series must be sf.Series, but number 2 is ndarray; use sf.Series(...)": [Series(T, T), T],
    "series must have the same states in the same order, but number 2 has b, a and the first a, b": [
        sample(0, 5),
        Series(T, np.eye(3)[:, :2], ["b", "a"]),
    ],
    "state 'flat' must vary, but every value is 7; leave it out of the model, or make it a parameter there": [
        Series(T, np.stack([T, T * 0 + 7], axis=1), ["x", "flat"])
    ],
    "state 'x' must vary, but every value is 0; leave it out of the model, or make it a parameter there": [
        Series(T, T * 0)
    ],
    "state 'x' must vary, but every value is 1e+09; leave it out of the model, or make it a parameter there": [
        Series(T, 1e9 + T * 1e-6)
    ],
    "state 'x' must lie between 1e-100 and 1e+100 in size, but its largest value is 2e+300; give it in another unit": [
        Series(T, T * 1e300)
    ],
    "state 'x' must lie between 1e-100 and 1e+100 in size, but its largest value is 2e-300; give it in another unit": [
        Series(T, T * 1e-300)
    ],
    "times must stay below 1e+100, but one is 1e+308; choose a larger unit of time": [
        Series([-1e308, 0, 1e308], [1, 2, 3])
    ],
    "times must be 1e-100 apart or more as a rule, not 1e-300; choose a smaller unit": [Series(T * 1e-300, [1, 2, 3])],
    "times must differ, but 0 and 1e-300 are the same beside a median spacing of 5e+89": [
        Series([0, 1e-300, 1e90], [1, 2, 3])
    ],
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals_word_for_word(message):
    assert refusal(standardise, REFUSED[message]) == message


def test_refusals_of_more_times():
    pool = standardise(sample(0, 5))
    assert refusal(with_times, pool, [1.0, NAN]) == "times must be one row of finite numbers, not [1.0, nan]"
    assert refusal(with_times, pool, []) == "times must be one row of finite numbers, not []"
    assert refusal(with_times, pool, ["a"]) == "times must be an array of numbers, not of text"
    two = standardise([sample(0, 5), sample(1, 5)])
    assert refusal(with_times, two, [1.0]) == "times can be added to one series at a time, not to 2; pick one"


def test_any_magnitude_gives_finite_arrays_or_one_line():
    outcomes = collections.Counter()

    anything, usual = st.floats(allow_nan=False, allow_infinity=False), st.floats(-1e6, 1e6, width=32)

    @given(
        st.lists(anything, min_size=3, max_size=6, unique=True) | st.lists(usual, min_size=3, max_size=6, unique=True),
        st.lists(anything, min_size=6, max_size=6) | st.lists(usual, min_size=6, max_size=6, unique=True),
    )
    def check(times, values):
        series = Series(times, values[: len(times)])
        pool, message = None, ""
        try:
            pool = standardise(series)
        except DataError as error:
            message = str(error)
        outcomes[pool is None] += 1
        if pool is None:
            assert len(message.splitlines()) == 1
            return
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(pool))
        assert (np.diff(pool.times[0]) > 0).all()

    check()
    assert min(outcomes[True], outcomes[False]) >= 5
