"""General models end to end: maxima against exact likelihoods and published fits."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize

import sdefit as sf
from exact_transition import (
    cir_log_likelihood,
    gbm_log_likelihood,
    gbm_maximum_likelihood,
    jacobi_log_likelihood,
)
from general_models import FILTER, positives, spring, spring_fit, spring_series, values
from sdefit import methods
from sdefit.dynamics.pooling import pool_of
from sdefit.errors import ModelError
from sdefit.methods import execution
from sdefit.result import Code

DATA = Path(__file__).parents[1] / "data"
EXACT = sf.ESGF(boundary=0.0)
NOISELESS = {"noise": {"x": sf.normal(sd=0.0)}}
NILE = """120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100 1210 1150 1250
1260 1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456 824 702 1120 1100 832 764
821 768 845 864 862 698 845 744 796 1040 759 781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040
860 874 848 890 744 749 838 1050 918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740"""


# --- linear models: the filter is exact ------------------------------------------------------------------------


def spring_misfit(u, y, h):
    """−log p(y_2, …, y_N | y_1) of the spring at (log k, log c, log s, log σ, v(t_1)), by Kalman's filter."""
    (k, c, s, sigma), v = np.exp(u[:4]), u[4]
    A, Q = np.array([[0.0, 1.0], [-k, -c]]), np.diag([0.0, s**2])
    whole = expm(h * np.block([[-A, Q], [np.zeros((2, 2)), A.T]]))
    F = whole[2:, 2:].T
    Q = F @ whole[:2, 2:]
    mean, P, total = np.array([y[0], v]), np.diag([sigma**2, 0.0]), 0.0
    for value in y[1:]:
        mean, P = F @ mean, F @ P @ F.T + Q
        S, error = P[0, 0] + sigma**2, value - mean[0]
        total += 0.5 * (np.log(2 * np.pi * S) + error**2 / S)
        gain = P[:, 0] / S
        mean, P = mean + gain * error, P - np.outer(gain, P[0])
    return total


def test_a_spring_seen_by_its_position_is_fitted_by_exact_maximum_likelihood():
    series, found = spring_series(), spring_fit()
    begin = [*np.log([4.0, 0.4, 1.0, 0.1]), 0.0]
    exact = minimize(spring_misfit, begin, (series.values[:, 0], 0.1), method="BFGS", options={"gtol": 1e-7})
    assert found.status.ok
    # A search ends where 1e-6 of log-likelihood is left, and BFGS stops within its own rounding.
    assert found.log_likelihood == pytest.approx(-exact.fun, abs=1e-5)
    std = np.sqrt(np.diag(exact.hess_inv))[:4]  # of logarithms; 1e-6 of log-likelihood is 1.4e-3 of them
    np.testing.assert_array_less(np.abs(np.log(values(found)) - exact.x[:4]), 0.01 * std)
    v = float(found.estimate.state.first[0, 0] * found._pool().scale[1])
    assert v == pytest.approx(exact.x[4], abs=0.02)
    assert found.aic == pytest.approx(2 * 5 + 2 * exact.fun, abs=1e-4)
    assert found.bic == pytest.approx(5 * np.log(61) + 2 * exact.fun, abs=1e-4)


@pytest.mark.slow
def test_an_input_and_given_beginnings_as_published_by_ctsmtmb():
    """The first 50 rows of its example, by its exact Kalman filter: −log-likelihood 4.80815; see data/README.md."""
    data = pd.read_csv(DATA / "ornstein2d.csv")
    assert len(data) == 50
    text = "dx1 = theta*(mu + u - x1)*dt + s1*dw1\ndx2 = alpha*(x1 - x2)*dt + s2*dw2"
    params = positives("theta", "alpha", "s1", "s2") | {"mu": sf.real()}
    start = (3.0, 0.1**0.5)
    model = sf.equations(text, params=params, inputs=["u"], hold="previous", initial={"x1": start, "x2": start})
    frame = data.rename(columns={"y1": "x1", "y2": "x2"})
    found = sf.fit(model, frame, EXACT)
    assert -found.log_likelihood == pytest.approx(4.80815, abs=1e-5)
    logs = {name: np.log(value) for name, value in found.params.items()}
    # The published estimates have three digits.
    assert logs["theta"] == pytest.approx(1.834, abs=6e-4)
    assert found.params["mu"] == pytest.approx(2.906, abs=6e-4)
    assert logs["alpha"] == pytest.approx(0.462, abs=6e-4)
    assert logs["s1"] == pytest.approx(0.334, abs=6e-4)
    assert logs["s2"] == pytest.approx(-0.933, abs=6e-4)
    assert np.log(found.noise[1]) == pytest.approx(-2.028, abs=6e-4)
    assert found.noise[0] < np.exp(-12.0)


