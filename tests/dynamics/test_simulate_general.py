"""Simulation of given diffusions, observation equations, laws and starts; and the plain class, bit for bit."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.dynamics import systems
from sdefit.dynamics.choose_scheme import noise_structure
from sdefit.dynamics.laws import lognormal, normal
from sdefit.dynamics.parameters import positive
from sdefit.dynamics.schemes import SCHEMES, draws, march
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.simulate import simulate
from sdefit.errors import InputError, ModelError, SimulationError

A, S = 0.4, 0.8


def model(f, states, g="full", params=None, **more):
    return SDE(f, list(states), params or {}, g, **more)


def proportional(t, x, p):
    return A * x


def still(t, x, p):
    return 0.0 * x


def decay(t, x, p):
    return -x


GBM = model(proportional, "x", lambda t, x, p: S * x)
CIR = model(lambda t, x, p: p["rate"] * (p["level"] - x), "x", lambda t, x, p: p["s"] * jnp.sqrt(x),
            {"rate": positive(), "level": positive(), "s": positive()})  # fmt: skip
# One noise scales the plane and one turns it: each acts on both states, and they commute.
TURNED = model(lambda t, x, p: -0.5 * x, "xy", lambda t, x, p: [[0.3 * x[0], -0.6 * x[1]], [0.3 * x[1], 0.6 * x[0]]])
CROSSED = model(still, "xy", lambda t, x, p: [[x[1], 0.0], [0.0, x[0]]])  # two noises that do not commute


def last(series):
    """The states at the end of each path."""
    return np.stack([one.path[-1] for one in series])


def within(value, expected, standard_error, sigmas=4.5, more=0.0):
    assert np.all(np.abs(value - expected) < sigmas * standard_error + more), (value, expected, standard_error)


# --- strong orders ---------------------------------------------------------------------------------------------


def gbm_end(x0, W):
    return x0 * jnp.exp((A - S**2 / 2) + S * W)


def turned_end(x0, W):
    """exp(−½ t − ½ Σ B² t + Σ B w) x0, where B² is 0.3² I and −0.6² I."""
    size, angle = jnp.exp(-0.5 - 0.3**2 / 2 + 0.6**2 / 2 + 0.3 * W[0]), 0.6 * W[1]
    return size * jnp.stack(
        [jnp.cos(angle) * x0[0] - jnp.sin(angle) * x0[1], jnp.sin(angle) * x0[0] + jnp.cos(angle) * x0[1]]
    )


@functools.cache
def errors_of(one, exact, scheme, x0):
    """The squared error at t = 1 of each path, against the exact solution driven by the same Brownian path."""

    def error(W, n):
        theta, start = jnp.zeros(0), jnp.asarray(x0)
        path, _ = march(
            SCHEMES[scheme], lambda t, x: one.f(t, x, theta), lambda t, x: one.g(t, x, theta), start,
            jnp.array([0.0, 1.0]), n[None], lambda i, h: (W[i], jnp.zeros_like(W[i])),
        )  # fmt: skip
        return jnp.sum((path[-1] - exact(start, jnp.sum(W, axis=0))) ** 2)

    return jax.jit(jax.vmap(error, (0, None)))


@pytest.mark.parametrize(
    ("one", "exact", "x0", "scheme", "order"),
    [
        (GBM, gbm_end, (1.0,), "euler", 0.5),
        (GBM, gbm_end, (1.0,), "milstein", 1.0),
        (TURNED, turned_end, (1.0, 0.5), "euler", 0.5),
        (TURNED, turned_end, (1.0, 0.5), "milstein", 1.0),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_strong_order_for_noise_that_depends_on_the_state(one, exact, x0, scheme, order, seed):
    """The root-mean-square error falls as h^order, against the exact solution on the same Brownian paths.

    The Monte-Carlo error of the slope is measured: 20 batches of 200 paths give 20 slopes, whose mean has the
    standard error of their spread over √20. Four of them are allowed, and 0.05 for the next order in h, whose
    share of the slope halves with each step length and is below that here from 2⁻⁴ on.
    """
    steps, batches = range(4, 10), 20
    W = np.random.default_rng(seed).normal(size=(200 * batches, 2 ** steps[-1], len(x0))) * 2 ** (-steps[-1] / 2)
    run, rows = errors_of(one, exact, scheme, x0), []
    for n in steps:
        coarse = W.reshape(len(W), 2**n, -1, W.shape[-1]).sum(axis=2)
        padded = np.pad(coarse, ((0, 0), (0, W.shape[1] - 2**n), (0, 0)))
        squares = np.asarray(run(jnp.asarray(padded), jnp.asarray(2**n)))
        rows.append(0.5 * np.log(squares.reshape(batches, -1).mean(axis=1)))
    slopes = np.polyfit(-np.log(2.0) * np.array(steps), np.array(rows), 1)[0]
    within(slopes.mean(), order, slopes.std(ddof=1) / math.sqrt(batches), sigmas=4, more=0.05)


def test_milstein_is_the_textbook_formula():
    """x + f h + g W + ½ g g′ (W² − h) for one state, and Euler-Maruyama for a constant G, in steps of their own."""
    times, counts, draw = np.array([0.0, 0.2, 0.5]), np.array([2, 3]), draws(jax.random.key(4), 1)
    x, i = 1.3, 0
    for n in range(2):
        h = (times[n + 1] - times[n]) / counts[n]
        for _ in range(counts[n]):
            W = float(draw(jnp.asarray(i), jnp.asarray(h))[0][0])
            x += h * A * x + S * x * W + 0.5 * S * S * x * (W * W - h)
            i += 1
    given = jnp.asarray(times), jnp.asarray(counts), draw
    path, _ = march(SCHEMES["milstein"], lambda t, x: A * x, lambda t, x: S * x[:, None], jnp.array([1.3]), *given)
    assert float(path[-1, 0]) == pytest.approx(x, rel=1e-12)
    plain = jnp.array([[0.4]])
    ends = [march(SCHEMES[s], lambda t, x: A * x, plain, jnp.array([1.3]), *given)[0] for s in ("euler", "milstein")]
    assert np.array_equal(*ends)


# --- laws of the paths -----------------------------------------------------------------------------------------


def moments(values):
    """Mean and variance of each column with their standard errors, that of the variance by the fourth moment."""
    n, mean, var = len(values), values.mean(axis=0), values.var(axis=0)
    fourth = ((values - mean) ** 4).mean(axis=0)
    return mean, np.sqrt(var / n), var, np.sqrt((fourth - var**2) / n)


@pytest.mark.parametrize("seed", [0, 1])
def test_moments_of_cir(seed):
    """Mean m + (x0 − m) e^(−kt) and the variance of the noncentral χ², within 4.5 standard errors.

    The scheme errs by about k h/2 = 0.5 % of the mean's way and 1 % of the variance at h = 0.01.
    """
    k, m, s, x0, t = 1.0, 1.0, 0.5, 2.0, 1.0
    found = simulate(CIR, {"rate": k, "level": m, "s": s}, x0, [0.0, 0.5, t], key=seed, paths=6000, step=0.01)
    mean, mean_error, var, var_error = moments(last(found))
    fade = math.exp(-k * t)
    within(mean, m + (x0 - m) * fade, mean_error, more=0.005 * (x0 - m))
    expected = x0 * s**2 / k * (fade - fade**2) + m * s**2 / (2 * k) * (1 - fade) ** 2
    within(var, expected, var_error, more=0.01 * expected)


def test_moments_of_gbm():
    """log x(1) ~ N(a − s²/2, s²); Milstein's error of log x at h = 0.005 is of the order h."""
    found = simulate(GBM, {}, 1.0, [0.0, 0.5, 1.0], key=1, paths=6000, step=0.005)
    mean, mean_error, var, var_error = moments(np.log(last(found)))
    within(mean, A - S**2 / 2, mean_error, more=0.005)
    within(var, S**2, var_error, more=0.005)


