"""What a filter needs beyond a constant G and states seen as they are: E[g gᵀ], h, and the smoother behind it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.ssm.filter import run_filter, run_smoother
from sdefit.ssm.kalman import Gaussian, Observations, log_likelihood
from sdefit.ssm.moments import cubature_points, defined, expected, fastest_rate, linearised
from sdefit.ssm.transition import step

ZERO = jnp.array(0.0)


def belief(seed, K):
    rng = np.random.default_rng(seed)
    root = np.tril(rng.normal(size=(K, K)))
    return rng.normal(size=K), root @ root.T


# --- moments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 3])
def test_expected_products_of_states_are_exact(K):
    """E[x xᵀ] = P + m mᵀ; the extended rule has m mᵀ alone."""
    mean, P = belief(K, K)
    found = expected(lambda x: x[:, None] * x[None, :], jnp.array(mean), jnp.array(P), "cubature")
    np.testing.assert_allclose(found, P + np.outer(mean, mean), rtol=1e-10, atol=1e-12)
    at_mean = expected(lambda x: x[:, None] * x[None, :], jnp.array(mean), jnp.array(P), "extended")
    np.testing.assert_allclose(at_mean, np.outer(mean, mean), rtol=1e-14)


def test_where_a_function_ends_it_counts_as_zero():
    """Of √x about 0.5 ± 1 the points are −0.5 and 1.5: half of √1.5."""
    found = expected(jnp.sqrt, jnp.array([0.5]), jnp.array([[1.0]]), "cubature")
    np.testing.assert_allclose(found, [0.5 * np.sqrt(1.5)], rtol=1e-12)
    points = cubature_points(jnp.array([0.5]), jnp.array([[1.0]]))
    np.testing.assert_allclose(defined(jnp.sqrt(points))[:, 0], np.sqrt([1.5, 0.5, 0.5]), rtol=1e-12)


@pytest.mark.parametrize("rule", ["extended", "cubature"])
def test_a_straight_line_is_linearised_to_itself(rule):
    rng = np.random.default_rng(0)
    mean, P = belief(5, 3)
    H, c, r = rng.normal(size=(4, 3)), rng.normal(size=4), rng.uniform(0.1, 1, 4)
    found = linearised(
        lambda t, x: (jnp.array(H) @ x + jnp.array(c), jnp.array(r)), ZERO, jnp.array(mean), jnp.array(P), rule
    )
    for one, wanted in zip(found, (H @ mean + c, H, r), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-9, atol=1e-9)


def test_the_moments_of_a_square():
    """Of h = x²: E = m² + P, slope 2m; two points see m² + P ± 2 m √P, whose variance the line explains in full."""
    m, P = 0.7, 0.3
    center, H, variance = linearised(
        lambda t, x: (x**2, 0.1 + 0.5 * x**2), ZERO, jnp.array([m]), jnp.array([[P]]), "cubature"
    )
    np.testing.assert_allclose([center[0], H[0, 0]], [m**2 + P, 2 * m], rtol=1e-9)
    np.testing.assert_allclose(variance, [0.1 + 0.5 * (m**2 + P)], rtol=1e-9)


def test_what_a_line_does_not_explain_counts_as_noise():
    """Of h = x³ about 0: E = 0, E[h'] = 3P by Stein; at ±√P the cube is ±P√P, less than the line 3P x says: no more."""
    P = 0.5
    center, H, variance = linearised(
        lambda t, x: (jnp.stack([x[0] ** 3, x[0] * x[1]]), jnp.full(2, 0.1)),
        ZERO,
        jnp.zeros(2),
        P * jnp.eye(2),
        "cubature",
    )
    np.testing.assert_allclose(center, 0.0, atol=1e-12)
    np.testing.assert_allclose(H[0], [3 * P, 0.0], atol=1e-9)
    # x y of the four points on the axes is 0: nothing is seen of its variance P².
    np.testing.assert_allclose(variance, 0.1, atol=1e-9)
    # Off the axes it is seen: with correlated states the points are (a, b) with a b ≠ 0.
    C = np.array([[1.0, 0.9], [0.9, 1.0]])
    more = linearised(lambda t, x: (x[:1] * x[1:], jnp.zeros(1)), ZERO, jnp.zeros(2), jnp.array(C), "cubature")[2]
    values = [2 * 0.9, 0.0]  # at ±√2 (1, 0.9) and ±√2 (0, √0.19)
    np.testing.assert_allclose(more, np.var(values), rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_fastest_rate_is_about_the_largest_eigenvalue_in_any_units(seed):
    """‖A⁸‖^(1/8) lies above the spectral radius, by no more than the conditioning of the eigenvectors to the 1/8."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, 3))
    values, V = np.linalg.eig(A)
    radius = np.abs(values).max()
    found = float(fastest_rate(jnp.array(A)))
    assert radius * (1 - 1e-9) <= found <= radius * (3**0.5 * np.linalg.cond(V)) ** 0.125 * (1 + 1e-9)
    units = np.array([1.0, 1e3, 1e-3])
    other = float(fastest_rate(jnp.array(units[:, None] * A / units[None, :])))
    # The norm of D A⁸ D⁻¹ is at most 1e6 times that of A⁸: to the 1/8 a factor of 6, while ‖A‖ changes by 1e6.
    assert radius * (1 - 1e-9) <= other <= 10**0.75 * found
    np.testing.assert_array_equal(fastest_rate(jnp.zeros((2, 3, 3))), 0.0)


# --- a diffusion that grows with the state ---------------------------------------------------------------------


def gbm_moments(a, s, m, P, h):
    """Of dx = a x dt + s x dw: E x and Var x from those at 0."""
    mean = m * np.exp(a * h)
    return mean, (P + m**2) * np.exp((2 * a + s**2) * h) - mean**2


@functools.partial(jax.jit, static_argnames="rule")
def gbm_filter(count, rule="cubature", a=0.3, s=0.6, h=0.5):
    def one(i, carry):
        return step(lambda t, x: a * x, rule, lambda t, x: s**2 * x[:, None] * x[None, :], i * h / count, h / count,
                    *carry)[:2]  # fmt: skip

    return jax.lax.fori_loop(0, count, one, (jnp.array([1.2]), jnp.array([[0.2]])))


def test_the_variance_of_gbm_grows_as_its_second_moment():
    """dP/dt = 2 a P + s² (m² + P): over a short step, and of second order over a long one."""
    h = 1e-6
    _, P = gbm_filter(1, h=h)
    assert (float(P[0, 0]) - 0.2) / h == pytest.approx(2 * 0.3 * 0.2 + 0.36 * (1.2**2 + 0.2), rel=1e-5)
    mean, exact = gbm_moments(0.3, 0.6, 1.2, 0.2, 0.5)
    errors = []
    for count in (2, 4, 8, 16):
        m, P = gbm_filter(count)
        np.testing.assert_allclose(m[0], mean, rtol=1e-9)
        errors.append(abs(float(P[0, 0]) - exact))
    assert np.all(np.abs(np.diff(np.log2(errors)) + 2) < 0.2), errors


def test_taken_at_the_mean_alone_the_variance_of_gbm_is_too_small():
    """The extended rule solves dP/dt = 2 a P + s² m²: short by s² ∫ P, which is no rounding."""
    exact = gbm_moments(0.3, 0.6, 1.2, 0.2, 0.5)[1]
    at_mean = 0.2 * np.exp(0.3) + 0.36 * 1.2**2 * 0.5 * np.exp(0.3)
    assert float(gbm_filter(256, "extended")[1][0, 0]) == pytest.approx(at_mean, rel=1e-4)
    assert at_mean < 0.95 * exact


# --- h, beside a filter and a joint density written out ---------------------------------------------------------

A = np.array([[-0.4, 1.0, 0.0], [-1.5, -0.2, 0.3], [0.0, 0.4, -0.8]])
G = np.array([[0.0, 0.0], [0.5, 0.0], [0.2, 0.3]])  # two noises for three states: G Gᵀ is singular
H = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, -1.0, 2.0], [0.0, 0.3, 0.0]])
C, R = np.array([0.0, 0.4, -1.0, 2.0]), np.array([0.04, 0.25, 0.09, 0.0])
M0, P0 = np.array([0.3, -0.2, 0.5]), np.diag([0.0, 0.4, 1.0])


def columns(seed, rows=12):
    """Made-up numbers of four columns at irregular times, a third of them missing, one row without any."""
    rng = np.random.default_rng(seed)
    observed = rng.uniform(size=(rows, 4)) > 0.35
    observed[5] = False
    values = np.where(observed, rng.normal(size=(rows, 4)) + C, 0.0)
    return Observations(jnp.array(np.cumsum(rng.uniform(0.1, 0.7, rows))), jnp.array(values), jnp.array(observed))


def transition(h):
    """exp(hA) and ∫ exp(sA) G Gᵀ exp(sA)ᵀ ds by Van Loan's block exponential."""
    from scipy.linalg import expm

    K = len(A)
    whole = expm(h * np.block([[-A, G @ G.T], [np.zeros((K, K)), A.T]]))
    F = whole[K:, K:].T
    return F, F @ whole[:K, K:]


@functools.partial(jax.jit, static_argnames=("rule", "steps"))
def filtered(data, rule="cubature", steps=4):
    def measured(t, x):
        return jnp.array(H) @ x + jnp.array(C), jnp.array(R)

    def diffusivity(t, x):
        return jnp.array(G @ G.T)

    done = run_filter(lambda t, x: jnp.array(A) @ x, diffusivity, measured, Gaussian(jnp.array(M0), jnp.array(P0)),
                      data, steps, rule)  # fmt: skip
    return log_likelihood(done.filtered), done, run_smoother(done)


def kalman_by_hand(data):
    """The log-likelihood, and the mean after each row, by textbook updates of whole rows."""
    mean, P, total, means = M0, P0, 0.0, []
    times, values, observed = (np.asarray(one) for one in (data.times, data.values, data.observed))
    for n, h in enumerate(np.diff(times, prepend=times[0])):
        F, Q = transition(h)
        mean, P = F @ mean, F @ P @ F.T + Q
        use = observed[n]
        if use.any():
            S = H[use] @ P @ H[use].T + np.diag(R[use])
            error, gain = values[n, use] - H[use] @ mean - C[use], P @ H[use].T @ np.linalg.inv(S)
            total -= 0.5 * (error @ np.linalg.solve(S, error) + np.linalg.slogdet(2 * np.pi * S)[1])
            mean, P = mean + gain @ error, P - gain @ H[use] @ P
        means.append(mean)
    return total, np.array(means)


def joint(data):
    """Mean and covariance of every state at every row given all observations, from one dense Gaussian."""
    times, observed = np.asarray(data.times), np.asarray(data.observed)
    N, K = len(times), len(A)
    mean, covariance = np.zeros(N * K), np.zeros((N * K, N * K))
    here, P = M0, P0
    for n, h in enumerate(np.diff(times, prepend=times[0])):
        F, Q = transition(h)
        here, P = F @ here, F @ P @ F.T + Q
        now, past = slice(n * K, n * K + K), slice(0, n * K)
        mean[now], covariance[now, now] = here, P
        if n:
            covariance[now, past] = F @ covariance[(n - 1) * K : n * K, past]
            covariance[past, now] = covariance[now, past].T
    use = observed.ravel()
    every = np.kron(np.eye(N), H)[use]
    S = every @ covariance @ every.T + np.diag(np.tile(R, N)[use])
    gain = np.linalg.solve(S, every @ covariance).T
    error = np.asarray(data.values).ravel()[use] - every @ mean - np.tile(C, N)[use]
    after = covariance - gain @ every @ covariance
    blocks = np.stack([after[n * K : n * K + K, n * K : n * K + K] for n in range(N)])
    return (mean + gain @ error).reshape(N, K), blocks


@pytest.mark.parametrize("rule", ["extended", "cubature"])
@pytest.mark.parametrize("seed", range(3))
def test_the_filter_of_a_linear_h_is_the_kalman_filter(seed, rule):
    data = columns(seed)
    total, means = kalman_by_hand(data)
    found, done, _ = filtered(data, rule)
    np.testing.assert_allclose(found, total, rtol=1e-8)
    np.testing.assert_allclose(done.last.mean, means, atol=1e-7)
    # The likelihood that a search takes is the same but for its constant.
    e, s = done.innovations
    count = float(np.asarray(data.observed).sum())
    np.testing.assert_allclose(
        -0.5 * jnp.sum(jnp.log(s) + e**2 / s) - 0.5 * count * np.log(2 * np.pi), total, rtol=1e-8
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_smoother_of_a_linear_h_is_the_conditional_of_the_joint_density(seed):
    """With a singular G Gᵀ, a state known at the first time, and columns without noise or with none in a row."""
    data = columns(seed)
    mean, covariance = joint(data)
    smooth = filtered(data)[2]
    np.testing.assert_allclose(smooth.mean, mean, atol=1e-7)
    np.testing.assert_allclose(smooth.covariance, covariance, atol=1e-7)


def test_states_seen_as_they_are_and_an_h_that_says_so_are_one_model():
    rng = np.random.default_rng(3)
    data = Observations(
        jnp.arange(9) * 0.4, jnp.array(rng.normal(size=(9, 2))), jnp.array(rng.uniform(size=(9, 2)) > 0.2)
    )
    first, Q, r = Gaussian(jnp.zeros(2), jnp.eye(2)), 0.3 * jnp.eye(2), jnp.array([0.1, 0.2])

    @jax.jit
    def both():
        drift = functools.partial(lambda t, x: jnp.stack([x[1], -x[0] - 0.1 * x[0] ** 3]))
        runs = [run_filter(drift, *one, first, data, 2) for one in ((Q, r), (lambda t, x: Q, lambda t, x: (x, r)))]
        return [(log_likelihood(run.filtered), *run_smoother(run)) for run in runs]

    plain, given = both()
    for a, b in zip(plain, given, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)


def test_noise_that_depends_on_time_and_state_is_taken_where_the_prediction_is():
    """One column with variance 0.1 + t + x²: averaged over a belief of mean m and variance P it is 0.1 + t + m² + P."""
    data = Observations(jnp.array([2.0]), jnp.array([[1.5]]), jnp.ones((1, 1), bool))
    first = Gaussian(jnp.array([0.7]), jnp.array([[0.3]]))

    @jax.jit
    def run():
        return run_filter(lambda t, x: -x, jnp.eye(1), lambda t, x: (2 * x, 0.1 + t + x**2), first, data, 1)

    error, variance = run().innovations
    np.testing.assert_allclose(error, [[1.5 - 1.4]], atol=1e-12)
    np.testing.assert_allclose(variance, [[4 * 0.3 + 0.1 + 2.0 + 0.7**2 + 0.3]], rtol=1e-9)
