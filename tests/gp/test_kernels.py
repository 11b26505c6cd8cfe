"""Kernels and their time derivatives against formulas written out in NumPy and against automatic differentiation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.errors import ModelError
from sdefit.gp.kernels import KERNELS, get_kernel

SEEDS = [0, 1, 2]
# These programs run for microseconds: most of a test's time would be spent making them fast.
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def formula(name, a, b, scale, length, shape):
    """k(a, b) of two different times, as in a textbook."""
    s = jnp.abs(a - b) / length
    if name == "rbf":
        return scale**2 * jnp.exp(-(s**2) / 2)
    if name == "matern52":
        return scale**2 * (1 + jnp.sqrt(5.0) * s + 5 * s**2 / 3) * jnp.exp(-jnp.sqrt(5.0) * s)
    if name == "matern32":
        return scale**2 * (1 + jnp.sqrt(3.0) * s) * jnp.exp(-jnp.sqrt(3.0) * s)
    if name == "rational_quadratic":
        return scale**2 * (1 + s**2 / (2 * shape)) ** (-shape)
    u, v = a / length, b / length
    inside = 2 * (shape + u * v) / jnp.sqrt((1 + 2 * (shape + u * u)) * (1 + 2 * (shape + v * v)))
    return scale**2 * jnp.arcsin(inside)


def setting(seed):
    rng = np.random.default_rng(seed)
    times = np.concatenate([[0.0], np.cumsum(rng.exponential(1.0, size=7))])
    scale, length, shape = rng.uniform(0.5, 2), rng.uniform(0.5, 4), rng.uniform(0.3, 3)
    return jnp.asarray(times), jnp.asarray(scale), jnp.asarray(length), jnp.asarray(shape)


def pairs(f, times):
    return jax.vmap(jax.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(times, times)


@functools.cache
def compiled(name):
    return quick(get_kernel(name).blocks)


def blocks_of(name, times, *phi):
    return [np.asarray(block) for block in compiled(name)(times, *phi)]


@functools.cache
def naive(name):
    """k, ∂k/∂a, ∂k/∂b and ∂²k/∂a∂b of the formula over all pairs of times."""

    def all_four(times, *phi):
        def k(a, b):
            return formula(name, a, b, *phi)

        return [pairs(f, times) for f in (k, jax.grad(k, 0), jax.grad(k, 1), jax.grad(jax.grad(k, 0), 1))]

    return quick(all_four)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KERNELS)
def test_covariance_and_time_derivatives_match_the_formula(name, seed):
    times, *phi = setting(seed)
    # The formula's |a − b| has no derivative at 0: those entries are the next test's.
    use = ~np.eye(times.size, dtype=bool) | (name == "sigmoid")
    for got, expected in zip(blocks_of(name, times, *phi), naive(name)(times, *phi), strict=True):
        np.testing.assert_allclose(got[use], np.asarray(expected)[use], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "curvature"), [("rbf", 1.0), ("matern52", 5 / 3), ("matern32", 3.0), ("rational_quadratic", 1.0)]
)
def test_at_equal_times(name, curvature, seed):
    """At r = 0: variance scale², z and ż uncorrelated, variance of ż −k''(0) = curvature·scale²/length²."""
    times, scale, length, shape = setting(seed)
    value, left, right, both = map(np.diagonal, blocks_of(name, times, scale, length, shape))
    np.testing.assert_allclose(value, float(scale) ** 2, rtol=1e-14)
    np.testing.assert_allclose(both, curvature * float(scale / length) ** 2, rtol=1e-13)
    assert np.all(left == 0) and np.all(right == 0)


@pytest.mark.parametrize("name", KERNELS)
def test_derivatives_are_limits_of_differences(name):
    """Nothing jumps between r = 0 and r → 0: (z(t + h) − z(t))/h has the covariances of ż, to order h."""
    h = 1e-4
    times, *phi = setting(3)
    near = jnp.sort(jnp.concatenate([times, times + h]))
    C = blocks_of(name, near, *phi)[0]
    _, left, right, both = blocks_of(name, times, *phi)
    size = np.max(np.abs(both))
    np.testing.assert_allclose((C[1::2, ::2] - C[::2, ::2]) / h, left, atol=20 * h * size)
    np.testing.assert_allclose((C[::2, 1::2] - C[::2, ::2]) / h, right, atol=20 * h * size)
    second = (C[1::2, 1::2] - C[1::2, ::2] - C[::2, 1::2] + C[::2, ::2]) / h**2
    # Rounding: four numbers of size one over h² = 1e-8, each good to 1e-16.
    np.testing.assert_allclose(second, both, atol=20 * h * size + 1e-7)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_joint_covariance_of_z_and_its_derivative_is_one(name, seed):
    value, left, right, both = blocks_of(name, *setting(seed))
    np.testing.assert_allclose(left, right.T, atol=1e-15)
    joint = np.block([[value, right], [left, both]])
    np.testing.assert_allclose(joint, joint.T, atol=1e-14)
    eigenvalues = np.linalg.eigvalsh(joint)
    assert eigenvalues[0] > -1e-13 * eigenvalues[-1]


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_in_the_hyperparameters_match_differences(name):
    times, *phi = setting(4)
    weights = jnp.asarray(np.random.default_rng(5).normal(size=(4, times.size, times.size)))

    @quick
    @jax.value_and_grad
    def total(phi):
        return sum(jnp.sum(w * b) for w, b in zip(weights, get_kernel(name).blocks(times, *phi), strict=True))

    gradient = np.asarray(total(jnp.stack(phi))[1])
    step = 1e-5 * np.eye(3)
    differences = [float(total(jnp.stack(phi) + e)[0] - total(jnp.stack(phi) - e)[0]) / 2e-5 for e in step]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)
    assert get_kernel(name).shaped == (gradient[2] != 0)


def test_sigmoid_keeps_its_digits_far_from_the_origin():
    """Where the argument of asin is 1 − ε, π/2 − asin(√ε(2 − ε)) is the well-conditioned way to write it."""
    times = jnp.asarray([1e3, 1e3 + 1e-3, 1e4, 1e5])
    scale, length, shape = jnp.asarray(1.0), jnp.asarray(0.7), jnp.asarray(0.4)
    got, *derivatives = blocks_of("sigmoid", times, scale, length, shape)
    t = np.asarray(times, np.longdouble) / np.longdouble(0.7)
    beta = np.longdouble(0.4)
    d = (1 + 2 * beta + 2 * t[:, None] ** 2) * (1 + 2 * beta + 2 * t[None, :] ** 2)
    rest = 1 + 4 * beta + 2 * t[:, None] ** 2 + 2 * t[None, :] ** 2 + 4 * beta * (t[:, None] - t[None, :]) ** 2
    expected = np.longdouble(np.pi) / 2 - np.arcsin(np.sqrt(rest / d))
    np.testing.assert_allclose(got, expected.astype(float), rtol=1e-15)
    assert np.all(np.isfinite(derivatives))


@pytest.mark.parametrize("seed", SEEDS)
def test_stationary_kernels_do_not_see_the_clock(seed):
    times, *phi = setting(seed)
    for name in ("rbf", "matern52", "matern32", "rational_quadratic"):
        for here, there in zip(blocks_of(name, times, *phi), blocks_of(name, times - 2000.0, *phi), strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-10, atol=1e-10)


def test_an_unknown_kernel_is_named():
    with pytest.raises(ModelError, match=r"^kernel must be one of matern52, .*, not 'cosine'$"):
        get_kernel("cosine")