def test_the_local_level_of_the_nile():
    """Durbin and Koopman have variances of 1469.1 and 15098.5; the default has weak priors and says so."""
    flow = np.array([float(word) for word in NILE.split()])
    series = sf.Series(np.arange(1871.0, 1971.0), flow, ["x"])
    model = sf.equations("dx = 0*x")
    found = sf.fit(model, series, EXACT)
    # √2e-6 of a standard error is left, and that of the variances is of their own size or a fifth: 1e-3 of each.
    assert found.GGt[0, 0] == pytest.approx(1469.1, rel=1e-3)
    assert found.noise[0] ** 2 == pytest.approx(15098.5, rel=1e-3)
    default = sf.fit(model, series)
    assert any(note.startswith("Penalised maximum likelihood") for note in default.notes)
    assert default.log_likelihood < found.log_likelihood


# --- a diffusion that depends on the state ----------------------------------------------------------------------


def test_gbm_without_noise_is_fitted_by_closed_form_maximum_likelihood():
    rng = np.random.default_rng(0)
    times, x = np.cumsum(rng.uniform(0.1, 0.6, 60)), 3.0 * np.exp(np.cumsum(0.3 * rng.normal(size=60)))
    model = sf.equations("dx = a*x*dt + s*x*dw", params={"a": sf.real(), "s": sf.positive()}, **NOISELESS)
    found = sf.fit(model, sf.Series(times, x, ["x"]), FILTER)
    exact = gbm_maximum_likelihood(times, x)
    assert found.log_likelihood == pytest.approx(gbm_log_likelihood(times, x, *exact), abs=2e-6)
    # Of a log-likelihood 1e-6 below its maximum: √2e-6 standard errors, s/√T and s/√(2 n).
    away = np.array([found.params["a"], found.params["s"]]) - exact
    std = np.array([exact[1] / np.sqrt(times[-1] - times[0]), exact[1] / np.sqrt(118)])
    np.testing.assert_array_less(np.abs(away), 3e-3 * std)
    np.testing.assert_allclose(found.mean[0][:, 0], x, rtol=1e-9)
    assert found.notes[0] == "The state x was transformed to z = log(x), in which the noise is constant."


CIR_EXACT = (3.01733, 0.315907, 0.201191)


@pytest.mark.slow
def test_a_path_of_cir_is_fitted_as_by_its_exact_transition_density():
    times, x = np.loadtxt(DATA / "cir.csv", delimiter=",", skiprows=1).T
    model = sf.equations("dx = k*(mu - x)*dt + s*sqrt(x)*dw", params=positives("k", "mu", "s"), **NOISELESS)
    series = sf.Series(times, x, ["x"])
    found = sf.fit(model, series, EXACT)
    # The published fit, its log-likelihood, and that of our estimate by the exact density.
    np.testing.assert_allclose([found.params[name] for name in ("k", "mu", "s")], CIR_EXACT, rtol=0.01)
    assert found.log_likelihood == pytest.approx(4397.641, abs=0.05)
    at_ours = cir_log_likelihood(times, x, *(found.params[name] for name in ("k", "mu", "s")))
    assert at_ours == pytest.approx(cir_log_likelihood(times, x, *CIR_EXACT), abs=1e-3)
    # Without the change of variables beliefs about x are Gaussian: the log-likelihood is known to be off by 0.64.
    pool = pool_of(model, [series])
    assert pool.in_z
    plain = execution.estimate(
        model, EXACT, dataclasses.replace(pool, in_z=False), np.full(3, np.nan), jax.random.key(0)
    ).value
    volume = (len(x) - 1) * float(np.log(pool.column_scale[0]))
    gap = abs(float(plain.estimate.criterion) - volume - 4397.641)
    assert 0.05 < gap < 1.0
    assert float(plain.estimate.theta[0]) == pytest.approx(3.017, rel=0.03)


