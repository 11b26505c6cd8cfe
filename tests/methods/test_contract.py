"""The contract suite, once for each registered method."""

import jax
import numpy as np
import pytest

from contract import (
    KEY,
    assert_near,
    case,
    compilations,
    equal_bits,
    is_finite,
    ou_series,
    quick,
    relaxing,
    two_state_series,
)
from sdefit import methods
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import positive, real
from sdefit.dynamics.sde import SDE
from sdefit.errors import DataError, InputError, ModelError
from sdefit.fitting import fit, fit_each, load

# Each test marked `compiles` needs a program of its own, a quarter of a minute for most methods: `make test-quick` runs
# them for the baseline and MaRS alone.
QUICK = {"moments", "mars"}


@pytest.fixture(params=methods.names())
def name(request):
    return request.param


def compiles(test):
    names = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in methods.names()]
    return pytest.mark.parametrize("name", names)(test)


def test_compilations_are_counted():
    with compilations() as seen:
        jax.jit(lambda x: 2 * x + 1)(np.ones(3)).block_until_ready()
    assert seen


def test_names_itself(name):
    method = quick(name)
    assert method.name == name
    assert method.title
    assert method.reference


def test_same_key_same_bits(name):
    first = fit(relaxing(), ou_series(1), quick(name), key=KEY)
    second = fit(relaxing(), ou_series(1), quick(name), key=KEY)
    assert first.status.ok, first.status
    assert is_finite(first)
    assert equal_bits(first, second)


def test_second_fit_compiles_nothing(name):
    fit(relaxing(), ou_series(1), quick(name), key=KEY)
    other = jax.random.key(8)  # whose own little program may be no longer there
    with compilations() as seen:
        # Other data, another key, other start values; the model and the settings made anew.
        model = equations("dx = rate*(level - x)", params={"rate": positive(start=0.5), "level": real()})
        fit(model, ou_series(2, irregular=True), quick(name), key=other, start={"level": 2.0})
    assert not seen


@compiles
def test_near_the_truth(name):
    # Pooled over 4 series of 20 times over 6.65 time units, level's standard error is 0.3/0.8/√26.6 = 0.07,
    # the start at 4 tells the rate to about a tenth; a tolerance of five such errors forgives a baseline's bias.
    found = fit(relaxing(), [ou_series(i) for i in range(4)], quick(name), key=KEY)
    assert abs(found.params["level"] - 1.0) < 0.35
    assert abs(found.params["rate"] - 0.8) < 0.4
    assert 0.05 < found.G[0, 0] < 0.9


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_irregular_times_and_missing_values(name, missing):
    found = fit(relaxing(), ou_series(3, irregular=True, missing=missing), quick(name), key=KEY)
    assert found.status.ok and is_finite(found)


@compiles
def test_states_with_gaps_of_their_own(name):
    model = equations("dx = -a*(x - 1)\ndy = -b*(y - 1)", diffusion="diagonal")
    found = fit(model, two_state_series(4), quick(name), key=KEY)
    assert found.status.ok and is_finite(found)
    assert found.G[0, 1] == found.G[1, 0] == 0
    assert found.mean[0].shape == (20, 2)


def test_shifted_clock_changes_nothing(name):
    series = ou_series(5)
    shifted = type(series)(series.times - 2000.0, series.values)
    one, other = (fit(relaxing(), s, quick(name), key=KEY) for s in (series, shifted))
    assert_near(one, other, 1e-5)


def test_pooled_is_single_on_one_series(name):
    one = fit(relaxing(), ou_series(1), quick(name), key=KEY)
    assert equal_bits(one, fit(relaxing(), [ou_series(1)], quick(name), key=KEY))


@compiles
def test_each_is_one_by_one(name, tmp_path):
    series = [ou_series(1), ou_series(2, irregular=True), ou_series(3, rows=14)]
    together = fit_each(relaxing(), series, quick(name), key=KEY)
    for i, (found, one) in enumerate(zip(together, series, strict=True)):
        alone = fit(relaxing(), one, quick(name), key=jax.random.fold_in(KEY, i))
        assert found.status.name == alone.status.name
        assert found.mean[0].shape == one.values.shape
        assert_near(found, alone, case(name).alone if len(one) == 20 else case(name).padded)
    assert_all_can_be_asked(together[2], tmp_path)


