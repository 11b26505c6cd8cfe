"""A general model at one θ in standardised units: where it begins, what is known of its noise, and its units."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_continuous_lyapunov

import sdefit as sf
from sdefit.dynamics.pooling import pool_of
from sdefit.dynamics.units import exponents
from sdefit.inference.candidates import guess_by_candidates, state_path
from sdefit.inference.equation import Equation, begins_path
from sdefit.inference.parameterisation import Parameterisation, Point, estimated_first
from sdefit.ssm.kalman import Observations

SPRING = "dx = v*dt\ndv = (-k*x - c*v)*dt + s*dw"
POSITIVE = {name: sf.positive() for name in ("k", "c", "s")}


def spring(columns="x = x", **settings):
    return sf.equations(f"{SPRING}\n{columns}", params=POSITIVE, **settings)


def some_series(names=("x",), rows=9, missing=(), seed=0, **more):
    values = 2.0 + 3.0 * np.random.default_rng(seed).normal(size=(rows, len(names)))
    for at in missing:
        values[at] = np.nan
    return sf.Series(1.0 + 0.5 * np.arange(rows), values, list(names), **more)


def equation_of(model, series, theta=(4.0, 0.4, 1.0), first=(), noise=None):
    pool = pool_of(model, [series])
    D = len(model.observations)
    variance = jnp.zeros(D) if noise is None else (jnp.array(noise) / pool.column_scale) ** 2
    K = len(model.states)
    point = Point(jnp.array(theta), jnp.zeros((K, K)), variance, jnp.array(first).reshape(1, -1))
    data = Observations(*(jnp.asarray(one[0]) for one in (pool.times, pool.values, pool.observed)))
    return Equation(model, pool, point), data, jnp.asarray(pool.time_origin)[0]


# --- x(t_1) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "settings", "estimated", "begins"),
    [
        ("x = x", {}, (1,), (True,)),
        ("y = x\nz = v", {}, (), (True, True)),
        ("y = x + v", {}, (0, 1), (False,)),
        ("y = x\nz = x", {}, (1,), (True, False)),
        ("y = x", {"noise": {"y": "lognormal"}}, (0, 1), (False,)),
        ("x = x", {"initial": {"v": 0.0}}, (), (True,)),
        ("x = x", {"initial": {"x": (0.0, 1.0)}}, (1,), (False,)),
        ("x = x", {"initial": "rest"}, (), (False,)),
        ("x = x", {"initial": "stationary"}, (), (False,)),
    ],
)
def test_what_is_estimated_of_the_beginning(columns, settings, estimated, begins):
    model = spring(columns, **settings)
    assert estimated_first(model) == estimated
    assert begins_path(model) == begins


def test_a_measured_state_begins_where_its_first_row_says_and_a_hidden_one_where_it_is_estimated():
    equation, data, origin = equation_of(spring(), some_series(), first=[1.7], noise=[0.6])
    belief, left = equation.begin(data, origin, jnp.array([1.7]))
    scale = float(equation.pool.column_scale[0])
    np.testing.assert_allclose(belief.mean, [data.values[0, 0], 1.7], rtol=1e-12)
    np.testing.assert_allclose(belief.covariance, np.diag([(0.6 / scale) ** 2, 0.0]), rtol=1e-12)
    assert not left.observed[0].any()
    np.testing.assert_array_equal(left.observed[1:], data.observed[1:])


def test_a_state_missing_in_the_first_row_begins_near_its_first_value_give_or_take_the_spread():
    equation, data, origin = equation_of(spring(), some_series(missing=[0, 1]), noise=[0.6])
    belief, left = equation.begin(data, origin, jnp.array([0.0]))
    np.testing.assert_allclose(belief.mean, [data.values[2, 0], 0.0], rtol=1e-12)
    np.testing.assert_allclose(belief.covariance, np.diag([1.0, 0.0]), rtol=1e-12)
    np.testing.assert_array_equal(left.observed, data.observed)


def test_a_second_column_of_a_state_keeps_its_first_row():
    model = spring("y = x\nz = x\nw = 2*x + v")
    series = some_series(("y", "z", "w"))
    equation, data, origin = equation_of(model, series, noise=[0.1, 0.2, 0.3])
    belief, left = equation.begin(data, origin, jnp.array([0.5]))
    assert left.observed[0].tolist() == [False, True, True]
    assert float(belief.mean[0]) == float(data.values[0, 0])


def test_a_given_beginning_is_given_in_the_users_units_and_no_row_is_used_up():
    model = spring(initial={"x": (7.0, 0.5), "v": -3.0})
    equation, data, origin = equation_of(model, some_series())
    belief, left = equation.begin(data, origin, jnp.zeros(0))
    pool = equation.pool
    np.testing.assert_allclose(pool.unstandardise_path(belief.mean[None])[0], [7.0, -3.0], rtol=1e-12)
    np.testing.assert_allclose(belief.covariance, np.diag([(0.5 / pool.scale[0]) ** 2, 0.0]), rtol=1e-12)
    np.testing.assert_array_equal(left.observed, data.observed)


def in_users_units(equation, belief):
    scale = np.asarray(equation.pool.scale)
    mean = np.asarray(equation.pool.unstandardise_path(belief.mean[None]))[0]
    return mean, scale[:, None] * np.asarray(belief.covariance) * scale[None, :]


def test_rest_is_where_the_drift_is_zero():
    model = sf.equations("dx = v*dt\ndv = (f - k*x**3 - v)*dt + s*dw\nx = x",
                         params={"f": sf.real(), "k": sf.positive(), "s": sf.positive()}, initial="rest")  # fmt: skip
    equation, data, origin = equation_of(model, some_series(), theta=(5.4, 0.2, 1.0))
    belief, left = equation.begin(data, origin, jnp.zeros(0))
    mean, covariance = in_users_units(equation, belief)
    np.testing.assert_allclose(mean, [3.0, 0.0], atol=1e-9)  # the cube root of 5.4/0.2
    np.testing.assert_array_equal(covariance, 0.0)
    assert left.observed.all()


def test_rest_takes_the_inputs_of_the_first_time():
    model = sf.equations("dx = k*(u + t - x)*dt + s*dw", params={"k": sf.positive(), "s": sf.positive()},
                         inputs=["u"], initial="rest")  # fmt: skip
    series = some_series(inputs={"u": np.arange(9.0) + 4.0})
    pool = pool_of(model, [series])
    point = Point(jnp.array([2.0, 0.3]), jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros((1, 0)))
    equation = Equation(model, pool, point)
    zero, table = pool.origins
    origin = (jnp.asarray(zero)[0], (jnp.asarray(table[0])[0], {"u": jnp.asarray(table[1]["u"])[0]}))
    belief = equation.at_rest(jnp.array(0.0), origin)
    np.testing.assert_allclose(in_users_units(equation, belief)[0], [5.0], rtol=1e-10)  # u = 4 and t = 1


@pytest.mark.parametrize("theta", [(4.0, 0.4, 1.0), (0.3, 2.0, 0.1)])
def test_stationary_is_the_solution_of_lyapunovs_equation(theta):
    """Of the spring: Var x = s²/(2 c k), Var v = s²/(2 c), no correlation."""
    equation, data, origin = equation_of(spring(initial="stationary"), some_series(), theta=theta)
    belief, left = equation.begin(data, origin, jnp.zeros(0))
    mean, covariance = in_users_units(equation, belief)
    k, c, s = theta
    np.testing.assert_allclose(mean, 0.0, atol=1e-9)
    expected = np.diag([s**2 / (2 * c * k), s**2 / (2 * c)])
    np.testing.assert_allclose(covariance, expected, rtol=1e-8, atol=1e-10 * expected.max())
    A = np.array([[0.0, 1.0], [-k, -c]])
    np.testing.assert_allclose(solve_continuous_lyapunov(A, -np.diag([0, s**2])), expected, atol=1e-10)
    assert left.observed.all()


def test_stationary_of_a_diffusion_that_grows_is_that_at_rest():
    """Of dx = k (m − x) dt + s √x dw: mean m, variance s² m/(2 k), which is exact for this one."""
    model = sf.equations("dx = k*(m - x)*dt + s*sqrt(x)*dw", params={n: sf.positive() for n in "kms"},
                         initial="stationary")  # fmt: skip
    equation, data, origin = equation_of(model, some_series(), theta=(2.0, 5.0, 0.3))
    mean, covariance = in_users_units(equation, equation.at_rest(data.times[0], origin))
    np.testing.assert_allclose(mean, [5.0], rtol=1e-9)
    np.testing.assert_allclose(covariance, [[0.3**2 * 5.0 / 4.0]], rtol=1e-9)


# --- noise -----------------------------------------------------------------------------------------------------


def test_known_noise_is_added_in_the_units_of_each_column():
    """A number, a formula of state, parameter and input, and one that is estimated."""
    model = sf.SDE(
        lambda t, x, p: -p["k"] * x, ["x"], {"k": sf.positive()}, lambda t, x, p: [1.0], inputs=["u"],
        observe=lambda t, x, p: [x[0], x[0], 3 * x[0] + p["u"]], observations=["a", "b", "c"],
        noise={"a": sf.normal(sd=0.7), "b": sf.normal(sd=lambda t, x, p: p["k"] * x[0] * p["u"] + t)},
    )  # fmt: skip
    series = some_series(("a", "b", "c"), inputs={"u": np.full(9, 2.0)})
    pool = pool_of(model, [series])
    point = Point(jnp.array([1.5]), jnp.zeros((1, 1)), jnp.array([0.0, 0.0, 0.09]), jnp.zeros((1, 0)))
    zero, table = pool.origins
    origin = (jnp.asarray(zero)[0], (jnp.asarray(table[0])[0], {"u": jnp.asarray(table[1]["u"])[0]}))
    x = 0.8
    value, variance = Equation(model, pool, point).measurement(origin)(
        jnp.array(3.0), (jnp.array([x]) - pool.center) / pool.scale
    )
    center, scale = np.asarray(pool.column_center), np.asarray(pool.column_scale)
    np.testing.assert_allclose(value, (np.array([x, x, 3 * x + 2]) - center) / scale, rtol=1e-12)
    time = 1.0 + 0.5 * 3
    known = np.array([0.7, 1.5 * x * 2.0 + time, 0.3 * scale[2]]) / scale
    np.testing.assert_allclose(variance, known**2, rtol=1e-12)


def test_a_lognormal_column_is_measured_in_logarithms():
    model = spring("y = exp(x)", noise={"y": "lognormal"})
    series = sf.Series(np.arange(9.0), np.exp(np.random.default_rng(1).normal(size=9)), ["y"])
    equation, data, origin = equation_of(model, series)
    pool = equation.pool
    value, _ = equation.measurement(origin)(data.times[0], jnp.array([0.4, 0.0]))
    x = float(pool.center[0] + pool.scale[0] * 0.4)
    logs = np.log(np.asarray(series.values)[:, 0])
    np.testing.assert_allclose(value, [(x - logs.mean()) / logs.std()], rtol=1e-10)
    np.testing.assert_allclose(data.values[:, 0], (logs - logs.mean()) / logs.std(), rtol=1e-10)


# --- units of what nobody sees ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "states", "params"),
    [
        # Exponents in the units of the columns and of time: a velocity is a column per time.
        ("dx = v*dt\ndv = (-k*x - c*v)*dt + s*dw\nx = x", [[1, 0], [1, -1]], [[0, -2], [0, -1], [1, -1.5]]),
        ("dx = v*dt\ndv = (-k*x - c*v)*dt + s*dw\ny = q*x", None, None),
        # Number of infected seen: of the susceptible, those that were there at one time.
        ("dS = -b*S*I*dt\ndI = (b*S*I - g*I)*dt + s*I*dw\nI = I", [[1, 0], [1, 0]], [[-1, -1], [0, -1], [0, -0.5]]),
        ("dx = k*(m - x)*dt + s*sqrt(x)*dw\nx = x", [[1, 0]], [[0, -1], [1, 0], [0.5, -0.5]]),
        ("dz = a*dt + s*dw\ny = exp(z)", [[0, 0]], [[0, -1], [0, -0.5]]),
        ("dz = a*dt + s*dw\ny = 5 + z\nw = z", [[0, 0, 0]], [[0, 0, -1], [0, 0, -0.5]]),  # the 5 ties z to its unit
    ],
)
def test_units_of_hidden_states_and_of_parameters_follow_from_all_equations(text, states, params):
    found = exponents(sf.equations(text))
    if states is None:  # any unit of x does: what y is of x is made up for by q
        D = 1
        assert found.states.shape == (2, D + 1)
        np.testing.assert_allclose(found.states[1] - found.states[0], [0, -1], atol=1e-9)
        q = sf.equations(text).free.index("q")
        np.testing.assert_allclose(found.states[0] + found.params[q], [1, 0], atol=1e-9)
        return
    np.testing.assert_allclose(found.states, states, atol=1e-9)
    np.testing.assert_allclose(found.params, params, atol=1e-9)


def test_a_hidden_state_has_the_scale_of_its_unit_and_a_center_where_another_has_the_same_unit():
    series = some_series()
    pool = pool_of(spring(), [series])
    spread, spacing = float(np.std(series.values)), 0.5
    np.testing.assert_allclose(pool.scale, [spread, spread / spacing], rtol=1e-9)
    np.testing.assert_allclose(pool.center, [np.mean(series.values), 0.0], rtol=1e-9)
    twin = sf.equations(
        "dx = (y - x)*dt + s*dw\ndy = k*(x - y)*dt\nx = x", params={"s": sf.positive(), "k": sf.positive()}
    )
    pool = pool_of(twin, [series])
    np.testing.assert_allclose(pool.center, np.mean(series.values), rtol=1e-9)
    np.testing.assert_allclose(pool.scale, spread, rtol=1e-9)


# --- candidates ------------------------------------------------------------------------------------------------


def test_state_path_has_the_measured_states_and_centers_of_the_others():
    model = spring()
    series = some_series(missing=[3])
    pool = pool_of(model, [series])
    path = np.asarray(state_path(model, pool))
    known = (np.asarray(series.values)[:, 0] - np.asarray(pool.center)[0]) / np.asarray(pool.scale)[0]
    known[3] = 0.5 * (known[2] + known[4])
    np.testing.assert_allclose(path[0, :, 0], known, rtol=1e-12)
    np.testing.assert_array_equal(path[0, :, 1], 0.0)


@functools.cache
def guessed(key, start=(np.nan, np.nan, np.nan)):
    import jax

    model = spring()
    series = sf.simulate(
        model, {"k": 4.0, "c": 0.4, "s": 1.0}, {"x": 0.5, "v": 0.0}, np.arange(81) * 0.1, noise=0.1, key=1
    )
    parameterisation = Parameterisation(model, jax.tree.map(jnp.asarray, pool_of(model, [series])), "each")
    found = jax.jit(lambda start, key: guess_by_candidates(parameterisation, start, 4, key, "cubature"))(
        jnp.array(start), jax.random.key(key)
    )
    return parameterisation, found


def test_the_first_candidates_are_the_likeliest_in_order():
    from sdefit.inference.likelihood import filter_pool

    parameterisation, found = guessed(0)
    assert found.begin.shape == found.more.shape == (4, sum(parameterisation.sizes))
    steps = jnp.full((1, 81), 2).at[0, 0].set(0)

    def value(u):
        point = parameterisation.point(parameterisation.variance_params(u), 0.1)
        return float(filter_pool(parameterisation.model, parameterisation.pool, point, steps, "cubature")[0])

    values = [value(u) for u in (*found.begin, *found.more)]
    assert np.isfinite(values[:4]).all()
    assert values == sorted(values, reverse=True)
    assert int(found.steps[0, 0]) == 0 and int(found.steps.max()) <= 64


def test_a_start_of_the_users_is_where_candidates_lie():
    """log θ about the start with a standard deviation of ½: none of eight is further than 4 of them."""
    parameterisation, found = guessed(0, (4.0, np.nan, 1.0))
    theta = np.array([parameterisation.bounds.constrain(u[:3]) for u in (*found.begin, *found.more)])
    assert np.abs(np.log(theta[:, [0, 2]] / [4.0, 1.0])).max() < 2.0
