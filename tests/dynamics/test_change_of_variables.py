"""The change of variables: which forms it knows, Itô's term, the way back, and what it refuses."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exact_transition import (
    cir_log_likelihood,
    cir_mean,
    gbm_log_likelihood,
    jacobi_log_likelihood,
)
from sdefit.dynamics.change_of_variables import change_of_variables, why_unchanged
from sdefit.dynamics.laws import Lognormal, Normal, normal
from sdefit.dynamics.parameters import fixed, interval, positive, real
from sdefit.dynamics.sde import SDE

CIR = Path(__file__).parents[1] / "data" / "cir.csv"
PARAMS = {"a": positive(), "b": real(), "s": positive(), "k": positive(), "gamma": interval(0, 2), "two": fixed(2.0)}
THETA = jnp.array([2.0, 0.4, 0.3, 2.5, 0.8])
P = dict(zip(["a", "b", "s", "k", "gamma"], map(float, THETA), strict=True)) | {"two": 2.0}
ZERO = jnp.zeros(())


def drift(t, x, p):
    return p["a"] * (p["b"] - x)


def growth(t, x, p):
    return p["a"] * x * (1 - x / p["k"])


def model_of(diffusion, drift=drift, states=("x",), params=PARAMS, **more):
    return SDE(drift, list(states), params, diffusion=diffusion, **more)


# Formula of z, domain, and the noise of x: what is recognised.
KNOWN = {
    "log(x)": ("x > 0", lambda t, x, p: p["s"] * x),
    "2*sqrt(x)": ("x > 0", lambda t, x, p: p["s"] * jnp.sqrt(p["a"] * x)),
    "3.333333333*x**0.3": ("x > 0", lambda t, x, p: p["s"] * x**0.7 * jnp.exp(-t)),
    "3*x**0.3333333333": ("x > 0", lambda t, x, p: p["s"] * x ** (2 / 3)),
    "-2/sqrt(x)": ("x > 0", lambda t, x, p: p["s"] * x**1.5),
    "-1/x": ("x > 0", lambda t, x, p: p["s"] * x ** p["two"]),
    "0.5*x**2": ("x > 0", lambda t, x, p: p["s"] / x),
    "log(x + 0.5)": ("x > -0.5", lambda t, x, p: p["s"] * (1 + p["two"] * x)),
    "-log(1 - x)": ("x < 1", lambda t, x, p: p["s"] * (1 - x)),
    "-2*sqrt(3 - x)": ("x < 3", lambda t, x, p: p["s"] * jnp.sqrt(3 - x)),
    "2*sqrt(x - k)": ("x > k", lambda t, x, p: p["s"] * jnp.sqrt(x - p["k"])),
    "(x**(1 - gamma) - 1)/(1 - gamma)": ("x > 0", lambda t, x, p: p["s"] * x ** p["gamma"]),
    "log(x/(137.3 - x))": ("0 < x < 137.3", lambda t, x, p: p["s"] * x * (1 - x / 137.3)),
    "log(x/(k - x))": ("0 < x < k", lambda t, x, p: p["s"] * x * (1 - x / p["k"])),
    "2*asin(sqrt(x))": ("0 < x < 1", lambda t, x, p: p["s"] * jnp.sqrt(x * (1 - x))),
    "2*asin(sqrt((x + 1)/2))": ("-1 < x < 1", lambda t, x, p: p["s"] * jnp.sqrt(1 - x**2)),
    "2*asin(sqrt((x - 270)/40))": ("270 < x < 310", lambda t, x, p: p["s"] * jnp.sqrt((x - 270) * (310 - x))),
    "asinh(x)": ("a real x", lambda t, x, p: p["s"] * jnp.sqrt(1 + x**2)),
    "asinh((x - 3)/2)": ("a real x", lambda t, x, p: p["s"] * jnp.sqrt(p["two"] ** 2 + (x - 3) ** 2)),
}


@pytest.mark.parametrize("formula", KNOWN)
def test_a_form_is_recognised(formula):
    domain, diffusion = KNOWN[formula]
    change = change_of_variables(model_of(diffusion))
    assert change is not None
    assert change.sentence == f"The state x was transformed to z = {formula}, in which the noise is constant."
    assert change.shapes[0] is not None
    assert change.shapes[0].domain_text("x") == domain
    assert why_unchanged(change.original) == ""


@pytest.mark.parametrize("formula", KNOWN)
def test_z_and_x_are_each_others_inverse_and_the_noise_is_constant(formula):
    change = change_of_variables(model_of(KNOWN[formula][1]))
    z = inner_z(change)
    x = change.to_x(z, P)
    np.testing.assert_allclose(change.to_z(x, P), z, rtol=1e-7, atol=1e-7)
    np.testing.assert_array_less(0.0, np.diff(x[:, 0]))
    slope = jax.vmap(jax.grad(lambda one: change.to_x(one[None], P)[0]))(jnp.asarray(z[:, 0]))
    g = jax.vmap(lambda one: change.original.g(jnp.asarray(0.3), one, THETA))(jnp.asarray(x))
    s = change.model.g(jnp.asarray(0.3), jnp.asarray(z[0]), THETA)
    np.testing.assert_allclose(g[:, 0, 0], np.asarray(slope) * s[0, 0], rtol=1e-9)


def inner_z(change):
    shape = change.shapes[0].at(P)
    spread = 1.4 if np.isfinite(shape.domain).all() else 0.45
    return shape.middle + spread * np.linspace(-1, 1, 9)[:, None]


@pytest.mark.parametrize("formula", KNOWN)
def test_the_generator_is_the_same_in_both_coordinates(formula):
    """f φ' + ½ g² φ'' in x is b ψ' + ½ s² ψ'' in z for ψ(z) = φ(x(z)): it pins Itô's term and its sign."""
    change = change_of_variables(model_of(KNOWN[formula][1]))
    z = jnp.asarray(inner_z(change))
    x = change.to_x(z, P)
    scale = float(jnp.max(jnp.abs(x)))

    def generator(model, at, function):
        def one(point):
            f, g = model.f(jnp.asarray(0.3), point, THETA), model.g(jnp.asarray(0.3), point, THETA)
            return jax.grad(function)(point) @ f + 0.5 * jnp.trace(g.T @ jax.hessian(function)(point) @ g)

        return jax.vmap(one)(at)

    def phi(point):
        return jnp.sin(point[0] / scale + 0.3)

    here = generator(change.original, x, phi)
    there = generator(change.model, z, lambda point: phi(change.to_x(point, P)))
    np.testing.assert_allclose(there, here, rtol=1e-7, atol=1e-9 * float(jnp.max(jnp.abs(here))))