def assert_all_can_be_asked(found, folder):
    """Everything that needs the data again, of a series that was fitted beside longer ones."""
    assert len(found.summary()) == 4
    found.diagnose()
    found.forecast([5.0, 6.0], draws=8, key=KEY)
    np.testing.assert_allclose(found.states(found.series[0].times).mean, found.mean[0], rtol=1e-6, atol=1e-8)
    found.report(folder / "fit.html")
    found.save(folder / "fit.nc")
    again = load(folder / "fit.nc")
    assert equal_bits(found, again)
    assert again.summary().equals(found.summary())


@compiles
def test_round_trip_through_disk(name, tmp_path):
    found = fit(relaxing(), ou_series(1), quick(name), key=KEY)
    found.save(tmp_path / "fit.nc")
    again = load(tmp_path / "fit.nc")
    assert equal_bits(found, again)
    assert (again.model, again.method, again.status) == (found.model, found.method, found.status)
    assert again.series == found.series
    assert jax.random.key_data(again.key).tolist() == jax.random.key_data(found.key).tolist()
    assert again.trace.keys() == found.trace.keys()
    assert all(np.array_equal(again.trace[k], found.trace[k], equal_nan=True) for k in found.trace)
    times = [0.1, 1.0, 9.0]
    assert np.array_equal(found.states(times).mean, again.states(times).mean)
    assert np.array_equal(found.states(times).std, again.states(times).std)


@compiles
def test_states_at_their_own_times(name):
    found = fit(relaxing(), ou_series(1), quick(name), key=KEY)
    own, asked = found.states(), found.states(found.series[0].times)
    np.testing.assert_allclose(own.mean, asked.mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(own.std, asked.std, rtol=1e-5, atol=1e-7)


@compiles
def test_spread_grows_away_from_the_data(name):
    found = fit(relaxing(), ou_series(1), quick(name), key=KEY)
    std = found.states([3.0, 12.0]).std[:, 0]
    assert 0 <= std[0] < std[1]


@compiles
@pytest.mark.parametrize("diffusion", ["scalar", "none"])
def test_structure_of_the_diffusion(name, diffusion):
    model = equations("dx = -a*(x - 1)\ndy = -b*(y - 1)", diffusion=diffusion)
    series = type(ou_series(1))(ou_series(1).times, np.hstack([ou_series(1).values, ou_series(2).values]), ["x", "y"])
    if diffusion in case(name).refuses:
        with pytest.raises(InputError, match=case(name).refuses[diffusion]):
            fit(model, series, quick(name), key=KEY)
        return
    found = fit(model, series, quick(name), key=KEY)
    assert is_finite(found)
    np.testing.assert_allclose(found.G, found.G[0, 0] * np.eye(2), rtol=1e-12)
    assert (found.G[0, 0] == 0) == (diffusion == "none")


@compiles
def test_drift_that_is_not_a_number(name):
    model = equations("dx = a*log(-x*x - 1)")
    assert fit(model, ou_series(1), quick(name), key=KEY).status.name == "drift_not_finite"


def _ignores(t, x, p):
    return p["rate"] * (p["level"] - x)


@compiles
def test_drift_that_ignores_a_parameter(name):
    model = SDE(_ignores, ["x"], {"rate": positive(), "level": real(), "idle": real()})
    assert fit(model, ou_series(1), quick(name), key=KEY).status.name == "unidentifiable"


@compiles
def test_three_observations(name):
    found = fit(relaxing(), ou_series(1, rows=3), quick(name), key=KEY)
    assert found.status.name == "too_few_observations" and not found.status.ok


def test_bad_input_gets_its_message(name):
    method, series = quick(name), ou_series(1)
    with pytest.raises(InputError, match="key must be a whole number or one JAX random key, not 0.5"):
        fit(relaxing(), series, method, key=0.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="model's states x, but has y"):
        fit(relaxing(), type(series)(series.times, series.values, ["y"]), method, key=KEY)
    with pytest.raises(ModelError, match="start must name free parameters"):
        fit(relaxing(), series, method, key=KEY, start={"speed": 1.0})
    with pytest.raises(DataError, match="must vary"):
        fit(relaxing(), type(series)(series.times, np.ones(20)), method, key=KEY)
