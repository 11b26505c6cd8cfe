"""MaRS on data whose answer is known: units, limits of what can be told, structures, kernels, and its recipe."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from contract import KEY, TIMES, is_finite, ou_series, quick, relaxing
from sdefit import systems
from sdefit.data import Series
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import fixed, interval, positive, real
from sdefit.dynamics.simulate import simulate
from sdefit.errors import ModelError
from sdefit.fitting import Fit, fit, fit_each
from sdefit.methods.mars import MaRS

METHOD = quick("mars")  # settings, model and shape of the contract suite wherever possible: programs are shared


def scaled(one: Series, time: float = 1.0, shift: float = 0.0, state: float | np.ndarray = 1.0) -> Series:
    return Series(one.times * time + shift, one.values * state, states=one.states)


def numbers(found: Fit) -> np.ndarray:
    """Every estimate of a fit in one row: θ, G, σ."""
    return np.concatenate([list(found.params.values()), found.G.ravel(), found.noise])


# --- what can be told at best ----------------------------------------------------------------------------------


def standard_errors(moments, truth) -> np.ndarray:
    """The Cramér-Rao limit for Gaussian data: the information is μ_iᵀ V⁻¹ μ_j + ½ tr(V⁻¹ V_i V⁻¹ V_j).

    `moments` gives mean and covariance of each series; the derivatives are by central differences.
    """
    truth = np.asarray(truth, float)
    steps = 1e-5 * np.maximum(np.abs(truth), 0.1)
    information = np.zeros((truth.size, truth.size))
    sides = [(moments(truth + h * e), moments(truth - h * e)) for h, e in zip(steps, np.eye(truth.size), strict=True)]
    for s, (_, V) in enumerate(moments(truth)):
        means = [(up[s][0] - down[s][0]) / (2 * h) for (up, down), h in zip(sides, steps, strict=True)]
        spreads = [(up[s][1] - down[s][1]) / (2 * h) for (up, down), h in zip(sides, steps, strict=True)]
        turned = [np.linalg.solve(V, spread) for spread in spreads]
        information += [[a @ np.linalg.solve(V, b) for a in means] for b in means]
        information += [[np.trace(a @ b) / 2 for a in turned] for b in turned]
    return np.sqrt(np.diagonal(np.linalg.inv(information)))


def ou_covariance(times, rate, g, noise):
    apart, together = np.abs(times[:, None] - times), times[:, None] + times
    cov = g**2 * (np.exp(-rate * apart) - np.exp(-rate * together)) / (2 * rate)
    return cov + noise**2 * np.eye(times.size)


OU_TRUTH = [0.8, 1.0, 0.3, 0.05, 4.0]  # rate, level, g, noise, x(0): those of `ou_series`


@functools.cache
def ou_limit() -> np.ndarray:
    times = ou_series(0).times

    def moments(p):
        rate, level, g, noise, first = p
        return [(level + (first - level) * np.exp(-rate * times), ou_covariance(times, rate, g, noise))]

    return standard_errors(moments, OU_TRUTH)


@functools.cache
def ou_fit(seed: int) -> Fit:
    return fit(relaxing(), ou_series(seed), METHOD, key=KEY)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_near_the_limit(seed):
    """Rate and level within three standard errors of the best unbiased estimate, G within five (and above 0)."""
    found = ou_fit(seed)
    rate, level, g = ou_limit()[:3]
    assert found.status.ok
    assert abs(found.params["rate"] - 0.8) < 3 * rate
    assert abs(found.params["level"] - 1.0) < 3 * level
    assert found.G[0, 0] > 0 and abs(found.G[0, 0] - 0.3) < 5 * g
    inside = np.abs(found.mean[0] - ou_series(seed).values) < 5 * np.hypot(found.noise, found.std[0])
    assert np.all(inside)


# --- units -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "factors"),
    [
        ({"shift": 2000.0}, [1, 1, 1, 1]),
        ({"shift": -2000.0}, [1, 1, 1, 1]),
        ({"time": 60.0}, [1 / 60, 1, 60**-0.5, 1]),
        ({"state": 1000.0}, [1, 1000, 1000, 1000]),
        ({"time": 1 / 3600, "state": 1e-6, "shift": 5.0}, [3600, 1e-6, 60e-6, 1e-6]),
    ],
)
def test_estimates_turn_with_the_units(change, factors):
    """Rate, level, G and σ of the same data in other units, to 1e-4 of themselves."""
    found = fit(relaxing(), scaled(ou_series(1), **change), METHOD, key=KEY)
    np.testing.assert_allclose(numbers(found), numbers(ou_fit(1)) * factors, rtol=1e-4)
    time, state = change.get("time", 1.0), abs(change.get("state", 1.0))
    np.testing.assert_allclose(found.std[0], ou_fit(1).std[0] * state, rtol=1e-4)
    gradients, before = found.trace["derivatives_data"], ou_fit(1).trace["derivatives_data"]
    np.testing.assert_allclose(np.std(gradients), np.std(before) * state / time, rtol=1e-4)


def test_negative_parameters():
    """The data upside down have the level upside down. The weak prior on θ, which is centred at 0 and wide, is not
    symmetric in how it ties rate and level: 3% are far below the standard errors of 10 to 20%.
    """
    found = fit(relaxing(), scaled(ou_series(1), state=-1.0), METHOD, key=KEY)
    np.testing.assert_allclose(numbers(found), numbers(ou_fit(1)) * [1, -1, 1, 1], rtol=0.03)


def predators() -> Series:
    """Lotka-Volterra by small Euler steps, 26 times over 2 units of time, with noise 0.1."""
    rng = np.random.default_rng(2)
    x, steps, h = np.array([5.0, 3.0]), 40, 0.08 / 40
    G = np.array([[0.2, 0.0], [0.1, 0.3]])
    rows = [x]
    for _ in range(25):
        for _ in range(steps):
            drift = np.array([2 * x[0] - x[0] * x[1], -4 * x[1] + x[0] * x[1]])
            x = x + h * drift + np.sqrt(h) * G @ rng.standard_normal(2)
        rows.append(x)
    values = np.array(rows) + 0.1 * rng.standard_normal((26, 2))
    return Series(np.arange(26) * 0.08, values, states=["prey", "predator"])


@functools.cache
def hunting():
    text = "dprey = a*prey - b*prey*predator\ndpredator = -c*predator + d*prey*predator"
    return equations(text, params={name: positive() for name in "abcd"})


def test_two_states_and_their_units():
    """Time times 60 and each state in a unit of its own: all of θ, the whole G and both σ follow to 1e-4.

    θ itself lies within five of the limits of 51 such observations, which are .14, .067, .61 and .16.
    """
    one = fit(hunting(), predators(), METHOD, key=KEY)
    assert one.status.ok and is_finite(one)
    error = np.abs(np.array(list(one.params.values())) - [2, 1, 4, 1])
    assert np.all(error < 5 * np.array([0.14, 0.067, 0.61, 0.16]))
    assert one.G[0, 1] == 0 and one.G[1, 0] != 0 and np.all(np.diagonal(one.G) > 0)
    other = fit(hunting(), scaled(predators(), 60.0, -500.0, np.array([1000.0, 10.0])), METHOD, key=KEY)
    states, root = np.array([[1000.0], [10.0]]), np.sqrt(60)
    factors = [1 / 60, 1 / 600, 1 / 60, 1 / 60_000, *np.broadcast_to(states / root, (2, 2)).ravel(), 1000, 10]
    np.testing.assert_allclose(numbers(other), numbers(one) * factors, rtol=1e-4)


# --- models ----------------------------------------------------------------------------------------------------


@functools.cache
def pushed():
    """A drift that depends on the clock, with a parameter between bounds and one that may be negative."""
    text = "dx = -rate*x + push*sin(2*t)"
    return equations(text, params={"rate": interval(0.05, 3.0), "push": real()})


PUSHED_TRUTH = [0.8, -2.0, 0.3, 0.05]
BEGINS = (1.0, 6.3)  # the clocks of two series begin at different phases of the push


def pushed_mean(begin, times, rate, push):
    """The particular solution of dx = −rate x + push sin 2t that starts from 1 at `begin`."""

    def forced(t):
        return push * (rate * np.sin(2 * t) - 2 * np.cos(2 * t)) / (rate**2 + 4)

    return forced(begin + times) + (1 - forced(begin)) * np.exp(-rate * times)


def test_clock_bounds_negative_values_and_pooling_at_once():
    """Two pooled series of the pushed process: θ within four standard errors of the limit, G within five."""
    times, rng = np.arange(TIMES) * 0.35, np.random.default_rng(8)

    def moments(p):
        rate, push, g, noise = p
        return [(pushed_mean(b, times, rate, push), ou_covariance(times, rate, g, noise)) for b in BEGINS]

    series = [
        Series(begin + times, mean + np.linalg.cholesky(cov) @ rng.standard_normal(TIMES))
        for begin, (mean, cov) in zip(BEGINS, moments(PUSHED_TRUTH), strict=True)
    ]
    found = fit(pushed(), series, METHOD, key=KEY)
    limit = standard_errors(moments, PUSHED_TRUTH)
    assert found.status.ok and len(found.mean) == 2
    assert 0.05 < found.params["rate"] < 3
    assert abs(found.params["rate"] - 0.8) < 4 * limit[0]
    assert abs(found.params["push"] + 2.0) < 4 * limit[1]
    assert abs(found.G[0, 0] - 0.3) < 5 * limit[2]


@pytest.mark.slow
def test_rows_without_values_before_the_first_one_say_nothing():
    """The first values of a relaxation lost: the estimate is that of the rows that were kept."""
    one = ou_series(1)
    kept = one.values.copy()
    kept[:2] = np.nan
    lost = fit(relaxing(), Series(one.times, kept), METHOD, key=KEY)
    cut = fit(relaxing(), Series(one.times[2:], one.values[2:]), METHOD, key=KEY)
    np.testing.assert_allclose(numbers(lost)[:3], numbers(cut)[:3], rtol=0.01)


@pytest.mark.slow
def test_two_wells_seen_from_ten_series():
    """The latent process takes the whole of ten pooled series for noise, and matching is left without slopes."""
    setup = systems.get("dw")
    series = setup.simulate(key=KEY, paths=10, step=1e-2)
    found = fit(setup.model, series, METHOD, key=KEY)
    assert np.abs(found.estimate.state.matched - list(setup.params.values())).max() > 1
    assert found.status.ok
    assert abs(found.params["a"] - 0.1) < 0.05
    assert abs(found.params["b"] - 4.0) < 0.6
    assert abs(found.G[0, 0] - 0.5) < 0.1


@pytest.mark.slow
def test_two_wells_seen_for_a_long_time():
    """Ten times as long as the benchmark. Whole steps from the first of these, smoothed too much, run off to b = 71.

    Judged at θ of least squares, G is .38, and a .06.
    """
    setup = systems.get("dw")
    long = dataclasses.replace(setup, times=np.linspace(0.0, 200.0, 501))
    series = long.simulate(key=jax.random.fold_in(KEY, 7), paths=12, step=1e-2)
    fits = fit_each(setup.model, series, MaRS(), key=KEY)
    found = np.array([numbers(one) for one in fits])
    assert all(one.status.ok for one in fits)
    assert np.all(np.abs(found[:, 1] - 4.0) < 1.0)
    np.testing.assert_allclose(found[:, 0].mean(), 0.1, atol=0.03)
    np.testing.assert_allclose(found[:, 2].mean(), 0.5, atol=0.08)


@pytest.mark.slow
def test_terms_that_cancel_may_be_larger_than_the_speed():
    """As for the default, on the same data: with a prior of three scales from the speed a is .70 and b .79."""
    model = equations("dx = a*x - b*x**3")
    times, G = np.linspace(0.0, 100.0, 401), np.array([[0.6]])
    truth = {"a": 1.0, "b": 1.0}
    series = simulate(model, truth, [0.0], times, G=G, noise=0.05, key=KEY, paths=8, step=0.25 / 40)
    fits = fit_each(model, series, MaRS(), key=KEY)
    assert all(one.status.ok for one in fits)
    np.testing.assert_allclose(np.mean([one.estimate.theta for one in fits], axis=0), 1.0, atol=0.2)


def test_a_bound_holds_where_the_data_lie_beyond_it():
    """Growth, to be explained by a positive rate of return: the rate stays above 0, and a status says the rest."""
    times = np.arange(TIMES) * 0.35
    values = np.exp(0.5 * times) + 0.1 * np.random.default_rng(0).standard_normal(TIMES)
    found = fit(relaxing(), Series(times, values), METHOD, key=KEY)
    assert is_finite(found)
    assert found.params["rate"] > 0


@functools.cache
def logistic():
    return equations("dx = r*x*(1 - x/k)", params={"r": positive(), "k": positive()}, diffusion="none")


def test_an_ordinary_differential_equation():
    """Logistic growth with noise 0.1 about the exact curve: θ within four standard errors of least squares."""
    times = np.arange(TIMES) * 0.5

    def moments(p):
        r, k, noise, first = p
        mean = k / (1 + (k / first - 1) * np.exp(-r * times))
        return [(mean, noise**2 * np.eye(TIMES))]

    truth = [0.9, 5.0, 0.1, 0.3]
    values = moments(truth)[0][0] + 0.1 * np.random.default_rng(1).standard_normal(TIMES)
    found = fit(logistic(), Series(times, values), METHOD, key=KEY)
    limit = standard_errors(moments, truth)
    assert found.status.ok and np.all(found.G == 0)
    assert abs(found.params["r"] - 0.9) < 4 * limit[0]
    assert abs(found.params["k"] - 5.0) < 4 * limit[1]
    assert abs(found.noise[0] - 0.1) < 4 * limit[2]


# --- what is asked of it later ---------------------------------------------------------------------------------


def test_bands_are_wider_between_observations():
    """Where nothing was seen, halfway between two observations, less is known than at either of them."""
    found = ou_fit(1)
    times = found.series[0].times
    asked = np.sort(np.concatenate([times, (times[1:] + times[:-1]) / 2]))
    states = found.states(asked)
    std = states.std[:, 0]
    assert np.all(std > 0) and np.all(np.isfinite(states.mean))
    assert np.all(std[1::2] > np.maximum(std[:-1:2], std[2::2]))
    np.testing.assert_allclose(states.mean[::2], found.mean[0], atol=0.1 * np.mean(std))
    # Between two observations the mean goes no further off the line between them than the path could.
    middle = (states.mean[2::2] + states.mean[:-1:2]) / 2
    assert np.all(np.abs(states.mean[1::2] - middle) < 0.3 + 3 * states.std[1::2])


def test_it_keeps_the_way_it_went():
    """The loss falls, and the two roads to ż come nearer to each other."""
    trace = ou_fit(1).trace
    assert np.all(np.isfinite(trace["loss"])) and np.all(np.diff(trace["loss"]) <= 1e-12)
    data, before, after = (trace[f"derivatives_{name}"] for name in ("data", "model_before", "model_after"))
    assert data.shape == before.shape == after.shape == (16, 1, TIMES, 1)

    def apart(one):
        return np.mean((np.mean(one, axis=0) - np.mean(data, axis=0)) ** 2)

    assert apart(after) < apart(before)
    # The first row falls from 4 to 1 at the rate 0.8: a slope of about −2.4 there.
    assert -4 < np.mean(data[:, 0, 0, 0]) < -1


# --- kernels and the paper's recipe ----------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [300.0, -300.0])
def test_a_state_far_from_zero(offset):
    """Adding a constant to the state moves the level by it and nothing else, but for the weak prior on θ."""
    near, one = fit(relaxing(), ou_series(3), METHOD, key=KEY), ou_series(3)
    far = fit(relaxing(), Series(one.times, one.values + offset), METHOD, key=KEY)
    assert far.params["rate"] == pytest.approx(near.params["rate"], rel=0.02)
    assert far.params["level"] - offset == pytest.approx(near.params["level"], abs=0.02)
    np.testing.assert_allclose(far.G, near.G, rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["matern32", "rbf", "rational_quadratic"])
def test_kernels(kernel):
    """The plain method with other kernels: the smoother's bias is the method's own, so half of the truth is near."""
    method = MaRS(kernel, samples=16, starts=2, refinements=0)
    found = fit(relaxing(), ou_series(1), method, key=KEY)
    assert is_finite(found) and found.status.name in ("ok", "not_converged")
    assert abs(found.params["rate"] - 0.8) < 0.4 and abs(found.params["level"] - 1) < 0.5
    assert found.method == method


@pytest.mark.slow
def test_the_recipe_of_the_paper():
    """Fresh draws at every step of Adam: the loss falls from a start that is far off; θ still moves, and is not ok."""
    method = dataclasses.replace(MaRS.paper("ou"), adam_steps=60)
    found = fit(relaxing(), ou_series(1), method, key=KEY, start={"rate": 0.4, "level": 2.0})
    loss = found.trace["loss"]
    assert loss.shape == (60,) and np.all(np.isfinite(loss))
    assert is_finite(found) and found.status.name == "not_converged"
    # Adam goes about `learning_rate` a step: 0.6 in all, in log rate and in level, towards the truth.
    assert 0.4 < found.params["rate"] < 0.4 * np.exp(0.7)
    assert 1.3 < found.params["level"] < 2.0
    assert np.mean(loss[-10:]) < np.mean(loss[:10])


def test_the_recipe_of_the_paper_comes_to_rest():
    """The same from near the answer, with steps to spare: θ goes to and fro about a point, and has converged."""
    method = dataclasses.replace(MaRS.paper("ou"), adam_steps=800, learning_rate=0.02, samples=64)
    found = fit(relaxing(), ou_series(1), method, key=KEY, start={"rate": 0.7, "level": 1.2})
    assert found.status.name != "not_converged"
    assert abs(found.params["rate"] - 0.8) < 0.4 and abs(found.params["level"] - 1) < 0.5


def test_a_range_that_leaves_a_parameter_nothing_is_refused():
    model = equations("dx = rate*(1 - x)", params={"rate": interval(-3.0, -1.0)})
    with pytest.raises(ModelError, match=r"theta_range must meet the range of rate, -3 to -1, not \(0.001, 100.0\)"):
        fit(model, ou_series(1), MaRS.paper("ou", code=True), key=KEY)


@pytest.mark.slow
def test_the_recipe_of_the_code_steps_theta_itself_in_its_range():
    """From the upper edge at a rate of 0.01, sixty steps of Adam lead down by at most 0.6 each, and no further up."""
    method = dataclasses.replace(MaRS.paper("ou", code=True), adam_steps=60)
    found = fit(relaxing(), ou_series(1), method, key=KEY, start={"rate": 150.0, "level": 2.0})
    theta = found.trace["theta"]
    assert theta.shape == (60, 2) and np.all(theta <= 100.0) and np.all(theta[:, 0] >= 99.0)
    assert np.all(np.abs(np.diff(theta[:, 1])) < 0.02) and found.status.name == "not_converged"
    np.testing.assert_allclose(theta[-1], list(found.params.values()), rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "cubic"}, "kernel must be one of .*, not 'cubic'"),
        ({"samples": 3}, "samples must be a whole number of at least 4, not 3"),
        ({"samples": 7}, "samples must be even .*, not 7"),
        ({"starts": 0}, "starts must be a whole number of at least 1, not 0"),
        ({"starts": True}, "starts must be a whole number of at least 1, not True"),
        ({"refinements": -1}, "refinements must be a whole number of at least 0, not -1"),
        ({"evidence_starts": 0}, "evidence_starts must be a whole number of at least 1, not 0"),
        ({"adam_steps": -5}, "adam_steps must be a whole number of at least 0, not -5"),
        ({"ou_rate": -1.0}, "ou_rate must be a number above 0, not -1.0"),
        ({"ou_rate": float("nan")}, "ou_rate must be a number above 0, not nan"),
        ({"jitter": 0.0}, "jitter must be a number above 0, not 0.0"),
        ({"learning_rate": float("inf")}, "learning_rate must be a number above 0, not inf"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ModelError, match=message) as refusal:
        MaRS(**settings)
    assert "\n" not in str(refusal.value)


def test_a_model_without_free_parameters_is_refused():
    model = equations("dx = rate*(1 - x)", params={"rate": fixed(0.8)})
    with pytest.raises(ModelError, match="MaRS needs one or more free parameters, but all are fixed"):
        fit(model, ou_series(1), METHOD, key=KEY)
