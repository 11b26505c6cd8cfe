import dataclasses
import importlib
import pydoc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from contract import KEY, equal_bits, ou_series, relaxing
from sdefit import methods
from sdefit.data import Series, standardise
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import fixed, positive
from sdefit.dynamics.sde import Diffusion
from sdefit.errors import DataError, FitError, InputError, ModelError
from sdefit.fitting import fit, fit_each, load
from sdefit.methods.esgf import ESGF
from sdefit.methods.moments import Moments
from sdefit.programs import PROGRAMS, compiled
from sdefit.programs.compiled import Programs

QUICK = Moments(starts=4, iterations=40)


def linear_model(diffusion: Diffusion = "full"):
    """Linear in its parameters, so that least squares has a closed form."""
    return equations("dx = a + b*x + c*y\ndy = d*x + e*y", diffusion=diffusion)


def two_states(seed: int, rows: int = 30, missing: int = 0) -> Series:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.05, 0.2, rows)) + 100.0
    values = np.cumsum(rng.standard_normal((rows, 2)), axis=0) * [1.0, 50.0] + [3.0, -20.0]
    for row in rng.permutation(rows)[:missing]:
        values[row, rng.integers(2)] = np.nan
    return Series(times, values, states=["x", "y"])


def naive_moments(series: list[Series], diffusion: str):
    """The estimator's definition, in loops over fully observed rows, in standardised units of state."""
    spread = np.sqrt(np.nanmean((np.concatenate([s.values for s in series]) - _center(series)) ** 2, axis=0))
    rows, targets, gaps, breaks = [], [], [], []
    for one in series:
        keep = ~np.isnan(one.values).any(axis=1)
        t, y = one.times[keep], one.values[keep]
        for i in range(len(t) - 1):
            h = t[i + 1] - t[i]
            rows.append(np.array([[1, *y[i], 0, 0], [0, 0, 0, *y[i]]]) * h)
            targets.append(y[i + 1] - y[i])
            gaps.append(h)
            breaks.append(i == len(t) - 2)
    weights = [1 / (np.sqrt(h) * spread) for h in gaps]
    design = np.concatenate([w[:, None] * r for w, r in zip(weights, rows, strict=True)])
    wanted = np.concatenate([w * y for w, y in zip(weights, targets, strict=True)])
    theta = np.linalg.lstsq(design, wanted, rcond=None)[0]
    r = np.array([y - x @ theta for x, y in zip(rows, targets, strict=True)])
    lagged = [r[i] * r[i + 1] for i in range(len(r) - 1) if not breaks[i]]
    variance = np.maximum(-np.mean(lagged, axis=0), 0.0)
    if diffusion == "none":
        return theta, np.zeros((2, 2)), np.sqrt(np.mean(r**2, axis=0) / 2)
    GGt = (r.T @ r - 2 * len(r) * np.diag(variance)) / np.sum(gaps)
    return theta, GGt, np.sqrt(variance)


def _center(series: list[Series]) -> np.ndarray:
    return np.nanmean(np.concatenate([s.values for s in series]), axis=0)


