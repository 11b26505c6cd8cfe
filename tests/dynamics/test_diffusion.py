"""The free entries of G, and the matrix they make."""

import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.dynamics.diffusion import DiffusionShape, even_scale

SIZES = {"full": [1, 3, 6], "diagonal": [1, 2, 3], "scalar": [1, 1, 1], "none": [0, 0, 0]}


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("states", [1, 2, 3])
def test_entries_to_matrix(kind, states):
    shape = DiffusionShape(kind, states)
    assert shape.size == SIZES[kind][states - 1]
    rng = np.random.default_rng(states)
    v, even = rng.normal(size=shape.size), np.exp(rng.normal(size=states))
    G = np.asarray(shape.matrix(jnp.asarray(v), jnp.asarray(even)))
    expected = np.zeros((states, states))
    below = iter(v[states:])
    for i in range(states):
        for j in range(i + 1):
            if kind == "scalar" and i == j:
                expected[i, j] = np.exp(v[0]) * even[i]
            elif kind in ("full", "diagonal") and i == j:
                expected[i, j] = np.exp(v[i])
            elif kind == "full":
                expected[i, j] = next(below)
    np.testing.assert_allclose(G, expected, rtol=1e-15)


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_a_diagonal_matrix_has_the_entries_it_was_made_of(kind):
    shape, even = DiffusionShape(kind, 3), jnp.ones(3)
    log_std = jnp.asarray([0.3, -1.2, 2.0])
    np.testing.assert_allclose(shape.matrix(shape.entries(log_std, even), even), np.diag(np.exp(log_std)), rtol=1e-15)


def test_a_scalar_matrix_takes_the_geometric_mean():
    shape, even = DiffusionShape("scalar", 2), jnp.asarray([2.0, 0.5])
    log_std = jnp.asarray([np.log(6.0), np.log(0.375)])  # 3 and 0.75 times `even`: 1.5 in between
    entries = shape.entries(log_std, even)
    assert entries.shape == (1,)
    np.testing.assert_allclose(shape.matrix(entries, even), np.diag([3.0, 0.75]), rtol=1e-14)


def test_no_diffusion_has_no_entries():
    assert DiffusionShape("none", 2).entries(jnp.zeros(2), jnp.ones(2)).shape == (0,)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_even_scale_is_one_number_in_the_units_of_the_user(seed):
    scale = np.exp(np.random.default_rng(seed).normal(size=3))
    even = np.asarray(even_scale(jnp.asarray(scale)))
    in_user_units = scale * even
    np.testing.assert_allclose(in_user_units, in_user_units[0], rtol=1e-14)
    assert np.prod(even) == pytest.approx(1.0, rel=1e-14)
    G = DiffusionShape("scalar", 3).matrix(jnp.asarray([0.4]), jnp.asarray(even))
    np.testing.assert_allclose(scale[:, None] * G, np.exp(0.4) * in_user_units[0] * np.eye(3), rtol=1e-14)
