"""The weak-form refit against full covariance matrices in NumPy, and its divergence term against exact likelihoods."""

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from sdefit.matching import weak_form
from sdefit.ssm.kalman import Observations

SEEDS = [0, 1, 2]
CENTER, WIDTH = np.array([0.2, -0.4, 0.0]), np.array([3.0, 2.0, 5.0])
THETA = np.array([0.5, 0.7, -0.3])
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def drift(x, theta):
    """Not linear in θ, two states that act on each other; any leading axes."""
    a, b, c = theta
    return jnp.stack([a * (b - x[..., 0]) + c * x[..., 1], jnp.sin(c) * x[..., 0] - a * b * x[..., 1]], axis=-1)


class Problem:
    """Random rows, path, G and σ² for several series, of which some values are missing."""

    def __init__(self, seed, series, rows=9, missing=True):
        rng = np.random.default_rng(seed)
        gaps = rng.uniform(0.2, 1.2, size=(series, rows - 1))
        self.times = np.concatenate([np.zeros((series, 1)), np.cumsum(gaps, axis=1)], axis=1)
        self.observed = rng.uniform(size=(series, rows, 2)) < (0.7 if missing else 2.0)
        self.values = np.where(self.observed, rng.normal(size=(series, rows, 2)), 0.0)
        self.path = rng.normal(size=(series, rows, 2))
        self.G = np.array([[0.6, 0.0], [-0.3, 0.4]])
        self.variance = np.array([0.05, 0.2])

    def padded(self, more):
        """The same with rows at the end as a shorter series has them; the path there is of no importance."""

        def pad(a, **how):
            return np.pad(a, [(0, 0), (0, more)] + [(0, 0)] * (a.ndim - 2), **how)

        other = object.__new__(Problem)
        other.times, other.path = pad(self.times, mode="edge"), pad(self.path, constant_values=17.0)
        other.observed, other.values = pad(self.observed), pad(self.values)
        other.G, other.variance = self.G, self.variance
        return other


def still(path):
    """No answer of the drift to the path."""
    return jnp.zeros((*path.shape, path.shape[-1]))


def answering(path):
    """∂f/∂x along the path: the drift has it linear, though not the same at every θ."""
    one = jax.jacfwd(lambda x: drift(x, jnp.asarray(THETA)))
    return jax.vmap(jax.vmap(one))(path) * (1 + path[..., :1, None] ** 2)  # as if it changed along the path


def reml(link, G, variance, share=0.0, theta=THETA):
    """The likelihood of G and σ², of which a share is about θ."""
    return weak_form.log_marginal_likelihood(
        link, G, variance, jnp.asarray((theta - CENTER) / WIDTH), jnp.asarray(share)
    )


@quick
def fitted(times, values, observed, path, G, variance, feedback):
    theta, center, width = (jnp.asarray(a) for a in (THETA, CENTER, WIDTH))
    link = weak_form.linearise(drift, Observations(times, values, observed), path, theta, center, width, feedback)
    return reml(link, G, variance), weak_form.solve(link, G, variance, center, width)


def fit(p, feedback):
    parts = p.times, p.values, p.observed, p.path, p.G, p.variance, feedback(jnp.asarray(p.path))
    return fitted(*(jnp.asarray(a) for a in parts))


def normal(off, cov):
    return -0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + off @ np.linalg.solve(cov, off))


