"""VGPA: its bound and path against the Kalman smoother, a grid filter and Monte Carlo; then what the method finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from sdefit.data.pool import Pool, standardise
from sdefit.data.series import Series
from sdefit.dynamics import systems
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.inference.increments import filled
from sdefit.inference.parameterisation import Parameterisation
from sdefit.methods import execution
from sdefit.methods.interface import NoState
from sdefit.methods.vgpa import VGPA, _Bound
from sdefit.result import Code, Estimate
from sdefit.ssm.filter import given_first_row
from sdefit.ssm.grid import grid_log_likelihood
from sdefit.ssm.kalman import Gaussian, Observations
from sdefit.ssm.variational import Sites, bound_and_innovations, infer, moments, quadrature, refine, steps_of

KEY = jax.random.key(0)
OU = systems.ornstein_uhlenbeck()
DW = systems.double_well()


def path_of(drift, seed, size=40, gap=0.4, G=0.5, noise=0.2, start=0.0):
    """A path of one state by fine Euler-Maruyama steps, seen with noise."""
    rng = np.random.default_rng(seed)
    x, path, h = start, [], gap / 40
    for _ in range(size):
        path.append(x)
        for _ in range(40):
            x = x + h * drift(x) + G * np.sqrt(h) * rng.normal()
    return np.arange(size) * gap, np.array(path) + noise * rng.normal(size=size)


def pool_of(model, *pairs) -> Pool:
    return standardise([Series(t, x, states=list(model.states)) for t, x in pairs])


def run(model, pool, method, start=None):
    start = np.full(len(model.free), np.nan) if start is None else np.asarray(start, float)
    return execution.estimate(model, method, pool, start, KEY).value


def on_grid(drift, Q, noise, data, substeps):
    """All that `infer` takes, for data on rows."""
    first, rest = given_first_row(data, noise)
    fine = refine(data, substeps)
    guide = filled(fine.times, fine.values, fine.observed)
    return drift, steps_of(drift, Q, fine.times, guide), noise, first, refine(rest, substeps), guide


def kalman(A, b, G, variance, t, y, observed):
    """Smoothed means and covariances, and log p(y_2, … | y_1), of dx = (A x + b) dt + G dw, as in textbooks."""
    size, total = len(b), 0.0
    m, P = y[0], np.diag(variance)
    after, before = [(m, P)], []
    flow, drift = np.block([[-A, G @ G.T], [np.zeros((size, size)), A.T]]), np.block([[A, b[:, None]], [0 * b, 0.0]])
    gaps = np.round(np.diff(t), 12)
    flows = {h: (expm(h * flow), expm(h * drift)) for h in np.unique(gaps)}
    for h, value, seen in zip(gaps, y[1:], observed[1:], strict=True):
        blocks, move = flows[h]
        F = blocks[size:, size:].T
        m, P = F @ m + move[:size, size], F @ P @ F.T + F @ blocks[:size, size:]
        before.append((F, m, P))
        H = np.eye(size)[seen]
        S = H @ P @ H.T + H @ np.diag(variance) @ H.T
        e, K = value[seen] - H @ m, P @ H.T @ np.linalg.inv(S)
        total += -0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(2 * np.pi * S)[1])
        m, P = m + K @ e, P - K @ S @ K.T
        after.append((m, P))
    smooth = [after[-1]]
    for (m, P), (F, ahead, wide) in zip(after[-2::-1], before[::-1], strict=True):
        J = P @ F.T @ np.linalg.inv(wide)
        smooth.append((m + J @ (smooth[-1][0] - ahead), P + J @ (smooth[-1][1] - wide) @ J.T))
    return np.array([m for m, _ in smooth[::-1]]), np.array([P for _, P in smooth[::-1]]), total


# --- atoms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "degree"), [(1, 9), (2, 9), (3, 5), (4, 5), (5, 3), (7, 3)])
def test_quadrature_is_exact_for_polynomials(size, degree):
    points, weights = quadrature(size)
    double = np.array([1, 0, 1, 0, 3, 0, 15, 0, 105, 0.0])  # moments of a standard normal number
    rng = np.random.default_rng(size)
    for _ in range(40):
        powers = np.bincount(rng.integers(0, size, rng.integers(0, degree + 1)), minlength=size)
        value = weights @ np.prod(points ** powers[None, :], axis=1)
        np.testing.assert_allclose(value, np.prod(double[powers]), atol=1e-12)


def test_moments_are_those_of_the_dense_inverse():
    rng = np.random.default_rng(0)
    nodes, size = 6, 2
    below = rng.normal(size=(nodes - 1, size, size))
    diagonal = np.stack([8 * np.eye(size) + a @ a.T for a in rng.normal(size=(nodes, size, size))])
    linear = rng.normal(size=(nodes, size))
    dense = np.zeros((nodes * size, nodes * size))
    for i in range(nodes):
        here = slice(i * size, (i + 1) * size)
        dense[here, here] = diagonal[i]
        if i:
            before = slice((i - 1) * size, i * size)
            dense[here, before], dense[before, here] = below[i - 1], below[i - 1].T
    covariance = np.linalg.inv(dense)
    blocks = covariance.reshape(nodes, size, nodes, size)
    found = moments(Sites(jnp.array(linear), jnp.array(diagonal), jnp.array(below)))
    np.testing.assert_allclose(found.nodes.mean.ravel(), covariance @ linear.ravel(), atol=1e-12)
    for i in range(nodes):
        np.testing.assert_allclose(found.nodes.covariance[i], blocks[i, :, i], atol=1e-12)
    for i in range(nodes - 1):
        np.testing.assert_allclose(found.cross[i], blocks[i + 1, :, i], atol=1e-12)
    entropy = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1]
    np.testing.assert_allclose(found.entropy, entropy, rtol=1e-12)


def test_linear_equation_gives_the_kalman_smoother_and_the_likelihood():
    """Two coupled states, irregular times, gaps of their own."""
    substeps = 3
    rng = np.random.default_rng(3)
    A, b = np.array([[-0.8, 0.5], [-0.6, -0.3]]), np.array([0.2, -0.1])
    G, noise = np.array([[0.6, 0.0], [0.2, 0.4]]), np.array([0.04, 0.1])
    observed = rng.uniform(size=(25, 2)) < 0.8
    observed[0] = True
    t, y = np.cumsum(rng.uniform(0.1, 0.9, 25)), np.cumsum(rng.normal(size=(25, 2)), axis=0) * 0.4
    data = Observations(jnp.array(t), jnp.array(np.where(observed, y, 0.0)), jnp.array(observed))

    def drift(t, x):
        return jnp.array(A) @ x + jnp.array(b)

    Q, variance = jnp.array(G @ G.T), jnp.array(noise)
    found = jax.jit(lambda data: infer(*on_grid(drift, Q, variance, data, substeps)))(data)
    mean, covariance, exact = kalman(A, b, G, noise, t, y, observed)
    assert found.settled and found.sweeps == 2
    np.testing.assert_allclose(found.path.nodes.mean[::substeps], mean, atol=1e-7)
    np.testing.assert_allclose(found.path.nodes.covariance[::substeps], covariance, atol=1e-7)
    np.testing.assert_allclose(found.bound, exact, atol=1e-6)


@pytest.fixture(scope="module")
def well():
    """A double well in standard units: what `infer` took, and what it found."""
    t, y = path_of(lambda x: 0.6 * x * (1.5 - x**2), seed=1, noise=0.1, start=1.0)
    data = Observations(jnp.array(t), jnp.array(y[:, None]), jnp.ones((t.size, 1), bool))

    def drift(t, x):
        return 0.6 * x * (1.5 - x**2)

    given = on_grid(drift, jnp.array([[0.25]]), jnp.array([0.01]), data, 8)
    begin = jnp.stack([given[-1], -given[-1]])  # near the data, and nowhere near
    both = jax.jit(jax.vmap(lambda begin: infer(*given[:-1], begin)))(begin)
    found, far = (jax.tree.map(lambda a, i=i: a[i], both) for i in range(2))
    return data, given, found, far


def test_no_sweep_lowers_the_bound(well):
    *_, found, far = well
    for one in (found, far):
        assert one.settled and 2 < one.sweeps < 50
        assert np.all(np.diff(one.bounds) >= 0)
    assert far.bounds[0] < found.bounds[0] - 10
    np.testing.assert_allclose(far.bound, found.bound, atol=1e-6)


def test_bound_is_below_the_likelihood_and_close(well):
    data, (drift, *_), found, _ = well
    grid, G, noise = jnp.linspace(-3.5, 3.5, 701), jnp.array(0.5), jnp.array(0.1)
    rough, fine = (jax.jit(lambda n=n: grid_log_likelihood(drift, G, noise, data, grid, steps=n))() for n in (4, 8))
    # The grid filter is of first order in its steps: it is 0.16 off with 8 of them, 0.02 when extrapolated. The chain
    # of second order is 0.02 off. Within one well beliefs are nearly Gaussian, so the bound itself gives away little.
    assert -0.06 < found.bound - (2 * fine - rough) < 0.02


@pytest.mark.slow
def test_bound_is_the_mean_over_draws_of_q(well):
    _, (_, steps, noise, first, data, _), found, _ = well
    path, rng, draws = found.path, np.random.default_rng(0), 20000
    mean, variance = np.asarray(path.nodes.mean)[:, 0], np.asarray(path.nodes.covariance)[:, 0, 0]
    x = np.empty((draws, mean.size))
    x[:, 0] = mean[0] + np.sqrt(variance[0]) * rng.normal(size=draws)
    for i, cross in enumerate(np.asarray(path.cross)[:, 0, 0]):
        slope = cross / variance[i]
        left = variance[i + 1] - slope * cross
        x[:, i + 1] = mean[i + 1] + slope * (x[:, i] - mean[i]) + np.sqrt(left) * rng.normal(size=draws)
    gain, precision = np.asarray(steps.gain)[:, 0, 0], np.asarray(steps.precision)[:, 0, 0]
    early = x[:, :-1]
    error = x[:, 1:] - early - gain[None, :] * 0.6 * early * (1.5 - early**2)
    log_p = np.sum(-0.5 * precision * error**2 + 0.5 * np.log(precision / (2 * np.pi)), axis=1)
    seen = np.asarray(data.observed)[:, 0]
    for y, at in [(np.asarray(data.values)[seen, 0], x[:, seen]), (float(first.mean[0]), x[:, :1])]:
        log_p += np.sum(-0.5 * (y - at) ** 2 / float(noise[0]) - 0.5 * np.log(2 * np.pi * float(noise[0])), axis=1)
    # Four standard errors of the mean.
    assert abs(np.mean(log_p) + float(path.entropy) - float(found.bound)) < 4 * np.std(log_p) / np.sqrt(draws)


@pytest.mark.slow
def test_no_other_chain_nearby_has_a_higher_bound(well):
    _, given, found, _ = well
    rng = np.random.default_rng(1)
    nodes = found.path.nodes
    lower = jnp.linalg.cholesky(nodes.covariance)
    drift, steps, noise, first, data, _ = given
    bound = jax.jit(lambda path: bound_and_innovations(drift, steps, noise, first, data, path)[0])
    np.testing.assert_allclose(bound(found.path), found.bound, atol=1e-9)
    for _ in range(10):
        move = lower[:, :, 0] * rng.normal(size=nodes.mean.shape) * 0.03
        other = found.path._replace(nodes=Gaussian(nodes.mean + move, nodes.covariance))
        assert bound(other) < found.bound
    # All of q a little wider or narrower: entropy and covariances change together.
    for share in (0.97, 1.03):
        wide = Gaussian(nodes.mean, share * nodes.covariance)
        entropy = found.path.entropy + 0.5 * nodes.mean.size * np.log(share)
        assert bound(found.path._replace(nodes=wide, cross=share * found.path.cross, entropy=entropy)) < found.bound


# --- the method ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ou_fit():
    pool = pool_of(OU, path_of(lambda x: 0.5 * (1 - x), seed=0, noise=0.1, start=4.0))
    return pool, run(OU, pool, VGPA(weak=False, boundary=0.0, substeps=2))


def test_estimate_on_ou_is_maximum_likelihood(ou_fit):
    pool, found = ou_fit
    y, (rate, level) = np.asarray(pool.values[0]), found.estimate.theta

    def exact(z):
        A, level, G, noise = z[:1, None], z[1:2], z[2:3, None], z[3:]
        return kalman(-A, A[0] * level, G, noise**2, pool.times[0], y, np.ones_like(y, bool))

    at = [rate * pool.time_scale, (level - pool.center[0]) / pool.scale[0]]
    at = np.array([*at, found.estimate.G[0, 0], found.estimate.noise[0]])
    mean, covariance, value = exact(at)
    assert found.estimate.code == Code.OK
    np.testing.assert_allclose(found.estimate.criterion, value, atol=1e-6)
    np.testing.assert_allclose(found.estimate.mean[0], mean, atol=1e-6)
    np.testing.assert_allclose(found.estimate.std[0] ** 2, covariance[:, 0], atol=1e-6)
    # A search stops when 1e-6 of the bound is left: along each coordinate alone no more than that is to be gained.
    for i in range(4):
        step = 1e-3 * np.eye(4)[i]
        up, down = exact(at + step)[2], exact(at - step)[2]
        slope, curve = (up - down) / 2e-3, (up - 2 * value + down) / 1e-6
        assert curve < 0 and -0.5 * slope**2 / curve < 1e-5


def test_trace_tells_the_bound_of_each_sweep(ou_fit):
    _, found = ou_fit
    bounds = found.estimate.trace["bound"]
    assert bounds.shape == (VGPA().sweeps,)
    assert np.all(np.diff(bounds) >= 0) and bounds[-1] == found.estimate.criterion
    np.testing.assert_allclose(found.estimate.trace["search"][-1], found.estimate.criterion, atol=1e-9)


@pytest.mark.slow
def test_gradient_is_that_of_the_bound_with_q_at_its_best():
    """Against differences of the bound, each with sweeps of its own, where the drift is not linear."""
    t, y = path_of(lambda x: 0.1 * x * (4 - x**2), seed=2)
    pool = pool_of(DW, (t, y))
    where = Parameterisation(DW, jax.tree.map(jnp.asarray, pool), "each")
    bound = _Bound(DW, where.pool, 2, 50)
    variance_params = where.variance_params(
        where.at(jnp.array([0.15, 3.0]), jnp.eye(1) * 0.3, jnp.array([0.2]), jnp.zeros((1, 1)))
    )

    size = 1e-4 * variance_params
    moves = jnp.concatenate([jnp.diag(size), -jnp.diag(size), jnp.zeros((1, 4))])
    found = jax.jit(jax.vmap(lambda move: bound.curved(where.point, variance_params + move)))(moves)
    slope = (found.value[:4] - found.value[4:8]) / 2e-4
    # The bound is known to 1e-8; so are its differences, over a ten-thousandth of each number.
    np.testing.assert_allclose(found.gradient[8] * variance_params, slope, rtol=1e-4, atol=1e-3)
    assert np.all(np.linalg.eigvalsh(found.curvature[8]) > 0)


@pytest.mark.slow
def test_known_diffusion_stays_as_it_is_given():
    """In the user's units; by a refit from rough values, with the standard errors of what it finds."""
    t, y = path_of(lambda x: 0.1 * x * (4 - x**2), seed=5, size=60)
    pool, method = pool_of(DW, (t, y)), VGPA(known_diffusion=[[0.5]], substeps=2)
    rough, zero = jnp.zeros((1, 60, 1)), jnp.zeros(())
    near = Estimate(jnp.array([0.3, 2.0]), jnp.eye(1), jnp.ones(1), rough, rough, zero, jnp.array(0), NoState(), {})

    @jax.jit
    def both(pool):
        found = method.refit(DW, pool, near, KEY)
        return found, method.covariance(DW, pool, found)

    found, told = both(pool)
    assert found.code == Code.OK
    np.testing.assert_allclose(pool.unstandardise_diffusion(found.G), [[0.5]], rtol=1e-6)
    # Standard errors at this length are near 0.06 and 0.7; four of them.
    errors = np.sqrt(np.diagonal(told.covariance))
    assert errors[2] == 0 and np.all(errors[:2] > [0.02, 0.2]) and np.all(errors[:2] < [0.15, 1.5])
    assert np.all(np.abs(found.theta - np.array([0.1, 4.0])) < 4 * errors[:2])


