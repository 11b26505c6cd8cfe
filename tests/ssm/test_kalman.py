"""The filter, smoother and sampler of a linear Gaussian state-space model against its joint normal law, written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.ssm import kalman
from sdefit.ssm.kalman import Gaussian, Sensors, Transitions

SEEDS = [0, 1, 2]
TIMES, DIM, SENSORS, COLUMNS = 6, 3, 2, 2


def spd(rng, size):
    root = rng.normal(size=(size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


class Law:
    """A random model; its states at all times are one normal vector, as are its observations."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.first_mean, self.first_covariance = rng.normal(size=(DIM, COLUMNS)), spd(rng, DIM)
        self.F = 0.6 * rng.normal(size=(TIMES, DIM, DIM))
        self.Q = np.stack([spd(rng, DIM) for _ in range(TIMES)])
        self.Q[2] = 0.0  # a repeated time
        self.offset = rng.normal(size=(TIMES, DIM, COLUMNS))
        self.H, self.variance = rng.normal(size=(SENSORS, DIM)), rng.uniform(0.1, 0.5, SENSORS)
        self.observed = rng.uniform(size=(TIMES, SENSORS)) < 0.7
        self.observed[3] = False
        self.values = rng.normal(size=(TIMES, SENSORS, COLUMNS))

    def prior(self):
        """Mean and covariance of the states at all times, from s_n = F_n s_{n−1} + c_n + w_n."""
        means, covariance = [], np.zeros((TIMES, DIM, TIMES, DIM))
        mean, here = self.first_mean, self.first_covariance
        for n in range(TIMES):
            mean, here = self.F[n] @ mean + self.offset[n], self.F[n] @ here @ self.F[n].T + self.Q[n]
            means.append(mean)
            across = here
            covariance[n, :, n] = here
            for m in range(n + 1, TIMES):
                across = self.F[m] @ across
                covariance[m, :, n], covariance[n, :, m] = across, across.T
        return np.stack(means), covariance

    def posterior(self, until=TIMES):
        """Moments of the states given the rows before `until`, and the log density of these rows' first column."""
        means, covariance = self.prior()
        flat = covariance.reshape(TIMES * DIM, TIMES * DIM)
        seen = self.observed & (np.arange(TIMES) < until)[:, None]
        map_all = np.zeros((TIMES, SENSORS, TIMES, DIM))
        for n in range(TIMES):
            map_all[n, :, n] = self.H
        M = map_all[seen].reshape(-1, TIMES * DIM)
        S = M @ flat @ M.T + np.diag(np.broadcast_to(self.variance, seen.shape)[seen])
        off = self.values[seen] - M @ means.reshape(-1, COLUMNS)
        gain = flat @ M.T @ np.linalg.inv(S)
        mean = means.reshape(-1, COLUMNS) + gain @ off
        log = -0.5 * (np.linalg.slogdet(2 * np.pi * S)[1] + off[:, 0] @ np.linalg.solve(S, off[:, 0]))
        return mean.reshape(means.shape), (flat - gain @ M @ flat).reshape(covariance.shape), log

    @property
    def sensors(self):
        return Sensors(jnp.asarray(self.H), jnp.asarray(self.variance))

    @property
    def transitions(self):
        return Transitions(jnp.asarray(self.F), jnp.asarray(self.Q), jnp.asarray(self.offset))

    def filtered(self):
        first = Gaussian(jnp.asarray(self.first_mean), jnp.asarray(self.first_covariance))
        rows = jnp.asarray(self.values), jnp.asarray(self.observed)
        return kalman.run_filter(first, self.transitions, self.sensors, *rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_filter_conditions_on_each_row_in_turn(seed):
    law = Law(seed)
    last, filtered = law.filtered()
    for n in range(TIMES):
        for belief, until in ((filtered.predicted, n), (filtered.updated, n + 1)):
            mean, covariance, _ = law.posterior(until)
            np.testing.assert_allclose(belief.mean[n], mean[n], rtol=1e-9, atol=1e-10)
            np.testing.assert_allclose(belief.covariance[n], covariance[n, :, n], rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(last.mean, filtered.updated.mean[-1])
    assert kalman.log_likelihood(filtered) == pytest.approx(law.posterior()[2], rel=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_smoother_conditions_on_all_rows(seed):
    law = Law(seed)
    _, filtered = law.filtered()
    _, later = kalman.run_smoother(law.transitions.F, filtered, law.sensors)
    found, (mean, covariance, _) = kalman.smoothed(filtered, later), law.posterior()
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.covariance, covariance[np.arange(TIMES), :, np.arange(TIMES)], atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_slopes_of_the_likelihood_are_differences(seed):
    law = Law(seed)
    _, filtered = law.filtered()
    _, later = kalman.run_smoother(law.transitions.F, filtered, law.sensors)
    in_Q, in_variance = kalman.likelihood_slopes(later)
    step, n, k = 1e-5, 4, 1
    ends = []
    for sign in (1, -1):
        moved = Law(seed)
        moved.Q[n, 0, 1] += sign * step
        moved.Q[n, 1, 0] += sign * step
        ends.append(moved.posterior()[2])
    assert 2 * in_Q[n, 0, 1] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-8)
    ends = []
    for sign in (1, -1):
        moved = Law(seed)
        moved.variance[k] += sign * step
        ends.append(moved.posterior()[2])
    assert np.sum(in_variance[:, k]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_draws_have_exactly_the_posterior_moments(seed):
    """A draw is affine in its normal numbers: its mean and its covariance are read off, without Monte-Carlo error."""
    law = Law(seed)
    law.F[0], law.first_mean[:], law.offset[:] = np.eye(DIM), 0.0, 0.0
    law.Q[0] = 0.0  # the first step takes no time
    _, filtered = law.filtered()
    transitions = Transitions(jnp.asarray(law.F), jnp.asarray(law.Q))

    @jax.jit
    def drawn(numbers):
        state, observation = jnp.split(numbers, [TIMES * DIM])
        parts = state.reshape(TIMES, DIM, 1), observation.reshape(TIMES, SENSORS, 1)
        initial, values = jnp.asarray(law.first_covariance), jnp.asarray(law.values[..., 0])
        return kalman.draw_posterior(initial, transitions, law.sensors, filtered, values, *parts)[..., 0].ravel()

    zero = jnp.zeros(TIMES * (DIM + SENSORS))
    spread = np.asarray(jax.jacfwd(drawn)(zero))
    mean, covariance, _ = law.posterior()
    np.testing.assert_allclose(drawn(zero), mean[..., 0].ravel(), rtol=1e-9, atol=1e-10)
    # What a singular Q's root leaves out, 1e-15 of its size, is a standard deviation of some 1e-8.
    np.testing.assert_allclose(spread @ spread.T, covariance.reshape(TIMES * DIM, -1), atol=1e-7)