@pytest.mark.parametrize("missing", [0, 6])
@pytest.mark.parametrize("diffusion", ["full", "diagonal", "scalar", "none"])
def test_moments_is_its_definition(diffusion, missing):
    series = [two_states(1, missing=missing), two_states(2, missing=missing)]
    found = fit(linear_model(diffusion), series, QUICK, key=KEY)
    theta, GGt, noise = naive_moments(series, diffusion)
    assert found.status.ok
    np.testing.assert_allclose(list(found.params.values()), theta, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.noise, noise, rtol=1e-4, atol=1e-6)
    expected = {
        "full": GGt,
        "diagonal": np.diag(np.diag(GGt)),
        "scalar": np.mean(np.diag(GGt)) * np.eye(2),
        "none": np.zeros((2, 2)),
    }[diffusion]
    np.testing.assert_allclose(found.GGt, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_moments_bridges_gaps():
    """Between two observations: a straight line, and a Brownian bridge's variance around it."""
    series = Series([0.0, 1.0, 3.0, 4.0], [0.0, 2.0, 6.0, 5.0])
    found = fit(equations("dx = a"), series, QUICK, key=KEY)
    g2, s2 = found.GGt[0, 0], found.noise[0] ** 2
    states = found.states([1.5, 2.0, 3.0, 6.0])
    np.testing.assert_allclose(states.mean[:, 0], [3.0, 4.0, 6.0, 5.0], rtol=1e-12)
    w = np.array([0.25, 0.5])
    inside = g2 * np.array([0.5 * 1.5 / 2, 1.0 * 1.0 / 2]) + s2 * (w**2 + (1 - w) ** 2)
    np.testing.assert_allclose(states.std[:, 0] ** 2, [*inside, s2, s2 + 2 * g2], rtol=1e-9, atol=1e-12)
    half = 1.6448536269514722 * states.std
    np.testing.assert_allclose(states.upper - states.mean, half, rtol=1e-12)
    np.testing.assert_allclose(states.mean - states.lower, half, rtol=1e-12)


def test_moments_refuses_too_few_complete_rows():
    values = np.array([[1.0, np.nan], [np.nan, 2.0], [2.0, 3.0], [3.0, 1.0], [np.nan, 4.0]])
    with pytest.raises(DataError, match="3 or more times at which every state is observed, but series 0 has 2"):
        fit(linear_model(), Series(range(5), values, ["x", "y"]), QUICK, key=KEY)
    with pytest.raises(ModelError, match="starts must be a whole number of at least 1, not 0"):
        Moments(starts=0)


def test_units_come_back():
    """Scaling states by 1000 and time by 60 gives the correspondingly transformed estimates."""
    series = ou_series(3)
    scaled = Series(60 * series.times - 7.0, 1000 * series.values)
    one, other = (fit(relaxing(), s, QUICK, key=KEY) for s in (series, scaled))
    np.testing.assert_allclose(other.params["rate"], one.params["rate"] / 60, rtol=1e-4)
    np.testing.assert_allclose(other.params["level"], one.params["level"] * 1000, rtol=1e-4)
    np.testing.assert_allclose(other.G, one.G * 1000 / np.sqrt(60), rtol=1e-4)
    np.testing.assert_allclose(other.noise, one.noise * 1000, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(other.mean[0], one.mean[0] * 1000, rtol=1e-9)


def test_states_are_put_in_the_models_order():
    series = two_states(5)
    turned = Series(series.times, series.values[:, ::-1], ["y", "x"])
    assert equal_bits(fit(linear_model(), series, QUICK, key=KEY), fit(linear_model(), turned, QUICK, key=KEY))


def test_both_kinds_of_key_give_the_same_bits():
    new, old = jax.random.key(3), jax.random.PRNGKey(3)
    one, other = (fit(relaxing(), ou_series(1), QUICK, key=k) for k in (new, old))
    assert equal_bits(one, other)


def test_start_values_reach_the_method_and_compile_nothing():
    fit(relaxing(), ou_series(1), QUICK, key=KEY)
    before = PROGRAMS.compilations
    one = dataclasses.replace(QUICK)
    assert fit(relaxing(), ou_series(1), one, key=KEY, start={"rate": 3.0}).trace["loss"].shape == (40,)
    assert PROGRAMS.compilations == before


def test_batches_reuse_one_program():
    """Five fits in batches of two: three runs of one program, the last one filled up."""
    series = [ou_series(i) for i in range(5)]
    before = PROGRAMS.compilations
    together = fit_each(relaxing(), series, QUICK, key=KEY, batch=2)
    assert PROGRAMS.compilations == before + 1
    assert len(together) == 5
    starts = [None, {"rate": 0.3}, None, None, None]
    again = fit_each(relaxing(), series, QUICK, key=KEY, batch=2, start=starts)
    assert PROGRAMS.compilations == before + 1
    for found, other in zip(together, again, strict=True):
        np.testing.assert_allclose(found.params["level"], other.params["level"], rtol=1e-3)
    assert together[4].series[0] == series[4]
    assert together[4].seconds == together[0].seconds > 0


def test_programs_are_forgotten_in_turn():
    programs = Programs(largest=2)

    def shapes(model, method, x):
        return jnp.sum(x) + method.starts

    for size in (1, 2, 1, 3, 1, 2):
        run = programs.run(shapes, relaxing(), QUICK, np.ones(size))
        assert run.value == size + 4
    assert programs.compilations == 4  # 1, 2 and 3, and 2 again as 1 had been used after it


def test_programs_are_forgotten_where_memory_mappings_run_short(monkeypatch):
    """Each takes hundreds of them, and where Linux has no more the compiler ends the process."""
    monkeypatch.setattr(compiled, "crowded", lambda: True)
    programs = Programs()

    def shapes(model, method, x):
        return jnp.sum(x)

    def run(sizes) -> int:
        before = programs.compilations
        for size in sizes:
            programs.run(shapes, relaxing(), QUICK, np.ones(size))
        return programs.compilations - before

    few = compiled._FEWEST
    assert run(range(1, few + 2)) == few + 1
    assert run(range(2, few + 2)) == 0
    assert run([1]) == 1


def test_fixed_parameters_stay():
    model = equations("dx = rate*(level - x)", params={"rate": positive(), "level": fixed(1.25)})
    found = fit(model, ou_series(1), QUICK, key=KEY)
    assert found.params["level"] == 1.25
    assert list(found.params) == ["rate", "level"]
    assert "Estimated: rate. Fixed: level = 1.25." in str(found)
    assert [row["kind"] for row in found.table()] == ["parameter", "fixed", "diffusion", "noise"]


def test_only_a_combination_is_told():
    assert fit(equations("dx = a*b*x"), ou_series(1), QUICK, key=KEY).status.name == "unidentifiable"


def test_what_is_not_a_number_is_a_status_of_one_fit_as_of_many(tmp_path):
    """Between rows this drift grows by a factor of exp(400): no filter has a likelihood for it."""
    model = equations("dx = x - level")
    series = Series(np.arange(20) * 400.0, np.random.default_rng(0).normal(size=(20, 1)), ["x"])
    settings = ESGF(starts=1, iterations=8)
    found = fit(model, series, settings, key=KEY)
    assert found.status.name == fit_each(model, [series], settings, key=KEY)[0].status.name == "not_finite"
    with pytest.raises(FitError, match="not a finite number. .*Rescale"):
        fit(model, series, settings, key=KEY, throw=True)
    # What there is of it is shown and stored, with the reason on top.
    assert "Rescale the data" in str(found)
    assert found.summary()["lower"].isna().all()
    found.save(tmp_path / "fit.nc")
    found.report(tmp_path / "report.html")
    assert load(tmp_path / "fit.nc").status == found.status
    with pytest.raises(InputError, match="intervals must come from a fit of finite numbers"):
        found.intervals(key=KEY)


def test_throw_turns_a_status_into_an_exception():
    model = equations("dx = a*log(-x*x - 1)")
    with pytest.raises(FitError, match="drift_not_finite.*Check the formula"):
        fit(model, ou_series(1), QUICK, key=KEY, throw=True)
    with pytest.raises(FitError, match="series 0: drift_not_finite"):
        fit_each(model, [ou_series(1)], QUICK, key=KEY, throw=True)


def test_a_fit_says_what_it_is():
    found = fit(linear_model(), two_states(1), QUICK, key=KEY)
    frame = found.summary()
    assert list(frame.index) == [*"abcde", "G[x,x]", "G[y,x]", "G[y,y]", "noise[x]", "noise[y]"]
    assert frame.loc["G[y,x]", "estimate"] == found.G[1, 0]
    assert frame[["lower", "upper"]].isna().all(axis=None)
    assert list(frame["unit"][-3:]) == ["state/√time", "state", "state"]
    assert "Itô" in str(found)
    assert "converged" in str(found)
    assert repr(found).startswith("Fit(model by moments: a=")
    np.testing.assert_array_equal(found.GGt, found.G @ found.G.T)
    np.testing.assert_array_equal(found.H, found.G.T @ found.G)
    assert found.provenance["jax"] == jax.__version__


def test_arviz_has_the_estimate_as_an_estimate_and_not_as_a_posterior():
    found = fit(linear_model(), two_states(1), QUICK, key=KEY)
    data = found.to_arviz()
    assert set(data.children) == {"point_estimate", "observed_data"}
    assert float(data["point_estimate"]["a"]) == found.params["a"]
    np.testing.assert_array_equal(data["point_estimate"]["G"], found.G)
    assert list(data["point_estimate"]["G"].coords["state"].values) == list(found.model.states)
    assert data["observed_data"]["values"].shape == (1, 30, 2)


def test_what_a_method_optimised_has_its_own_name():
    found = fit(linear_model(), two_states(1), QUICK, key=KEY)
    assert found.loss == float(found.estimate.criterion) and not hasattr(found, "objective")
    for name in ("log_likelihood", "log_evidence", "bound"):
        with pytest.raises(AttributeError, match=f"^a fit by moments has no {name}; it has loss: write fit.loss$"):
            getattr(found, name)
    assert float(found.record()["loss"]) == found.loss


def test_a_fit_is_drawn_and_reported(tmp_path):
    found = fit(linear_model(), two_states(1), QUICK, key=KEY)
    assert len(found.plot().axes) == 2
    found.report(tmp_path / "fit.html", truth={"params": {"a": 1.0}})
    assert "Moments of increments" in (tmp_path / "fit.html").read_text()


def test_states_of_pooled_series():
    series = [two_states(1, rows=30), two_states(2, rows=20)]
    found = fit(linear_model(), series, QUICK, key=KEY)
    for i, one in enumerate(series):
        own, asked = found.states(series=i), found.states(one.times[::-1], series=i)
        assert own.mean.shape == one.values.shape
        np.testing.assert_allclose(asked.mean[::-1], own.mean, rtol=1e-9)
        np.testing.assert_allclose(asked.std[::-1], own.std, rtol=1e-9)


def test_dates_are_asked_for_as_dates():
    days = np.datetime64("2020-01-01") + np.arange(20)
    series = Series(days, ou_series(1).values, time_unit="day")
    found = fit(relaxing(), series, QUICK, key=KEY)
    np.testing.assert_allclose(found.states(["2020-01-05"]).mean[0], found.states().mean[4], rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": "lv"}, ModelError, "model must be an sf.SDE, as from sf.equations(...), not str"),
        ({"series": []}, DataError, "series must be one or more sf.Series, but the list is empty"),
        ({"series": [[1.0, 2.0]]}, DataError, "series must be sf.Series, but number 1 is list; use sf.Series(...)"),
        ({"series": np.ones(3)}, DataError, "series must be sf.Series, but number 1 is ndarray; use sf.Series(...)"),
        ({"method": Moments}, ModelError, "write Moments()"),
        (
            {"method": "magic"},
            ModelError,
            "method must be one of auto, mars, ares, esgf, vgpa, npsde, moments, not 'magic'",
        ),
        ({"method": 1}, ModelError, "method must be a name or the settings of one, such as sf.Moments(), not 1"),
        ({"time": "t"}, DataError, "time must go with a data frame, but series is Series; leave it out"),
        ({"key": None}, InputError, "key must be a whole number or one JAX random key, not None; write key=0"),
        ({"start": [1.0]}, ModelError, "start must map parameter names to numbers, not [1.0]"),
        ({"start": {"rate": -1.0}}, ModelError, "start of 'rate' must lie inside (0.0, inf), not -1.0"),
        ({"start": {"rate": "fast"}}, ModelError, "start of 'rate' must be a number, not 'fast'"),
        ({"start": {"speed": 1.0}}, ModelError, "start must name free parameters (rate, level), not 'speed'"),
    ],
)
def test_refusals(change, error, message):
    given = {"model": relaxing(), "series": ou_series(1), "method": QUICK, "key": KEY} | change
    with pytest.raises(error) as refusal:
        fit(**given)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_refusals_of_many():
    with pytest.raises(ModelError, match="start must be one mapping, or a list of 1 of them"):
        fit_each(relaxing(), [ou_series(1)], QUICK, key=KEY, start=[{}, {}])
    with pytest.raises(ModelError, match="batch must be a whole number of at least 1, not 0"):
        fit_each(relaxing(), [ou_series(1)], QUICK, key=KEY, batch=0)
    found = fit(relaxing(), ou_series(1), QUICK, key=KEY)
    with pytest.raises(DataError, match="series must be a number from 0 to 0, not 1"):
        found.states(series=1)
    with pytest.raises(InputError, match="level must lie between 0 and 1, not 90"):
        found.states(level=90)


def test_registry():
    assert methods.DEFAULT in methods.names()
    assert methods.get("moments") is Moments
    with pytest.raises(ModelError, match=r"method must be one of .*moments.*, not 'magic'"):
        methods.get("magic")


def test_no_method_is_the_default_one():
    pool = standardise([ou_series(1)])
    assert pool.times.shape == (1, 20)
    assert methods.get(methods.DEFAULT)().name == methods.DEFAULT


def test_a_key_is_a_number_or_a_key_and_is_kept():
    series = ou_series(1)
    found = fit(relaxing(), series, QUICK, key=3)
    assert equal_bits(found, fit(relaxing(), series, QUICK, key=jax.random.key(3)))
    assert found.key == jax.random.key(3)
    by_default = fit(relaxing(), series, QUICK)
    assert jax.random.key_data(by_default.key).tolist() == jax.random.key_data(jax.random.key(0)).tolist()
    each = fit_each(relaxing(), [series, series], QUICK)
    assert (
        jax.random.key_data(each[1].key).tolist()
        == jax.random.key_data(jax.random.fold_in(jax.random.key(0), 1)).tolist()
    )


def test_what_is_asked_of_a_fit_draws_by_keys_of_its_own_unless_told():
    found = fit(relaxing(), ou_series(1), ESGF(starts=1), key=3)
    times = [found.series[0].times[-1] + 1.0]
    ahead = found.forecast(times, draws=5)
    np.testing.assert_array_equal(
        ahead.states, found.forecast(times, draws=5, key=jax.random.fold_in(found.key, 2)).states
    )
    assert not np.array_equal(ahead.states, found.forecast(times, draws=5, key=3).states)


def test_a_method_goes_by_its_name():
    series = ou_series(1)
    assert fit(relaxing(), series, "moments").method == Moments()
    assert fit_each(relaxing(), [series], "moments")[0].method == Moments()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_goes_where_a_series_does(library):
    columns = importlib.import_module(library)
    one, other = ou_series(1), ou_series(2)
    frame = columns.DataFrame({"when": one.times, "note": ["-"] * len(one), "x": one.values[:, 0]})
    assert equal_bits(fit(relaxing(), frame, QUICK, time="when"), fit(relaxing(), one, QUICK))
    both = columns.DataFrame(
        {
            "t": [*one.times, *other.times],
            "x": [*one.values[:, 0], *other.values[:, 0]],
            "who": ["a"] * len(one) + ["b"] * len(other),
        }
    )
    pooled = fit(relaxing(), both, QUICK, group="who")
    assert [series.name for series in pooled.series] == ["a", "b"]
    assert pooled.params == fit(relaxing(), [one, other], QUICK).params
    assert len(fit_each(relaxing(), both, QUICK, group="who")) == 2
    with pytest.raises(DataError, match="there is no column 'x'"):
        fit(relaxing(), columns.DataFrame({"t": one.times, "y": one.values[:, 0]}), QUICK)


def test_help_shows_an_example_and_types_that_can_be_read():
    shown = pydoc.plain(pydoc.render_doc(fit))
    assert "key: int | jax.Array = 0" in shown
    assert 'fit = sf.fit(model, sf.read_csv("obs.csv"))' in shown


def test_the_log_likelihood_is_a_density_in_the_users_units():
    """A random walk with a trend, seen with noise: a Kalman filter by hand, on the data as they are."""
    rng = np.random.default_rng(4)
    times = 100.0 + 7 * np.cumsum(rng.uniform(0.5, 1.5, 40))
    values = 1e3 * np.cumsum(rng.normal(0.3, 1.0, 40)) + 500 * rng.normal(size=40)
    found = fit(equations("dx = speed"), Series(times, values[:, None], ["x"]), ESGF(starts=1))
    speed, Q, R = found.params["speed"], found.GGt[0, 0], found.noise[0] ** 2
    mean, variance, total = values[0], R, 0.0
    for gap, y in zip(np.diff(times), values[1:], strict=True):
        mean, variance = mean + speed * gap, variance + Q * gap
        total += scipy.stats.norm.logpdf(y, mean, np.sqrt(variance + R))
        gain = variance / (variance + R)
        mean, variance = mean + gain * (y - mean), (1 - gain) * variance
    assert found.log_likelihood == pytest.approx(total, abs=1e-6)
