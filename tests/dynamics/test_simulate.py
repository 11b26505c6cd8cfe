"""Simulation: orders of convergence, closed-form laws, one compiled program, and refusals."""

import functools
import logging
import math
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.dynamics import systems
from sdefit.dynamics.arguments import step_counts
from sdefit.dynamics.parameters import fixed, positive
from sdefit.dynamics.schemes import SCHEMES, draws, march
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.simulate import simulate
from sdefit.errors import InputError, ModelError, SimulationError

OU = systems.ornstein_uhlenbeck()
RATE, LEVEL, SIGMA, START = 0.5, 1.0, 0.5, 10.0


def key(seed):
    return jax.random.key(seed)


def simulate_ou(times, seed=0, **more):
    settings = {"G": SIGMA, "key": key(seed)} | more
    return simulate(OU, {"rate": RATE, "level": LEVEL}, START, times, **settings)


# --- orders of convergence -------------------------------------------------------------------------------------


def halve(W, H, h):
    """(W, H) over pairs of neighbouring steps of length h, from those of the single steps.

    With J = ∫(w(r) − w(s)) dr = h(H + W/2) over a step, a pair has W = W1 + W2 and J = J1 + J2 + h W1.
    """
    W1, W2, H1, H2 = W[:, 0::2], W[:, 1::2], H[:, 0::2], H[:, 1::2]
    J = h * (H1 + W1 / 2) + h * (H2 + W2 / 2) + h * W1
    return W1 + W2, J / (2 * h) - (W1 + W2) / 2


def levels(seed, paths, finest, coarsest):
    """The same Brownian paths on [0, 1] in 2^finest, ..., 2^coarsest steps, padded with zeros to one shape."""
    n = 2**finest
    rng = np.random.default_rng(seed)
    W, H = rng.normal(size=(2, paths, n, 2)) * np.sqrt(np.array([1.0, 1 / 12]) / n)[:, None, None, None]
    answer = {}
    for level in range(finest, coarsest - 1, -1):
        padded = [np.pad(a, ((0, 0), (0, n - 2**level), (0, 0))) for a in (W, H)]
        answer[level] = tuple(map(jnp.asarray, padded))
        W, H = halve(W, H, 2.0**-level)
    return answer


def swirl(t, x):
    """A drift so curved that at order 1.5 the noise, not the ODE's own order 2, makes the error."""
    return jnp.stack([jnp.sin(3 * x[1]) + jnp.cos(2 * t), -jnp.sin(3 * x[0]) - x[1]])


@functools.cache
def ends_of(scheme):
    """A compiled function (W, H, steps) → x(1) of `swirl` for each path."""
    G, x0 = jnp.array([[1.0, 0.0], [0.5, 1.5]]), jnp.array([1.0, 0.0])

    def one(W, H, n):
        path, _ = march(SCHEMES[scheme], swirl, G, x0, jnp.array([0.0, 1.0]), n[None], lambda i, h: (W[i], H[i]))
        return path[-1]

    return jax.jit(jax.vmap(one, in_axes=(0, 0, None)))


def slope(steps, errors):
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


@pytest.mark.parametrize(("scheme", "order"), [("euler", 1.0), ("shark", 1.5)])
@pytest.mark.parametrize("seed", [0, 1])
def test_strong_order(scheme, order, seed):
    """The root-mean-square error at t = 1 falls as h^order, on Brownian paths shared by all step lengths.

    The reference takes steps 1/16 of the shortest tested; at order 1.5 its own error is 1/64 of the smallest one
    measured. An RMS over 400 paths has a relative error near 1/√800 = 3.5 %, the errors share their paths, and the
    slope runs over a factor 16 in h: 2 · 3.5 % / ln 16 = 0.03. The rest of the 0.12 is for higher orders of h.
    """
    noises = levels(seed, paths=400, finest=11, coarsest=3)
    exact = ends_of("shark")(*noises[11], jnp.asarray(2**11))
    run, tested = ends_of(scheme), range(3, 8)
    errors = [jnp.sqrt(jnp.mean((run(*noises[n], jnp.asarray(2**n)) - exact) ** 2)) for n in tested]
    assert slope([2.0**-n for n in tested], errors) == pytest.approx(order, abs=0.12)


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None))
def euler_end(W, n):
    """x(1) of OU by Euler-Maruyama in n steps, driven by the first n increments of W."""

    def f(t, x):
        return OU.f(t, x, jnp.array([RATE, LEVEL]))

    def draw(i, h):
        return W[i][None], jnp.zeros(1)

    G, x0, times = jnp.array([[SIGMA]]), jnp.array([START]), jnp.array([0.0, 1.0])
    return march(SCHEMES["euler"], f, G, x0, times, n[None], draw)[0][-1, 0]


