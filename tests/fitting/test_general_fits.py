"""Everything that one asks of a fit, of models with hidden states, a given diffusion, several columns and laws."""

import re

import jax
import numpy as np
import pandas as pd
import pytest

import sdefit as sf
from general_models import (
    FILTER,
    TRUTH,
    positives,
    spring,
    spring_fit,
    spring_series,
    square_root,
    square_root_series,
)
from general_models import values as values_of
from sdefit.errors import InputError, ModelError

KEY = jax.random.key(5)
LATER = [6.1, 6.5, 7.0]


def close(one, other, rtol=1e-6, atol=1e-9):
    np.testing.assert_allclose(values_of(one), values_of(other), rtol=rtol, atol=atol)
    np.testing.assert_allclose(one.log_likelihood, other.log_likelihood, rtol=0, atol=1e-6)
    for a, b in zip(one.mean + one.std, other.mean + other.std, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


# --- a hidden state through everything ---------------------------------------------------------------------------


def test_tables_name_the_observed_column_and_states_the_states():
    found = spring_fit()
    assert [row["quantity"] for row in found.table()] == ["k", "c", "s", "noise[x]"]
    assert found.mean[0].shape == found.std[0].shape == (61, 2)
    assert found.noise.shape == (1,)
    assert "v is not measured (hidden)." in str(found)
    own = found.states()
    np.testing.assert_array_equal(own.mean, found.mean[0])
    assert own.names == ("x", "v")


def test_states_between_rows_are_those_of_a_pass_with_a_row_there():
    """A row that observes nothing changes nothing: where rows are, the states are their own."""
    found = spring_fit()
    between = found.states([0.05, 1.2, 1.23])
    assert between.names == ("x", "v")
    np.testing.assert_allclose(between.mean[1], found.mean[0][12], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(between.std[1], found.std[0][12], rtol=1e-6, atol=1e-9)
    # In 0.03 of time the position moves by its velocity, but for what a = |−k x − c v| + noise may add: a t² ≲ 0.01.
    moved = between.mean[2, 0] - between.mean[1, 0]
    assert moved == pytest.approx(0.03 * between.mean[1:, 1].mean(), abs=2e-3)
    assert set(between.frame().state) == {"x", "v"}


def test_a_fit_comes_back_from_disk(tmp_path):
    found = spring_fit()
    found.save(tmp_path / "fit.nc", intervals=found.intervals(draws=0))
    back = sf.load(tmp_path / "fit.nc")
    assert back.model == found.model
    assert back.params == found.params and back.status == found.status
    np.testing.assert_array_equal(back.mean[0], found.mean[0])
    np.testing.assert_array_equal(back.series[0].values, found.series[0].values)
    assert back.log_likelihood == found.log_likelihood
    np.testing.assert_array_equal(back.states([0.05]).mean, found.states([0.05]).mean)
    np.testing.assert_array_equal(back.forecast(LATER, draws=20).states, found.forecast(LATER, draws=20).states)
    assert sf.Intervals.load(tmp_path / "fit.nc").names == ("k", "c", "s", "noise[x]")


def python_drift(t, x, p):
    return [x[1], -p["k"] * x[0] - p["c"] * x[1]]


def python_diffusion(t, x, p):
    return [[0.0], [p["s"]]]


def position(t, x, p):
    return x[:1]


@pytest.mark.slow
def test_a_model_of_python_functions_is_the_same_and_is_needed_again_after_loading(tmp_path):
    model = sf.SDE(python_drift, ["x", "v"], positives("k", "c", "s"), python_diffusion, observe=position,
                   observations=["x"])  # fmt: skip
    found = sf.fit(model, spring_series(), FILTER)
    close(found, spring_fit())
    found.save(tmp_path / "fit.nc")
    back = sf.load(tmp_path / "fit.nc", model=model)
    np.testing.assert_array_equal(back.states([0.05]).mean, found.states([0.05]).mean)
    bare = sf.load(tmp_path / "fit.nc")
    assert bare.summary()["estimate"].to_list() == found.summary()["estimate"].to_list()
    with pytest.raises(InputError):
        bare.forecast(LATER)
    with pytest.raises(ModelError, match="with states x, v"):
        sf.load(tmp_path / "fit.nc", model=sf.equations("dx = -k*x"))


def test_forecasts_have_states_and_columns():
    found = spring_fit()
    ahead = found.forecast(LATER, draws=400)
    assert ahead.states.shape == (400, 3, 2) and ahead.observations.shape == (400, 3, 1)
    assert ahead.names == ("x", "v") and ahead.columns == ("x",)
    # The mean follows the linear drift from the last state; 5 standard errors of 400 draws.
    from scipy.linalg import expm

    A = np.array([[0.0, 1.0], [-found.params["k"], -found.params["c"]]])
    for n, t in enumerate(LATER):
        expected = expm((t - 6.0) * A) @ found.mean[0][-1]
        np.testing.assert_array_less(np.abs(ahead.mean[n] - expected), 5 * ahead.states[:, n].std(axis=0) / 20)
    noise = (ahead.observations[..., 0] - ahead.states[..., 0]).std()
    assert noise == pytest.approx(float(found.noise[0]), rel=5 / np.sqrt(2 * 1200))
    score = ahead.score(np.array([[0.1], [np.nan], [0.3]]))
    assert set(score["mean_crps"]) == {"x"} and score["crps"].shape == (3, 1) and 0 <= score["coverage"] <= 1


def test_diagnosis_is_of_columns():
    found = spring_fit().diagnose()
    assert {check.state for check in found.checks if check.state} == {"x"}
    z = found.residuals[0]
    assert z.shape == (61, 1) and np.isnan(z[0, 0]) and np.isfinite(z[1:]).all()
    # At the maximum over σ and s the mean square is 1 but for a trend in the predicted variance.
    assert np.mean(z[1:] ** 2) == pytest.approx(1.0, abs=0.05)
    assert found.ok


@pytest.mark.slow
def test_intervals_and_profiles_of_a_hidden_state_model():
    """All three are of one likelihood: their ends lie within half a standard error, for the well-known k and σ.

    With flat priors there is no posterior to draw from: the likelihood does not fall to 0 where c and s are large. The
    bootstrap then simulates from the fit.
    """
    found = spring_fit()
    quick, refits = found.intervals(draws=0), found.intervals(draws=40)
    assert quick.kind == "information"
    profile = found.profile("k", points=9)
    assert refits.names == quick.names and refits.failed == 0
    for name in ("k", "noise[x]"):
        low, high = quick[name]
        assert low < found.table()[quick.names.index(name)]["estimate"] < high
        # A quantile of 40 draws errs by a third of a standard deviation.
        assert refits[name] == pytest.approx((low, high), abs=0.35 * (high - low))
    assert (profile.lower, profile.upper) == pytest.approx(quick["k"], abs=0.15 * np.ptp(quick["k"]))
    assert np.max(profile.log_likelihood) == 0.0
    assert profile.values[4] == pytest.approx(found.params["k"], rel=1e-3)


def test_refits_of_data_without_numbers_count_as_failed():
    """From a θ whose paths blow up there is nothing to fit; the search must not be said to end where it began."""
    from sdefit.uncertainty.bootstrap import finite, generating_of, refit

    found = spring_fit()
    pools, estimates = jax.tree.map(lambda a: np.asarray(a)[None], (found._pool(), found.estimate))
    estimates = jax.tree.map(lambda a: a, estimates)
    here = generating_of(pools, estimates)
    wild = type(here)(theta=here.theta * [[1.0, 1e9, 1.0]], G=here.G, noise=here.noise)
    both = jax.tree.map(lambda a, b: np.concatenate([a, b]), here, wild)
    run = refit(found.model, found.method, pools, estimates, np.zeros(2, int), both, KEY, 2)
    assert finite(run.value[0]).tolist() == [True, False]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chains of fit.posterior disagree")
def test_a_posterior_has_draws_of_parameters_and_of_the_column():
    draws = spring_fit().posterior(draws=8, warmup=8, chains=2).posterior
    assert draws["k"].shape == (2, 8) and draws["noise"].shape == (2, 8, 1)
    assert list(draws["column"].to_numpy()) == ["x"]
    assert (draws["k"] > 0).all() and np.isfinite(draws["noise"]).all()
    assert float(draws["k"].std()) > 0


def test_pages_show_the_column_and_the_hidden_state(tmp_path):
    found = spring_fit()
    found.report(tmp_path / "fit.html", truth={"params": TRUTH}, diagnosis=found.diagnose())
    text = (tmp_path / "fit.html").read_text()
    assert "noise[x]" in text and re.search(r">\s*v\b", text)
    assert "v is not measured (hidden)." in text
    for kind in ("states", "phase", "increments", "estimates", "residuals", "quantiles", "drift"):
        assert found.plot(kind) is not None
    point = found.to_arviz().point_estimate
    assert list(point["state"].to_numpy()) == ["x", "v"] and list(point["column"].to_numpy()) == ["x"]
    assert float(point["k"]) == found.params["k"]


# --- many series -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fit_each_is_fit_of_each_even_beside_a_longer_series():
    series = [spring_series(61, seed=3), spring_series(41, seed=4)]
    found = sf.fit_each(spring(), series, FILTER, key=KEY)
    for i, one in enumerate(series):
        alone = sf.fit(spring(), one, FILTER, key=jax.random.fold_in(KEY, i))
        close(found[i], alone, rtol=2e-6, atol=1e-6)
        assert found[i].status == alone.status


@pytest.mark.slow
def test_fit_each_takes_each_series_through_its_own_change_of_variables():
    """One far from 0, which is fitted as z = 2√x, and one near it, which is not: neither decides for the other."""
    series = [square_root_series(), square_root_series(mu=0.05, seed=2)]
    found = sf.fit_each(square_root(), series, FILTER, key=KEY)
    assert [one._pool().in_z for one in found] == [True, False]
    assert [len([note for note in one.notes if "transformed" in note]) for one in found] == [1, 0]
    close(found[0], sf.fit_each(square_root(), series[:1], FILTER, key=KEY)[0])


@pytest.mark.slow
def test_a_pool_of_one_is_the_series_and_of_several_has_a_beginning_for_each():
    close(sf.fit(spring(), [spring_series()], FILTER), spring_fit())
    series = [spring_series(), spring_series(41, seed=2)]
    both = sf.fit(spring(), series, FILTER)
    assert both.estimate.state.first.shape == (2, 1)
    assert both.estimate.state.coordinates.size == 3 + 1 + 2
    assert [one.shape for one in both.mean] == [(61, 2), (41, 2)]
    assert both.states([0.05], series=1).mean.shape == (1, 2)
    assert both.forecast([4.1], draws=10, series=1).states.shape == (10, 1, 2)


# --- columns ---------------------------------------------------------------------------------------------------


def test_columns_are_found_by_name_and_rows_by_time():
    series, found = spring_series(), spring_fit()
    frame = pd.DataFrame({"who": "me", "t": series.times, "rest": 1.0, "x": series.values[:, 0]})
    close(sf.fit(spring(), frame.sample(frac=1, random_state=0), FILTER), found, rtol=1e-12)
    wider = sf.Series(series.times, np.column_stack([np.arange(61.0), series.values]), ["q", "x"])
    close(sf.fit(spring(), wider, FILTER), found, rtol=1e-12)
    with pytest.raises(sf.DataError, match="series must have the model's observed columns x, but has q"):
        sf.fit(spring(), sf.Series(series.times, series.values, ["q"]))


def level(*columns, **settings):
    """One state that returns to a level, and what is seen of it."""
    return sf.equations("\n".join(["dx = k*(m - x)*dt + s*dw", *columns]), params=positives("k", "m", "s"), **settings)


def three_columns(seed=0):
    rng = np.random.default_rng(seed)
    x = sf.simulate(level(), {"k": 1.0, "m": 2.0, "s": 0.7}, {"x": 1.0}, np.arange(50) * 0.2, key=seed).values[:, 0]
    seen = np.stack([x, x, 2 * x + 1], axis=1) + [0.1, 0.3, 0.2] * rng.normal(size=(50, 3))
    seen[[3, 10, 10, 10, 0, 7, 8], [0, 0, 1, 2, 1, 1, 1]] = np.nan
    return np.arange(50) * 0.2, seen


def level_misfit(u, times, seen):
    """−log p of three columns of x, x(t_1) from the first alone under a flat prior, one after the other."""
    k, m, s, *sd = np.exp(u)
    slopes, shifts = (1, 1, 2), (0, 0, 1)
    mean, P, total = seen[0, 0], sd[0] ** 2, 0.0
    for n, row in enumerate(seen):
        if n:
            decay = np.exp(-k * (times[n] - times[n - 1]))
            mean, P = m + decay * (mean - m), decay**2 * P + s**2 / (2 * k) * (1 - decay**2)
        for d, y in enumerate(row):
            if np.isnan(y) or (n, d) == (0, 0):
                continue
            S, error = slopes[d] ** 2 * P + sd[d] ** 2, y - slopes[d] * mean - shifts[d]
            total += 0.5 * (np.log(2 * np.pi * S) + error**2 / S)
            mean, P = mean + slopes[d] * P / S * error, P * (1 - slopes[d] ** 2 * P / S)
    return total


@pytest.mark.slow
def test_several_columns_of_one_state_with_values_missing_are_fitted_exactly():
    from scipy.optimize import minimize

    times, seen = three_columns()
    found = sf.fit(level("y = x", "z = x", "w = 2*x + 1"), sf.Series(times, seen, ["y", "z", "w"]), FILTER)
    exact = minimize(level_misfit, np.log([1, 2, 0.7, 0.1, 0.3, 0.2]), (times, seen), method="BFGS")
    assert found.log_likelihood == pytest.approx(-exact.fun, abs=1e-5)
    std = np.sqrt(np.diag(exact.hess_inv))
    np.testing.assert_array_less(np.abs(np.log(values_of(found)) - exact.x), 0.01 * std)
    assert found.status.ok
    assert found.forecast([10.1], draws=10).observations.shape == (10, 1, 3)
    assert {check.state for check in found.diagnose().checks if check.state} == {"y", "z", "w"}
    assert found.to_arviz().point_estimate["noise"].shape == (3,)


@pytest.mark.slow
def test_a_lognormal_column_has_a_likelihood_in_the_users_units():
    """y = e^z with lognormal noise is log y = z with normal noise, and a density of y is one of log y over y."""
    text = "dz = -k*z*dt + s*dw"
    law = sf.equations(f"{text}\ny = exp(z)", params=positives("k", "s"), noise={"y": "lognormal"})
    hand = sf.equations(f"{text}\ny = 2*z", params=positives("k", "s"))  # twice: of neither is z(t_1) read off a row
    y = sf.simulate(law, {"k": 1.0, "s": 0.8}, {"z": 0.5}, np.arange(40) * 0.2, noise=0.1, key=2)
    logs = np.log(y.values)
    found = sf.fit(law, y, FILTER)
    other = sf.fit(hand, sf.Series(y.times, 2 * logs, ["y"]), FILTER)
    assert found.log_likelihood == pytest.approx(other.log_likelihood + 40 * np.log(2) - logs.sum(), abs=1e-5)
    np.testing.assert_allclose(values_of(found), values_of(other) / [1, 1, 2], rtol=3e-3)
    ahead = found.forecast([8.0, 9.0], draws=200)
    assert (ahead.observations > 0).all()
    noise = np.log(ahead.observations[..., 0]) - ahead.states[..., 0]
    assert noise.std() == pytest.approx(float(found.noise[0]), rel=5 / np.sqrt(2 * 400))
    with pytest.raises(sf.DataError, match="a lognormal observation must be positive, but -"):
        sf.fit(law, sf.Series(y.times, logs, ["y"]), FILTER)


@pytest.mark.slow
def test_a_column_of_standard_errors_is_the_known_noise():
    """All of one size they are a number; and a row with a huge one is as good as missing."""
    times, seen = three_columns()
    x, errors = seen[:, 2:].copy(), np.full(50, 0.2)
    number = sf.fit(level(noise={"x": sf.normal(sd=0.2)}), sf.Series(times, x, ["x"]), FILTER)
    formula = level(noise={"x": sf.normal(sd="se")}, inputs=["se"])
    column = sf.fit(formula, sf.Series(times, x, ["x"], inputs={"se": errors}), FILTER)
    np.testing.assert_allclose(column.log_likelihood, number.log_likelihood, atol=1e-9)
    np.testing.assert_allclose(list(column.params.values()), list(number.params.values()), rtol=1e-6)
    assert number.noise.tolist() == [0.2]
    rows = {row["quantity"]: row for row in number.table()}
    assert rows["noise[x]"]["kind"] == "fixed" and "noise[x]" not in {row["quantity"] for row in column.table()}
    assert column.aic == pytest.approx(2 * 3 - 2 * column.log_likelihood)
    huge, gone = errors.copy(), x.copy()
    huge[20], gone[20] = 1e6, np.nan
    one = sf.fit(formula, sf.Series(times, x, ["x"], inputs={"se": huge}), FILTER)
    other = sf.fit(formula, sf.Series(times, gone, ["x"], inputs={"se": errors}), FILTER)
    # The units of the search come from the data's spread; what is left of a search is √2e-6 standard errors.
    np.testing.assert_allclose(list(one.params.values()), list(other.params.values()), rtol=3e-3)
