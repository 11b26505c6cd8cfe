"""The latent model y = z + o + e: dense against the paper's formulas in NumPy, state space against dense."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.gp import Dense, LatentParams, get_kernel, solver_for, statespace
from sdefit.gp.latent import row_normals
from sdefit.gp.statespace import ORDER, StateSpace
from sdefit.ssm import likelihood
from sdefit.ssm.kalman import Observations

SEEDS = [0, 1, 2]
ROWS = 12
JITTER = 1e-6


def irregular(rng):
    return rng.exponential(1.0, size=ROWS - 1) + 1e-3


def coincident(rng):
    return np.where(rng.random(ROWS - 1) < 0.5, 1e-9, irregular(rng))


def long_gaps(rng):
    return np.where(rng.random(ROWS - 1) < 0.5, 400.0, irregular(rng))


def wide_gaps(rng):
    return rng.uniform(2.0, 4.0, size=ROWS - 1)


def short_gaps(rng):
    return 1e-3 * irregular(rng)


GAPS = [irregular, coincident, long_gaps, short_gaps]


def problem(gaps, seed, states, missing=0.3, noise=0.1):
    """Hyper-parameters and data; where a value is missing the number in its place must not matter."""
    rng = np.random.default_rng(seed)
    times = np.concatenate([[0.0], np.cumsum(gaps(rng))])
    observed = rng.random((ROWS, states)) >= missing
    observed[ROWS // 2] = missing == 0  # a whole row, too
    values = np.where(observed, rng.normal(size=(ROWS, states)), 7.0)
    G = np.tril(rng.normal(size=(states, states)), -1) + np.diag(rng.uniform(0.2, 1.0, states))
    params = LatentParams(
        scale=jnp.asarray(rng.uniform(0.5, 1.5, states)),
        length=jnp.asarray(rng.uniform(1.0, 4.0, states)),
        shape=jnp.asarray(rng.uniform(0.5, 2.0, states)),
        noise=jnp.asarray(noise * rng.uniform(0.5, 1.5, states)),
        G=jnp.asarray(G),
        ou_rate=jnp.asarray(rng.uniform(0.2, 2.0)),
    )
    return params, Observations(jnp.asarray(times), jnp.asarray(values), jnp.asarray(observed))


# These programs run for microseconds: most of a test's time would be spent making them fast.
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def blocks_of(kernel):
    return quick(get_kernel(kernel).blocks)


# --- the paper's formulas, written out -------------------------------------------------------------------------


def ou_covariance(params, times):
    """B Ω Bᵀ entry by entry; at rate 1, Ω is ½e^{−|t−s|} − ½e^{−(t+s)} with time from the first observation."""
    t, rate, GGt = np.asarray(times - times[0]), float(params.ou_rate), np.asarray(params.G @ params.G.T)
    n, states = t.size, len(GGt)
    out = np.zeros((states * n, states * n))
    for k in range(states):
        for m in range(states):
            for i in range(n):
                for j in range(n):
                    omega = (np.exp(-rate * abs(t[i] - t[j])) - np.exp(-rate * (t[i] + t[j]))) / (2 * rate)
                    out[k * n + i, m * n + j] = GGt[k, m] * omega
    return out


def naive_covariances(kernel, params, data, jitter=JITTER):
    """C, ʹC, Cʺ, Ω̃ and T of the paper, unrolled state by state."""
    n, states = data.values.shape
    C, left, both = (np.zeros((states * n, states * n)) for _ in range(3))
    for k in range(states):
        block = slice(k * n, (k + 1) * n)
        phi = params.scale[k], params.length[k], params.shape[k]
        C[block, block], left[block, block], _, both[block, block] = blocks_of(kernel)(data.times, *phi)
    T = np.diag(np.repeat(np.asarray(params.noise) ** 2 + jitter, n))
    return C, left, both, ou_covariance(params, data.times), T


def unrolled(values):
    return np.asarray(values).T.reshape(-1)


def rolled(vector, data):
    return vector.reshape(data.values.shape[::-1]).T


def naive_evidence(kernel, params, data):
    C, _, _, omega, T = naive_covariances(kernel, params, data)
    seen = unrolled(data.observed)
    cov, y = (C + omega + T)[np.ix_(seen, seen)], unrolled(data.values)[seen]
    return -0.5 * (y @ np.linalg.solve(cov, y) + np.linalg.slogdet(cov)[1] + y.size * np.log(2 * np.pi))


# --- compiled once per solver and shape ------------------------------------------------------------------------


@functools.cache
def evidence_of(solver):
    return quick(jax.value_and_grad(solver.log_evidence))


@functools.cache
def posterior_of(solver):
    return quick(solver.posterior)


@functools.cache
def draw_of(solver, samples):
    return quick(lambda params, data, key: solver.draw(params, data, samples, key))


@functools.cache
def apart_of(dense):
    def draws(params, data):
        sampler = dense.condition(params, data).sampler()
        return sampler.draw_dz(4, jax.random.key(1)), sampler.draw_path(4, jax.random.key(1))

    return quick(draws)


@functools.cache
def conditional_of(dense):
    return quick(dense._conditional)


@functools.cache
def joint_of(dense):
    return quick(dense._joint)


@functools.cache
def steps_of(order):
    return quick(functools.partial(statespace.matern_steps, order))


@functools.cache
def solvers(kernel, jitter=JITTER):
    return Dense(jitter, kernel=get_kernel(kernel)), StateSpace(jitter, kernel=kernel)


def close(got, expected, share=1e-8):
    """Equal within a share of the largest entry."""
    size = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(got, expected, rtol=0, atol=share * size)


def assert_solvers_agree(kernel, params, data, share=1e-8, rate_share=None):
    dense, space = solvers(kernel)
    (value, slope), (expected, expected_slope) = evidence_of(space)(params, data), evidence_of(dense)(params, data)
    close(value, expected, share)
    for name in ("scale", "length", "noise", "G", "ou_rate"):
        within = rate_share if name == "ou_rate" and rate_share else share
        close(getattr(slope, name), getattr(expected_slope, name), within)
    got, wanted = posterior_of(space)(params, data), posterior_of(dense)(params, data)
    for name in ("z", "dz", "o", "x", "std"):
        close(getattr(got, name), getattr(wanted, name), share)


# --- dense -----------------------------------------------------------------------------------------------------


OTHERS = ["matern32", "rational_quadratic", "rbf"]


@pytest.mark.parametrize("kernel", ["matern52", "sigmoid", *OTHERS])
def test_dense_evidence_is_the_normal_density_of_what_was_observed(kernel):
    dense = Dense(JITTER, kernel=get_kernel(kernel))
    for seed in SEEDS:
        params, data = problem(irregular, seed, 2)
        assert evidence_of(dense)(params, data)[0] == pytest.approx(naive_evidence(kernel, params, data), rel=1e-10)


@pytest.mark.parametrize("kernel", ["rbf", "sigmoid"])
def test_dense_gradient_is_that_of_the_evidence(kernel):
    dense = Dense(JITTER, kernel=get_kernel(kernel))
    params, data = problem(irregular, 3, 2)
    slope = evidence_of(dense)(params, data)[1]
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(0)
    for _ in range(4):  # along random directions, by differences of the NumPy evidence
        way = [jnp.asarray(rng.normal(size=leaf.shape)) for leaf in leaves]
        up, down = (
            naive_evidence(kernel, tree.unflatten([a + h * b for a, b in zip(leaves, way, strict=True)]), data)
            for h in (1e-5, -1e-5)
        )
        along = sum(float(jnp.sum(a * b)) for a, b in zip(jax.tree.leaves(slope), way, strict=True))
        assert along == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-5)


def appendix_moments(kernel, params, data):
    """Mean and covariance of (z, ż, o) given y by the two ancestral schemes of the paper's appendix."""
    C, left, both, omega, T = naive_covariances(kernel, params, data)
    y = unrolled(data.values)
    total = np.linalg.inv(omega + C + T)
    m_o, C_o = omega @ total @ y, omega @ total @ (C + T)
    pull = C @ np.linalg.inv(C + T)  # m_z = pull (y − o), C_z = pull T
    m_z, C_z, C_zo = pull @ (y - m_o), pull @ T + pull @ C_o @ pull.T, -pull @ C_o
    mu_z, Sigma_z = C @ total @ y, C @ total @ (omega + T)
    D = left @ np.linalg.inv(C)
    A = both - D @ left.T
    close(mu_z, m_z), close(Sigma_z, C_z)  # both schemes of the paper give one law of z
    zz, zd, dd, do = Sigma_z, Sigma_z @ D.T, D @ Sigma_z @ D.T + A, D @ C_zo
    cov = np.block([[zz, zd, C_zo], [zd.T, dd, do], [C_zo.T, do.T, C_o]])
    return np.concatenate([mu_z, D @ mu_z, m_o]), cov