def test_shared_noises_have_their_correlation_and_a_state_without_noise_has_none():
    """x(2) = G w(2) exactly, for three states and two noises: covariance 2 G Gᵀ, n = 4000, 4.5 standard errors."""
    G = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 0.0]])
    shared = model(lambda t, x, p: jnp.stack([0.0, 0.0, 0.5]), "abc", lambda t, x, p: G)
    ends, n = last(simulate(shared, {}, [0.0, 0.0, 1.0], [0.0, 1.0, 2.0], key=2, paths=4000, step=0.5)), 4000
    assert np.all(ends[:, 2] == 2.0)
    cov, v = 2 * G @ G.T, 2 * np.diag(G @ G.T)
    found = np.cov(ends[:, :2].T)
    within(found, cov[:2, :2], np.sqrt((np.outer(v, v) + cov**2)[:2, :2] / n))
    more_noises = model(still, "x", lambda t, x, p: [[0.3, 0.4]])
    ends = last(simulate(more_noises, {}, 0.0, [0.0, 0.5, 1.0], key=0, paths=4000, step=0.5))
    within(ends.var(), 0.25, 0.25 * math.sqrt(2 / n))


def test_a_given_constant_diffusion_is_the_estimated_one():
    """The same path to rounding for every scheme, whether G comes from the model or beside it."""
    G = np.array([[0.3, 0.0], [0.1, 0.2]])
    given, plain = model(decay, "xy", lambda t, x, p: G), model(decay, "xy")
    for scheme in ("euler", "milstein", "shark"):
        more = {"key": 1, "step": 0.1, "scheme": scheme}
        one, two = simulate(given, {}, [1, 2], [0, 1, 2], **more), simulate(plain, {}, [1, 2], [0, 1, 2], G=G, **more)
        np.testing.assert_allclose(one.values, two.values, rtol=1e-12)


