"""General models in other units, on another clock, with states or parameters in another order: the same answers."""

import functools

import numpy as np
import pytest

import sdefit as sf
from general_models import FILTER, SPRING, positives, spring, spring_series, square_root, square_root_series

# Exponents of the units of a column and of time, of each parameter and of the noise.
UNITS = {
    "spring": {"k": (0, -2), "c": (0, -1), "s": (1, -1.5), "noise": (1, 0)},
    "square root": {"k": (0, -1), "mu": (1, 0), "s": (0.5, -0.5), "noise": (1, 0)},
}
MODELS = {"spring": spring, "square root": square_root}
DATA = {"spring": spring_series, "square root": square_root_series}
STATES = {"spring": [(1, 0), (1, -1)], "square root": [(1, 0)]}
METHODS = {"esgf": FILTER, "auto": sf.Auto(starts=2)}
POWERS = [(1e6, 1.0), (1.0, 1e-6), (1e-6, 1e6), (1e-6, 1e-6)]


def answers(name, method, times, values, size=1.0, time=1.0, model=None):
    """θ and σ, the log-likelihood and the smoothed path, all in the units of the original data."""
    fit = sf.fit(model or MODELS[name](), sf.Series(times, values, ["x"]), METHODS[method])
    units = UNITS[name]
    found = [fit.params[one] for one in units if one != "noise"] + [fit.noise[0]]
    found = np.array(found) / [size**a * time**b for a, b in units.values()]
    log_likelihood = fit.log_likelihood + (len(times) - 1) * np.log(size)
    order = [fit.model.states.index(one) for one in ("x", "v")[: len(fit.model.states)]]
    path = np.stack([fit.mean[0][:, k] / (size**a * time**b) for k, (a, b) in zip(order, STATES[name], strict=True)], 1)
    return found, log_likelihood, path


@functools.cache
def plain(name, method):
    series = DATA[name]()
    return answers(name, method, series.times, series.values)


def assert_same(name, method, found):
    """Searches end within √2e-6 standard errors of the top; they take the same way there but for rounding."""
    (theta, value, path), (own, height, line) = found, plain(name, method)
    np.testing.assert_allclose(theta[:-1], own[:-1], rtol=1e-6)
    np.testing.assert_allclose(theta[-1] ** 2, own[-1] ** 2, rtol=2e-6, atol=1e-12)  # where σ is zero, σ² is its size
    np.testing.assert_allclose(value, height, rtol=0, atol=1e-6)
    np.testing.assert_allclose(path, line, rtol=0, atol=1e-6 * np.abs(line).max())


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", UNITS)
def test_units_and_clock(name, method):
    series = DATA[name]()
    for size, time in POWERS:
        assert_same(name, method, answers(name, method, time * series.times, size * series.values, size, time))
    for shift in (-7.5, 1e6):  # a clock that shows 1e6 leaves nine digits of the spacings
        assert_same(name, method, answers(name, method, shift + series.times, series.values))


@pytest.mark.slow
def test_the_order_of_states_and_of_parameters():
    """Searches begin at other random points; they meet at one top, near which a search stops within 1e-6."""
    series = spring_series()
    lines = SPRING.split("\n")
    turned = sf.equations("\n".join([lines[1], lines[0], lines[2]]), params=positives("s", "k", "c"))
    assert turned.states == ("v", "x")
    assert_same("spring", "esgf", answers("spring", "esgf", series.times, series.values, model=turned))