@pytest.mark.parametrize(
    ("diffusion", "reason"),
    [
        (lambda t, x, p: p["s"] + p["a"] * x, "is no product of a function of x and a factor"),
        (lambda t, x, p: jnp.sqrt(p["s"] ** 2 + (p["a"] * x) ** 2), "is no product of a function of x and a factor"),
        (lambda t, x, p: p["s"] * x ** (1 + t), "is no product of a function of x and a factor"),
        (lambda t, x, p: p["s"] * jnp.sqrt(x + p["k"]), "is no product of a function of x and a factor"),
        (lambda t, x, p: jnp.stack([p["s"] * x[0], p["a"]])[None], "is no product of a known function of it"),
        (lambda t, x, p: p["s"] * (2 + jnp.sin(x)), "is no function of x whose change of variables is known"),
        (lambda t, x, p: p["s"] * (1 + 1e-3 * jnp.sin(x)) * x, "is no function of x whose change of variables"),
        (lambda t, x, p: p["s"] * jnp.where(x < 2e5, x, 2e5), "is no function of x whose change of variables"),
        (lambda t, x, p: p["s"] * x / 0.0, "is not finite where it was tried"),
        (lambda t, x, p: p["s"] * jnp.ones(1), "is constant already"),
        ("full", "gives no diffusion"),
    ],
)
def test_what_has_no_change_of_variables(diffusion, reason):
    model = model_of(diffusion)
    assert change_of_variables(model) is None
    assert reason in why_unchanged(model)


def test_noise_that_depends_on_another_state():
    model = model_of(lambda t, x, p: jnp.stack([x[0] * jnp.sqrt(x[1]), p["s"] * jnp.sqrt(x[1])]), states=["x", "v"])
    assert change_of_variables(model) is None
    assert why_unchanged(model) == "The noise of x depends on another state."