def euler_law(n):
    """The exact mean and variance of Euler-Maruyama for OU at t = 1 in n steps, from the program itself.

    The end is linear in the increments W_i ~ N(0, h): without them it is the mean, and its response to the
    single increment W_i = √h, less the mean, squared and summed over i, is the variance. No Monte-Carlo error.
    """
    most = 128
    ends = np.asarray(euler_end(jnp.eye(most + 1, most, -1) / math.sqrt(n), jnp.asarray(n)))
    return ends[0], np.sum((ends[1:] - ends[0]) ** 2)


def test_weak_order_is_one():
    """Mean and variance, which are the whole law of OU, approach the exact ones as h.

    The measured slope is 1 + O(h); over these steps that is below 0.02 for both.
    """
    mean = LEVEL + (START - LEVEL) * math.exp(-RATE)
    variance = SIGMA**2 * (1 - math.exp(-2 * RATE)) / (2 * RATE)
    counts = [16, 32, 64, 128]
    errors = np.array([euler_law(n) for n in counts]) - np.array([[mean, variance]])
    for column in np.abs(errors).T:
        assert slope([1 / n for n in counts], column) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("scheme", "order"), [("euler", 1.0), ("shark", 2.0)])
def test_order_for_an_ode(scheme, order):
    """Without noise the schemes are Runge-Kutta of order 1 and 2, at times of their own: dx = cos(3t) − x."""
    model = SDE(_forced, ["x"], {}, "none")
    exact = (math.cos(6) + 3 * math.sin(6)) / 10 + 0.9 * math.exp(-2)
    steps = [0.02, 0.01, 0.005]
    errors = [simulate(model, {}, 1.0, [0.0, 0.5, 2.0], step=h, key=key(0), scheme=scheme).path[-1, 0] for h in steps]
    assert slope(steps, np.abs(np.array(errors) - exact)) == pytest.approx(order, abs=0.03)


def _forced(t, x, p):
    return jnp.cos(3 * t) - x


# --- the law, the noise, the key -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_moments_of_ou_at_irregular_times(seed):
    """Mean, variance and covariance between times agree with the closed form within 4.5 standard errors.

    With n = 4000 paths the standard errors are √(v/n) of a mean and √((v1 v2 + c²)/n) of a covariance. Steps of 0.002
    bias the mean by at most rate²·t·e^(−rate t)·(x0 − level)·h/2 < 0.0017, a tenth of a standard error or so.
    """
    n, times = 4000, np.array([0.0, 0.03, 0.5, 0.7, 2.9, 3.0])
    x = np.stack([s.path[:, 0] for s in simulate_ou(times, seed, paths=n, step=0.002)])[:, 1:]
    t = times[1:]
    mean = LEVEL + (START - LEVEL) * np.exp(-RATE * t)
    early, gap = np.minimum.outer(t, t), np.abs(np.subtract.outer(t, t))
    cov = SIGMA**2 / (2 * RATE) * np.exp(-RATE * gap) * (1 - np.exp(-2 * RATE * early))
    v = np.diag(cov)
    assert np.all(np.abs(x.mean(axis=0) - mean) < 4.5 * np.sqrt(v / n) + 0.0017)
    # The step changes variances by a relative rate·h/2 or so: 0.0005.
    assert np.all(np.abs(np.cov(x.T) - cov) < 4.5 * np.sqrt((np.outer(v, v) + cov**2) / n) + 0.001 * cov)


