"""The evidence fit: against an exact likelihood, on data drawn from the model, and its starts."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit import gp
from sdefit.dynamics.diffusion import DiffusionShape
from sdefit.optimise import minimise
from sdefit.priors import NoiseLevels, noise_levels, noise_prior
from sdefit.ssm.kalman import Observations

SEEDS = [0, 1, 2]
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


levels_of = quick(noise_levels)


def pool(series):
    """Several series as one `Observations` with a leading axis."""
    return jax.tree.map(lambda *a: jnp.stack(a), *series)


def full(times, values):
    values = jnp.asarray(values)
    return Observations(jnp.asarray(times), values, jnp.ones(values.shape, bool))


# --- against the exact likelihood of an Ornstein-Uhlenbeck process ---------------------------------------------


def ou_path(seed, states, rows=40):
    """x with dx = θ0(θ1 − x) dt + G dw from a known x(0), minus its known mean, by exact transitions."""
    rng = np.random.default_rng(seed)
    rate, gaps = 0.5, rng.uniform(0.2, 1.5, size=rows - 1)
    G = np.tril(rng.normal(size=(states, states)), -1) + np.diag(rng.uniform(0.3, 1.0, states))
    x = np.zeros((rows, states))
    for n, gap in enumerate(gaps):
        spread = np.sqrt((1 - np.exp(-2 * rate * gap)) / (2 * rate))
        x[n + 1] = np.exp(-rate * gap) * x[n] + spread * G @ rng.normal(size=states)
    return rate, np.concatenate([[0.0], np.cumsum(gaps)]), x


def exact_maximum(rate, times, x):
    """The highest log-likelihood of the transitions and its G Gᵀ: the mean of the scaled squares of their errors."""
    gaps = np.diff(times)
    share = (1 - np.exp(-2 * rate * gaps)) / (2 * rate)
    scaled = (x[1:] - np.exp(-rate * gaps)[:, None] * x[:-1]) / np.sqrt(share)[:, None]
    GGt = scaled.T @ scaled / len(gaps)
    K = x.shape[1]
    value = -0.5 * len(gaps) * (K * np.log(2 * np.pi) + np.linalg.slogdet(GGt)[1] + K) - 0.5 * K * np.sum(np.log(share))
    return value, GGt


@pytest.mark.parametrize(("kernel", "states"), [("matern52", 2), ("rbf", 1)])
def test_known_drift_gives_the_exact_likelihood_of_G(kernel, states):
    """With z and e out of the way, y = o: the evidence is the likelihood of the transitions, and so is its optimum."""
    solver, shape, even = gp.solver_for(kernel, jitter=0.0), DiffusionShape("full", states), jnp.ones(states)
    one = jnp.ones(states)

    @quick
    def fit(data, rate):
        def loss(v):  # the row of x(0), which is known, is not data
            return -solver.log_evidence(
                gp.LatentParams(1e-9 * one, one, one, 1e-9 * one, shape.matrix(v, even), rate), data
            )

        return minimise(loss, jnp.zeros(shape.size))

    for seed in SEEDS:
        rate, times, x = ou_path(seed, states)
        value, GGt = exact_maximum(rate, times, x)
        data = full(times, x)
        found = fit(Observations(data.times, data.values, data.observed.at[0].set(False)), jnp.asarray(rate))
        G = np.asarray(shape.matrix(found.x, even))
        assert found.converged
        assert -found.value == pytest.approx(value, rel=1e-9)
        # The search stops within 1e-14·(1 + |f|) of the optimum in value, hence about 1e-6 in the entries.
        np.testing.assert_allclose(G @ G.T, GGt, rtol=1e-5, atol=1e-5 * np.max(GGt))


# --- levels of noise and diffusion -----------------------------------------------------------------------------


def naive_levels(series):
    """The level L that maximises Σ log N(rough | 0, L/2 · w_noise + L · w_diffusion) over triples; g² = L, σ² = L/2."""
    K = series[0].values.shape[1]
    levels = []
    for k in range(K):
        squares = []
        for data in series:
            seen = np.flatnonzero(np.asarray(data.observed)[:, k])
            t, y = np.asarray(data.times)[seen], np.asarray(data.values)[seen, k]
            for i in range(1, len(t) - 1):
                before, after = t[i] - t[i - 1], t[i + 1] - t[i]
                line = (after * y[i - 1] + before * y[i + 1]) / (before + after)
                a, b = after / (before + after), before / (before + after)
                weight = (1 + a * a + b * b) / 2 + before * after / (before + after)
                squares.append((y[i] - line) ** 2 / weight)
        levels.append(np.mean(squares))
    return np.array(levels)


def scattered(seed, rows=30, states=2):
    rng = np.random.default_rng(seed)
    data = full(np.cumsum(rng.exponential(size=rows)), rng.normal(size=(rows, states)))
    observed = jnp.asarray(rng.random((rows, states)) < 0.7).at[-4:].set(False)
    times = jnp.where(jnp.arange(rows) >= rows - 4, data.times[-5], data.times)  # four rows of padding
    return Observations(times, jnp.where(observed, data.values, 9.0), observed)


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_match_a_loop_over_triples(seed):
    series = [scattered(seed), scattered(seed + 10), scattered(seed + 20)]
    log_G, log_noise = levels_of(pool(series))
    level = naive_levels(series)
    np.testing.assert_allclose(np.exp(2 * log_G), level, rtol=1e-12)
    np.testing.assert_allclose(np.exp(2 * log_noise), level / 2, rtol=1e-12)


@pytest.mark.parametrize("what", ["noise", "brownian"])
def test_levels_of_pure_noise_and_of_brownian_motion(what):
    """At unit spacing a triple weighs 3/2 in σ² and 1/2 in g², so L = (1.5 σ² + 0.5 g²)/1.25: 1.2 σ² or 0.4 g².

    The smooth curve beneath adds (h²/2 · x'')² ≤ (0.5 · 4 · 0.01²)² = 4e-8 to L and shows in no digit tested.
    Rough² is a quadratic form in normal numbers: from the correlations of neighbouring triples (−2/3, 1/6 for noise;
    −1/2 for increments) its mean over n triples has the relative variance (2/n)(1 + 2·(4/9 + 1/36)) < 3.9/n, or
    (2/n)(1 + 2/4) = 3/n. With n = 4 · 498 that is a standard deviation below 0.045; the test allows four.
    """
    rng = np.random.default_rng(1)
    times = np.arange(500.0)
    series = []
    for _ in range(4):
        noise = 0.3 * rng.normal(size=(500, 1))
        values = 4 * np.sin(0.01 * times)[:, None] + (noise if what == "noise" else np.cumsum(noise, axis=0))
        series.append(full(times, values))
    log_G, _ = levels_of(pool(series))
    expected = {"noise": 1.2, "brownian": 0.4}[what] * 0.3**2
    assert np.exp(2 * float(log_G[0])) == pytest.approx(expected, rel=4 * 0.045)


def test_levels_without_a_triple_are_finite():
    data = full([0.0, 1.0, 2.0], [[1.0], [2.0], [0.0]])
    none = Observations(data.times, data.values, data.observed.at[1].set(False))
    straight = full([0.0, 1.0, 2.0], [[1.0], [2.0], [3.0]])
    for one in (none, straight):
        assert all(np.all(np.isfinite(level)) for level in levels_of(pool([one])))


# --- priors and walls ------------------------------------------------------------------------------------------


def evidence_of(kernel="matern52", kind="full", states=1, fixed_rate=None):
    shape, shaped, even = DiffusionShape(kind, states), gp.get_kernel(kernel).shaped, jnp.ones(states)
    return gp.Evidence(gp.solver_for(kernel), shape, shaped, even, jnp.asarray(0.5), fixed_ou_rate=fixed_rate)


@pytest.mark.parametrize("kind", ["full", "diagonal", "scalar", "none"])
@pytest.mark.parametrize("kernel", ["matern52", "sigmoid"])
def test_coordinates_are_read_in_order(kernel, kind):
    model = evidence_of(kernel, kind, 2)
    levels = NoiseLevels(jnp.log(jnp.asarray([0.2, 0.3])), jnp.log(jnp.asarray([0.05, 0.06])))
    params = model.params(model.start(levels, jnp.asarray([4.0, 5.0])))
    np.testing.assert_allclose(params.scale, 1.0)
    np.testing.assert_allclose(params.length, [4.0, 5.0])
    np.testing.assert_allclose(params.noise, [0.05, 0.06])
    np.testing.assert_allclose(params.shape, 1.0)
    same = np.sqrt(0.2 * 0.3)
    diagonal = {"none": [0.0, 0.0], "scalar": [same, same]}.get(kind, [0.2, 0.3])
    np.testing.assert_allclose(params.G, np.diag(diagonal), rtol=1e-12)
    size = 6 + model.diffusion.size + (2 if kernel == "sigmoid" else 0)
    u = jnp.arange(float(size)) / 10
    assert model.params(u).length[1] == pytest.approx(np.exp(0.3))
    assert model.params(u).noise[0] == pytest.approx(np.exp(0.4))
    if kernel == "sigmoid":
        assert model.params(u).shape[-1] == pytest.approx(np.exp(u[-1]))


@pytest.mark.parametrize("kernel", ["rbf", "sigmoid"])
def test_shared_hyperparameters_are_the_same_for_all_states(kernel):
    """φ and σ are the means of their coordinates; G is its own; weak priors and walls see what is shared."""
    own = evidence_of(kernel, "full", 2)
    shared = dataclasses.replace(own, shared=True)
    u = jnp.asarray(np.random.default_rng(0).normal(size=9 + 2 * own.shaped))
    tied = shared.params(u)
    np.testing.assert_allclose(tied.length, np.exp(np.mean(u[2:4])))
    np.testing.assert_allclose(tied.noise, np.exp(np.mean(u[4:6])))
    np.testing.assert_allclose(tied.shape, np.exp(np.mean(u[9:])) if own.shaped else 1.0)
    np.testing.assert_array_equal(tied.G, own.params(u).G)
    even = jnp.concatenate(
        [jnp.repeat(jnp.mean(u[:6].reshape(3, 2), axis=1), 2), u[6:9], jnp.full(u.size - 9, jnp.mean(u[9:]))]
    )
    levels = NoiseLevels(jnp.zeros(2), jnp.zeros(2))
    assert shared.penalty(u, levels, jnp.asarray(9.0)) == pytest.approx(
        float(own.penalty(even, levels, jnp.asarray(9.0)))
    )


def test_the_rate_is_per_unit_of_time_or_follows_the_lengths():
    levels, length = NoiseLevels(jnp.zeros(2), jnp.zeros(2)), jnp.asarray([4.0, 5.0])
    fixed, free = evidence_of(states=2, fixed_rate=3.0), evidence_of(states=2)
    assert fixed.params(fixed.start(levels, length)).ou_rate == pytest.approx(3.0 * 0.5)
    short, long = (free.params(free.start(levels, c * length)).ou_rate for c in (1.0, 10.0))
    assert short == pytest.approx(10 * float(long)) and short > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_prior_is_gaussian_in_the_logarithms(seed):
    rng = np.random.default_rng(seed)
    log_noise, log_G, usual = rng.normal(size=(3, 2))
    G = np.tril(rng.normal(size=(2, 2)))
    expected = sum((log_noise - usual) ** 2) / 2 / 2.0**2
    for k in range(2):
        norm = np.sqrt(G[k] @ G[k])
        expected += (np.log(norm) - log_G[k]) ** 2 / 2 - 2 * np.log(abs(G[k, k]) / norm)
    arrays = [jnp.asarray(a) for a in (log_noise, G, log_G, usual)]
    assert noise_prior(arrays[0], arrays[1], NoiseLevels(*arrays[2:])) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["full", "scalar", "none"])
def test_walls_stand_only_where_data_say_nothing(kind):
    model = evidence_of("sigmoid", kind, 2)
    levels = NoiseLevels(jnp.zeros(2), jnp.zeros(2))
    penalty = quick(jax.value_and_grad(lambda u: model.penalty(u, levels, jnp.asarray(100.0))))
    start = model.start(levels, jnp.asarray([4.0, 5.0]))
    value, slope = penalty(start)
    assert value == pytest.approx(0.0, abs=1e-9) and np.all(np.isfinite(slope))
    for place, far in [(2, 9.0), (2, -9.0), (start.size - 1, 9.0), (start.size - 2, -9.0)]:
        value, slope = penalty(start.at[place].set(far))
        assert value > 10 and np.sign(slope[place]) == np.sign(far)
        assert np.count_nonzero(np.abs(slope) > 1e-9) == 1


# --- the fit ---------------------------------------------------------------------------------------------------


def drawn(model, u, seed, series, rows):
    """Series drawn from the model, by the dense covariance."""
    params, rng = model.params(u), np.random.default_rng(seed)
    dense, K = gp.Dense(1e-6, kernel=gp.get_kernel("matern52")), model.states
    out = []
    joint = quick(dense._joint)
    for _ in range(series):
        times = np.concatenate([[0.0], np.cumsum(rng.uniform(0.5, 1.5, size=rows - 1))])
        cov = np.asarray(joint(params, full(times, np.zeros((rows, K)))).yy)
        cov = cov + np.diag(np.repeat(np.asarray(params.noise) ** 2 + 1e-6, rows))
        values = np.linalg.cholesky(cov) @ rng.normal(size=K * rows)
        out.append(full(times, values.reshape(K, rows).T))
    return pool(out)


TRUTH = {
    1: [0.0, np.log(6.0), np.log(0.1), np.log(0.15)],
    2: [0.0, 0.2, np.log(6.0), np.log(9.0), np.log(0.1), np.log(0.05), np.log(0.2), np.log(0.1), 0.1],
}


@pytest.mark.parametrize("states", [1, 2])
def test_the_fit_finds_what_the_data_were_drawn_from(states):
    """Twice the loss of the truth over the fit is χ² with as many degrees of freedom as coordinates, but for the weak
    priors; its 1 − 1e-4 quantiles for 4 and 9 are 23.5 and 33.7. Each coordinate lies within four standard errors by
    the curvature of the loss at the fit, taken by differences of its gradient.
    """
    model = evidence_of(states=states)
    truth = jnp.asarray(TRUTH[states])
    data = drawn(model, truth, 3, series=3, rows=50)
    levels = levels_of(data)

    def loss(u, data, levels):
        values = jax.vmap(model.solver.log_evidence, in_axes=(None, 0))(model.params(u), data)
        return model.penalty(u, levels, 20 * jnp.max(data.times)) - jnp.sum(values)

    found = quick(lambda data, levels: gp.fit_evidence(model, data, levels, 1, 120))(data, levels)
    look = quick(jax.value_and_grad(loss))
    assert found.converged
    assert look(found.x, data, levels)[0] == pytest.approx(float(found.value), rel=1e-9)
    assert np.all(np.diff(found.values) <= 0) and found.value < found.values[0] - 1
    assert 0 <= 2 * (look(truth, data, levels)[0] - found.value) < {1: 23.5, 2: 33.7}[states]
    h = 1e-4
    rows = [look(found.x + e, data, levels)[1] - look(found.x - e, data, levels)[1] for e in h * np.eye(truth.size)]
    curvature = np.array(rows) / (2 * h)
    errors = np.sqrt(np.diagonal(np.linalg.inv((curvature + curvature.T) / 2)))
    assert np.all(errors > 0) and np.all(errors < 2)
    assert np.all(np.abs(np.asarray(found.x) - np.asarray(truth)) < 4 * errors)


def test_more_starts_are_never_worse():
    """A rough start in the length for data of a short one; the search from it may end in the wrong valley."""
    rng = np.random.default_rng(0)
    times = np.arange(30.0)
    data = pool([full(times, np.sin(1.3 * times)[:, None] + 0.05 * rng.normal(size=(30, 1)))])
    model, levels = evidence_of("rbf"), levels_of(data)

    def fit(starts):
        return quick(lambda data, levels: gp.fit_evidence(model, data, levels, starts, 60))(data, levels)

    one, three = fit(1), fit(3)
    assert three.value <= one.value + 1e-6 and np.isfinite(three.value)
    assert three.x.shape == one.x.shape == (4,)
