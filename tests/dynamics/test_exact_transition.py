"""The exact references are right themselves: against SciPy's own densities, moments, and a published fit."""

from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from exact_transition import (
    cir_log_likelihood,
    gbm_log_likelihood,
    gbm_maximum_likelihood,
    jacobi_density,
    maximise,
)

CIR = Path(__file__).parents[1] / "data" / "cir.csv"


def test_a_published_cir_fit():
    times, x = np.loadtxt(CIR, delimiter=",", skiprows=1).T
    theta, value = maximise(lambda *theta: cir_log_likelihood(times, x, *theta), np.array([2.0, 0.5, 0.3]))
    # The published kappa, 3.01733, is 8e-7 of log-likelihood below the maximum, at 3.0160.
    np.testing.assert_allclose(theta, [3.01733, 0.315907, 0.201191], rtol=1e-3)
    np.testing.assert_allclose(value, 4397.64107, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_cir_against_scipy(seed):
    rng = np.random.default_rng(seed)
    kappa, mu, s = 1.0, 0.8, 0.5
    times, x = np.cumsum(rng.uniform(0.1, 1.0, 6)), rng.uniform(0.2, 1.5, 6)
    h = np.diff(times)
    c = 2 * kappa / (s**2 * (1 - np.exp(-kappa * h)))
    density = stats.ncx2(4 * kappa * mu / s**2, 2 * c * x[:-1] * np.exp(-kappa * h)).logpdf(2 * c * x[1:])
    np.testing.assert_allclose(cir_log_likelihood(times, x, kappa, mu, s), np.sum(density + np.log(2 * c)), rtol=1e-10)


def test_gbm_against_scipy_and_its_maximum():
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.uniform(0.1, 1.0, 40))
    x = np.exp(np.cumsum(rng.normal(size=40)) * 0.3)
    a, s = 0.4, 0.7
    h = np.diff(times)
    density = stats.lognorm(s * np.sqrt(h), scale=x[:-1] * np.exp((a - s**2 / 2) * h)).logpdf(x[1:])
    np.testing.assert_allclose(gbm_log_likelihood(times, x, a, s), density.sum(), rtol=1e-12)
    theta, _ = maximise(lambda a, s: gbm_log_likelihood(times, x, a, s), np.array([0.3, 0.3]))
    np.testing.assert_allclose(theta, gbm_maximum_likelihood(times, x), rtol=1e-5)


@pytest.mark.parametrize("h", [0.05, 0.3])
def test_jacobi_by_its_mass_its_mean_and_chapman_kolmogorov(h):
    theta = (1.2, 0.4, 0.5)

    def density(y):
        return jacobi_density(h, 0.3, y, *theta)

    np.testing.assert_allclose(integrate.quad(density, 0, 1)[0], 1.0, rtol=1e-8)
    mean = 0.4 - 0.1 * np.exp(-1.2 * h)
    np.testing.assert_allclose(integrate.quad(lambda y: y * density(y), 0, 1)[0], mean, rtol=1e-8)
    twice, _ = integrate.quad(lambda y: density(y) * jacobi_density(h, y, 0.6, *theta), 0, 1)
    np.testing.assert_allclose(twice, jacobi_density(2 * h, 0.3, 0.6, *theta), rtol=1e-7)
