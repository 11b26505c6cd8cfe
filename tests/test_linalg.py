"""Small matrices: every routine against NumPy, and whole searches that compile as one piece."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdefit as sf
from sdefit import linalg
from sdefit.data import standardise
from sdefit.methods import execution
from sdefit.programs import compiled

SIZES = [1, 2, 3, 5, 8]
SEEDS = range(5)


@pytest.mark.parametrize("size", SIZES)
def test_solve_and_log_det(size):
    solve = jax.jit(linalg.solve_and_log_det)
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        a, b = rng.normal(size=(size, size)), rng.normal(size=(size, 3))
        x, log_det = solve(a, b)
        np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(log_det, np.linalg.slogdet(a)[1], rtol=1e-9, atol=1e-12)


def test_solve_looks_for_a_pivot():
    a = jnp.array([[0.0, 1.0, 0.0], [1e-20, 0.0, 2.0], [3.0, 0.0, 0.0]])
    x = linalg.solve(a, jnp.array([[1.0], [2.0], [3.0]]))
    np.testing.assert_allclose(x[:, 0], [1.0, 1.0, 1.0], rtol=1e-14)


def test_solve_in_a_batch():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 4, 4)), rng.normal(size=(7, 4, 1))
    np.testing.assert_allclose(jax.vmap(linalg.solve)(a, b), np.linalg.solve(a, b), rtol=1e-10)


@pytest.mark.parametrize("size", SIZES)
def test_cholesky(size):
    for seed in SEEDS:
        half = np.random.default_rng(seed).normal(size=(size, size))
        a = half @ half.T
        np.testing.assert_allclose(jax.jit(linalg.cholesky)(a), np.linalg.cholesky(a), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_cholesky_of_singular_matrices(rank):
    root_of = jax.jit(linalg.cholesky)
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        half = rng.normal(size=(5, rank)) * np.exp(rng.normal(size=(5, 1)) * 3)
        cov = half @ half.T
        root = np.asarray(root_of(cov))
        size = np.sqrt(np.diagonal(cov))
        assert np.all(np.triu(root, 1) == 0) and np.all(np.isfinite(root))
        assert np.all(np.abs(root @ root.T - cov) <= 1e-13 * np.outer(size, size))


def test_cholesky_with_zero_rows():
    cov = np.zeros((4, 4))
    cov[1:3, 1:3] = [[2.0, 0.5], [0.5, 1.0]]
    root = np.asarray(linalg.cholesky(jnp.asarray(cov)))
    np.testing.assert_allclose(root @ root.T, cov, atol=1e-15)
    np.testing.assert_allclose(root[1:3, 1:3], np.linalg.cholesky(cov[1:3, 1:3]), rtol=1e-14)


@pytest.mark.parametrize("size", SIZES)
def test_log_volume_and_its_slope(size):
    a = np.random.default_rng(size).normal(size=(20, size)) * np.geomspace(1e-4, 1e4, size)
    value, slope = jax.value_and_grad(linalg.log_volume)(jnp.asarray(a))
    np.testing.assert_allclose(value, 0.5 * np.linalg.slogdet(a.T @ a)[1], rtol=1e-7)
    np.testing.assert_allclose(slope, np.linalg.pinv(a).T, rtol=1e-6, atol=1e-9 * np.abs(slope).max())


def test_products_and_places():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 3, 4)), rng.normal(size=(6, 4, 2))
    np.testing.assert_allclose(linalg.dot(a, b), a @ b, rtol=1e-13)
    np.testing.assert_allclose(linalg.product(a[0], a[1]), a[0].T @ a[1], rtol=1e-13)
    square, below = rng.normal(size=(4, 4)), np.tril_indices(4, -1)
    np.testing.assert_array_equal(linalg.diagonal(jnp.asarray(square)), np.diagonal(square))
    np.testing.assert_array_equal(linalg.picked(jnp.asarray(square), below), square[below])
    np.testing.assert_array_equal(linalg.placed(jnp.asarray(square[below]), below, 4), np.tril(square, -1))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a matter of XLA for the CPU")
@pytest.mark.parametrize("stage", [0, 3], ids=["evidence", "refit"])
def test_a_search_is_compiled_in_one_piece(stage):
    """A library call or a scatter anywhere in the loop would break it up: slower by a factor, and nothing else."""
    setup = sf.systems.get("lv")
    series = setup.simulate(key=jax.random.key(0), paths=1, step=1e-2)[0]
    pool = execution._arrays(standardise([series], ()))
    inputs = pool, np.full(4, np.nan), jax.random.key(0)
    model, found = compiled.without_starts(setup.model), None
    for number in range(stage + 1):
        program = jax.jit(lambda *a, number=number: execution._Stage(number)(model, sf.MaRS(), *a))
        traced = program.trace(*inputs, found)
        found = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), traced.out_info)
    text = compiled._compile(traced.lower(), quick=False).as_text()
    entry = text[text.index("\nENTRY ") :]
    assert "xla_cpu_small_call" in entry
    assert not re.search(r" while\(", entry)
