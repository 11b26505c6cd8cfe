"""The critic and its game: distances that are known, a θ that is known, and critics that fail."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.matching import critic

KEY = jax.random.key(3)
RULES = critic.WGANConfig(10.0, None, 1e-3, 0.1, 5, 300, 0.1, 2)
BATCH, DIM = 64, 3
SHIFT = np.array([2.0, -1.0, 2.0])  # of length 3


def new(key):
    return critic.new_critic(DIM, jnp.array(float(DIM)), key)


def normals(i, number: int):
    """Independent standard normal samples, others for each `number`."""
    return jax.random.normal(jax.random.fold_in(jax.random.fold_in(KEY, number), i), (BATCH, DIM), jnp.float32)


@functools.cache
def program(config: critic.WGANConfig):
    """The game between N(0, I) and N(shift − θ, spread² I), from θ = 0.

    The weights of the first critic are multiplied by `first`, those of any other by `later`.
    """
    begin = jax.random.key_data(jax.random.fold_in(jax.random.split(KEY)[0], 0))

    def train(shift, spread, first, later) -> critic.TrainingResult:
        def model(i, theta):
            return (spread * normals(i, 1) + (shift - theta)[None, :]).astype(jnp.float32)

        def make(key):
            factor = jnp.where(jnp.all(jax.random.key_data(key) == begin), first, later).astype(jnp.float32)
            return jax.tree.map(lambda w: w * factor, new(key))

        samplers = critic.Samplers(lambda i: normals(i, 0), model)
        return critic.train(samplers, jnp.zeros(DIM), make, config, KEY)

    return jax.jit(train)


def played(config=RULES, shift=SHIFT, spread=1.0, first=1.0, later=1.0) -> critic.TrainingResult:
    return program(config)(jnp.asarray(shift), *(jnp.array(float(a)) for a in (spread, first, later)))


# --- the network -----------------------------------------------------------------------------------------------


def test_it_is_its_formula():
    one, x = new(KEY), np.random.default_rng(0).normal(size=(5, DIM)).astype(np.float32)
    h = x
    for weight, bias in zip(one.weights[:2], one.biases, strict=True):
        h = h @ np.asarray(weight) + np.asarray(bias)
        h = np.where(h > 0, h, 0.2 * h)
    np.testing.assert_allclose(one(jnp.asarray(x)), h @ np.asarray(one.weights[2]), rtol=1e-5, atol=1e-6)


def test_slopes_are_those_of_differences():
    one, x = new(KEY), np.random.default_rng(1).normal(size=(4, DIM)).astype(np.float32)
    slope, h = np.asarray(critic.input_gradients(one, jnp.asarray(x))), 1e-2
    for k in range(DIM):
        step = (h * np.eye(DIM)[k]).astype(np.float32)
        central = (one(jnp.asarray(x + step)) - one(jnp.asarray(x - step))) / (2 * h)
        # Single precision leaves 1e-7/h; a kink inside the step moves the difference by a few per cent of the slope.
        np.testing.assert_allclose(slope[:, k], central, atol=0.03)
    np.testing.assert_allclose(critic.gradient_norm(jnp.asarray(slope)), np.linalg.norm(slope, axis=1), rtol=1e-5)


def test_padding_changes_no_weight():
    short, long = (critic.new_critic(dim, jnp.array(3.0), KEY) for dim in (3, 5))
    np.testing.assert_array_equal(short.weights[0], long.weights[0][:3])
    np.testing.assert_array_equal(short.weights[1], long.weights[1])


# --- distances -------------------------------------------------------------------------------------------------


def estimate(shift, spread: float) -> float:
    """The critic's estimate over the last of three windows, θ standing still all the time."""
    outcome = played(RULES._replace(steps=75, rate=0.0, tolerance=0.0), shift, spread)
    assert outcome.alive and np.all(np.asarray(outcome.path) == 0)
    return float(np.mean(np.asarray(outcome.distances)[-critic.WINDOW :]))


def tolerance(spread: float, distance: float) -> float:
    """What the last window's estimate may be off by.

    C has slope 1, so its variance over a normal sample is at most spread² (Poincaré), and its mean gap over 25 batches
    of 64 has a standard error below √((1 + spread²)/1600). Four of them, and 3 % of the distance for what 375 steps
    have not taught the critic.
    """
    return 4 * np.sqrt((1 + spread**2) / 1600) + 0.03 * distance