def test_inputs_reach_diffusion_and_observation():
    driven = model(still, "x", lambda t, x, p: p["u"] * jnp.ones((1, 1)), inputs=["u"], hold="previous",
                   observe=lambda t, x, p: [x[0] + 10 * p["u"], t], observations=["y", "clock"])  # fmt: skip
    one = simulate(driven, {}, 1.0, [0.0, 1.0, 2.0, 3.0], key=0, step=0.5, inputs={"u": [0.0, 1.0, 0.0, 2.0]})
    assert one.path[0] == one.path[1] == 1.0 and one.path[2] == one.path[3] != 1.0
    np.testing.assert_allclose(one.values[:, 0], one.path[:, 0] + [0.0, 10.0, 0.0, 20.0], rtol=1e-12)
    assert one.values[:, 1].tolist() == [0.0, 1.0, 2.0, 3.0]


# --- the scheme ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "x0", "structure"),
    [
        (GBM, [1.0], (True, True, False)),
        (GBM, [0.0], (True, True, False)),
        (TURNED, [1.0, 0.5], (True, True, False)),
        (CROSSED, [1.0, 2.0], (True, False, False)),
        (CROSSED, [0.0, 0.0], (True, False, False)),
        (model(still, "xy", lambda t, x, p: [1.0 + t, 2.0]), [1.0, 2.0], (True, True, True)),
        (model(still, "x", lambda t, x, p: jnp.sqrt(x)), [0.0], (False, True, False)),
    ],
)
def test_the_structure_of_a_diffusion_is_found(one, x0, structure):
    assert noise_structure(one, np.zeros(0), np.array(x0), np.array([0.0, 1.0, 2.0]), None) == structure


