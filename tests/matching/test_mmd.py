"""The maximum mean discrepancy, against loops and against its expectation for two Gaussians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.matching import mmd

SEEDS = [0, 1, 2]


def kernel(x, y, length):
    return 1 / (1 + np.sum((x - y) ** 2) / (2 * length**2))


def naive(a, b, length, paired):
    """The definition, pair by pair."""
    m, total = len(a), 0.0
    for i in range(m):
        for j in range(m):
            if i != j:
                total += (kernel(a[i], a[j], length) + kernel(b[i], b[j], length)) / (m * (m - 1))
            if i != j or not paired:
                total -= 2 * kernel(a[i], b[j], length) / (m * (m - 1) if paired else m * m)
    return total


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("paired", [False, True])
def test_it_is_its_definition(seed, paired):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(7, 3)), 2 * rng.normal(size=(7, 3)) + 1
    for length in (0.3, 2.0, 50.0):
        value = mmd.mmd_squared(jnp.asarray(a), jnp.asarray(b), jnp.asarray(length), paired=paired)
        assert float(value) == pytest.approx(naive(a, b, length, paired), rel=1e-9, abs=1e-13)


def test_far_from_the_origin_little_is_lost():
    """Distances come from |x|² + |y|² − 2 x·y, which loses digits for a common offset: twice those of the offset."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(6, 2)) + 1e3, rng.normal(size=(6, 2)) + 1e3 + 0.5
    value = mmd.mmd_squared(jnp.asarray(a), jnp.asarray(b), jnp.asarray(1.0))
    assert float(value) == pytest.approx(naive(a, b, 1.0, False), abs=1e-8)


def expected_kernel(dim, shift, variance, length):
    """E k(x, y) for x − y ~ N(shift, variance I).

    The rational quadratic is a mixture of Gaussians, 1/(1 + q) = ∫ e^{−s} e^{−s q} ds over s > 0, and each has the
    closed form E e^{−s d²/(2ℓ²)} = (1 + s v/ℓ²)^{−D/2} exp(−s |μ|²/(2(ℓ² + s v))).
    """
    s, weights = np.polynomial.laguerre.laggauss(60)
    spread = 1 + s * variance / length**2
    return np.sum(weights * spread ** (-dim / 2) * np.exp(-s * (shift @ shift) / (2 * length**2 * spread)))


@pytest.mark.parametrize(("paired", "scale", "move"), [(False, 1.0, 0.0), (False, 1.5, 0.7), (True, 1.0, 1.0)])
def test_unbiased_for_two_gaussians(paired, scale, move):
    """The mean of R estimates lies within four of its standard errors, std/√R, of the exact MMD²."""
    dim, m, repeats, length = 2, 12, 800, 1.3
    shift = np.full(dim, move)
    one, other = jax.random.split(jax.random.key(3))
    a = jax.random.normal(one, (repeats, m, dim))
    b = scale * jax.random.normal(other, (repeats, m, dim)) + jnp.asarray(shift)[None, None, :]
    values = np.asarray(jax.vmap(lambda a, b: mmd.mmd_squared(a, b, jnp.asarray(length), paired=paired))(a, b))
    still = np.zeros(dim)
    exact = expected_kernel(dim, still, 2.0, length) + expected_kernel(dim, still, 2 * scale**2, length)
    exact -= 2 * expected_kernel(dim, shift, 1 + scale**2, length)
    error = np.std(values) / np.sqrt(repeats)
    assert abs(np.mean(values) - exact) < 4 * error
    if move == 0 and scale == 1:
        assert exact == pytest.approx(0.0, abs=1e-12) and np.min(values) < 0 < np.max(values)
    else:
        assert exact > 8 * error  # there is something to see


@pytest.mark.parametrize("seed", SEEDS)
def test_median_length_is_the_median_distance(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(7, 4)), rng.normal(size=(7, 4)) + 2  # 91 pairs, an odd number
    both = np.concatenate([a, b])
    distances = [np.linalg.norm(both[i] - both[j]) for i in range(14) for j in range(i)]
    assert float(mmd.median_length(jnp.asarray(a), jnp.asarray(b))) == pytest.approx(np.median(distances), rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_pair_length_is_near_the_median_distance_across(seed):
    """256 pairs in place of 65536: the standard error of a median is 1/(2 density √n)."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(256, 6)), 2 * rng.normal(size=(256, 6)) + 1
    across = np.linalg.norm(a[:, None] - b[None], axis=2)
    density = np.mean(np.abs(across / np.median(across) - 1) < 0.05) / 0.1
    assert 0.5 / np.sqrt(256) / density < 0.025
    assert float(mmd.pair_length(jnp.asarray(a), jnp.asarray(b))) == pytest.approx(np.median(across), rel=4 * 0.025)
    assert float(mmd.pair_length(jnp.asarray(a), jnp.asarray(a))) > 0


def test_equal_samples_have_a_length_and_a_slope():
    """All samples in one point: nothing divides by zero, and the derivative is a number."""
    same = jnp.ones((4, 2))
    assert float(mmd.median_length(same, same)) > 0
    length = mmd.median_length(same, same)
    slope = jax.grad(lambda b: mmd.mmd_squared(same, b, length))(same)
    assert np.all(np.isfinite(slope))
    assert float(mmd.mmd_squared(same, same, length)) == pytest.approx(0.0, abs=1e-12)
