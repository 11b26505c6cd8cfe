"""Coordinates of a likelihood against the matrices they stand for, written out in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from contract import ou_series, two_state_series
from sdefit.data import Series, standardise
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import positive, real
from sdefit.inference.parameterisation import Parameterisation, cholesky_psd

TEXT = "dx = -a*(x - b)\ndy = -a*y"
PARAMS = {"a": positive(), "b": real()}
THETA = np.array([0.7, -1.2])
SIZES = {"full": (2, 1), "diagonal": (2, 0), "scalar": (1, 0), "none": (0, 0)}  # entries on the diagonal of G, below it
NOISES = {"each": 2, "same": 1, "none": 0}


def of(diffusion, noise):
    one = two_state_series(3)
    uneven = Series(one.times, one.values * [1.0, 40.0], states=["x", "y"])
    pool = standardise([uneven])
    return Parameterisation(equations(TEXT, params=PARAMS, diffusion=diffusion), pool, noise), np.asarray(pool.scale)


def truth(diffusion, noise, scale):
    """G and σ in units of the data, with the structure asked for in the user's units; x(t_1)."""
    G = {
        "full": np.array([[0.6, 0.0], [-0.3, 0.4]]),
        "diagonal": np.diag([0.6, 0.4]),
        "scalar": np.diag(0.5 / scale),
        "none": np.zeros((2, 2)),
    }[diffusion]
    sigma = {"each": np.array([0.1, 0.2]), "same": 0.3 / scale, "none": np.zeros(2)}[noise]
    return G, sigma, np.array([[0.4, -0.8]])


CASES = [(diffusion, noise) for diffusion in SIZES for noise in NOISES]


@pytest.mark.parametrize(("diffusion", "noise"), CASES)
def test_what_goes_in_comes_out(diffusion, noise):
    where, scale = of(diffusion, noise)
    G, sigma, first = truth(diffusion, noise, scale)
    u = where.at(jnp.asarray(THETA), jnp.asarray(G), jnp.asarray(sigma), jnp.asarray(first))
    assert where.sizes == (2, *SIZES[diffusion], NOISES[noise], 2 if diffusion == "none" else 0)
    assert u.shape == where.max_step.shape == (sum(where.sizes),)
    point = where.point(where.variance_params(u))
    np.testing.assert_allclose(point.theta, THETA, rtol=1e-12)
    np.testing.assert_allclose(point.Q, G @ G.T, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(point.variance, sigma**2, rtol=1e-9)  # a floor of 1e-14 is added
    np.testing.assert_allclose(point.first, first if diffusion == "none" else first[:, :0], rtol=1e-12)
    quantities = where.quantities(where.variance_params(u))
    np.testing.assert_allclose(quantities, [*THETA, *(G @ G.T).ravel(), *point.variance], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("diffusion", ["full", "diagonal", "scalar"])
def test_signs_of_standard_deviations_do_not_matter(diffusion):
    """G with a column turned round, and −σ, are the same noise."""
    where, scale = of(diffusion, "each")
    G, sigma, first = (jnp.asarray(a) for a in truth(diffusion, "each", scale))
    u = where.at(jnp.asarray(THETA), G, sigma, first)
    turned = where.at(jnp.asarray(THETA), -G, -sigma, first)
    assert np.any(u != turned)
    np.testing.assert_allclose(where.variance_params(u), where.variance_params(turned), rtol=1e-12)


def test_steps_are_limited_where_a_coordinate_is_a_logarithm():
    where, _ = of("full", "same")
    np.testing.assert_array_equal(where.max_step, [2.0, np.inf, 1.0, 1.0, 1.0, 1.0])


def test_what_an_ode_cannot_explain_begins_as_noise():
    where, _ = of("none", "each")
    diffusion, noise, first = jnp.array([0.3, 0.4]), jnp.array([0.1, 0.2]), jnp.array([[1.0, 2.0]])
    u = where.begin(jnp.array([0.5, 0.6]), diffusion, noise, first)
    expected = [0.5, 0.6, *np.sqrt(np.array([0.1, 0.2]) ** 2 + np.array([0.3, 0.4]) ** 2 / 2), 1.0, 2.0]
    np.testing.assert_allclose(u, expected, rtol=1e-12)


def test_units_of_the_data_change_no_coordinate():
    """The same θ, G and σ in hours and kilometres: u is free of units, rates of θ as well."""
    model = equations("dx = rate*(level - x)", params={"rate": positive(), "level": real()})
    one = ou_series(1)
    us = []
    for T, S in ((1.0, 1.0), (3600.0, 1e-3)):
        where = Parameterisation(model, standardise([Series(T * one.times, S * one.values)]), "each")
        theta = jnp.array([0.8 / T, 1.5 * S])
        us.append(where.at(theta, jnp.array([[0.3]]), jnp.array([0.1]), jnp.zeros((1, 1))))
    np.testing.assert_allclose(us[0], us[1], rtol=1e-10)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_root_of_a_covariance(seed):
    G = np.tril(np.random.default_rng(seed).normal(size=(3, 3)))
    np.fill_diagonal(G, np.abs(np.diagonal(G)) + 0.1)
    for size in (1e-12, 1.0, 1e12):
        np.testing.assert_allclose(cholesky_psd(jnp.asarray(size * G @ G.T)), np.sqrt(size) * G, rtol=1e-8)
    singular = np.outer([1.0, 2.0, 0.0], [1.0, 2.0, 0.0])
    root = np.asarray(cholesky_psd(jnp.asarray(singular)))
    np.testing.assert_allclose(root @ root.T, singular, atol=1e-12)
    np.testing.assert_array_equal(cholesky_psd(jnp.zeros((2, 2))), 0.0)