def test_milstein_is_the_default_where_the_noises_commute():
    for one, x0, best in ((GBM, [1.0], "milstein"), (TURNED, [1, 0.5], "milstein"), (CROSSED, [1, 2], "euler")):
        default, other = (simulate(one, {}, x0, [0, 0.5, 1], step=0.1, scheme=s).path for s in (None, best))
        assert np.array_equal(default, other)
    assert not np.array_equal(
        *(simulate(GBM, {}, 1.0, [0, 0.5, 1], step=0.1, scheme=s).path for s in SCHEMES if s != "shark")
    )


# --- what is observed ------------------------------------------------------------------------------------------


def test_observations_have_the_noise_of_their_laws():
    """Each column's errors on its law's scale are N(0, sd²); n numbers give sd within 4.5/√(2n) of itself."""
    seen = model(
        decay, "xy", lambda t, x, p: [0.1, 0.2], {"s": positive()},
        observe=lambda t, x, p: [x[0], x[0] + x[1], jnp.exp(x[1]), 2 * x[0]], observations=["a", "b", "c", "d"],
        noise={"b": normal(sd=0.3), "c": lognormal(), "d": normal(sd=lambda t, x, p: p["s"] * jnp.exp(x[0]))},
    )  # fmt: skip
    t = np.linspace(0, 2, 21)
    many = simulate(seen, {"s": 0.5}, {"y": 2.0, "x": 1.0}, t, noise={"c": 0.2, "a": 0.4}, key=3, paths=200, step=0.05)
    y, x = np.concatenate([s.values for s in many]), np.concatenate([s.path for s in many])
    assert many[0].states == ("a", "b", "c", "d") and many[0].path_states == ("x", "y")
    assert many[0].path[0].tolist() == [1.0, 2.0]
    errors = np.stack([
        (y[:, 0] - x[:, 0]) / 0.4, (y[:, 1] - x.sum(axis=1)) / 0.3,
        (np.log(y[:, 2]) - x[:, 1]) / 0.2, (y[:, 3] - 2 * x[:, 0]) / (0.5 * np.exp(x[:, 0])),
    ])  # fmt: skip
    n = errors.shape[1]
    within(errors.std(axis=1), 1.0, 1 / math.sqrt(2 * n))
    within(errors.mean(axis=1), 0.0, 1 / math.sqrt(n))
    within(np.corrcoef(errors), np.eye(4), 1 / math.sqrt(n), more=1e-12)
    same = simulate(seen, {"s": 0.5}, [1, 2], t, noise=[0.4, 0.2], key=3, paths=1, step=0.05)[0]
    assert np.array_equal(same.path[0], many[0].path[0])


def test_hidden_states_are_in_the_path_alone():
    pendulum = model(lambda t, x, p: [x[1], -x[0]], "xv", lambda t, x, p: [[0.0], [0.3]], hidden=["v"])
    one = simulate(pendulum, {}, [1, 0], [0, 1, 2], step=0.01, noise=0.1)
    assert one.values.shape == (3, 1) and one.path.shape == (3, 2) and one.path_states == ("x", "v")
    assert list(one.frame().columns) == ["time", "x"]
    assert "true path of x, v known" in repr(one)
    drawn = one.plot().axes[0].get_lines()
    assert any(np.array_equal(line.get_ydata(), one.path[:, 0]) for line in drawn)


# --- where the states begin ------------------------------------------------------------------------------------


def test_a_model_may_say_where_its_states_begin():
    fixed = model(decay, "xy", lambda t, x, p: [0.1, 0.2], initial={"x": 3.0, "y": (1.0, 0.5)})
    starts = np.stack([s.path[0] for s in simulate(fixed, {}, times=[0, 1, 2], paths=4000, step=1.0)])
    assert np.all(starts[:, 0] == 3.0)
    within(starts[:, 1].mean(), 1.0, 0.5 / math.sqrt(4000))
    within(starts[:, 1].std(), 0.5, 0.5 / math.sqrt(8000))
    one = simulate(fixed, {}, {"y": 7.0}, [0, 1, 2], step=1.0)
    assert one.path[0].tolist() == [3.0, 7.0]
    assert simulate(fixed, {}, [5, 6], [0, 1, 2], step=1.0).path[0].tolist() == [5.0, 6.0]


