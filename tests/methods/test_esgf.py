"""ESGF: the maximum it finds against closed forms, from any start, in any units, for every kind of model and data."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.data.pool import Pool, standardise
from sdefit.data.series import Series
from sdefit.dynamics import systems
from sdefit.dynamics.parameters import positive, real
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.inference.parameterisation import Parameterisation
from sdefit.inference.prior import WeakPrior
from sdefit.methods import execution
from sdefit.methods.esgf import ESGF
from sdefit.priors import NoiseLevels, ThetaPrior
from sdefit.result import Code

KEY = jax.random.key(0)
OU = systems.ornstein_uhlenbeck()
LV = systems.lotka_volterra()


def ou_path(seed, size=60, step=0.4, rate=0.5, level=1.0, G=0.5, start=4.0):
    """Values of an OU process drawn from its exact transition."""
    rng = np.random.default_rng(seed)
    a, x = np.exp(-rate * step), [start]
    for _ in range(size - 1):
        x.append(level + (x[-1] - level) * a + G * np.sqrt((1 - a**2) / (2 * rate)) * rng.normal())
    return np.arange(size) * step, np.array(x)


def lv_path(seed, size=40, noise=0.1, G=((0.2, 0.0), (0.1, 0.3))):
    """Lotka-Volterra by fine Euler-Maruyama steps, with noise."""
    rng = np.random.default_rng(seed)
    x, path, h = np.array([5.0, 3.0]), [], 0.002
    for _ in range(size):
        path.append(x)
        for _ in range(20):
            f = np.array([2 * x[0] - x[0] * x[1], -4 * x[1] + x[0] * x[1]])
            x = x + h * f + np.sqrt(h) * np.array(G) @ rng.normal(size=2)
    return np.arange(size) * 0.04, np.array(path) + noise * rng.normal(size=(size, 2))


def pool_of(model, *pairs) -> Pool:
    return standardise([Series(t, x, states=list(model.states)) for t, x in pairs])


def run(model, pool, method, start=None, key=KEY):
    start = np.full(len(model.free), np.nan) if start is None else np.asarray(start, float)
    return execution.estimate(model, method, pool, start, key).value


def closed_form(t, x):
    """The maximum-likelihood estimate of a noiseless OU process: an autoregression of x on itself."""
    h, early, late = t[1] - t[0], x[:-1], x[1:]
    a = np.cov(early, late, bias=True)[0, 1] / np.var(early)
    level = (late.mean() - a * early.mean()) / (1 - a)
    rate, left = -np.log(a) / h, late - level - a * (early - level)
    return rate, level, np.sqrt(np.mean(left**2) * 2 * rate / (1 - a**2))


# --- one state -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_optimum_on_noiseless_ou_is_the_closed_form(seed):
    t, x = ou_path(seed)
    found = run(OU, pool_of(OU, (t, x)), ESGF(noise="none", boundary=0.0))
    rate, level, G = closed_form(t, x)
    assert found.estimate.code == Code.OK
    # A search stops when 1e-6 of log-likelihood is left: √2e-6 standard errors, which here are below 0.3.
    np.testing.assert_allclose([*found.estimate.theta, found.G[0, 0]], [rate, level, G], atol=5e-4)
    np.testing.assert_allclose(found.mean[0, :, 0], x, atol=1e-6)
    np.testing.assert_allclose(found.std, 0.0, atol=1e-6)


def test_standard_errors_on_noiseless_ou_are_those_of_the_autoregression():
    t, x = ou_path(0, size=60)
    method, pool = ESGF(noise="none", boundary=0.0), pool_of(OU, (t, x))
    found = run(OU, pool, method)
    told = jax.jit(lambda pool, e: method.covariance(OU, pool, e))(pool, found.estimate).covariance
    rate, level, G = closed_form(t, x)
    h = t[1] - t[0]
    a = np.exp(-rate * h)
    v = G**2 * (1 - a**2) / (2 * rate)
    # Information of (a, level) in an autoregression with innovations of variance v, then rate = −log a/h.
    J = np.stack([x[:-1] - level, np.full(len(x) - 1, 1 - a)])
    covariance = np.linalg.inv(J @ J.T / v)
    # The information on rate also counts how v depends on it, at fixed G: a few per cent at this length.
    np.testing.assert_allclose(np.sqrt(told[0, 0]), np.sqrt(covariance[0, 0]) / (a * h), rtol=0.06)
    np.testing.assert_allclose(np.sqrt(told[1, 1]), np.sqrt(covariance[1, 1]), rtol=0.02)
    # The variance of a normal variance in n steps is 2/n of its square; G Gᵀ is in units of the pool.
    GGt = (G / np.asarray(pool.scale)[0]) ** 2 * h
    np.testing.assert_allclose(np.sqrt(told[2, 2]), GGt * np.sqrt(2 / (len(x) - 1)), rtol=0.25)


def test_units_of_time_and_state_do_not_matter():
    t, x = ou_path(1)
    y = x + 0.1 * np.random.default_rng(0).normal(size=x.size)
    one = run(OU, pool_of(OU, (t, y)), ESGF())
    other = run(OU, pool_of(OU, (1e3 + 60.0 * t, 1e4 * y - 7e4)), ESGF())
    rate, level = one.estimate.theta
    np.testing.assert_allclose(other.estimate.theta, [rate / 60, 1e4 * level - 7e4], rtol=1e-3)
    np.testing.assert_allclose(other.G, 1e4 * one.G / np.sqrt(60.0), rtol=2e-3)
    np.testing.assert_allclose(other.estimate.criterion, one.estimate.criterion, atol=1e-5)


def test_pooled_series_add_up_and_padding_changes_nothing():
    long, short = ou_path(2), ou_path(3)
    short = short[0][:40] + 5.0, short[1][:40]
    method = ESGF(noise="none", boundary=0.0)
    both, twice = (run(OU, pool_of(OU, long, other), method) for other in (short, long))
    once = run(OU, pool_of(OU, long), method)
    np.testing.assert_allclose(twice.estimate.criterion, 2 * once.estimate.criterion, rtol=1e-6)
    np.testing.assert_allclose(twice.estimate.theta, once.estimate.theta, atol=1e-3)
    between = [closed_form(*p)[0] for p in (long, short)]
    assert min(between) - 0.05 < both.estimate.theta[0] < max(between) + 0.05
    np.testing.assert_allclose(both.mean[1, :40, 0], short[1], atol=1e-6)


# --- several states --------------------------------------------------------------------------------------------


@functools.cache
def lv_fit(start=None, seed=0):
    return run(LV, pool_of(LV, lv_path(seed)), ESGF(), start)


@pytest.mark.slow
def test_estimates_lie_within_their_standard_errors():
    pool, truth = pool_of(LV, lv_path(0)), np.array([2.0, 1.0, 4.0, 1.0])
    found = lv_fit()
    told = jax.jit(lambda pool, e: ESGF().covariance(LV, pool, e))(pool, found.estimate).covariance[:4, :4]
    error = found.estimate.theta - truth
    # Chi-squared with 4 degrees of freedom exceeds 18.5 once in a thousand.
    assert error @ np.linalg.solve(np.asarray(told), error) < 18.5
    assert np.all(np.sqrt(np.diagonal(told)) < [0.5, 0.3, 2.0, 0.6])
    assert found.estimate.code == Code.OK


@pytest.mark.slow
@pytest.mark.parametrize("start", [(60.0, 0.03, 0.13, 30.0), (0.07, 30.0, 120.0, 0.03), (1e-6, 1e-6, 1e6, 1e6)])
def test_bad_start_finds_the_same_optimum(start):
    np.testing.assert_allclose(lv_fit(start).estimate.criterion, lv_fit().estimate.criterion, atol=0.05)


@pytest.mark.slow
def test_smoothing_at_the_observation_times_repeats_the_estimate():
    found = lv_fit()
    mean, std = execution.smooth(LV, ESGF(), pool_of(LV, lv_path(0)), found.estimate).value
    np.testing.assert_allclose(mean, found.mean, atol=1e-4)
    np.testing.assert_allclose(std, found.std, atol=1e-4)


@pytest.mark.slow
def test_missing_values_cost_precision_not_the_fit():
    t, y = lv_path(0)
    y = np.where(np.random.default_rng(5).uniform(size=y.shape) < 0.3, np.nan, y)
    y[0] = [np.nan, y[0, 1]]
    found = run(LV, pool_of(LV, (t, y)), ESGF())
    assert found.estimate.code == Code.OK
    # Twice the spread of the complete data's estimate, which is .14, .07, .6 and .16 on 51 rows.
    np.testing.assert_allclose(found.estimate.theta, lv_fit().estimate.theta, atol=1.2)
    assert np.all(np.isfinite(found.mean)) and np.all(found.std[0, :, 0] > 0)


def test_scalar_diffusion_and_equal_noise_are_so_in_the_users_units():
    model = SDE(LV.drift, LV.states, LV.params, "scalar")
    pool = pool_of(model, lv_path(1))
    where = Parameterisation(model, pool, "same")
    point = where.point(where.variance_params(jnp.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])))
    GGt = np.asarray(pool.scale[:, None] * point.Q * pool.scale[None, :])
    np.testing.assert_allclose(GGt, GGt[0, 0] * np.eye(2), atol=1e-12)
    np.testing.assert_allclose(*(pool.scale**2 * point.variance), rtol=1e-12)


def test_ode_is_fitted_as_least_squares():
    """Without diffusion the path is the solution from x(t_1), and its residuals are orthogonal to its slopes."""
    model = SDE(LV.drift, LV.states, LV.params, "none")
    t, y = lv_path(2, noise=0.1, G=((0.0, 0.0), (0.0, 0.0)))
    found = run(model, pool_of(model, (t, y)), ESGF())
    assert found.estimate.code == Code.OK
    np.testing.assert_array_equal(found.G, 0.0)

    def solve(p, fine=50):
        def one(x, _):
            def f(x):
                return jnp.stack([p[0] * x[0] - p[1] * x[0] * x[1], -p[2] * x[1] + p[3] * x[0] * x[1]])

            h = 0.04 / fine
            k1 = f(x)
            k2 = f(x + 0.5 * h * k1)
            return x + h * k2, None

        def row(x, _):
            return jax.lax.scan(one, x, None, length=fine)[0], x

        return jax.lax.scan(row, p[4:], None, length=t.size)[1]

    at = jnp.concatenate([found.estimate.theta, found.mean[0, 0]])
    np.testing.assert_allclose(solve(at), found.mean[0], atol=1e-3)
    J = np.asarray(jax.jacfwd(solve)(at)) / np.asarray(found.noise)[None, :, None]
    J, r = J.reshape(-1, 6), ((y - np.asarray(solve(at))) / found.noise).ravel()
    # The Gauss-Newton step that is left, in standard errors.
    step = np.linalg.solve(J.T @ J, J.T @ r)
    assert np.all(np.abs(step) < 0.02 * np.sqrt(np.diagonal(np.linalg.inv(J.T @ J))))


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{"rule": "unscented"}, {"noise": "some"}, {"starts": 0}, {"iterations": 0}, {"boundary": -1.0}]
)
def test_settings_that_mean_nothing_are_refused_by_name(settings):
    with pytest.raises(ModelError, match=f"ESGF: {next(iter(settings))} must be"):
        ESGF(**settings)


def test_ode_without_noise_is_refused():
    model = SDE(lambda t, x, p: -p["k"] * x + p["c"], ["x"], {"k": positive(), "c": real()}, "none")
    with pytest.raises(ModelError, match="explains no data"):
        ESGF(noise="none").check(model, pool_of(model, ou_path(0)))


# --- the weak priors on G and σ --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("diffusion", "noise"),
    [("full", "each"), ("full", "same"), ("full", "none"), ("diagonal", "each"), ("scalar", "same"), ("none", "each")],
)
def test_weak_priors_are_those_of_the_definition(diffusion, noise):
    model = SDE(LV.drift, LV.states, dict(LV.parameters), diffusion)
    t, x = lv_path(0)
    where = Parameterisation(model, jax.tree.map(jnp.asarray, pool_of(model, (t, x * [1.0, 10.0]))), noise)
    levels = NoiseLevels(jnp.array([-1.0, -0.5]), jnp.array([-2.0, -1.5]))
    G, sigma = 0.4 * np.eye(2), np.array([0.1, 0.2])
    if diffusion in ("full", "diagonal"):
        G = np.array([[0.3, 0.0], [0.2 * (diffusion == "full"), -0.6]])
    u = where.at(jnp.ones(4), jnp.array(G), jnp.array(sigma), jnp.zeros((1, 2)))
    center, width = jnp.array([0.0, 0.0, 2.0, -1.0]), jnp.array([3.0, 0.5, 1.0, 2.0])
    definition = WeakPrior(where, levels, ThetaPrior(center, width))
    prior = jax.jit(lambda u: definition(u))
    found = prior(u)
    point = where.point(where.variance_params(u))
    log_G, log_noise = 0.5 * np.log(np.diag(point.Q) + 1e-30), 0.5 * np.log(np.asarray(point.variance) + 1e-300)
    expected = 0.5 * np.sum(((1.0 - center) / width) ** 2)
    if diffusion != "none":
        expected += 0.5 * np.sum((log_G - levels[0]) ** 2)
    if noise != "none":
        expected += 0.5 * np.sum((log_noise - levels[1]) ** 2) / 4
    if diffusion == "full":
        expected -= np.log(1 - point.Q[0, 1] ** 2 / (point.Q[0, 0] * point.Q[1, 1]))
    assert found.value == pytest.approx(float(expected), rel=1e-8, abs=1e-8)
    moves = [(prior(u + h).value - prior(u - h).value) / 2e-6 for h in 1e-6 * jnp.eye(u.size)]
    np.testing.assert_allclose(found.gradient, moves, rtol=1e-5, atol=1e-6)
    assert np.linalg.eigvalsh(found.curvature)[0] > -1e-12


def test_two_states_without_noise():
    t, x = lv_path(2, noise=0.0)
    found = run(LV, pool_of(LV, (t, x)), ESGF(noise="none", starts=1)).estimate
    assert found.code == Code.OK and np.all(found.noise == 0)
    np.testing.assert_allclose(found.theta, [2.0, 1.0, 4.0, 1.0], rtol=0.5)


@pytest.mark.slow
def test_weak_priors_keep_the_noise_of_two_states_apart():
    """A singular G is the likelihood's answer to many short series, not nature's."""
    pool = pool_of(LV, lv_path(1, size=20))
    found = {weak: run(LV, pool, ESGF(weak=weak)).estimate for weak in (False, True)}
    share = {weak: np.linalg.eigvalsh(one.G @ one.G.T)[0] / np.trace(one.G @ one.G.T) for weak, one in found.items()}
    assert share[True] > 10 * share[False]
    assert found[True].criterion < found[False].criterion + 1e-6