class Naive:
    """y = m + X(θ − center) + deviations of x + e over all series, unrolled, with every matrix written out.

    Between rows a deviation from x̂ is carried on by A = (1 − Z/2 + Z²/12)⁻¹(1 + Z/2 + Z²/12), Padé's exp(Z), where Z is
    h times the mean of ∂f/∂x at both ends (0 without an answer of the drift), and joined by what drift and noise do at
    both ends, half of it carried on: noise of variance h/2 (G Gᵀ + A G Gᵀ Aᵀ).
    """

    def __init__(self, p, feedback):
        slope = np.asarray(jax.jacfwd(drift, argnums=1)(jnp.asarray(p.path), jnp.asarray(THETA)))
        value = np.asarray(drift(jnp.asarray(p.path), jnp.asarray(THETA)))
        series, rows, K = p.path.shape
        F, eye = np.asarray(feedback(jnp.asarray(p.path))), np.eye(K)
        mean, X = p.path.copy(), np.zeros((series, rows, K, len(THETA)))
        x = np.zeros((series, rows, K, series, rows, K))  # covariance of x given θ
        for s in range(series):
            x[s, 0, :, s, 0] = 100.0 * eye  # x(t_1) is where the path is, give or take 10
            for n in range(rows - 1):
                h = p.times[s, n + 1] - p.times[s, n]
                Z = h * (F[s, n] + F[s, n + 1]) / 2
                A = np.linalg.inv(eye - Z / 2 + Z @ Z / 12) @ (eye + Z / 2 + Z @ Z / 12)
                left_out = h * (value[s, n] + value[s, n + 1]) / 2 - (p.path[s, n + 1] - p.path[s, n])
                moved = h * (A @ slope[s, n] + slope[s, n + 1]) / 2
                push = (left_out + A @ left_out) / 2 + moved @ (CENTER - THETA)
                mean[s, n + 1] = p.path[s, n + 1] + push + A @ (mean[s, n] - p.path[s, n])
                X[s, n + 1] = A @ X[s, n] + moved
                for m in range(n + 1):
                    x[s, n + 1, :, s, m] = A @ x[s, n, :, s, m]
                    x[s, m, :, s, n + 1] = x[s, n + 1, :, s, m].T
                GGt = p.G @ p.G.T
                x[s, n + 1, :, s, n + 1] = A @ x[s, n, :, s, n] @ A.T + h / 2 * (GGt + A @ GGt @ A.T)
        size = series * rows * K
        self.x, self.mean, self.X = x.reshape(size, size), mean.ravel(), X.reshape(size, -1)
        self.seen, self.shape = p.observed.ravel(), p.path.shape
        self.V = (self.x + np.diag(np.tile(p.variance, series * rows)))[np.ix_(self.seen, self.seen)]
        self.off = (p.values.ravel() - self.mean)[self.seen]

    def log_likelihood(self):
        X = self.X[self.seen] * WIDTH
        return normal(self.off, self.V + X @ X.T)

    def log_likelihood_about(self, theta):
        """As if the best θ were this: by how much all data, the prior among them, speak against it, and no more."""
        best, covariance = self.gls()
        return self.log_likelihood() - 0.5 * (theta - best) @ np.linalg.solve(covariance, theta - best)

    def gls(self):
        """θ and its covariance: the normal equations of generalised least squares, with the prior as more data."""
        X = self.X[self.seen]
        covariance = np.linalg.inv(X.T @ np.linalg.solve(self.V, X) + np.diag(WIDTH**-2.0))
        return CENTER + covariance @ X.T @ np.linalg.solve(self.V, self.off), covariance

    def path_at(self, theta):
        """Mean of x given all observations and θ."""
        known = self.X @ (theta - CENTER)
        gain = self.x[:, self.seen] @ np.linalg.inv(self.V)
        return (self.mean + known + gain @ (self.off - known[self.seen])).reshape(self.shape)

    def path(self):
        """Mean and standard deviation of x given all observations, θ unknown."""
        prior = self.x + (self.X * WIDTH) @ (self.X * WIDTH).T
        cov = prior[np.ix_(self.seen, self.seen)] + self.V - self.x[np.ix_(self.seen, self.seen)]
        gain = prior[:, self.seen] @ np.linalg.inv(cov)
        std = np.sqrt(np.diagonal(prior - gain @ prior[self.seen]))
        return (self.mean + gain @ self.off).reshape(self.shape), std.reshape(self.shape)