@pytest.mark.parametrize("kernel", ["matern52", *OTHERS[:2]])
def test_dense_posterior_is_the_papers_appendix(kernel):
    dense = Dense(JITTER, kernel=get_kernel(kernel))
    for seed in SEEDS[:2]:
        # Far apart, so that C⁻¹ of the formula keeps its digits.
        params, data = problem(wide_gaps, seed, 2, missing=0.0)
        mean, cov = appendix_moments(kernel, params, data)
        got = posterior_of(dense)(params, data)
        z, dz, o = np.split(mean, 3)
        for name, expected in {"z": z, "dz": dz, "o": o, "x": z + o}.items():
            close(getattr(got, name), rolled(expected, data))
        size = z.size
        zz, zo, oo = cov[:size, :size], cov[:size, 2 * size :], cov[2 * size :, 2 * size :]
        close(got.std, rolled(np.sqrt(np.diagonal(zz + zo + zo.T + oo)), data))
        blocks = conditional_of(dense)(params, data)[1]
        close(np.block([list(row) for row in blocks]), cov)


@pytest.mark.parametrize("seed", SEEDS)
def test_latent_ou_covariance(seed):
    params, data = problem(irregular, seed, 2)
    none = LatentParams(1e-12 * params.scale, params.length, params.shape, params.noise, params.G, params.ou_rate)
    joint = joint_of(Dense(0.0, kernel=get_kernel("rbf")))(none, data)
    size = data.values.size
    close(joint.ss[2 * size :, 2 * size :], ou_covariance(params, data.times), 1e-14)
    close(joint.yy, ou_covariance(params, data.times), 1e-14)
    assert np.all(joint.ss[2 * size :: ROWS] == 0)  # o is 0 at the first observation