@pytest.mark.parametrize("diffusion", ["full", "given"])
def test_a_stationary_start_stays_stationary(diffusion):
    """A linear equation of two states: A P + P Aᵀ + G Gᵀ = 0 holds for the covariance at the start and at the end."""
    M, G = np.array([[-1.0, 0.5], [-0.3, -0.7]]), np.array([[0.5, 0.0], [0.2, 0.4]])
    linear = model(lambda t, x, p: M @ (x - jnp.array([2.0, -1.0])), "xy",
                   "full" if diffusion == "full" else lambda t, x, p: G, initial="stationary")  # fmt: skip
    more = {"G": G} if diffusion == "full" else {}
    many, n = simulate(linear, {}, times=[0, 0.5, 1], paths=5000, step=0.005, key=1, **more), 5000
    for row in (0, -1):
        x = np.stack([s.path[row] for s in many])
        P = np.cov(x.T)
        v = np.diag(P)
        within(x.mean(axis=0), [2.0, -1.0], np.sqrt(v / n))
        # The residual is linear in P, whose entries have standard errors of at most √2 · max v / √n.
        within(M @ P + P @ M.T + G @ G.T, 0.0, 2 * np.abs(M).sum(axis=1).max() * v.max() * math.sqrt(2 / n))


def test_rest_is_where_the_drift_is_zero():
    logistic = model(lambda t, x, p: p["r"] * x * (1 - x / p["K"]), "x", "scalar",
                     {"r": positive(), "K": positive()}, initial="rest")  # fmt: skip
    one = simulate(logistic, {"r": 2.0, "K": 30.0}, times=[0, 1, 2], G=0.0, step=0.5)
    np.testing.assert_allclose(one.path, 30.0, rtol=1e-9)


# --- refusals --------------------------------------------------------------------------------------------------

MIXED = model(decay, "xy", lambda t, x, p: [0.1, 0.2], noise={"x": normal(sd=0.1)})
KNOWN = model(decay, "x", noise={"x": normal(sd=0.1)})
LOG = model(decay, "x", lambda t, x, p: [0.1], noise={"x": lognormal()})
WELLS = model(lambda t, x, p: x - x**3, "x", lambda t, x, p: [0.1], initial="rest")
PLAIN = model(decay, "xy", "none")