@pytest.mark.slow
def test_a_jacobi_diffusion_is_fitted_near_exact_maximum_likelihood():
    """In z the drift is not straight. The exact maximum was found by `exact_transition.maximise`, in ten seconds."""
    params = positives("k", "s") | {"mu": sf.interval(0, 1)}
    model = sf.equations("dx = k*(mu - x)*dt + s*sqrt(x*(1 - x))*dw", params=params, **NOISELESS)
    truth = {"k": 1.2, "mu": 0.4, "s": 0.5}
    series = sf.simulate(model, truth, {"x": 0.4}, np.arange(121) * 0.05, key=3)
    found = sf.fit(model, series, FILTER)
    x, ours = series.values[:, 0], [found.params[name] for name in ("k", "mu", "s")]
    best = [2.8705028, 0.3039471, 0.5037043]

    def exact(theta):
        return jacobi_log_likelihood(series.times, x, *theta, 100)

    most = exact(best)
    for step in np.diag([0.05, 0.01, 0.005]):
        assert max(exact(best + step), exact(best - step)) < most
    assert exact(ours) == pytest.approx(most, abs=0.01)  # √0.02 = 0.14 standard errors, all three together
    assert found.log_likelihood == pytest.approx(most, abs=0.1)
    np.testing.assert_allclose(ours, best, rtol=0.01)


# --- who takes what --------------------------------------------------------------------------------------------


ASKED = {
    "hidden states": spring("dx = v*dt\ndv = (-k*x - c*v)*dt + s*dw\nx = x"),
    "observation equations": sf.equations("dx = -k*x\ny = 2*x", params=positives("k")),
    "a diffusion of its own": sf.equations("dx = -k*x*dt + s*dw", params=positives("k", "s")),
    "known observation noise": sf.equations("dx = -k*x", params=positives("k"), noise={"x": sf.normal(sd=0.1)}),
    "observation laws other than normal": sf.equations("dx = -k*x", params=positives("k"), noise={"x": "lognormal"}),
    "a given beginning": sf.equations("dx = -k*x", params=positives("k"), initial={"x": 1.0}),
}
TAKERS = {"auto", "esgf"}


@pytest.mark.parametrize("words", ASKED)
@pytest.mark.parametrize("name", sorted(set(methods.names()) - TAKERS))
def test_other_methods_refuse_in_one_line_and_name_those_that_do_not(name, words):
    model = ASKED[words]
    series = sf.Series(np.arange(9.0), np.exp(np.sin(np.arange(9.0))), list(model.observations))
    with pytest.raises(ModelError) as refused:
        sf.fit(model, series, name)
    said = str(refused.value)
    assert said.startswith(f"method {name} takes no model with ") and words in said
    assert said.endswith('use "auto" or "esgf"') and "\n" not in said
    with pytest.raises(ModelError, match=name):
        sf.fit_each(model, [series], name)


def test_every_method_takes_the_plain_class_or_says_what_it_cannot():
    assert {name for name in methods.names() if set(methods.get(name).takes) >= {"hidden", "diffusion"}} == TAKERS


BENT = {
    "hidden": ("dx = v\ndv = -k*v**3 - x\nx = x", {}),
    "diffusion": ("dx = -k*x**3*dt + s*x*dw", {}),
    "noise": ("dx = -k*x**3", {"noise": {"x": sf.normal(sd=0.1)}}),
    "initial": ("dx = -k*x**3", {"initial": {"x": 1.0}}),
}


@pytest.mark.parametrize("asked", BENT)
def test_the_default_never_falls_back_to_gradient_matching(asked):
    """Heavy tails, for which it hands a plain model of the same drift to MaRS, and a search that did not converge."""
    text, settings = BENT[asked]
    model, plain = sf.equations(text, **settings), sf.equations("dx = -k*x**3")
    heavy, path = np.random.default_rng(0).standard_t(1.5, size=400), np.linspace(0.5, 2.0, 18).reshape(9, 2)

    def reviewed(model, residuals, code=0):
        theta, code = jnp.full(len(model.free), 0.5), jnp.array(code)
        estimate = eqx.tree_at(lambda e: (e.theta, e.code), spring_fit().estimate, (theta, code))
        return sf.Auto().review(model, estimate, residuals, np.arange(9.0), path[:, : len(model.states)])

    for residuals, code in ((heavy, 0), (heavy[:0], int(Code.NOT_CONVERGED))):
        assert isinstance(reviewed(plain, residuals, code).instead, sf.MaRS)
        said, instead = reviewed(model, residuals, code)
        assert instead is None
        assert said.startswith("Penalised maximum likelihood, which is not reliable here: ")


@pytest.mark.parametrize("noise", ["same", "none"])
def test_a_structure_of_noises_beside_a_models_own_is_refused(noise):
    with pytest.raises(ModelError, match="noise must be 'each' for a model that says what is observed"):
        sf.fit(spring(), spring_series(), sf.ESGF(noise=noise))