def euler(model, theta, start, increments, h):
    """The last states of many paths, by Euler steps with these Brownian increments: (paths, steps, noises)."""

    def step(x, dw):
        return x + h * model.f(ZERO, x, theta) + model.g(ZERO, x, theta) @ dw, None

    return jax.vmap(lambda dw: jax.lax.scan(step, start, dw)[0])(increments)


PATHS = {
    "log": (growth, lambda t, x, p: p["s"] * x),
    "sqrt": (drift, lambda t, x, p: p["s"] * jnp.sqrt(x)),
    "power": (drift, lambda t, x, p: p["s"] * x**0.7),
    "named power": (drift, lambda t, x, p: p["s"] * x ** p["gamma"]),
    "logistic": (growth, lambda t, x, p: p["s"] * x * (1 - x / p["k"])),
    "jacobi": (drift, lambda t, x, p: p["s"] * jnp.sqrt(x * (1 - x))),
}


@pytest.mark.parametrize("name", PATHS)
def test_paths_in_x_and_in_z_meet_as_the_step_shrinks(name):
    """With the same Brownian increments; Euler has strong order ½ in x, so the slope of log error is ½."""
    f, g = PATHS[name]
    change = change_of_variables(model_of(g, drift=f))
    finest, paths = 2048, 300
    dw = np.random.default_rng(1).normal(size=(paths, finest, 1)) / np.sqrt(finest)
    start = jnp.array([0.5])
    errors, counts = [], [64, 256, 1024]
    for count in counts:
        coarse = jnp.asarray(dw.reshape(paths, count, -1, 1).sum(axis=2))
        x = euler(change.original, THETA, start, coarse, 1 / count)
        z = euler(change.model, THETA, jnp.asarray(change.to_z(start, P)), coarse, 1 / count)
        errors.append(float(np.sqrt(np.mean((x - change.to_x(z, P)) ** 2))))
    order = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    # Without Itô's term the error would stay where it is: order 0.
    assert order > 0.4, errors


def test_the_mean_of_cir_and_of_gbm():
    """E x from Euler paths of z. 4 standard errors of the mean of 20,000 paths are allowed."""
    dw = jnp.asarray(np.random.default_rng(2).normal(size=(20_000, 128, 1)) / np.sqrt(128))
    start = jnp.array([1.0])
    for g, f, mean in [
        (lambda t, x, p: p["s"] * jnp.sqrt(x), drift, cir_mean(1.0, 1.0, P["a"], P["b"])),
        (lambda t, x, p: 2 * p["s"] * x, lambda t, x, p: p["b"] * x, np.exp(P["b"])),
    ]:
        change = change_of_variables(model_of(g, drift=f))
        x = change.to_x(euler(change.model, THETA, jnp.asarray(change.to_z(start, P)), dw, 1 / 128), P)
        np.testing.assert_allclose(x.mean(), mean, atol=4 * float(x.std()) / np.sqrt(20_000) + 2e-3)


def euler_log_likelihood(change, theta, times, x):
    """log p(x_2, …, x_N | x_1) with Euler steps of z between exact observations of x, as a user of the data would."""
    z, log_slope = change.transform_column("x", x), change.log_slope("x", x)
    points = jnp.asarray(z[:-1, None])
    b = jax.vmap(lambda one: change.model.f(ZERO, one, theta))(points)[:, 0]
    s = change.model.g(ZERO, points[0], theta)[0, 0]
    h = np.diff(times)
    residuals = np.diff(z) - np.asarray(b) * h
    density = -0.5 * residuals**2 / (s**2 * h) - 0.5 * np.log(2 * np.pi * s**2 * h)
    return float(np.sum(density) + np.sum(log_slope[1:]))


KNOWN_NOISE = {"noise": {"x": normal(sd=0.0)}}
CIR_PARAMS = {"kappa": positive(), "mu": positive(), "s": positive()}


def reversion(t, x, p):
    return p["kappa"] * (p["mu"] - x)


