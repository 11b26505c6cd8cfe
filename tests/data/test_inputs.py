"""Known inputs u(t): a driven Ornstein-Uhlenbeck process dx = (b u − a x) dt + g dw against its closed form."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdefit.methods
from contract import KEY, quick, relaxing
from sdefit.cli.app import run
from sdefit.data import Pool, Series, read_csv, stack, standardise, with_times, write_csv
from sdefit.data.inputs import TimeWithInputs
from sdefit.dynamics import model_file
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import positive, real
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.simulate import simulate
from sdefit.errors import DataError, InputError, ModelError
from sdefit.fitting import fit, fit_each, load
from sdefit.inference.likelihood import filter_pool
from sdefit.inference.parameterisation import Point
from sdefit.methods.esgf import ESGF
from sdefit.methods.interface import NoState
from sdefit.methods.moments import Moments
from sdefit.methods.npsde import NPSDE
from sdefit.result import Estimate
from sdefit.uncertainty import bootstrap

A, B, G, NOISE = 0.8, 1.5, 0.3, 0.1
TRUTH = {"a": A, "b": B}
QUICK = Moments(starts=4, iterations=40)
HOLDS = ["linear", "previous"]
RANGES = {"a": positive(), "b": real()}
TEXT = "dx = -a*x + b*u"


def driven(hold="linear", diffusion="full"):
    return equations(TEXT, RANGES, diffusion, "driven", ["u"], hold)


def clock(rows, seed=0):
    return np.cumsum(np.random.default_rng(seed).uniform(0.1, 0.3, rows))


def drive(times):
    return np.sin(0.5 * times) + (times > 0.5 * times[-1])


def observed(rows=60, seed=0, hold="linear"):
    times = clock(rows, seed)
    options = {"noise": NOISE, "G": G, "key": jax.random.key(seed), "inputs": {"u": drive(times) + 0.1 * seed}}
    return simulate(driven(hold), TRUTH, 0.0, times, **options)


def crossed(x, u, after, h, hold):
    """x(t + h) without noise, from x(t) = x and an input that goes from u to `after`, or stays."""
    decay, slope = np.exp(-A * h), (after - u) / h if hold == "linear" else 0.0
    return decay * x + B * (u * (1 - decay) / A + slope * (h / A - (1 - decay) / A**2))


def exact_path(times, u, x, hold):
    path = [x]
    for n, h in enumerate(np.diff(times)):
        path.append(crossed(path[-1], u[n], u[n + 1], h, hold))
    return np.array(path)


# --- between the rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", [0, 3])
def test_values_between_rows(padding):
    times, u = np.array([0.0, 1.0, 3.0]), np.array([2.0, 4.0, -2.0])
    table = (jnp.array([*times, *[3.0] * padding]), {"u": jnp.array([*u, *[-2.0] * padding])})
    asked = np.array([-1.0, 0.0, 0.5, 1.0, 2.5, 2.999, 3.0, 9.0])

    def at(hold):
        return jax.vmap(lambda t: TimeWithInputs(t, t, table).inputs(["u"], hold)["u"])(jnp.asarray(asked))

    np.testing.assert_allclose(at("linear"), np.interp(asked, times, u), rtol=1e-14)
    np.testing.assert_array_equal(at("previous"), [2, 2, 2, 4, 4, 4, -2, -2])


def test_python_drift_is_given_inputs_by_name_among_the_parameters():
    def drift(t, x, p):
        return -p["a"] * x + p["b"] * p["u"] + t

    model = SDE(drift, ["x"], RANGES, inputs=("u",), hold="previous")
    table = (jnp.array([0.0, 1.0]), {"u": jnp.array([3.0, 5.0])})
    x, theta = jnp.array([2.0]), jnp.array([0.5, 7.0])
    assert model.f(TimeWithInputs(jnp.array(10.0), jnp.array(0.9), table), x, theta) == -1.0 + 21.0 + 10.0
    with pytest.raises(ModelError, match="the drift needs the inputs u, but only a time came"):
        model.f(jnp.array(0.0), x, theta)


# --- simulation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", HOLDS)
def test_a_simulation_without_noise_is_the_exact_solution(hold):
    times = clock(30)
    u = drive(times)
    options = {"key": KEY, "inputs": {"u": u}, "step": 1e-3, "scheme": "shark"}
    found = simulate(driven(hold, "none"), TRUTH, 1.0, times, **options)
    # A scheme of second order on an ODE of rate A: an error near (A h)² is below 1e-6.
    np.testing.assert_allclose(found.values[:, 0], exact_path(times, u, 1.0, hold), atol=2e-6)
    np.testing.assert_array_equal(found.inputs["u"], u)


SIMULATED = [
    (None, "inputs must give the model's inputs by name, u, but nothing came"),
    ({"v": [1, 2, 3]}, "inputs must give the model's inputs by name, u, but v came"),
    ({"u": [1, 2]}, "input 'u' must be one number per time, (3,), not (2,)"),
    ({"u": [1, np.nan, 2]}, "input 'u' must be finite, but nan was given"),
]


@pytest.mark.parametrize(("given", "said"), SIMULATED)
def test_simulate_refuses_other_inputs(given, said):
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        simulate(driven(), TRUTH, 0.0, [0, 1, 2], G=1.0, key=KEY, inputs=given)


def test_a_model_without_inputs_takes_none():
    with pytest.raises(ModelError, match="by name, nothing, but u came"):
        simulate(relaxing(), {"rate": 1, "level": 0}, 0.0, [0, 1, 2], G=1.0, key=KEY, inputs={"u": [1, 2, 3]})


# --- inside the programs ---------------------------------------------------------------------------------------


def log_likelihood(series, a=A, b=B, g=G, noise=NOISE):
    """The exact one of all rows given the first, for inputs held as at the row before."""
    y, total = series.values[:, 0], 0.0
    mean, variance = y[0], noise**2
    for n, h in enumerate(np.diff(series.times)):
        decay = np.exp(-a * h)
        mean = decay * mean + b * series.inputs["u"][n] * (1 - decay) / a
        variance = decay**2 * variance + g**2 * (1 - decay**2) / (2 * a)
        if np.isfinite(y[n + 1]):
            s = variance + noise**2
            total -= 0.5 * (np.log(2 * np.pi * s) + (y[n + 1] - mean) ** 2 / s)
            gain = variance / s
            mean, variance = mean + gain * (y[n + 1] - mean), (1 - gain) * variance
    return total


def with_gaps(series, seed):
    """The series with rows of inputs alone, first and last row excepted."""
    values = series.values.copy()
    values[np.random.default_rng(seed).permutation(np.arange(1, len(series) - 1))[:9]] = np.nan
    return Series(series.times, values, series.states, inputs=series.inputs)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_likelihood_of_pooled_series_is_exact(shift):
    # Two series of other lengths and inputs that begin at one time: each must find its own inputs.
    first, second = (with_gaps(observed(rows, seed, "previous"), seed) for rows, seed in ((25, 1), (18, 2)))
    second = Series(second.times - second.times[0] + first.times[0], second.values, inputs=second.inputs)
    both = [Series(one.times + shift, one.values, inputs=one.inputs) for one in (first, second)]
    pool = standardise(both, ["u"])
    scale, unit = pool.scale, pool.time_scale
    point = Point(
        jnp.array([A, B]), jnp.diag(G**2 * unit / scale**2), jnp.asarray(NOISE**2 / scale**2), jnp.zeros((2, 1))
    )
    steps = jnp.ones(pool.times.shape, jnp.int32)
    total, _ = jax.jit(lambda pool: filter_pool(driven("previous"), pool, point, steps, "extended"))(pool)
    count = sum(int(one.observed.sum()) - 1 for one in both)
    # Clocks that show 1000 cost three digits of 1e-13 in the spacing.
    want = log_likelihood(first) + log_likelihood(second)
    np.testing.assert_allclose(total - count * np.log(scale[0]), want, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("hold", HOLDS)
def test_data_simulated_for_the_bootstrap_follow_the_inputs(hold):
    several = [observed(20, 3), observed(12, 4)]
    pool = standardise(several, ["u"])
    mean = jnp.asarray(pool.values)
    nothing = {"criterion": jnp.zeros(()), "code": jnp.zeros((), jnp.int32), "state": NoState(), "trace": {}}
    source = Estimate(
        theta=jnp.array([A, B]), G=jnp.zeros((1, 1)), noise=jnp.zeros(1), mean=mean, std=jnp.zeros_like(mean), **nothing
    )
    counts = jnp.full(pool.times.shape, 200, jnp.int32)
    paths = jax.jit(lambda pool, source: bootstrap.paths(driven(hold), pool, source, counts, KEY))(pool, source)
    for path, one in zip(pool.unstandardise_path(np.asarray(paths)), several, strict=True):
        exact = exact_path(one.times, one.inputs["u"], one.values[0, 0], hold)
        np.testing.assert_allclose(path[: len(one), 0], exact, atol=2e-6)


def test_pools_keep_their_inputs_when_stacked_and_given_more_times():
    short, long = (standardise(observed(rows, rows), ["u"]) for rows in (12, 20))
    more, _ = with_times(short, [observed(12, 12).times[3] + 0.01])
    both = stack([more, long])
    model, theta = driven(), jnp.array([A, B])

    def f(pool, t):
        origin = jax.tree.map(lambda a: a[0], pool.origins)
        return pool.drift(lambda t, x: model.f(t, x, theta))(t, jnp.zeros(1), origin)

    for t in (0.0, 3.3, 11.0, 30.0):
        np.testing.assert_allclose(f(jax.tree.map(lambda a: a[0], both), t), f(short, t), rtol=1e-13)
        np.testing.assert_allclose(f(jax.tree.map(lambda a: a[1], both), t), f(long, t), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*sdefit.methods.names()} - {"npsde", "esgf", "moments"}))
def test_the_methods_not_fitted_below_can_be_traced_with_inputs(name):
    pool = standardise(observed(12), ["u"])

    def estimate(pool: Pool, start, key):
        return quick(name).estimate(driven(), pool, start, key)

    assert jax.eval_shape(estimate, pool, jnp.full(2, jnp.nan), KEY).theta.shape == (2,)


def test_npsde_refuses_inputs_by_name():
    with pytest.raises(ModelError, match="^NPSDE needs a model without inputs"):
        fit(driven(), observed(12), NPSDE(), key=KEY)


def test_a_model_without_inputs_has_a_pool_without_them():
    one = observed(12)
    assert standardise(one).inputs is None
    assert len(jax.tree.leaves(standardise(one))) == 7
    assert standardise(one).origins is not None


# --- fits ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    return fit(driven(), observed(), QUICK, key=KEY)


def test_the_gain_of_the_input_is_recovered():
    series = observed(150, 5, "previous")
    one = fit(driven("previous"), series, ESGF(starts=2), key=KEY)
    assert one.status.ok
    best = {"a": one.params["a"], "b": one.params["b"], "g": one.G[0, 0], "noise": one.noise[0]}
    top = log_likelihood(series, **best)
    # Twice the distance to the truth is χ² of four degrees of freedom: above 18.5 once in a thousand.
    assert 0 < 2 * (top - log_likelihood(series)) < 18.5
    # The same for each number by itself: the exact likelihood falls on both sides of the estimate.
    for name, share in [(name, share) for name in best for share in (0.98, 1.02)]:
        assert log_likelihood(series, **best | {name: share * best[name]}) < top
    assert log_likelihood(series, **best | {"b": 0.5 * best["b"]}) < top - 10


def test_neither_the_clock_nor_padding_changes_a_fit(found):
    one = observed()
    later = Series(one.times + 500.0, one.values, inputs=one.inputs)
    again = fit(driven(), later, QUICK, key=KEY)
    np.testing.assert_allclose(list(again.params.values()), list(found.params.values()), rtol=1e-6)
    each = fit_each(driven(), [one, observed(80, 6)], QUICK, key=KEY)
    alone = fit(driven(), one, QUICK, key=jax.random.fold_in(KEY, 0))
    np.testing.assert_allclose(list(each[0].params.values()), list(alone.params.values()), rtol=1e-6)


def test_other_inputs_give_another_fit(found):
    one = observed()
    doubled = fit(driven(), Series(one.times, one.values, inputs={"u": 2 * one.inputs["u"]}), QUICK, key=KEY)
    np.testing.assert_allclose(doubled.params["b"], found.params["b"] / 2, rtol=1e-4)
    np.testing.assert_allclose(doubled.params["a"], found.params["a"], rtol=1e-4)


def test_a_forecast_holds_the_last_input_and_says_so(found):
    draws, last = 1000, found.series[0].times[-1]
    ahead = found.forecast(last + np.array([5.0, 60.0]), draws=draws, key=KEY)
    level = found.params["b"] * found.series[0].inputs["u"][-1] / found.params["a"]
    # At 60 all else is forgotten: the mean of draws of the stationary variance g²/2a, within four errors.
    error = np.sqrt(found.GGt[0, 0] / (2 * found.params["a"]) / draws)
    assert abs(ahead.mean[1, 0] - level) < 4 * error + 1e-3 * abs(level)
    assert ahead.notes == (
        f"No value of u is known after time {last:g}: the last one is held. Add rows that give inputs only.",
    )


def test_inputs_come_back_from_a_file(found, tmp_path):
    found.save(tmp_path / "fit.nc")
    again = load(tmp_path / "fit.nc")
    assert again.model == found.model
    assert again.series == found.series
    at = found.series[0].times[:3] + 0.05
    np.testing.assert_array_equal(again.states(at).mean, found.states(at).mean)
    with pytest.raises(ModelError, match="with inputs u, not none"):
        load(tmp_path / "fit.nc", equations("dx = -a*x + b", {"a": positive()}))


# --- models and files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", HOLDS)
def test_models_with_inputs_survive_disk(hold, tmp_path):
    model = driven(hold)
    model_file.write_model(model, tmp_path / "model.toml")
    assert model_file.read_model(tmp_path / "model.toml") == model
    assert model_file.from_dict(model_file.to_dict(model)) == model
    assert (model.inputs, model.hold) == (("u",), hold)
    assert driven("linear") != driven("previous")
    other = model_file.from_dict(model_file.to_dict(SDE(lambda t, x, p: x, ["x"], {}, inputs=["u"], hold=hold)))
    assert (other.inputs, other.hold) == (("u",), hold)


MODELS = [
    ({"inputs": "u"}, "inputs must be a list of names, not the string 'u'; write ['u']"),
    ({"inputs": ["a"]}, "input 'a' must not have the name of a state or parameter; rename one of them"),
    ({"inputs": ["u", "u"]}, "inputs must be different names, not ['u', 'u']"),
    ({"hold": "next"}, "hold must be one of linear, previous, not 'next'"),
]


@pytest.mark.parametrize(("given", "said"), MODELS)
def test_models_refuse_what_cannot_be_an_input(given, said):
    with pytest.raises(ModelError, match=f"^{re.escape(said)}$"):
        SDE(lambda t, x, p: x, ["x"], RANGES, **given)


def test_a_series_without_the_models_inputs_is_refused_before_computing():
    one = observed(12)
    bare = Series(one.times, one.values, name="north")
    with pytest.raises(DataError, match="the model's inputs u, but 'north' has none; give inputs={'u': values}"):
        fit(driven(), bare, key=KEY)
    with pytest.raises(DataError, match="the model's inputs u, but number 2 has v"):
        fit_each(driven(), [one, Series(one.times, one.values, inputs={"v": one.times})], key=KEY)


def test_the_command_line_takes_the_inputs_that_the_model_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one = observed(20, 7)
    write_csv(one, "obs.csv")
    Path("model.toml").write_text(f'equations = "{TEXT}"\ninputs = ["u"]\nhold = "previous"\n')
    assert run(["fit", "obs.csv", "--model", "model.toml", "--method", "moments", "--out", "run"]) == 0
    kept = load("run/fit.nc")
    assert kept.series[0] == read_csv("obs.csv", states=["x"], inputs=["u"])
    assert kept.model.hold == "previous"
    Path("obs.csv").write_text("t,x\n0,1\n1,2\n2,1\n3,2\n")
    capsys.readouterr()
    assert run(["fit", "obs.csv", "--model", "model.toml"]) == 2
    assert "there is no column 'u'" in capsys.readouterr().err