@pytest.mark.parametrize("feedback", [still, answering])
@pytest.mark.parametrize("series", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_the_dense_model(seed, series, feedback):
    """One series, and several that share θ and nothing else, with values missing (the first ones too)."""
    p = Problem(seed, series)
    likelihood, refit = fit(p, feedback)
    naive = Naive(p, feedback)
    theta, covariance = naive.gls()
    path, std = naive.path()
    assert not p.observed.all()
    assert float(likelihood) == pytest.approx(naive.log_likelihood(), rel=1e-10)
    np.testing.assert_allclose(refit.theta, theta, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(refit.covariance, covariance, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(refit.path, path, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(refit.std, std, rtol=1e-7)
    np.testing.assert_allclose(refit.path_at(jnp.asarray(THETA)), naive.path_at(THETA), rtol=1e-8, atol=1e-9)


def test_without_an_answer_the_deviations_are_brownian():
    """The covariance of x given θ is that of x(t_1) and of G w: min(t, t') G Gᵀ."""
    p = Problem(3, 1, missing=False)
    brownian = np.einsum("nm,kl->nkml", np.minimum.outer(p.times[0], p.times[0]), p.G @ p.G.T)
    x = Naive(p, still).x.reshape(9, 2, 9, 2)
    np.testing.assert_allclose(x, brownian + 100 * np.eye(2)[None, :, None, :], rtol=1e-10, atol=1e-12)


def test_a_wide_prior_leaves_generalised_least_squares():
    """Ten thousand times as wide, the prior is gone: the normal equations without it, to the share it still has."""
    p = Problem(4, 2, missing=False)
    naive = Naive(p, still)
    X = naive.X
    bare = np.linalg.solve(X.T @ np.linalg.solve(naive.V, X), X.T @ np.linalg.solve(naive.V, naive.off))

    @quick
    def solve(values, path, width):
        rows = Observations(jnp.asarray(p.times), values, jnp.asarray(p.observed))
        link = weak_form.linearise(drift, rows, path, jnp.asarray(THETA), jnp.asarray(CENTER), width, still(path))
        return weak_form.solve(link, jnp.asarray(p.G), jnp.asarray(p.variance), jnp.asarray(CENTER), width).theta

    found = solve(jnp.asarray(p.values), jnp.asarray(p.path), jnp.asarray(1e4 * WIDTH))
    np.testing.assert_allclose(found, CENTER + bare, rtol=1e-5)


@pytest.mark.parametrize("feedback", [still, answering])
def test_rows_in_between_may_be_taken_out(feedback):
    """Every second row observed nowhere: the shorter chain has the same likelihood, and the same derivatives."""
    p = Problem(5, 2)
    p.observed[:, 1::2] = False

    @quick
    def slopes(times, values, observed, path, G, variance, feedback):
        theta, center, width = (jnp.asarray(a) for a in (THETA, CENTER, WIDTH))
        link = weak_form.linearise(drift, Observations(times, values, observed), path, theta, center, width, feedback)

        def both(G, variance):
            short = weak_form.skip_midpoints(link)
            return reml(link, G, variance, 0.3), reml(short, G, variance, 0.3)

        return both(G, variance), jax.jacrev(both, argnums=(0, 1))(G, variance)

    parts = p.times, p.values, p.observed, p.path, p.G, p.variance, feedback(jnp.asarray(p.path))
    (long, short), (of_long, of_short) = slopes(*(jnp.asarray(a) for a in parts))
    assert float(short) == pytest.approx(float(long), rel=1e-12)
    for one, other in zip(of_long, of_short, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("feedback", [still, answering])
@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_are_those_of_the_dense_model(seed, feedback, share):
    """In every entry of G and σ², against central differences in full matrices (step 1e-5: error about 1e-9)."""
    p = Problem(seed, 2)

    @quick
    def slopes(times, values, observed, path, G, variance, feedback):
        theta, center, width = (jnp.asarray(a) for a in (THETA, CENTER, WIDTH))
        link = weak_form.linearise(drift, Observations(times, values, observed), path, theta, center, width, feedback)
        value, slopes = jax.value_and_grad(reml, argnums=(1, 2))(link, G, variance, share)
        return value, slopes, weak_form.log_likelihood_at_center(link, G, variance)

    parts = p.times, p.values, p.observed, p.path, p.G, p.variance, feedback(jnp.asarray(p.path))
    value, of_value, at_center = slopes(*(jnp.asarray(a) for a in parts))
    found = np.concatenate([np.ravel(a) for a in of_value])

    def at(flat):
        other = copy.copy(p)
        other.G, other.variance = flat[:4].reshape(2, 2), flat[4:]
        naive = Naive(other, feedback)
        return (1 - share) * naive.log_likelihood() + share * naive.log_likelihood_about(THETA)

    here, dense = np.concatenate([p.G.ravel(), p.variance]), Naive(p, feedback)
    assert float(value) == pytest.approx(at(here), rel=1e-10)
    assert float(at_center) == pytest.approx(normal(dense.off, dense.V), rel=1e-10)
    naive = [(at(here + h) - at(here - h)) / 2e-5 for h in 1e-5 * np.eye(6)]
    np.testing.assert_allclose(found, naive, rtol=1e-6, atol=1e-7)


def test_padding_changes_nothing():
    p = Problem(7, 2)
    (one, fit_one), (other, fit_other) = fit(p, still), fit(p.padded(4), still)
    assert float(other) == pytest.approx(float(one), rel=1e-12)
    np.testing.assert_allclose(fit_other.theta, fit_one.theta, rtol=1e-10)
    np.testing.assert_allclose(fit_other.covariance, fit_one.covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fit_other.path[:, :9], fit_one.path, rtol=1e-10, atol=1e-12)


def test_rows_in_between_tell_what_the_path_does_there():
    """A row observed nowhere changes the integral of the drift only: none at all for a path that is straight."""
    p = Problem(8, 1, missing=False)
    times = np.sort(np.concatenate([p.times[0], (p.times[0, 1:] + p.times[0, :-1]) / 2]))[None]
    straight = 0.3 * times[..., None] * np.ones(2)

    def linear_drift(x, theta):  # the trapezoid has its integral over a straight path exactly
        return x * theta[:2][None, None, :]

    @quick
    def likelihood(times, values, observed, path):
        theta, center, width = (jnp.asarray(a) for a in (THETA, CENTER, WIDTH))
        link = weak_form.linearise(
            linear_drift, Observations(times, values, observed), path, theta, center, width, still(path)
        )
        return reml(link, jnp.asarray(p.G), jnp.asarray(p.variance))

    few = likelihood(*(jnp.asarray(a) for a in (p.times, p.values, p.observed, straight[:, ::2])))
    values, observed = np.zeros((1, 17, 2)), np.zeros((1, 17, 2), bool)
    values[:, ::2], observed[:, ::2] = p.values, p.observed
    many = likelihood(*(jnp.asarray(a) for a in (times, values, observed, straight)))
    assert float(many) == pytest.approx(float(few), rel=1e-10)


# --- Stratonovich and Itô --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_divergence_leads_from_stratonovich_to_ito(seed):
    """dx = −a x dt + g dw seen without noise at many times, with x̂ = x.

    Least squares on the increments has Σ x̄ Δx = ½(x_T² − x_0²), Stratonovich's integral, whatever the noise did:
    â = −½(x_T² − x_0²)/Σ x̄² h, with the variance V = g²/Σ x̄² h. The whole move adds ½ T V. Itô's estimate
    −Σ x_n Δx / Σ x_n² h is larger than Stratonovich's by ½ Σ Δx²/Σ x² h, in which Σ Δx² is g² T but for a relative
    error of √(2/N); the Riemann sums over x² differ by at most that share of the answer as well. Four of these.
    """
    rng = np.random.default_rng(seed)
    N, h, a, g = 2000, 0.02, 0.9, 0.5
    x = np.zeros(N + 1)
    for n in range(N):
        x[n + 1] = np.exp(-a * h) * x[n] + g * np.sqrt((1 - np.exp(-2 * a * h)) / (2 * a)) * rng.normal()
    x = x[None, :, None]
    rows = Observations(jnp.arange(N + 1)[None] * h, jnp.asarray(x), jnp.ones(x.shape, bool))
    zero, wide = jnp.zeros(1), jnp.full(1, 1e3)

    @quick
    def solve(rows, path):
        link = weak_form.linearise(lambda x, theta: -theta[0] * x, rows, path, zero + 0.3, zero, wide, still(path))
        refit = weak_form.solve(link, jnp.full((1, 1), g), jnp.full(1, 1e-10), zero, wide)
        move = weak_form.onsager_machlup_correction(
            lambda theta: jnp.full((*path.shape, 1), -theta[0]), rows, zero + 0.3, refit
        )
        return refit.theta[0], refit.covariance[0, 0], move[0]

    theta, variance, move = (float(v) for v in solve(rows, jnp.asarray(x)))
    x = x.ravel()
    middle, step = (x[1:] + x[:-1]) / 2, np.diff(x)
    area = np.sum(middle**2) * h
    assert theta == pytest.approx(-(x[-1] ** 2 - x[0] ** 2) / 2 / area, rel=1e-3, abs=1e-4)
    assert variance == pytest.approx(g**2 / area, rel=1e-3)
    assert move == pytest.approx(N * h * variance / 2, rel=1e-6)  # the noise is 1e-10, not 0
    ito = -np.sum(x[:-1] * step) / (np.sum(x[:-1] ** 2) * h)
    assert abs(theta + move - ito) < 4 * move * np.sqrt(2 / N)
    assert abs(theta - ito) > 0.5 * move  # without the move it is far off


def test_the_move_is_summed_over_series_and_turns_with_the_covariance():
    """For a(b − x), all resolved, the divergence is −a: ∫ over all series is −a times the total time, whatever b."""
    times = jnp.asarray([[0.0, 1.0, 2.5], [0.0, 3.0, 3.0]])
    rows = Observations(times, jnp.zeros((2, 3, 1)), jnp.ones((2, 3, 1), bool))
    V = np.array([[0.3, -0.2], [-0.2, 0.9]])
    theta, path = jnp.asarray([0.5, 2.0]), jnp.zeros((2, 3, 1))
    for before, behind in [(0.5, 0.5), (0.0, 1.0), (0.1, 0.3)]:
        resolved = jnp.tile(jnp.asarray([before, behind]), (2, 2, 1))[..., None, None]
        found = weak_form.WeakFormFit(theta, jnp.asarray(V), path, jnp.zeros((2, 3, 1, 2)), path, resolved)
        move = weak_form.onsager_machlup_correction(
            lambda theta: jnp.full((2, 3, 1, 1), -1.0) * theta[0], rows, theta, found
        )
        np.testing.assert_allclose(move, 0.5 * (before + behind) * 5.5 * V[:, 0], rtol=1e-12)


class Turning:
    """dx = A x dt + G dw with A = [[−a, −c], [c, −b]], seen with noise; a few values are missing."""

    G, variance, theta = np.array([[0.5, 0.0], [0.2, 0.4]]), np.array([0.04, 0.09]), np.array([0.6, 0.9, 1.1])

    def __init__(self, seed, rows=401, h=0.05):
        rng = np.random.default_rng(seed)
        self.h, x = h, np.zeros((rows, 2))
        A, noise = self.step(self.theta)
        for n in range(1, rows):
            x[n] = A @ x[n - 1] + np.linalg.cholesky(noise) @ rng.normal(size=2)
        self.times = h * np.arange(rows)
        self.values = x + np.sqrt(self.variance) * rng.normal(size=x.shape)
        self.observed = (np.arange(rows) % 4 == 0)[:, None] & (rng.uniform(size=x.shape) < 0.8)
        self.observed[0] = True

    def step(self, theta):
        """The exact way of x over a time h, and the noise it gains (Van Loan's block exponential)."""
        a, b, c = theta
        A = np.array([[-a, -c], [c, -b]])
        both = scipy.linalg.expm(self.h * np.block([[-A, self.G @ self.G.T], [np.zeros((2, 2)), A.T]]))
        return both[2:, 2:].T, both[2:, 2:].T @ both[:2, 2:]

    def minus_log_likelihood(self, theta):
        """By a Kalman filter that is exact for this model, from the first observation give or take 10."""
        A, noise = self.step(theta)
        mean, cov, total = self.values[0], 100 * np.eye(2), 0.0
        for n, (y, seen) in enumerate(zip(self.values, self.observed, strict=True)):
            if n:
                mean, cov = A @ mean, A @ cov @ A.T + noise
            H = np.eye(2)[seen]
            S, off = H @ cov @ H.T + np.diag(self.variance[seen]), y[seen] - mean[seen]
            gain = cov @ H.T @ np.linalg.inv(S)
            total += 0.5 * (np.linalg.slogdet(S)[1] + off @ np.linalg.solve(S, off))
            mean, cov = mean + gain @ off, cov - gain @ H @ cov
        return total

    def drift(self, x, theta):
        a, b, c = theta
        return jnp.stack([-a * x[..., 0] - c * x[..., 1], c * x[..., 0] - b * x[..., 1]], axis=-1)

    def feedback(self, theta):
        slope = jax.jacfwd(lambda x: self.drift(x, theta))(jnp.zeros(2))
        return jnp.tile(slope, (1, self.times.size, 1, 1))

    @property
    def rows(self):
        return Observations(*(jnp.asarray(a)[None] for a in (self.times, self.values, self.observed)))

    def refit(self, moved):
        """θ where passes of the weak form come to rest, with all of the divergence term or none."""
        rows, G, variance = self.rows, jnp.asarray(self.G), jnp.asarray(self.variance)
        center, width = jnp.zeros(3), jnp.full(3, 1e3)

        def along(path, theta):
            link = weak_form.linearise(self.drift, rows, path, theta, center, width, self.feedback(theta))
            return weak_form.solve(link, G, variance, center, width)

        def one(carry, _):
            theta, path = carry
            found = along(path, theta)
            moved_to = found.theta + moved * weak_form.onsager_machlup_correction(self.feedback, rows, theta, found)
            theta = 0.5 * (theta + moved_to)  # whole steps may go to and fro
            return (theta, found.path_at(theta)), found.covariance

        def passes(theta):
            begin = theta, along(jnp.zeros_like(rows.values), theta).path_at(theta)
            return jax.lax.scan(one, begin, None, length=60)

        (theta, _), covariance = jax.jit(passes)(jnp.asarray(self.theta))
        return np.asarray(theta), np.sqrt(np.diagonal(covariance[-1]))


@pytest.mark.parametrize("seed", SEEDS)
def test_with_the_whole_move_it_is_maximum_likelihood(seed):
    """For a linear drift, against the exact likelihood: the only error left is that of steps of 0.05, about h²/12.

    Observations are few and noisy, so that the plain divergence of f would be far too much.
    """
    p = Turning(seed)
    best = scipy.optimize.minimize(p.minus_log_likelihood, p.theta, tol=1e-9).x
    found, error = p.refit(1.0)
    np.testing.assert_array_less(np.abs(found - best) / error, 0.01)
    without, _ = p.refit(0.0)
    assert np.max(np.abs(without - best) / error) > 0.3


@pytest.mark.parametrize("seed", SEEDS)
def test_the_likelihood_of_one_parameter_vector_is_exact_for_a_linear_drift(seed):
    """Along any path, here one of noise; what is left is the error of steps of 0.05, which falls as their square."""
    p = Turning(seed)
    path = jnp.asarray(np.random.default_rng(seed).normal(size=(1, p.times.size, 2)))

    @quick
    def likelihood(theta):
        link = weak_form.linearise(p.drift, p.rows, path, theta, theta, jnp.ones(3), p.feedback(theta))
        return weak_form.log_likelihood_at_center(link, jnp.asarray(p.G), jnp.asarray(p.variance))

    here, there = p.theta, 0.5 * p.theta
    found = float(likelihood(jnp.asarray(here)) - likelihood(jnp.asarray(there)))
    exact = p.minus_log_likelihood(there) - p.minus_log_likelihood(here)
    assert abs(exact) > 1
    assert found == pytest.approx(exact, abs=0.02)


def spans(*lengths: float) -> Observations:
    """Series observed over these lengths of time, from different beginnings."""
    times = jnp.asarray([[2.0 * i, 2.0 * i + 0.3 * T, 2.0 * i + T, 2.0 * i + T] for i, T in enumerate(lengths)])
    return Observations(times, jnp.zeros((len(lengths), 4, 1)), jnp.ones((len(lengths), 4, 1), bool))


@pytest.mark.parametrize(
    ("rows", "least"),
    [
        (spans(7.0), 3 / 4),
        (spans(*[7.0] * 4), 15 / 16),
        (spans(7.0, 0.0), 3 / 4),
        (spans(7.0, 3.5), 1 - 80 / 144 / 4),
    ],
    ids=["one", "four", "one and nothing", "unequal"],
)
def test_the_share_of_the_move(rows, least):
    """1 − 2/ρ² with ρ the move in standard errors, at least ¾ for one series; the same in any units of θ."""
    V = np.array([[0.3, -0.2], [-0.2, 0.9]])
    direction = np.array([1.0, -0.5])
    length = np.sqrt(direction @ np.linalg.solve(V, direction))
    for rho, share in [(0.0, 0.0), (1.0, 0.0), (4.0, 1 - 2 / 16), (30.0, 1 - 2 / 900)]:
        move = rho / length * direction
        unit = np.array([60.0, 1e-3])
        found = weak_form.shrinkage(jnp.asarray(move), jnp.asarray(V), rows)
        assert float(found) == pytest.approx(max(share, least), rel=1e-9)
        scaled = weak_form.shrinkage(jnp.asarray(unit * move), jnp.asarray(unit[:, None] * V * unit[None, :]), rows)
        assert float(scaled) == pytest.approx(max(share, least), rel=1e-9)