def test_the_likelihood_of_gbm_is_exact():
    rng = np.random.default_rng(0)
    times, x = np.cumsum(rng.uniform(0.1, 1.0, 40)), np.exp(np.cumsum(rng.normal(size=40)) * 0.3)
    gbm = model_of(
        lambda t, x, p: p["s"] * x, lambda t, x, p: p["a"] * x, params={"a": real(), "s": positive()}, **KNOWN_NOISE
    )
    value = euler_log_likelihood(change_of_variables(gbm), jnp.array([0.4, 0.7]), times, x)
    np.testing.assert_allclose(value, gbm_log_likelihood(times, x, 0.4, 0.7), rtol=1e-12)


def test_the_likelihood_of_a_cir_path():
    times, x = np.loadtxt(CIR, delimiter=",", skiprows=1).T
    theta = 3.01733, 0.315907, 0.201191
    cir = model_of(lambda t, x, p: p["s"] * jnp.sqrt(x), reversion, params=CIR_PARAMS, **KNOWN_NOISE)
    value = euler_log_likelihood(change_of_variables(cir), jnp.array(theta), times, x)
    # What is left is the error of an Euler step of 1/250.
    np.testing.assert_allclose(value, cir_log_likelihood(times, x, *theta), atol=0.3)


def test_the_likelihood_of_jacobi_comes_closer_as_the_step_shrinks():
    theta = (1.2, 0.4, 0.5)
    model = model_of(lambda t, x, p: p["s"] * jnp.sqrt(x * (1 - x)), reversion, params=CIR_PARAMS, **KNOWN_NOISE)
    change = change_of_variables(model)
    x = np.array([0.3, 0.33, 0.28, 0.31, 0.36, 0.4])
    errors = []
    for h in (0.1, 0.025):
        times = h * np.arange(x.size)
        exact = jacobi_log_likelihood(times, x, *theta)
        errors.append(abs(euler_log_likelihood(change, jnp.array(theta), times, x) - exact))
    assert errors[1] < errors[0] / 2.5  # order 1 would be a quarter
    assert errors[1] < 0.03


def test_a_column_without_noise_measures_z_and_others_measure_x():
    model = model_of(
        lambda t, x, p: jnp.stack([p["s"] * x[0], p["a"]]),
        drift=lambda t, x, p: [x[0], -x[1]],
        states=["x", "y"],
        observe=lambda t, x, p: [x[0], x[0] * x[1], x[1], p["k"] * x[0]],
        observations=["x", "xy", "y", "kx"],
        noise={"x": normal(sd=0.0), "kx": Lognormal(lambda t, x, p: p["s"] * x[0])},
    )
    change = change_of_variables(model)
    assert change.exact == (0, None, None, None)
    assert change.shapes[1] is None
    assert change.model.direct == (0, None, 1, None)
    assert [type(law) for law in change.model.laws] == [Normal, Normal, Normal, Lognormal]
    z = jnp.array([0.3, 0.7])
    x = np.exp(0.3)
    np.testing.assert_allclose(change.model.h(ZERO, z, THETA), [0.3, 0.7 * x, 0.7, 2.5 * x], rtol=1e-14)
    np.testing.assert_allclose(change.model.noise_std(ZERO, z, THETA)[3], 0.3 * x, rtol=1e-14)
    y = np.array([0.5, 2.0, np.nan])
    np.testing.assert_allclose(change.transform_column("x", y), np.log(y))
    np.testing.assert_allclose(change.log_slope("x", y), -np.log(y))
    assert change.transform_column("y", y) is y
    np.testing.assert_array_equal(change.log_slope("y", y), 0.0)


def test_correlated_noise_inputs_and_hidden_states():
    """Several noises in a row are one factor times a row free of x; Itô's term takes all of them."""
    model = model_of(
        lambda t, x, p: jnp.array([[1.0, 0.0], [0.5, 2.0]]) * p["s"] * p["u"] * x[:, None],
        drift=lambda t, x, p: [p["u"] * x[0], 0.0 * x[1]],
        states=["x", "y"],
        inputs=["u"],
        hidden=["y"],
        initial={"x": (2.0, 0.1), "y": 3.0},
    )
    change = change_of_variables(model)
    assert change.sentence == (
        "The states x and y were transformed to z_x = log(x) and z_y = log(y), in which the noise is constant."
    )
    names = P | {"u": 1.5}
    value = change.model.f_named(ZERO, jnp.array([0.3, 0.4]), names)
    np.testing.assert_allclose(value, [1.5 - 0.5 * 0.45**2, -0.5 * 0.45**2 * 4.25], rtol=1e-12)
    assert change.model.observations == ("x",)
    assert change.model.initial == (("x", np.log(2.0), 0.05), ("y", np.log(3.0), 0.0))