# --- weak priors -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_parameter_runs_off_where_the_data_do_not_tell_it():
    """Two walks without any drift, in whose likelihood a is nearest to 0 of sixty seeds: b may be anything there."""
    walks = [path_of(lambda x: 0.0, seed=seed, size=30) for seed in (9, 59)]
    each = [jax.tree.map(jnp.asarray, pool_of(DW, walk)) for walk in walks]
    pools = jax.tree.map(lambda *a: jnp.stack(a), *each)
    method = VGPA(known_diffusion=0.5, substeps=1)
    found = jax.jit(jax.vmap(lambda pool: method.estimate(DW, pool, jnp.full(2, jnp.nan), KEY)))(pools)
    # Without weak priors neither search converges; after 50 steps they are at −0.002, 514 and −0.001, 471.
    assert np.all(found.code == Code.OK) and np.all(np.abs(found.theta[:, 1]) < 10)


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"noise": "none"},
        {"substeps": 0},
        {"starts": 0},
        {"iterations": 0},
        {"sweeps": 0},
        {"boundary": -1.0},
        {"known_diffusion": -0.5},
        {"known_diffusion": [1.0, 2.0]},
        {"known_diffusion": [[1.0, 1.0], [1.0, 1.0]]},
        {"known_diffusion": "half"},
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(settings):
    with pytest.raises(ModelError, match=f"VGPA: {next(iter(settings))} must be"):
        VGPA(**settings)


def test_models_that_do_not_fit_are_refused():
    pool = pool_of(OU, path_of(lambda x: 0.5 * (1 - x), seed=0, size=5))
    with pytest.raises(ModelError, match="use ESGF for an ODE"):
        VGPA().check(SDE(OU.drift, OU.states, OU.params, "none"), pool)
    with pytest.raises(ModelError, match="must be 1 by 1, one row per state, not 2 by 2"):
        VGPA(known_diffusion=np.eye(2)).check(OU, pool)


def test_settings_are_values():
    """Equal settings share compiled programs, so they must be equal and hashable whatever they were given as."""
    assert VGPA(known_diffusion=np.eye(2)) == VGPA(known_diffusion=[[1, 0], [0, 1]])
    assert hash(VGPA(known_diffusion=np.eye(2))) == hash(VGPA(known_diffusion=((1.0, 0.0), (0.0, 1.0))))
