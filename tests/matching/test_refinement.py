"""The refinement of MaRS and AReS: Aitken's fraction in closed form, and a fixed point that forgets where it began."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from contract import ou_series, relaxing
from sdefit.data import standardise
from sdefit.matching.latent_process import LatentProcess, with_midpoints
from sdefit.matching.refinement import RefinementState, aitken, refine


def after_one_pass(step, fraction=1.0):
    """A state whose last pass asked for this step and took a fraction of it."""
    P = len(step)
    begin = RefinementState.begin(jnp.zeros(P), jnp.zeros(2), jnp.zeros((1, 3, 1)), jnp.ones(P))
    return eqx.tree_at(
        lambda s: (s.step, s.fraction, s.passes),
        begin,
        (jnp.asarray(step), jnp.asarray(fraction), jnp.array(1, jnp.int32)),
    )


@pytest.mark.parametrize("k", [1.05, 1.5, 1.9])
def test_steps_past_the_end_are_cut_to_end_there(k):
    """A pass asks for k times the way left. After a whole step of k e, what is left is (1 − k) e; 1/k of the next."""
    e = np.array([2.0, -1.0])
    _, fraction = aitken(after_one_pass(k * e), jnp.asarray(k * (1 - k) * e), jnp.diag(jnp.array([0.3, 7.0])))
    assert fraction == pytest.approx(1 / k, rel=1e-12)


@pytest.mark.parametrize(("k", "taken"), [(0.5, 1.0), (40.0, 0.1)])
def test_the_fraction_stays_within_its_bounds(k, taken):
    e = np.array([2.0])
    _, fraction = aitken(after_one_pass(k * e), jnp.asarray(k * (1 - k) * e), jnp.eye(1))
    assert fraction == taken


def test_the_first_step_is_taken_whole():
    begin = RefinementState.begin(jnp.zeros(2), jnp.zeros(2), jnp.zeros((1, 3, 1)), jnp.ones(2))
    assert aitken(begin, jnp.array([3.0, 4.0]), jnp.eye(2))[1] == 1.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_lengths_and_angles_are_in_standard_errors(seed):
    rng = np.random.default_rng(seed)
    root, last, step = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3)
    covariance, before = root @ root.T + 0.1 * np.eye(3), rng.uniform(0.3, 1.0)
    length, fraction = aitken(after_one_pass(last, before), jnp.asarray(step), jnp.asarray(covariance))
    inverse, change = np.linalg.inv(covariance), step - last
    assert length == pytest.approx(np.sqrt(step @ inverse @ step / 3), rel=1e-9)
    expected = -before * (last @ inverse @ change) / (change @ inverse @ change)
    assert fraction == pytest.approx(np.clip(expected, 0.1, 1.0), rel=1e-9)


@pytest.mark.slow
def test_it_forgets_the_parameters_and_the_path_it_began_with():
    model, pool = relaxing(), jax.tree.map(jnp.asarray, standardise([ou_series(1, rows=40)]))
    evidence = LatentProcess("matern52", None, 1, 50, 1e-6).evidence(model, pool)
    rows = with_midpoints(pool)
    straight = jnp.interp(rows.times[0], pool.times[0], pool.values[0, :, 0])[None, :, None]
    K = evidence.states
    u = jnp.zeros(3 * K + evidence.diffusion.size).at[2 * K :].set(jnp.log(0.3))

    @jax.jit
    def refined(theta, path):
        return refine(model, pool, evidence, u, path, theta, jnp.array([1.0, 1.0]), 6)

    one = refined(jnp.array([0.8, 1.0]), straight)
    assert one.converged and np.isfinite(one.mean).all() and (one.std > 0).all()
    std = np.sqrt(np.diagonal(one.covariance))
    for theta, path in (([3.0, -2.0], straight), ([0.1, 4.0], 0.3 * straight)):
        other = refined(jnp.array(theta), path)
        assert other.converged
        # A pass that moves θ by less than 1e-6 standard errors is the last; passes shrink it by a few times each.
        np.testing.assert_allclose(other.theta, one.theta, atol=1e-4 * std.min())
        np.testing.assert_allclose(other.G, one.G, rtol=1e-3)
        np.testing.assert_allclose(other.mean, one.mean, atol=1e-3)