def test_a_model_in_z_is_a_value():
    diffusion = KNOWN["2*sqrt(x)"][1]
    one, other = (change_of_variables(model_of(diffusion, **KNOWN_NOISE)) for _ in range(2))
    assert one == other
    assert hash(one.model) == hash(other.model)
    assert one.model != change_of_variables(model_of(diffusion)).model
    assert one.model.replace(name="other").drift == one.model.drift


@pytest.mark.parametrize("formula", KNOWN)
def test_away_from_the_edges_the_drift_is_the_same(formula):
    change = change_of_variables(model_of(KNOWN[formula][1]))
    finite = change.for_gap(0.01)
    assert finite == change.for_gap(0.011)
    z = jnp.asarray(inner_z(change)[3:6])  # more than a quarter of s √0.01 from any end
    for one in z:
        np.testing.assert_allclose(finite.model.f(ZERO, one, THETA), change.model.f(ZERO, one, THETA), rtol=1e-12)


@pytest.mark.parametrize("end", [0.0, np.pi])
def test_at_an_edge_the_drift_is_that_a_little_inside_and_mirrored_beyond(end):
    change = change_of_variables(model_of(KNOWN["2*asin(sqrt(x))"][1])).for_gap(0.25)
    inward = 1.0 if end == 0.0 else -1.0
    least = 0.25 * 0.3 * 0.5
    inside, at, beyond = (change.model.f(ZERO, jnp.array([end + inward * d]), THETA) for d in (least, 0.0, -least / 2))
    np.testing.assert_allclose(at, inside, rtol=1e-9)
    np.testing.assert_allclose(beyond, inside, rtol=1e-9)
    far = [change.model.f(ZERO, jnp.array([end + inward * d]), THETA) for d in (0.3, -0.3)]
    np.testing.assert_allclose(far[0], far[1], rtol=1e-9)


def gaussian_log_likelihood(change, theta, h, x):
    """log p(x_2, …, x_N | x_1) from Gaussian moments of z, which obey ODEs with the drift averaged by three points."""
    z, log_slope = jnp.asarray(change.transform_column("x", x)), change.log_slope("x", x)
    points = jnp.sqrt(3.0) * jnp.array([-1.0, 0.0, 1.0])
    weights = jnp.array([1.0, 4.0, 1.0]) / 6
    s = change.model.g(ZERO, z[:1], theta)[0, 0]

    def slope(mean, variance):
        deviations = jnp.sqrt(jnp.maximum(variance, 0.0)) * points
        b = jax.vmap(lambda one: change.model.f(ZERO, one[None], theta)[0])(mean + deviations)
        return weights @ b, 2 * jnp.sum(weights * deviations * b) + s**2

    def step(belief, _):
        half = [one + h / 200 * rate for one, rate in zip(belief, slope(*belief), strict=True)]
        return tuple(one + h / 100 * rate for one, rate in zip(belief, slope(*half), strict=True)), None

    def moments(start):
        return jax.lax.scan(step, (start, jnp.zeros(())), None, length=100)[0]

    mean, variance = jax.jit(jax.vmap(moments))(z[:-1])
    density = -0.5 * (z[1:] - mean) ** 2 / variance - 0.5 * jnp.log(2 * jnp.pi * variance)
    return float(jnp.sum(density) + np.sum(log_slope[1:]))