# --- state space -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ORDER)
@pytest.mark.parametrize("where", [1e-6, 1e-3, 0.1, 0.99, 1.01, 2.0, 5.0, 60.0, 400.0])
def test_matern_steps_are_those_of_its_differential_equation(kernel, where):
    """A = e^{FΔ} by series, Q = ∫ e^{Fs} L q Lᵀ e^{Fᵀs} ds by a fine quadrature; at 1 the code changes roads."""
    order, scale, length = ORDER[kernel], 1.3, 0.8
    lam = np.sqrt(5.0 if kernel == "matern52" else 3.0) / length
    gap = where / lam
    F = np.diag(np.ones(order - 1), 1)
    F[-1] = [-(lam**3), -3 * lam**2, -3 * lam] if order == 3 else [-(lam**2), -2 * lam]
    density = scale**2 * (16 / 3 * lam**5 if order == 3 else 4 * lam**3)
    # F + λI is nilpotent, so that e^{Fs} = e^{−λs} Σ (F + λI)^p s^p/p! ends after `order` terms.
    N = F + lam * np.eye(order)

    def flow(s):
        return np.exp(-lam * s) * (np.eye(order) + N * s + (N @ N) * s**2 / 2)

    cuts = np.concatenate([[0.0], np.geomspace(gap / 1e3, gap, 40)])
    nodes, weights = np.polynomial.legendre.leggauss(12)
    Q = np.zeros((order, order))
    for low, high in itertools.pairwise(cuts):
        for x, w in zip(nodes, weights, strict=True):
            column = flow(low + (high - low) * (x + 1) / 2)[:, -1]
            Q += density * w * (high - low) / 2 * np.outer(column, column)
    steps = steps_of(order)(jnp.asarray([gap]), jnp.asarray(scale), jnp.asarray(length))
    np.testing.assert_allclose(steps.F[0], flow(gap), rtol=1e-12, atol=1e-13 * np.max(np.abs(flow(gap))))
    size = np.sqrt(np.diagonal(Q))
    np.testing.assert_allclose(steps.Q[0] / np.outer(size, size), Q / np.outer(size, size), rtol=0, atol=1e-11)
    stationary = np.asarray(statespace.matern_stationary(order, jnp.asarray(scale), jnp.asarray(length)))
    close(F @ stationary + stationary @ F.T, -np.diag([0.0] * (order - 1) + [density]), 1e-13)


