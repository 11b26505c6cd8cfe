"""The parts of the importance sampler against what they are defined as."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sdefit.uncertainty.density import inverse_root
from sdefit.uncertainty.importance import _drawn, _root, _tempered

SEEDS = [0, 1, 2]


def effective(weight):
    """Kish's number of draws that count."""
    return 1 / np.sum(np.asarray(weight) ** 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_are_tempered_until_enough_draws_count(seed):
    log = 40 * jnp.asarray(np.random.default_rng(seed).normal(size=1000))
    weight = _tempered(log)
    assert np.sum(weight) == pytest.approx(1.0, rel=1e-12)
    assert effective(weight) == pytest.approx(125, rel=1e-3)
    # It is a power of the weights: their logs are proportional.
    apart = np.log(weight[1:]) - np.log(weight[:-1])
    power = apart / np.diff(log)
    np.testing.assert_allclose(power, power[0], rtol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_of_which_enough_count_stay_as_they_are(seed):
    log = jnp.asarray(np.random.default_rng(seed).normal(size=1000))
    np.testing.assert_allclose(_tempered(log), jax.nn.softmax(log), rtol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_proposals_are_weighted_by_their_own_density(seed):
    """With a Student target the weight is target over proposal, up to one constant."""
    rng = np.random.default_rng(seed)
    center, half = rng.normal(size=2), np.linalg.cholesky(np.array([[2.0, 0.5], [0.5, 1.0]]))
    target = SimpleNamespace(log_density=lambda v: -0.5 * jnp.sum(v**2))
    v, log_weight = _drawn(target, jnp.asarray(center), jnp.asarray(half), jax.random.key(seed))  # pyright: ignore[reportArgumentType]
    proposal = stats.multivariate_t(center, half @ half.T, df=5)
    apart = log_weight + 0.5 * np.sum(np.asarray(v) ** 2, axis=1) + proposal.logpdf(np.asarray(v))
    np.testing.assert_allclose(apart, apart[0], atol=1e-9)
    # The draws are of that law: the covariance is 5/3 half halfᵀ. Its entries' standard error over 1000 draws of five
    # degrees of freedom, whose kurtosis is 9, is at most 5/3 · 2 · √(8/1000) = 0.3.
    assert np.max(np.abs(np.cov(np.asarray(v).T) - 5 / 3 * half @ half.T)) < 4 * 0.3


@pytest.mark.parametrize("seed", SEEDS)
def test_roots_are_roots(seed):
    rng = np.random.default_rng(seed)
    units = 10.0 ** rng.uniform(-6, 6, 3)
    factor = np.eye(3) + 0.3 * rng.normal(size=(3, 3))
    curvature = units[:, None] * (factor @ factor.T) * units
    half = np.asarray(inverse_root(jnp.asarray(curvature)))
    half = units[:, None] * half
    np.testing.assert_allclose(half @ half.T @ factor @ factor.T, np.eye(3), atol=1e-9)
    root = np.asarray(_root(jnp.asarray(curvature)))
    np.testing.assert_allclose(root @ root.T / np.outer(units, units), factor @ factor.T, rtol=1e-5, atol=1e-5)