def test_a_gaussian_belief_at_the_edge_of_cir_is_better_in_z_than_in_x():
    """Feller ratio 2κμ/s² = 1.23: x comes close to 0 all the time. In x even the exact moments are far from enough."""
    kappa, mu, s, h = theta = 1.0, 0.5, 0.9, 0.25
    rng = np.random.default_rng(0)
    c = 2 * kappa / (s**2 * -np.expm1(-kappa * h))
    x = np.full(501, mu)
    for n in range(500):
        x[n + 1] = rng.noncentral_chisquare(4 * kappa * mu / s**2, 2 * c * x[n] * np.exp(-kappa * h)) / (2 * c)
    exact = cir_log_likelihood(h * np.arange(x.size), x, *theta[:3])
    cir = model_of(lambda t, x, p: p["s"] * jnp.sqrt(x), reversion, params=CIR_PARAMS, **KNOWN_NOISE)
    in_z = gaussian_log_likelihood(change_of_variables(cir).for_gap(h), jnp.array(theta[:3]), h, x)
    e = np.exp(-kappa * h)
    mean, variance = mu + (x[:-1] - mu) * e, s**2 / kappa * (x[:-1] * (e - e**2) + mu * (1 - e) ** 2 / 2)
    in_x = np.sum(-0.5 * (x[1:] - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance))
    assert abs(in_z - exact) < abs(in_x - exact) / 8


@pytest.mark.parametrize("gap", [None, 0.1])
@pytest.mark.parametrize("formula", KNOWN)
def test_everything_is_finite_at_and_beyond_the_edges(formula, gap):
    change = change_of_variables(model_of(KNOWN[formula][1]))
    change = change.for_gap(gap) if gap else change
    z = jnp.array([-1e3, -30.0, -3.0, -1e-9, 0.0, 1e-9, 3.0, np.pi, 30.0, 1e3])[:, None]

    @partial(jax.vmap, in_axes=(0, None))
    def all_of(z, theta):
        model = change.model
        return jnp.concatenate([model.f(ZERO, z, theta), model.g(ZERO, z, theta)[0], model.h(ZERO, z, theta)])

    for value in (all_of(z, THETA), *jax.jacrev(all_of, argnums=(0, 1))(z, THETA)):
        assert jnp.isfinite(value).all()


def test_a_power_that_is_estimated_may_be_one():
    change = change_of_variables(model_of(KNOWN["(x**(1 - gamma) - 1)/(1 - gamma)"][1]))

    def f(gamma):
        return change.model.f(ZERO, jnp.array([0.7]), THETA.at[4].set(gamma))[0]

    s, x = 0.3, np.exp(0.7)
    np.testing.assert_allclose(f(1.0), 2.0 * (0.4 - x) / x - 0.5 * s**2, rtol=1e-12)
    for gamma in (0.999, 1.0, 1.0014, 1.0016):  # on both sides of where the series takes over
        central = (f(gamma + 1e-5) - f(gamma - 1e-5)) / 2e-5
        np.testing.assert_allclose(jax.grad(f)(gamma), central, rtol=1e-6)
        p = P | {"gamma": gamma}
        np.testing.assert_allclose(change.to_z(change.to_x(np.array([0.7]), p), p), [0.7], rtol=1e-12)


def test_a_z_with_an_estimated_constant_needs_noisy_data_and_no_known_start():
    diffusion = KNOWN["log(x/(k - x))"][1]
    assert why_unchanged(model_of(diffusion, **KNOWN_NOISE)) == (
        "The state x is observed without noise, but its z would depend on the estimated k."
    )
    assert "has a given initial value" in why_unchanged(model_of(diffusion, initial={"x": 1.0}))


def test_data_outside_the_domain_are_refused():
    exact = change_of_variables(model_of(KNOWN["log(x)"][1], **KNOWN_NOISE))
    assert exact.refusal(np.array([[1.0], [np.nan], [2.0]])) == ""
    assert exact.refusal(np.array([[1.0], [0.0]])) == "z = log(x) needs x > 0, but x = 0 was observed."
    noisy = change_of_variables(model_of(KNOWN["2*asin(sqrt(x))"][1]))
    assert noisy.refusal(np.array([[0.9], [0.95], [1.02]])) == ""
    assert "needs 0 < x < 1, but x = 1.02 was observed" in noisy.refusal(np.array([[0.9], [1.02], [1.3]]))


def test_a_start_outside_the_domain_is_a_reason():
    reason = why_unchanged(model_of(KNOWN["log(x)"][1], initial={"x": -1.0}))
    assert reason == "z = log(x) needs x > 0, but initial says x = -1."