@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize(
    ("kernel", "states"),
    [
        ("matern52", 1),
        ("matern52", 2),
        ("matern52", 3),
        ("matern32", 1),
    ],
)
def test_state_space_agrees_with_dense(kernel, states, gaps):
    for seed in SEEDS:
        for missing in (0.0, 0.3):
            params, data = problem(gaps, seed, states, missing)
            assert_solvers_agree(kernel, params, data)


@pytest.mark.parametrize("size", [1, 4, 6])
def test_blocks_change_nothing(size, monkeypatch):
    """Value and derivatives, also in the data, in many blocks or in one; of 4 and 6 rows, the last is not full."""
    params, data = problem(irregular, 3, 2, missing=0.3)
    data = jax.tree.map(lambda a: a[:-1], data)
    assert ROWS - 1 == 11

    def evidence():
        space = StateSpace(JITTER, kernel="matern52")

        def by_values(params, y):
            return space.log_evidence(params, Observations(data.times, y, data.observed))

        return quick(jax.value_and_grad(by_values, argnums=(0, 1)))(params, data.values)

    whole = evidence()
    monkeypatch.setattr(likelihood, "_BLOCK", size)
    jax.tree.map(lambda got, expected: close(got, expected, 1e-12), evidence(), whole)


def test_agree_when_almost_nothing_was_observed():
    params, data = problem(irregular, 0, 2)
    only = jnp.zeros_like(data.observed).at[5, 1].set(True)
    assert_solvers_agree("matern52", params, Observations(data.times, data.values, only))
    assert_solvers_agree("matern52", params, Observations(data.times, data.values, jnp.zeros_like(only)))
    assert (
        evidence_of(solvers("matern52")[1])(params, Observations(data.times, data.values, jnp.zeros_like(only)))[0] == 0
    )


@pytest.mark.parametrize("gaps", [irregular, short_gaps])
def test_agree_without_noise(gaps):
    """Only the jitter is left, so the dense matrix has a condition of 1e6 and more: it loses those digits."""
    for seed in SEEDS:
        params, data = problem(gaps, seed, 2, noise=0.0)
        # Data that the model could have made: otherwise the evidence itself is of size 1e6.
        smooth = jnp.sin(0.3 * data.times)[:, None] * jnp.ones((1, 2))
        assert_solvers_agree("matern52", params, Observations(data.times, smooth, data.observed), share=1e-6)


@pytest.mark.parametrize("rate", [1e-9, 1e-4, 1e3])
def test_rates_from_brownian_motion_to_white_noise(rate):
    params, data = problem(irregular, 1, 2)
    params = LatentParams(params.scale, params.length, params.shape, params.noise, params.G, jnp.asarray(rate))
    # (1 − e^{−2γΔ})/2γ is exact, but its derivative in γ is a difference of numbers 1/γ times its size.
    assert_solvers_agree("matern52", params, data, rate_share=max(1e-8, 1e-13 / rate))
    dense = solvers("matern52")[0]
    size, t = data.values.size, np.asarray(data.times)
    omega = joint_of(dense)(params, data).ss[2 * size :, 2 * size :]
    brownian = np.kron(np.asarray(params.G @ params.G.T), np.minimum(t[:, None], t[None, :]))
    if rate < 1:  # Ω = min(t, s) − γ t s + O(γ²)
        close(omega, brownian, rate * t[-1] ** 2)
    else:
        white = np.diagonal(omega).reshape(2, ROWS)[:, 1:]
        close(white, (np.sum(np.asarray(params.G) ** 2, axis=1) / (2 * rate))[:, None] * np.ones((1, ROWS - 1)), 1e-9)


def test_the_clock_does_not_matter():
    for kernel in ORDER:
        params, data = problem(irregular, 2, 1)
        for shift in (2000.0, -2000.0):
            moved = Observations(data.times + shift, data.values, data.observed)
            for solver in solvers(kernel):
                close(evidence_of(solver)(params, moved)[0], evidence_of(solver)(params, data)[0], 1e-9)


def padded(data, rows):
    """The series with more rows at its last time, nothing observed, and rubbish in the place of values."""
    states = data.values.shape[1]
    return Observations(
        jnp.concatenate([data.times, jnp.full(rows, data.times[-1])]),
        jnp.concatenate([data.values, jnp.full((rows, states), 3.0)]),
        jnp.concatenate([data.observed, jnp.zeros((rows, states), bool)]),
    )


