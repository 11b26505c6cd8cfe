"""The Gaussian filter and smoother against closed forms, dense algebra and orders of convergence."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from contract import scattered
from exact_likelihood import linear_log_likelihood, ou_log_likelihood
from sdefit.ssm.filter import given_first_row, run_filter, run_smoother
from sdefit.ssm.grid import grid_log_likelihood
from sdefit.ssm.innovations import negative_log_likelihood
from sdefit.ssm.kalman import Gaussian, Observations, log_likelihood
from sdefit.ssm.moments import cubature, small_cholesky
from sdefit.ssm.transition import affine, step

OU = {"rate": 0.5, "level": 1.0, "G": 0.5}


def ou_drift(t, x):
    return OU["rate"] * (OU["level"] - x)


def lotka_volterra(t, x, theta=(2.0, 1.0, 4.0, 1.0)):
    a, b, c, d = theta
    return jnp.stack([a * x[0] - b * x[0] * x[1], -c * x[1] + d * x[0] * x[1]])


def double_well(t, x):
    return 0.1 * x * (4.0 - x**2)


@functools.partial(jax.jit, static_argnames=("drift", "steps", "rule"))
def filter_value(drift, Q, variance, data, steps=1, rule="cubature"):
    first, rest = given_first_row(data, variance)
    return log_likelihood(run_filter(drift, Q, variance, first, rest, steps, rule).filtered)


exact_linear = jax.jit(linear_log_likelihood)
exact_ou = jax.jit(ou_log_likelihood)


def ou_value(noise, data):
    return exact_ou(*(jnp.array(v) for v in (*OU.values(), noise)), data)


# --- exact references ------------------------------------------------------------------------------------------


def dense_ou(data, noise):
    """Mean and covariance of x at every time given y_1 alone (flat prior on x(t_1)), entry by entry."""
    t, (rate, level, G) = np.asarray(data.times) - float(data.times[0]), OU.values()
    decay = np.exp(-rate * t)
    mean = level + (float(data.values[0, 0]) - level) * decay
    early = np.minimum(t[:, None], t[None, :])
    apart = np.abs(t[:, None] - t[None, :])
    own = G**2 / (2 * rate) * np.exp(-rate * apart) * (1 - np.exp(-2 * rate * early))
    return mean, own + noise**2 * np.outer(decay, decay)


def seen(data):
    return np.flatnonzero(np.asarray(data.observed)[:, 0])[1:]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_exact_ou_likelihood_is_the_density_of_a_multivariate_normal(seed, noise):
    data = scattered(seed, missing=0.3)
    mean, covariance = dense_ou(data, noise)
    rows = seen(data)
    error = np.asarray(data.values)[rows, 0] - mean[rows]
    S = covariance[np.ix_(rows, rows)] + noise**2 * np.eye(len(rows))
    dense = -0.5 * (error @ np.linalg.solve(S, error) + np.linalg.slogdet(2 * np.pi * S)[1])
    exact = ou_value(noise, data)
    np.testing.assert_allclose(exact, dense, rtol=1e-9)


@pytest.mark.parametrize("rule", ["extended", "cubature"])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_filter_has_the_exact_likelihood_on_ou(rule, noise):
    for seed, steps in ((0, 1), (1, 1), (2, 3)):
        data = scattered(seed, size=60, missing=0.2, regular=seed == 0)
        exact = ou_value(noise, data)
        found = filter_value(ou_drift, jnp.full((1, 1), 0.25), jnp.array([noise**2]), data, steps, rule)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-8)


@functools.partial(jax.jit, static_argnames="steps")
def filter_linear(A, b, Q, variance, data, steps=4):
    return filter_value(lambda t, x: A @ x + b, Q, variance, data, steps)


@pytest.mark.parametrize("states", [2, 3])
def test_filter_has_the_exact_likelihood_of_linear_equations(states):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        A = jnp.array(rng.normal(size=(states, states)) - 1.5 * np.eye(states))
        b, G = jnp.array(rng.normal(size=states)), jnp.array(np.tril(rng.normal(size=(states, states))))
        noise = jnp.array(rng.uniform(0.3, 0.6, states))
        data = scattered(seed, states=states, missing=0.3)
        exact = exact_linear(A, b, G, noise, data)
        np.testing.assert_allclose(filter_linear(A, b, G @ G.T, noise**2, data), exact, rtol=1e-9)


@pytest.mark.parametrize("noise", [0.3, 0.6])
def test_grid_likelihood_is_exact_on_ou(noise):
    data = scattered(5, size=12, regular=True, missing=0.2)
    grid = jnp.linspace(-8.0, 8.0, 801)
    found = grid_log_likelihood(ou_drift, jnp.array(0.5), jnp.array(noise), data, grid, steps=2)
    exact = ou_value(noise, data)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-7)


def test_cubature_comes_closer_to_the_grid_than_the_extended_rule_on_a_double_well():
    rng = np.random.default_rng(0)
    times, path = np.arange(25) * 0.4, [0.0]
    for _ in range(24 * 40):
        path.append(path[-1] + 0.01 * 0.1 * path[-1] * (4 - path[-1] ** 2) + 0.5 * 0.1 * rng.normal())
    values = np.array(path)[::40][:, None] + 0.2 * rng.normal(size=(25, 1))
    data = Observations(jnp.array(times), jnp.array(values), jnp.ones((25, 1), bool))
    grid = jnp.linspace(-6.0, 6.0, 601)
    exact = grid_log_likelihood(double_well, jnp.array(0.5), jnp.array(0.2), data, grid, steps=4)
    Q, variance = jnp.full((1, 1), 0.25), jnp.array([0.04])
    far, near = (
        abs(filter_value(double_well, Q, variance, data, 4, rule) - exact) for rule in ("extended", "cubature")
    )
    assert near < far
    assert near < 0.1


# --- moments and steps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_cubature_is_exact_for_cubic_polynomials(seed):
    rng = np.random.default_rng(seed)
    mean, root = rng.normal(size=2), np.tril(rng.normal(size=(2, 2)))
    c = rng.normal(size=(2, 6))

    def cubic(t, x):
        terms = jnp.stack([x[0] ** 3, x[0] ** 2 * x[1], x[0] * x[1] ** 2, x[0] * x[1], x[1] ** 2, x[0]])
        return jnp.array(c) @ terms

    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    value = sum(
        wa * wb / (2 * np.pi) * np.asarray(cubic(0.0, mean + root @ np.array([a, b])))
        for (a, wa), (b, wb) in itertools.product(zip(nodes, weights, strict=True), repeat=2)
    )
    more, slope = cubature(cubic, jnp.array(0.0), jnp.array(mean), jnp.array(root @ root.T))
    np.testing.assert_allclose(more + cubic(0.0, jnp.array(mean)), value, rtol=1e-9)
    # E[∂f/∂x] by Stein's lemma: E[f (x − m)ᵀ] P⁻¹.
    cross = sum(
        wa * wb / (2 * np.pi) * np.outer(cubic(0.0, mean + root @ np.array([a, b])), root @ np.array([a, b]))
        for (a, wa), (b, wb) in itertools.product(zip(nodes, weights, strict=True), repeat=2)
    )
    here = jax.jacfwd(lambda x: cubic(0.0, x))(jnp.array(mean))
    np.testing.assert_allclose(slope + here, np.linalg.solve(root @ root.T, np.transpose(cross)).T, rtol=1e-7)


def test_small_cholesky_takes_singular_matrices_and_has_a_gradient_there():
    rng = np.random.default_rng(0)
    for rank in (0, 1, 2, 3):
        half = rng.normal(size=(3, rank))
        root = small_cholesky(jnp.array(half @ half.T))
        np.testing.assert_allclose(root @ root.T, half @ half.T, atol=1e-6)
        np.testing.assert_array_equal(jnp.triu(root, 1), 0.0)
    slope = jax.jacfwd(lambda s: jnp.sum(small_cholesky(s * jnp.eye(2)) ** 2))(0.0)
    np.testing.assert_allclose(slope, 2.0)


def test_affine_flow_solves_its_equations_for_small_and_for_stiff_matrices():
    rng = np.random.default_rng(1)
    for size in (0.01, 0.5, 20.0):
        A = rng.normal(size=(3, 3))
        A = jnp.array(size * (A / np.linalg.norm(A, 2) - np.eye(3)))
        b, Q = jnp.array(rng.normal(size=3)), jnp.eye(3)
        F, c, spread = affine(A, b, Q, jnp.array(1.0))
        np.testing.assert_allclose(F, jax.scipy.linalg.expm(A), atol=1e-6)
        np.testing.assert_allclose(A @ c, (F - jnp.eye(3)) @ b, rtol=1e-7, atol=1e-7 * size)
        np.testing.assert_allclose(A @ spread + spread @ A.T + Q, F @ Q @ F.T, atol=3e-4 * size)


@pytest.mark.parametrize("gap", [1.0, 1e2, 1e4, 1e9, 1e15])
def test_a_linear_drift_may_be_as_stiff_as_it_likes(gap):
    rng = np.random.default_rng(0)
    data = Observations(jnp.arange(6) * gap, jnp.array(rng.normal(size=(6, 1))), jnp.ones((6, 1), bool))

    @jax.jit
    def value(steps):
        first, rest = given_first_row(data, jnp.array([0.1]))
        Q = jnp.array([[OU["G"] ** 2]])
        return log_likelihood(run_filter(ou_drift, Q, jnp.array([0.1]), first, rest, steps).filtered)

    decay, y = np.exp(-OU["rate"] * gap), np.asarray(data.values)[:, 0]
    mean, var, expected = y[0], 0.1, 0.0
    for one in y[1:]:
        mean, var = (
            OU["level"] + decay * (mean - OU["level"]),
            decay**2 * var + OU["G"] ** 2 / (2 * OU["rate"]) * (1 - decay**2),
        )
        expected += stats.norm.logpdf(one, mean, (var + 0.1) ** 0.5)
        mean, var = mean + var / (var + 0.1) * (one - mean), 0.1 * var / (var + 0.1)
    np.testing.assert_allclose(value(jnp.full(6, 64)), expected, rtol=1e-8)


def test_a_stiff_well_is_filtered_into_its_bottom():
    """Over a gap of 1e8 time constants the first of 4 x (1 − x²) falls to where it began from."""
    data = Observations(jnp.arange(4) * 1e7, jnp.array([[0.9], [1.1], [0.8], [1.2]]), jnp.ones((4, 1), bool))

    @jax.jit
    def firsts(steps):
        first, rest = given_first_row(data, jnp.array([1e-2]))
        return run_filter(lambda t, x: 4 * x * (1 - x**2), jnp.array([[1e-4]]), jnp.array([1e-2]), first, rest, steps)

    found = firsts(jnp.full(4, 64))
    np.testing.assert_allclose(found.last.mean[1:], 1.0, atol=1e-3)
    np.testing.assert_allclose(found.last.covariance[1:], 1e-4 / 16, rtol=0.05)


@functools.partial(jax.jit, static_argnames="rule")
def advance(steps, rule, P, Q, length=0.4):
    """Mean and covariance of Lotka-Volterra after `length`, in so many steps."""
    h = length / steps

    def one(i, first):
        return Gaussian(*step(lotka_volterra, rule, Q, i * h, h, *first)[:2])

    return jax.lax.fori_loop(0, steps, one, Gaussian(jnp.array([5.0, 3.0]), P))


def order(errors):
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def test_mean_converges_at_fourth_order_and_covariance_at_second():
    nothing = jnp.zeros((2, 2))
    best = advance(64, "extended", nothing, nothing).mean
    errors = [float(jnp.linalg.norm(advance(n, "extended", nothing, nothing).mean - best)) for n in (4, 8, 16)]
    assert np.all(np.abs(order(errors) - 4) < 0.3)
    P, Q = 0.05 * jnp.eye(2), jnp.array([[0.04, 0.02], [0.02, 0.1]])
    for rule in ("extended", "cubature"):
        best = advance(128, rule, P, Q).covariance
        errors = [float(jnp.linalg.norm(advance(n, rule, P, Q).covariance - best)) for n in (4, 8, 16)]
        assert np.all(np.abs(order(errors) - 2) < 0.3)


def test_moments_follow_their_differential_equations():
    """Cubature of a quadratic drift against small Euler steps of dm = E[f] dt, dP = (A P + P Aᵀ + Q) dt."""
    P, Q, m, h = 0.05 * np.eye(2), np.array([[0.04, 0.02], [0.02, 0.1]]), np.array([5.0, 3.0]), 2e-5
    found = advance(64, "cubature", jnp.array(P), jnp.array(Q), 0.1)
    for _ in range(5_000):
        A = np.array([[2 - m[1], -m[0]], [m[1], -4 + m[0]]])
        f = np.array([2 * m[0] - m[0] * m[1] - P[0, 1], -4 * m[1] + m[0] * m[1] + P[0, 1]])
        m, P = m + h * f, P + h * (A @ P + P @ A.T + Q)
    # Euler's error is of the size of h times a rate of about 5 over the time 0.1.
    np.testing.assert_allclose(found.mean, m, rtol=5e-5)
    np.testing.assert_allclose(found.covariance, P, rtol=5e-4)


# --- the filter and the smoother -------------------------------------------------------------------------------


def test_rows_that_repeat_the_last_time_and_observe_nothing_change_nothing():
    data = scattered(3, states=2, missing=0.2)
    more = Observations(
        jnp.concatenate([data.times, jnp.repeat(data.times[-1], 5)]),
        jnp.concatenate([data.values, jnp.zeros((5, 2))]),
        jnp.concatenate([data.observed, jnp.zeros((5, 2), bool)]),
    )
    Q, variance = 0.1 * jnp.eye(2), jnp.array([0.1, 0.2])
    values = [filter_value(lotka_volterra, Q, variance, each) for each in (data, more)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-13)


def test_a_variance_beyond_all_numbers_is_no_missing_observation():
    """Of dx = 40 x dt + dw over gaps of 10 it is e^800: the likelihood is 0 or no number, not that of fewer data."""
    data = Observations(jnp.arange(5) * 10.0, jnp.ones((5, 1)), jnp.ones((5, 1), bool))
    assert not np.isfinite(filter_value(lambda t, x: 40.0 * x, jnp.ones((1, 1)), jnp.array([0.1]), data, 64))


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_smoother_is_the_conditional_of_a_multivariate_normal_on_ou(noise):
    for seed in range(3):
        data = scattered(seed, missing=0.4)
        mean, covariance = dense_ou(data, noise)
        rows = seen(data)
        gain = np.linalg.solve(covariance[np.ix_(rows, rows)] + noise**2 * np.eye(len(rows)), covariance[rows]).T
        dense_mean = mean + gain @ (np.asarray(data.values)[rows, 0] - mean[rows])
        dense_variance = np.diag(covariance - gain @ covariance[rows])
        first, rest = given_first_row(data, jnp.array([noise**2]))
        found = run_smoother(run_filter(ou_drift, jnp.full((1, 1), 0.25), jnp.array([noise**2]), first, rest, 2))
        np.testing.assert_allclose(found.mean[:, 0], dense_mean, atol=1e-8)
        np.testing.assert_allclose(found.covariance[:, 0, 0], dense_variance, atol=1e-8)


def test_smoother_equals_rauch_tung_striebel_on_two_states():
    A, Q = jnp.array([[-0.5, 1.0], [-1.0, -0.3]]), jnp.array([[0.2, 0.05], [0.05, 0.1]])
    data, variance = scattered(4, states=2, missing=0.3), jnp.array([0.1, 0.2])
    first, rest = given_first_row(data, variance)
    done = run_filter(lambda t, x: A @ x, Q, variance, first, rest, 2)
    found = run_smoother(done)
    m, P = (np.array(a) for a in done.last)
    for i in reversed(range(len(m) - 1)):
        F = np.asarray(done.F)[i + 1]
        _, _, spread = affine(A, jnp.zeros(2), Q, data.times[i + 1] - data.times[i])
        ahead = F @ done.last.covariance[i] @ F.T + spread
        gain = np.linalg.solve(ahead, F @ P[i]).T
        m[i] += gain @ (m[i + 1] - F @ m[i])
        P[i] += gain @ (P[i + 1] - ahead) @ gain.T
    np.testing.assert_allclose(found.mean, m, atol=1e-7)
    np.testing.assert_allclose(found.covariance, P, atol=1e-7)


def test_state_missing_in_the_first_row_starts_near_its_first_value():
    data = scattered(2, states=2)
    data = Observations(data.times, data.values, data.observed.at[:2, 1].set(False))
    first, rest = given_first_row(data, jnp.array([0.1, 0.2]), spread=3.0)
    np.testing.assert_array_equal(first.mean, [data.values[0, 0], data.values[2, 1]])
    np.testing.assert_array_equal(first.covariance, np.diag([0.1, 9.0]))
    assert not rest.observed[0].any()
    np.testing.assert_array_equal(rest.observed[1:], data.observed[1:])


# --- derivatives and the search --------------------------------------------------------------------------------


def lv_innovations(x, data, steps):
    """Innovations of Lotka-Volterra as a function of (log θ, three entries of a root of Q, log σ²)."""
    G = jnp.zeros((2, 2)).at[jnp.tril_indices(2)].set(x[4:7])
    variance = jnp.exp(x[7:])
    first, rest = given_first_row(data, variance)
    drift = functools.partial(lotka_volterra, theta=tuple(jnp.exp(x[:4])))
    return run_filter(drift, G @ G.T, variance, first, rest, steps).innovations


def lv_data():
    rng = np.random.default_rng(7)
    x, path = np.array([5.0, 3.0]), []
    for _ in range(20):
        path.append(x)
        for _ in range(10):
            f = np.array([2 * x[0] - x[0] * x[1], -4 * x[1] + x[0] * x[1]])
            x = x + 0.004 * f + np.sqrt(0.004) * np.array([0.2, 0.3]) * rng.normal(size=2)
    values = np.array(path) + 0.1 * rng.normal(size=(20, 2))
    return Observations(jnp.arange(20) * 0.04, jnp.array(values), jnp.ones((20, 2), bool))


def value_of(new):
    return 0.5 * jnp.sum(jnp.log(new.variance) + new.error**2 / new.variance)


@pytest.mark.parametrize("rate", [0.0, 1e-9, -1e-5, 0.0199, -0.0201, 0.3, -3.0, -50.0])
def test_the_closed_step_of_one_state_is_its_integral(rate):
    """Values and derivatives beside those of the integrals by quadrature."""
    nodes, weights = (jnp.asarray(a) for a in np.polynomial.legendre.leggauss(60))

    def flow(x):
        return jnp.concatenate([part.ravel() for part in affine(x[:1, None], x[1:2], x[2:3, None], x[3])])

    def integrals(x):
        A, b, Q, h = x
        s = h * (nodes + 1) / 2
        return jnp.stack(
            [jnp.exp(h * A), h / 2 * weights @ (b * jnp.exp(s * A)), h / 2 * weights @ (Q * jnp.exp(2 * s * A))]
        )

    x = jnp.array([rate, 0.7, 0.4, 0.9])
    np.testing.assert_allclose(flow(x), integrals(x), rtol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(flow)(x), jax.jacfwd(integrals)(x), rtol=1e-10, atol=1e-13)


def test_forward_gradient_is_that_of_finite_differences():
    data, counts = lv_data(), jnp.ones(20, jnp.int32).at[0].set(0)
    x = jnp.array([0.7, 0.1, 1.3, 0.1, 0.2, 0.1, 0.3, -4.0, -4.5])
    at = jax.jit(lambda x: negative_log_likelihood(lambda x: lv_innovations(x, data, counts), x))(x)
    value = jax.jit(lambda x: value_of(lv_innovations(x, data, 1)))
    np.testing.assert_allclose(at.value, value(x), rtol=1e-12)
    h = 1e-5
    differences = [(value(x.at[i].add(h)) - value(x.at[i].add(-h))) / (2 * h) for i in range(x.size)]
    np.testing.assert_allclose(at.gradient, differences, rtol=1e-6, atol=1e-6)


def test_with_a_plain_number_of_steps_reverse_mode_agrees_with_forward_mode():
    data = scattered(1, regular=True)

    def value(x):
        first, rest = given_first_row(data, x[1:] ** 2)
        return value_of(
            run_filter(
                lambda t, y: x[0] * double_well(t, y), jnp.full((1, 1), 0.3), x[1:] ** 2, first, rest, 2
            ).innovations
        )

    x = jnp.array([1.2, 0.3])
    np.testing.assert_allclose(jax.jit(jax.grad(value))(x), jax.jit(jax.jacfwd(value))(x), rtol=1e-9)


def test_curvature_is_the_expected_one():
    """e = y − a with known variance, and variance b of n errors: information n/s and n/(2 s²)."""
    y, a, s = jnp.array([0.3, -1.0, 2.0, 0.5]), 0.2, 1.7

    def found(x):
        return y - x[0], jnp.full_like(y, 1.0) * x[1]

    at = negative_log_likelihood(found, jnp.array([a, s]))
    np.testing.assert_allclose(at.curvature, np.diag([4 / s, 2 / s**2]), rtol=1e-12)
    left = np.asarray(y) - a
    np.testing.assert_allclose(at.gradient, [-left.sum() / s, 0.5 * (4 / s - left @ left / s**2)], rtol=1e-12)
