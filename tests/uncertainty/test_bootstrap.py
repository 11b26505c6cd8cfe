"""The bootstrap's arithmetic, apart from a fit: units, failures, and what belongs to which fit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from contract import two_state_series
from sdefit.data import Series, stack, standardise
from sdefit.result import Estimate
from sdefit.uncertainty.bootstrap import Replicas, finite, generating_of, in_units_of, values_of

SEEDS = [0, 1, 2]


class Nothing(eqx.Module):
    """What a method without a state of its own keeps."""


def estimated(pool, G, noise, mean):
    """An estimate of these numbers, given in the user's units."""
    scale, root = np.asarray(pool.scale), np.sqrt(float(pool.time_scale))
    parts = {"G": G * root / scale[:, None], "noise": noise / scale, "mean": (mean - pool.center) / scale}
    nothing = {"criterion": jnp.zeros(()), "code": jnp.zeros((), jnp.int32), "trace": {}, "state": Nothing()}
    parts = {name: jnp.asarray(part) for name, part in parts.items()}
    return Estimate(theta=jnp.array([1.0, 2.0]), std=jnp.zeros_like(parts["mean"]), **parts, **nothing)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_estimate_keeps_its_meaning_in_units_of_other_data(seed):
    rng = np.random.default_rng(seed)
    one = two_state_series(seed)
    moved = Series(one.times, 3.0 + one.values * [0.2, 50.0], states=["x", "y"])
    pools = standardise([one]), standardise([moved])
    G, noise, mean = np.tril(rng.uniform(0.1, 1, (2, 2))), rng.uniform(0.1, 1, 2), rng.normal(size=(1, 20, 2))
    own, other = (estimated(pool, G, noise, mean) for pool in pools)
    found = in_units_of(pools[1], pools[0], own)
    for name in ("theta", "G", "noise", "mean"):
        np.testing.assert_allclose(getattr(found, name), getattr(other, name), rtol=1e-10, atol=1e-12, err_msg=name)


def test_what_generates_the_data_is_in_the_users_units():
    series = [two_state_series(1), two_state_series(2)]
    pools = [standardise([one]) for one in series]
    G, noise = np.array([[0.5, 0.0], [0.2, 0.3]]), np.array([0.1, 0.4])
    estimates = [estimated(pool, (i + 1) * G, noise, np.zeros((1, 20, 2))) for i, pool in enumerate(pools)]
    found = generating_of(stack(pools), jax.tree.map(lambda *a: np.stack(a), *estimates))
    np.testing.assert_allclose(found.G, [G, 2 * G], rtol=1e-12)
    np.testing.assert_allclose(found.noise, [noise, noise], rtol=1e-12)


def test_a_draw_with_a_number_missing_anywhere_has_failed():
    theta, G, noise = np.zeros((5, 2)), np.zeros((5, 2, 2)), np.zeros((5, 2))
    theta[1, 1], G[2, 1, 0], noise[3, 0] = np.nan, np.inf, -np.inf
    np.testing.assert_array_equal(finite(values_of(theta, G, noise)), [True, False, False, False, True])


def test_each_fit_gets_its_own_replicas():
    numbers = np.arange(3 * 4 * 2.0)
    many = values_of(numbers.reshape(3, 4, 2), np.arange(48.0).reshape(3, 4, 2, 2), numbers.reshape(3, 4, 2))
    made = Replicas(many, many, True, 1.5, 2.5).of(2)
    for part in (made.generating_params, made.found):
        np.testing.assert_array_equal(part.theta, numbers.reshape(3, 4, 2)[2])
        np.testing.assert_array_equal(part.G, np.arange(32.0, 48.0).reshape(4, 2, 2))
    assert (made.averaged, made.seconds, made.compile_seconds) == (True, 1.5, 2.5)