@pytest.mark.parametrize("which", ["dense", "space"])
def test_padding_changes_nothing(which):
    solver = solvers("matern52")[which == "space"]
    key = jax.random.key(0)
    for seed in SEEDS[:2]:
        params, data = problem(irregular, seed, 1)
        more = padded(data, 4)
        value, slope = evidence_of(solver)(params, more)
        expected, expected_slope = evidence_of(solver)(params, data)
        close(value, expected, 1e-11)
        jax.tree.map(lambda a, b: close(a, b, 1e-9), slope, expected_slope)
        for name, wanted in vars(posterior_of(solver)(params, data)).items():
            close(getattr(posterior_of(solver)(params, more), name)[:ROWS], wanted, 1e-9)
        for name, wanted in vars(draw_of(solver, 6)(params, data, key)).items():
            close(getattr(draw_of(solver, 6)(params, more, key), name)[:, :ROWS], wanted)


# --- draws -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "states"), [("matern52", 2), ("matern32", 1)])
def test_state_space_draws_have_exactly_the_posterior_moments(kernel, states):
    """A draw is linear in its normal numbers: fed the columns of the identity, it gives a root of its covariance."""
    dense, space = solvers(kernel)
    for gaps in GAPS:
        params, data = problem(gaps, 5, states)
        mean, cov = exact_moments(dense, params, data)
        roots = draws_from_identity(space, params, data)
        paths = np.concatenate([np.asarray(a).transpose(0, 2, 1) for a in roots], axis=1)  # (samples, 3·states, times)
        root = paths.reshape(len(paths), -1)[1:] - paths.reshape(len(paths), -1)[:1]
        close(paths[0].reshape(-1), mean)
        close(root.T @ root, cov)


def exact_moments(dense, params, data):
    mean, blocks = conditional_of(dense)(params, data)
    return np.concatenate([unrolled(m) for m in mean]), np.block([list(row) for row in blocks])


@functools.cache
def _from_identity(space):
    def draws(params, data):
        given = space.condition(params, data)
        n, cut = data.values.shape[0], given.initial.shape[0]
        width = cut + data.values.shape[1]
        columns = jnp.eye(n * width).reshape(n, width, n * width)
        columns = jnp.concatenate([jnp.zeros((n, width, 1)), columns], axis=2)
        made = given.draw_from(columns[:, :cut], columns[:, cut:])
        return made.z, made.dz, made.o

    return quick(draws)


def draws_from_identity(space, params, data):
    return _from_identity(space)(params, data)


