"""One long gap in a series: what it was before and behind counts, and nothing depends on how long the gap is."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import sdefit as sf
from contract import KEY, quick, relaxing
from exact_likelihood import ou_log_likelihood
from sdefit import methods
from sdefit.ssm.kalman import Observations

SPACING, GAPS = 0.1, (1e2, 1e5, 1e8)


def gapped(gap):
    """Exact draws of dx = (1 − x) dt + 0.5 dw seen with noise 0.1: 30 rows, a gap of so many spacings, 30 rows."""
    rng = np.random.default_rng(5)
    times = SPACING * np.concatenate([np.arange(30), 29 + gap + np.arange(30)])
    x = [3.0]
    for h in np.diff(times):
        decay = np.exp(-h)
        x.append(1 + (x[-1] - 1) * decay + 0.5 * np.sqrt((1 - decay**2) / 2) * rng.standard_normal())
    return sf.Series(times, np.array(x) + 0.1 * rng.standard_normal(60))


@jax.jit
def loss(v, times, values):
    """−log-likelihood at log rate, level, log G and log σ."""
    data = Observations(times, values, jnp.ones(values.shape, bool))
    return -ou_log_likelihood(jnp.exp(v[0]), v[1], jnp.exp(v[2]), jnp.exp(v[3]), data)


@functools.cache
def best(gap):
    """Exact maximum likelihood from several starts: (rate, level, G, σ) and the log-likelihood."""
    series, slope = gapped(gap), jax.jit(jax.grad(loss))

    def search(begin):
        one, both = (
            (series.times, series.values),
            (lambda v: float(loss(v, *one)), lambda v: np.asarray(slope(v, *one))),
        )
        return scipy.optimize.minimize(both[0], begin, jac=both[1], method="BFGS")

    found = min((search(np.array([r, 1.0, -0.7, n])) for r in (-1.0, 1.0) for n in (-3.0, -1.5)), key=lambda r: r.fun)
    return np.array([np.exp(found.x[0]), found.x[1], *np.exp(found.x[2:])]), -found.fun


def fitted(name, gap):
    fit = sf.fit(relaxing(), gapped(gap), quick(name) if name in ("ares", "npsde") else methods.get(name)(), key=KEY)
    found = np.array([fit.params["rate"], fit.params["level"], fit.G[0, 0], fit.noise[0]])
    v = np.array([np.log(found[0]), found[1], *np.log(found[2:])])
    return fit, found, -float(loss(v, fit.series[0].times, fit.series[0].values))


def test_the_exact_likelihood_takes_any_gap():
    """Behind a long gap x is stationary: the same density for every long one, and finite."""
    at = np.array([0.1, 0.8, -0.9, -2.2])
    values = [float(loss(at, gapped(gap).times, gapped(gap).values)) for gap in (1e3, 1e5, 1e8)]
    np.testing.assert_allclose(values, values[0], rtol=1e-9)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize(("name", "near"), [("esgf", 0.005), ("auto", 0.02)])
def test_the_likelihood_is_climbed_to_its_top(name, near, gap):
    """ESGF has a tenth of log σ and log G in its objective, the default weak priors: hardly more than nothing here."""
    fit, found, height = fitted(name, gap)
    exact, top = best(gap)
    assert fit.status.ok and fit.method.name == name
    np.testing.assert_allclose(found, exact, rtol=near)
    assert height > top - 0.01
    steps = np.asarray(fit.estimate.state.steps)[0]
    assert 1 <= steps[30] <= 64 and np.all(np.delete(steps, [0, 30]) == 1)


@pytest.mark.parametrize("name", ["moments", "mars", "ares", "vgpa", "npsde"])
def test_no_method_is_led_astray(name):
    """Matching, NPSDE and moments take the part behind the gap as another series: they lose what the gap tells."""
    exact, top = best(1e5)
    for gap in GAPS:
        fit, found, height = fitted(name, gap)
        assert fit.status.ok
        np.testing.assert_allclose(found, exact, rtol=0.3, err_msg=f"{name}, {gap:g}")
        assert height > top - 1
    one, other = fitted(name, 1e5)[1], fitted(name, 1e8)[1]
    np.testing.assert_allclose(one, other, rtol=1e-5)