def test_distance_between_two_gaussians():
    """For N(a, I) and N(b, I) the Wasserstein-1 distance is |a − b|: here 3."""
    assert estimate(SHIFT, 1.0) == pytest.approx(3.0, abs=tolerance(1.0, 3.0))


def test_distance_between_gaussians_of_different_spread():
    """From N(0, I) to N(0, s² I) each sample moves outwards by s − 1 of itself: (s − 1) E|x|, with E|x| = √(8/π)."""
    expected = 2 * np.sqrt(8 / np.pi)
    assert estimate(np.zeros(DIM), 3.0) == pytest.approx(expected, abs=tolerance(3.0, expected))


def test_no_distance_between_equals():
    assert estimate(np.zeros(DIM), 1.0) == pytest.approx(0.0, abs=tolerance(1.0, 0.0))


# --- the game --------------------------------------------------------------------------------------------------

# A window sees 25 · 64 samples of each side, which tell θ to √(2/1600) a coordinate.
THETA = 4 * np.sqrt(2 / 1600)


def test_theta_goes_to_where_the_samples_agree_and_the_game_ends():
    outcome = played()
    steps = int(np.isfinite(outcome.distances).sum())
    assert outcome.converged and outcome.alive and outcome.restarts == 0
    assert 75 <= steps < RULES.steps and steps % critic.WINDOW == 0
    path, distances = np.asarray(outcome.path), np.asarray(outcome.distances)
    assert np.all(np.isfinite(path[:steps])) and np.all(np.isnan(path[steps:]))
    np.testing.assert_allclose(outcome.theta, path[steps - 50 : steps].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(outcome.theta, SHIFT, atol=THETA)
    assert np.max(distances[:25]) > 1 and np.mean(distances[steps - 25 : steps]) < 0.5


def test_a_dead_critic_is_noticed():
    """All weights 0: the loss is 0 and θ stands still, which must not be taken for the end of the game."""
    outcome = played(first=0.0, later=0.0)
    assert not outcome.alive and not outcome.converged
    assert outcome.restarts == RULES.restarts
    np.testing.assert_array_equal(outcome.theta, np.zeros(DIM))


def test_a_dead_critic_is_replaced():
    outcome = played(first=0.0)
    assert outcome.alive and outcome.converged and outcome.restarts == 1
    np.testing.assert_allclose(outcome.theta, SHIFT, atol=THETA)


@pytest.mark.parametrize("factor", [1e30, np.nan])
def test_an_exploded_critic_is_noticed_and_replaced(factor):
    lost = played(first=factor, later=factor)
    assert not lost.alive and not lost.converged
    np.testing.assert_array_equal(lost.theta, np.zeros(DIM))
    saved = played(first=factor)
    assert saved.alive and saved.converged and saved.restarts == 1
    np.testing.assert_allclose(saved.theta, SHIFT, atol=THETA)


@pytest.mark.slow
def test_clipped_weights():
    """The slope is far from 1, but the gap in units of it still falls as θ nears the data; all steps are played."""
    config = RULES._replace(penalty=0.0, clip=0.01, tolerance=0.0, steps=75)
    outcome = played(config)
    assert outcome.alive and outcome.converged
    assert max(float(jnp.max(jnp.abs(w))) for w in jax.tree.leaves(outcome.critic)) == pytest.approx(0.01)
    distances = np.asarray(outcome.distances)
    assert np.all(np.isfinite(distances)) and distances[-5:].mean() < 0.5 * distances[:5].mean()
    np.testing.assert_array_equal(outcome.theta, outcome.path[-1])


# --- when θ rests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("means", "rests"),
    [
        (np.full(13, 0.3), True),
        (0.005 * np.arange(13), True),  # slower than the tolerance
        (0.02 * np.arange(13), False),
        (0.03 * np.cos(np.pi * np.arange(13)), False),
    ],
)
def test_theta_rests_when_its_means_over_two_windows_agree(means, rests):
    """Windows of 25 steps about these means, at a tolerance of 0.01; what comes after the last does not count."""
    about = np.linspace(-0.5, 0.5, critic.WINDOW)[None, :, None]
    path = np.concatenate([means[:, None, None] + about, np.full((3, critic.WINDOW, 1), np.nan)])
    assert bool(critic._settled(jnp.asarray(path), jnp.array(len(means) - 1), 0.01)) is rests