@pytest.mark.parametrize("which", ["dense", "space"])
def test_drawn_moments(which):
    """M = 4000 independent pairs. Their mean is exact. An entry of their covariance has the Monte-Carlo variance
    (C_ii C_jj + C_ij²)/M; of some 2600 different entries the largest is under 5.5 of those standard deviations, except
    in one of 10,000 seeds, and the mean of their squares is 1 within 0.3 (the entries are far from independent).
    """
    samples = 8000
    dense, space = solvers("matern52")
    params, data = problem(irregular, 7, 2)
    mean, cov = exact_moments(dense, params, data)
    for seed in SEEDS:
        draws = draw_of(dense if which == "dense" else space, samples)(params, data, jax.random.key(seed))
        flat = np.concatenate([np.asarray(a).transpose(0, 2, 1) for a in vars(draws).values()], axis=1)
        flat = flat.reshape(samples, -1)
        close(np.mean(flat, axis=0), mean)
        close(flat[: samples // 2] + flat[samples // 2 :], 2 * mean[None] * np.ones((samples // 2, 1)))
        still = np.diagonal(cov) == 0  # o at the first time
        off = flat[: samples // 2] - mean[None]
        assert np.sum(still) == 2 and np.max(np.abs(off[:, still])) < 1e-5  # the jitter of the dense root
        off, exact = off[:, ~still], cov[np.ix_(~still, ~still)]
        variance = np.diagonal(exact)
        error = np.sqrt((np.outer(variance, variance) + exact**2) / (samples // 2))
        score = (off.T @ off / (samples // 2) - exact) / error
        assert np.max(np.abs(score)) < 5.5
        assert 0.7 < np.mean(score**2) < 1.3


def test_the_two_models_drawn_apart_have_the_moments_of_the_joint():
    """The roots that ż and (x, o) are drawn with give their covariances, to the seven digits they are held in."""
    n, states = ROWS, 2
    dense, space = solvers("matern52")
    params, data = problem(irregular, 7, states)
    mean, cov = exact_moments(dense, params, data)
    pick = np.arange(3 * states * n).reshape(3, states, n).transpose(0, 2, 1)  # z, ż, o; time; state
    z, dz, o = np.eye(3 * states * n)[pick]
    apart = quick(lambda params, data: dense.condition(params, data).sampler())(params, data)
    for got, maps in ((apart.dz, [dz]), (apart.path, [z + o, o])):
        linear = np.stack(maps)
        close(got.mean, linear @ mean, 1e-12)
        rows = linear.transpose(1, 0, 2, 3).reshape(-1, mean.size)
        root = np.asarray(got.chol, float)
        close(root @ root.T, rows @ cov @ rows.T, 1e-6)
    key = jax.random.key(1)
    together, either = space.draw(params, data, 6, key), space.condition(params, data).sampler()
    close(either.draw_dz(6, key), together.dz)
    close(either.draw_path(6, key), jnp.stack([together.z + together.o, together.o]))
    for drawn in (apart.draw_dz(6, key)[None], apart.draw_path(6, key)):
        close(drawn[:, :3] + drawn[:, 3:], 2 * jnp.mean(drawn, axis=1, keepdims=True) + 0 * drawn[:, :3], 1e-12)
        assert np.all(np.std(np.asarray(drawn[:, :3]), axis=1)[:, 1:] > 0)


@pytest.mark.parametrize("kernel", ["rbf", "sigmoid", "rational_quadratic"])
def test_dense_draws_of_smooth_kernels_are_finite(kernel):
    """Almost without noise, and of a large scale: the posterior is what rounding leaves of a much larger prior."""
    dense, times, one = Dense(JITTER, kernel=get_kernel(kernel)), jnp.arange(80.0), jnp.ones(1)
    data = Observations(times, jnp.sin(times / 8)[:, None], jnp.ones((80, 1), bool))
    for length in (3.0, 20.0, 100.0):
        for noise, G in ((1e-4, 0.0), (1e-4, 1e-4), (0.1, 0.0)):
            params = LatentParams(
                20 * one, length * one, one, noise * one, jnp.full((1, 1), G), jnp.asarray(1 / length)
            )
            draws = draw_of(dense, 4)(params, data, jax.random.key(1))
            assert all(np.all(np.isfinite(a)) for a in vars(draws).values())
            assert all(np.all(np.isfinite(a)) for a in apart_of(dense)(params, data))
            x = np.asarray(draws.z + draws.o)
            # What was observed is known at least as well as by its own observation alone.
            assert np.max(np.abs(x[:2] - x[2:])) / 2 < 6 * np.sqrt(noise**2 + JITTER)


def test_the_same_key_gives_the_same_draws():
    params, data = problem(irregular, 0, 1)
    space = solvers("matern52")[1]
    first, again = (draw_of(space, 6)(params, data, jax.random.key(3)) for _ in range(2))
    other = draw_of(space, 6)(params, data, jax.random.key(4))
    np.testing.assert_array_equal(first.z, again.z)
    assert not np.allclose(first.z, other.z)


def test_rows_of_normals_do_not_depend_on_how_many_there_are():
    few, many = (row_normals(jax.random.key(0), rows, (3, 2), jnp.float64) for rows in (4, 9))
    np.testing.assert_array_equal(few, many[:4])
    assert len(np.unique(many)) == many.size


# --- square roots, size ----------------------------------------------------------------------------------------


def test_state_space_at_two_thousand_times():
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(size=2000))
    values = np.sin(times / 5)[:, None] + 0.1 * rng.normal(size=(2000, 1))
    data = Observations(jnp.asarray(times), jnp.asarray(values), jnp.ones((2000, 1), bool))
    one = jnp.ones(1)
    params = LatentParams(one, 5 * one, one, 0.1 * one, 0.05 * jnp.ones((1, 1)), jnp.asarray(0.2))
    space = solvers("matern52")[1]
    value, slope = evidence_of(space)(params, data)
    assert 500 < value < 2500 and all(np.all(np.isfinite(a)) for a in jax.tree.leaves(slope))
    std = np.asarray(posterior_of(space)(params, data).std)
    assert np.all(std > 0.02) and np.all(std < 0.1)


def test_the_solver_is_chosen_by_the_kernel():
    assert isinstance(solver_for("matern52"), StateSpace) and isinstance(solver_for("matern32"), StateSpace)
    assert all(isinstance(solver_for(k, 1e-4), Dense) for k in ("rbf", "rational_quadratic", "sigmoid"))
    assert solver_for("rbf", 1e-4).jitter == 1e-4