@pytest.mark.parametrize(
    ("one", "change", "error", "message"),
    [
        (MIXED, {"G": [1, 1]}, ModelError, "G must be left out, as the model gives its diffusion"),
        (MIXED, {"noise": {"x": 0.1, "y": 1}}, ModelError,
         "noise must leave out 'x', whose standard deviation the model gives"),
        (MIXED, {"noise": {"z": 0.1}}, ModelError, "noise must name observed columns (x, y), not 'z'"),
        (MIXED, {"noise": {}}, ModelError, "noise must give y, but lacks y"),
        (MIXED, {"noise": [1, 2]}, InputError,
         "noise must be 1 number(s), one each for y, not an array of shape (2,)"),
        (KNOWN, {"noise": 0.1, "x0": 1.0, "G": 1.0}, ModelError,
         "noise must be left out, as the model gives that of x"),
        (KNOWN, {"noise": [0.1], "x0": 1.0, "G": 1.0}, ModelError,
         "noise must be left out, as the model gives that of x"),
        (PLAIN, {"noise": {"x": 0.1}}, ModelError, "noise must give x, y, but lacks y"),
        (PLAIN, {"x0": None}, InputError, "x0 must be given: one number each for x, y"),
        (PLAIN, {"x0": {"x": 1}}, InputError,
         "x0 must give every state that the model's initial does not, but lacks y"),
        (PLAIN, {"x0": {"x": 1, "z": 1}}, InputError, "x0 must name states (x, y), not 'z'"),
        (WELLS, {"x0": None}, InputError,
         "x0 must be given, as the drift is zero at several states: [1.0], [-1.0]"),
        (model(lambda t, x, p: jnp.exp(-x), "x", "none", initial="rest"), {"x0": None}, InputError,
         "x0 must be given, as no isolated state was found at which the drift is zero"),
        (model(lambda t, x, p: x - 1, "x", "none", initial="stationary"), {"x0": None}, InputError,
         "x0 must be given, as the linearised equation has no stationary distribution"),
        (GBM, {"scheme": "shark", "x0": 1.0}, ModelError,
         "scheme 'shark' needs a diffusion that does not depend on the states; use 'milstein'"),
        (CROSSED, {"scheme": "milstein"}, ModelError,
         "scheme 'milstein' needs noises that commute, as where each acts on one state and depends on that state alone,"
         " but the model's do not; use 'euler'"),
        (CIR, {"scheme": "milstein", "x0": 0.0, "params": {"rate": 1, "level": 1, "s": 1}}, ModelError,
         "scheme 'milstein' needs a diffusion with finite derivatives at x0; use 'euler', or another x0"),
        (LOG, {"x0": -1.0}, SimulationError,
         "column 'x' is not a finite number at time 0: its formula or its lognormal noise is not defined there;"
         " give another x0 or other parameters"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_model_is_refused_in_one_line(one, change, error, message):
    given = {"params": {}, "x0": [1, 1], "times": [0, 1, 2], "step": 0.5} | change
    with pytest.raises(error) as caught:
        simulate(one, given.pop("params"), given.pop("x0"), given.pop("times"), **given)
    assert str(caught.value) == message


def test_a_path_that_leaves_the_domain_of_its_noise_is_reported():
    with pytest.raises(SimulationError, match=r"the path left the finite numbers at time"):
        simulate(CIR, {"rate": 0.1, "level": 0.01, "s": 2.0}, 0.1, [0, 1, 20], step=0.1, scheme="euler")


# --- the plain class, as it was --------------------------------------------------------------------------------

# Ends of two paths each at t = 1, recorded from the simulation of commit 39dc752, which knew the plain class alone.
RECORDED = {
    "ou": [[6.884899019001761], [6.469976683913957]],
    "lv": [[2.7642796688122466, 1.3108702776337098], [2.4097815227402575, 1.270215579634373]],
    "shark": [[2.8039584420788763, 1.3384022663292756], [2.4493538723156623, 1.2957667779519748]],
    "heat": [[0.9376429930765002], [0.7483923234741816]],
}


def _heated(t, x, p):
    return p["rate"] * (p["u"] - x)


def plain_cases():
    lv, ou = systems.lotka_volterra(), systems.ornstein_uhlenbeck()
    heat = SDE(_heated, ["x"], {"rate": positive()}, "scalar", inputs=["u"])
    lv_given = (lv, {"a": 2.0, "b": 1.0, "c": 4.0, "d": 1.0}, [5, 3])
    G = {"G": [[0.2, 0.0], [0.1, 0.3]], "noise": [0.1, 0.2], "key": 1}
    return {
        "ou": ((ou, {"rate": 0.5, "level": 1.0}, 10.0), {"G": 0.5, "key": 3, "noise": 0.1}),
        "lv": (lv_given, G),
        "shark": (lv_given, G | {"scheme": "shark"}),
        "heat": ((heat, {"rate": 2.0}, 1.0), {"G": 0.3, "key": 5, "noise": 0.05, "inputs": {"u": [0.0, 1.0, 0.5]}}),
    }


@pytest.mark.parametrize("case", ["ou", "lv", "shark", "heat"])
def test_the_plain_class_gives_the_numbers_it_always_gave(case):
    """Equal to the recorded numbers up to the last bits, in which two kinds of processors may differ."""
    given, more = plain_cases()[case]
    many = simulate(*given, [0.0, 0.3, 1.0], paths=2, step=0.01, **more)
    np.testing.assert_allclose([s.values[-1] for s in many], RECORDED[case], rtol=1e-13)