def test_euler_is_the_textbook_loop():
    """Unequal gaps, several steps in each, a matrix G: equal to a loop in NumPy over the same draws."""
    times, counts, G = np.array([0.0, 0.1, 0.4, 0.45]), np.array([2, 5, 1]), np.array([[1.0, 0.0], [0.5, 1.5]])
    draw, x, i = draws(key(3), 2), np.array([1.0, 0.0]), 0
    rows = [x]
    for n in range(3):
        h = (times[n + 1] - times[n]) / counts[n]
        for j in range(counts[n]):
            W = np.asarray(draw(jnp.asarray(i), jnp.asarray(h))[0])
            x = x + h * np.asarray(swirl(times[n] + j * h, jnp.asarray(x))) + G @ W
            i += 1
        rows.append(x)
    path, end = march(
        SCHEMES["euler"], swirl, jnp.asarray(G), jnp.array([1.0, 0.0]), jnp.asarray(times), jnp.asarray(counts), draw
    )
    np.testing.assert_allclose(path, rows, rtol=1e-12)
    assert end == np.inf


def test_draws_have_the_variances_of_the_increment_and_its_area():
    """Var W = h, Var H = h/12, uncorrelated: n = 20000 draws, 4.5 standard errors √(2/n), and 1/√n."""
    n, h = 20_000, 0.3
    W, H = jax.vmap(lambda i: draws(key(0), 2)(i, jnp.asarray(h)))(jnp.arange(n // 2))
    w, a = np.asarray(W).ravel() / math.sqrt(h), np.asarray(H).ravel() / math.sqrt(h / 12)
    assert abs(np.mean(w**2) - 1) < 4.5 * math.sqrt(2 / n)
    assert abs(np.mean(a**2) - 1) < 4.5 * math.sqrt(2 / n)
    assert abs(np.mean(w * a)) < 4.5 / math.sqrt(n)


@pytest.mark.parametrize("noise", [0.3, [0.1, 2.0]])
def test_observation_noise_has_its_standard_deviation(noise):
    """A standard deviation from n numbers has a relative standard error 1/√(2n); 4.5 of them are allowed."""
    setup = systems.get("lv")
    many = simulate(
        setup.model, setup.params, setup.x0, setup.times, noise=noise, G=setup.G, key=key(5), paths=100, step=0.04
    )
    errors = np.concatenate([s.values - s.path for s in many])
    allowed = 4.5 / math.sqrt(2 * len(errors))
    np.testing.assert_allclose(errors.std(axis=0), np.broadcast_to(noise, 2), rtol=allowed)
    assert abs(np.corrcoef(errors.T)[0, 1]) < 4.5 / math.sqrt(len(errors))


def test_the_key_decides_every_bit():
    times = [0.0, 0.4, 1.0]
    first, again, other = (simulate_ou(times, seed, noise=0.1, step=0.01) for seed in (0, 0, 1))
    assert np.array_equal(first.values, again.values) and np.array_equal(first.path, again.path)
    assert not np.any(first.values == other.values) and not np.any(first.path[1:] == other.path[1:])
    raw = simulate_ou(times, key=jax.random.key_data(key(0)), noise=0.1, step=0.01)
    assert np.array_equal(raw.values, first.values)


def test_more_paths_begin_with_the_same_ones():
    few, many = (simulate_ou([0.0, 0.5, 1.0], paths=n, noise=0.2, step=0.1) for n in (2, 5))
    assert np.array_equal([s.values for s in few], [s.values for s in many[:2]])
    assert len({s.path[-1, 0] for s in many}) == 5


def test_schemes_share_the_brownian_path():
    """Both follow one path of the noise, so they differ by the error of Euler-Maruyama alone, far below the noise."""
    one, two = (simulate_ou([0.0, 0.5, 1.0], scheme=s, step=1e-3).path[-1, 0] for s in ("euler", "shark"))
    assert 0 < abs(one - two) < 5e-3


def test_answers_are_float64_whatever_the_global_flag():
    wide = simulate_ou([0.0, 0.5, 1.0], step=0.1)
    with jax.enable_x64(False):
        narrow = simulate_ou([0.0, 0.5, 1.0], step=0.1)
        assert jnp.zeros(1).dtype == jnp.float32
    assert narrow.values.dtype == np.float64 and np.array_equal(wide.values, narrow.values)


# --- one program -----------------------------------------------------------------------------------------------


def compiled(caplog, call):
    """The names of the programs compiled during a call."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        call()
    return [name for r in caplog.records for name in re.findall(r"Finished XLA compilation of (\S+)", r.getMessage())]


def test_a_hundred_paths_of_20000_steps_are_one_program(caplog):
    setup, keys = systems.get("lv"), (key(1), key(2))
    assert step_counts(setup.times, 2.0 / 20_000).sum() == 20_000

    def run(seed, times, **more):
        # Its own name keeps this model from finding a program that another test compiled.
        model = SDE(systems.lotka_volterra().drift, LV.states, LV.params, name="counted")
        return simulate(model, setup.params, setup.x0, times, G=setup.G, key=keys[seed], paths=100, **more)

    assert compiled(caplog, lambda: run(0, setup.times)) == ["jit(_program)"]
    assert compiled(caplog, lambda: run(1, setup.times)) == []
    # Other times, noise and steps, with an equal model made anew, reuse it too.
    times = np.sort(np.random.default_rng(0).uniform(0, 1, len(setup.times)))
    assert compiled(caplog, lambda: run(1, times, noise=0.5, step=0.01)) == []


def test_diffrax_waits_until_it_is_asked_for():
    code = "import sys, sdefit.dynamics.simulate; print('diffrax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_step_counts_cross_each_gap_in_steps_no_longer_than_asked():
    times = np.array([0.0, 0.1, 0.35, 0.3501])
    counts = step_counts(times, 0.1)
    assert counts.tolist() == [1, 3, 1]
    assert np.all(np.diff(times) / counts <= 0.1 * (1 + 1e-6))
    assert step_counts(np.linspace(0, 2, 51), 1e-4).tolist() == [400] * 50


# --- blow-up ---------------------------------------------------------------------------------------------------


def _square(t, x, p):
    return x**2


def test_a_path_that_blows_up_is_reported_with_its_time():
    """dx = x² from 1 is 1/(1 − t): infinite at t = 1; Euler lags behind by about h·log(1/h)."""
    with pytest.raises(SimulationError) as caught:
        simulate(SDE(_square, ["x"], {}, "none"), {}, 1.0, [0.0, 0.5, 2.0], key=key(0), step=1e-3)
    found = re.fullmatch(
        r"the path left the finite numbers at time (\S+); "
        r"give a step below 0\.001, another x0 or other parameters, or end earlier",
        str(caught.value),
    )
    assert found and 1.0 < float(found[1]) < 1.02


def test_the_path_that_blows_up_first_is_named():
    """The message's path and time are true: stopping before it all paths are finite, stopping after they are not.

    Steps are numbered from the start and are equally long for every whole `end`, so all runs follow the same paths.
    """
    setup = systems.get("lv_text")

    def run(end):
        times = [0, end / 2, end]
        return simulate(setup.model, setup.params, setup.x0, times, G=setup.G, key=key(0), paths=20, step=0.005)

    with pytest.raises(SimulationError) as caught:
        run(20)
    found = re.search(r"path (\d+) of 20 .* at time ([\d.]+), and (\d+) more did later;", str(caught.value))
    assert found
    number, time = int(found[1]), float(found[2])
    assert len(run(math.floor(time))) == 20
    with pytest.raises(SimulationError, match=rf"path {number} of 20 \(counted from 0\)"):
        run(math.ceil(time))


# --- refusals --------------------------------------------------------------------------------------------------

LV = systems.lotka_volterra()
GOOD = {"a": 2.0, "b": 1.0, "c": 4.0, "d": 1.0}
ODE = SDE(_square, ["x"], {}, "none")
DIAGONAL = SDE(LV.drift, LV.states, LV.params, "diagonal")
SCALAR = SDE(LV.drift, LV.states, LV.params, "scalar")
FIXED = SDE(LV.drift, LV.states, {"a": fixed(2.0), "b": positive(), "c": positive(), "d": positive()})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"params": {"a": 1.0}}, ModelError, "params must give a, b, c, d, but lacks b, c, d"),
        ({"params": GOOD | {"e": 1.0}}, ModelError, "params must give a, b, c, d, but also has e"),
        ({"params": [1, 2, 3, 4]}, ModelError, "params must map parameter names to numbers, not [1, 2, 3, 4]"),
        ({"params": GOOD | {"a": -1.0}}, ModelError, "parameter 'a' must be positive, but -1 was given"),
        ({"params": GOOD | {"a": math.nan}}, InputError, "parameter 'a' must be finite, but nan was given"),
        ({"params": GOOD | {"a": [1, 2]}}, ModelError, "parameter 'a' must be one number, not an array of shape (2,)"),
        ({"model": FIXED, "params": GOOD | {"a": 3.0}}, ModelError,
         "parameter 'a' is fixed at 2 in the model, but 3 was given"),
        ({"x0": 1.0}, InputError, "x0 must be 2 number(s), one each for prey, predator, not an array of shape ()"),
        ({"x0": ["much", "little"]}, InputError, "x0 must be made of numbers, not ['much', 'little']"),
        ({"times": [0.0, 1.0]}, InputError, "times must be a list of at least 3 numbers, not an array of shape (2,)"),
        ({"times": [0.0, 2.0, 1.0]}, InputError, "times must increase, but 2 is followed by 1; sort them"),
        ({"times": [0.0, 1.0, math.inf]}, InputError, "times must be finite, but inf was given"),
        ({"noise": -0.1}, InputError, "noise must be zero or positive, a standard deviation, not -0.1"),
        ({"noise": [1, 1, 1]}, InputError,
         "noise must be 2 number(s), one each for prey, predator, not an array of shape (3,)"),
        ({"G": None}, ModelError, "G must be given, as the model has a full diffusion; pass G=..."),
        ({"G": 0.3}, ModelError,
         "G must be a lower-triangular 2 by 2 matrix with no negative number on its diagonal, not 0.3"),
        ({"G": [[1.0, 0.5], [0.0, 1.0]]}, ModelError,
         "G must be a lower-triangular 2 by 2 matrix with no negative number on its diagonal, "
         "not [[1.0, 0.5], [0.0, 1.0]]; take the Cholesky factor of G @ G.T"),
        ({"model": DIAGONAL, "G": 0.3}, ModelError,
         "G must be 2 number(s), one per state and none negative, or the diagonal matrix of them, not 0.3"),
        ({"model": SCALAR, "G": [0.3, 0.2]}, ModelError,
         "G must be one number, not negative, or that number times the unit matrix, not [0.3, 0.2]"),
        ({"model": ODE, "params": {}, "x0": 1.0}, ModelError,
         "G must be left out as the model is an ODE (diffusion='none'); give the model a diffusion"),
        ({"step": 0.0}, InputError, "step must be a positive number, not 0.0"),
        ({"step": 1e-12}, InputError, "step must cross the times in at most 1073741824 steps, but 1e-12 takes 2e+12"),
        ({"paths": 0}, InputError, "paths must be a whole number of at least 1, not 0"),
        ({"scheme": "heun"}, ModelError, "scheme must be one of euler, shark, not 'heun'"),
        ({"key": "0"}, InputError, "key must be a whole number or one JAX random key, not '0'; write key=0"),
        ({"key": True}, InputError, "key must be a whole number or one JAX random key, not True; write key=0"),
        ({"key": -1}, InputError, "key must be a whole number from 0 to 4294967295, or a JAX random key, not -1"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(change, error, message):
    given = {"model": LV, "params": GOOD, "x0": [5, 3], "times": [0, 1, 2], "G": [[0.2, 0], [0.1, 0.3]], "key": key(0)}
    given |= change
    with pytest.raises(error) as caught:
        simulate(given.pop("model"), given.pop("params"), given.pop("x0"), given.pop("times"), **given)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("model", "short", "matrix"),
    [(DIAGONAL, [0.2, 0.3], [[0.2, 0.0], [0.0, 0.3]]), (SCALAR, 0.2, [[0.2, 0.0], [0.0, 0.2]])],
)
def test_short_forms_of_G_are_their_matrix(model, short, matrix):
    one, two = (simulate(model, GOOD, [5, 3], [0, 1, 2], G=G, key=key(0), step=0.1).path for G in (short, matrix))
    assert np.array_equal(one, two)


def test_fixed_parameters_may_be_left_out():
    free = {name: GOOD[name] for name in "bcd"}
    one, two, three = (
        simulate(model, params, [5, 3], [0, 1, 2], G=0.2 * np.eye(2), key=key(0), step=0.1).path
        for model, params in ((FIXED, free), (FIXED, GOOD), (LV, GOOD))
    )
    assert np.array_equal(one, two) and np.allclose(one, three, rtol=1e-12)
