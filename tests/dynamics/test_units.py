"""The units of parameters, read off the drift."""

import jax.numpy as jnp
import numpy as np
import pytest

import sdefit as sf
from sdefit.data import Series, standardise
from sdefit.dynamics.parameters import Bounds
from sdefit.dynamics.units import ScaledBounds, exponents, parameter_units

POSITIVE = {name: sf.positive() for name in "vkd"}


@pytest.mark.parametrize(
    ("equations", "settings", "expected"),
    [
        ("dx = rate*(level - x)", {}, [[0, -1], [1, 0]]),
        ("dx = a*x*(b - x**2)", {}, [[-2, -1], [2, 0]]),
        ("dx = a*x - b*x*y\ndy = c*x*y - d*y", {}, [[0, 0, -1], [0, -1, -1], [-1, 0, -1], [0, 0, -1]]),
        ("dx = a*sin(w*t) - b*x", {}, [[1, -1], [0, -1], [0, -1]]),
        ("dx = a*u - b*x", {"inputs": ["u"]}, [[1, -1, -1], [0, -1, 0]]),
        ("dx = r*(m - x) + c", {"params": {"m": 3.0, "r": sf.positive(), "c": sf.real()}}, [[0, -1], [1, -1]]),
        ("dx = v*x**n/(k**n + x**n) - d*x", {"params": {"n": 2.0} | POSITIVE}, [[1, -1], [1, 0], [0, -1]]),
        ("dx = r*x*(1 - x)", {}, [[0, -1]]),  # the 1 ties x to the user's unit
        ("dx = r*x - x", {}, [[0, 0]]),  # and here time
        ("dx = s*(y - x)\ndy = x*(r - z) - y\ndz = x*y - b*z", {}, np.zeros((3, 4))),
        ("dx = sqrt(x - 1e9)*a", {}, [[0, 0]]),  # nowhere to be looked at
    ],
)
def test_exponents_are_those_of_the_dimensions(equations, settings, expected):
    np.testing.assert_allclose(exponents(sf.equations(equations, **settings)), expected, atol=1e-9)


def test_units_come_from_the_data():
    """A state of spread 3 every 0.5: a rate is per 0.5, a level of 3."""
    pool = standardise(Series([0.0, 0.5, 1.0, 1.5], [-3.0, 3.0, -3.0, 3.0]))
    np.testing.assert_allclose(parameter_units(sf.equations("dx = rate*(level - x)"), pool), [2.0, 3.0], rtol=1e-9)


def test_bounds_in_units():
    """Coordinates of one bound are logarithms of the distance in units, those of two do not depend on the unit."""
    inf = np.inf
    bounds = Bounds((0.0, 2.0, -inf, -inf, 1e-9), (inf, inf, 5.0, inf, 3e-9))
    unit = jnp.array([1e-15, 1e3, 1e-3, 1e12, 7.0])
    scaled, theta = ScaledBounds(bounds, unit), jnp.array([3e-15, 2.5e3, 4.999, -2e12, 2e-9])
    u = scaled.unconstrain(theta)
    np.testing.assert_allclose(u, [np.log(3), np.log(2.498), 0.0, -2.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(scaled.constrain(u), theta, rtol=1e-12)
    at = scaled.unconstrain(jnp.array([0.0, 1.0, 7.0, 0.0, 0.0]))
    assert np.all(np.isfinite(at))
