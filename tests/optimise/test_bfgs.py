"""The quasi-Newton search on functions whose lowest points are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit import optimise

SEEDS = [0, 1, 2]


def minimise(fn, x0, **settings):
    """The search as one program, compiled in haste: it runs for microseconds."""
    haste = {"xla_backend_optimization_level": 0}
    return jax.jit(lambda x: optimise.minimise(fn, x, **settings), compiler_options=haste)(x0)


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def quadratic(seed, params):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(params, params)))[0]
    hessian = jnp.asarray(basis @ np.diag(np.geomspace(0.1, 100, params)) @ basis.T)
    lowest = jnp.asarray(rng.normal(size=params))
    return (lambda x: 0.5 * (x - lowest) @ hessian @ (x - lowest) - 3.0), lowest, hessian


def assert_never_rises(found):
    values = np.asarray(found.values)
    assert np.all(np.diff(values) <= 0)
    assert values[-1] == found.value


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("params", [1, 6])
def test_quadratic(params, seed):
    fn, lowest, hessian = quadratic(seed, params)
    found = minimise(fn, jnp.zeros(params))
    assert found.converged and found.steps < 60
    # A predicted decrease below 1e-14·(1 + |f|) bounds √λ·distance by 3e-7; the smallest λ is 0.1.
    np.testing.assert_allclose(found.x, lowest, atol=1e-6)
    assert found.value == pytest.approx(-3.0, abs=1e-12)
    np.testing.assert_allclose(found.gradient, hessian @ (found.x - lowest), atol=1e-12)
    assert_never_rises(found)
    assert found.value == fn(found.x)


@pytest.mark.parametrize("start", [[-1.2, 1.0], [3.0, -2.0], [0.0, 0.0, 2.0, 1.0]])
def test_rosenbrock(start):
    found = minimise(rosenbrock, jnp.asarray(start), iterations=200)
    assert found.converged
    np.testing.assert_allclose(found.x, 1.0, atol=1e-5)
    assert_never_rises(found)


def test_the_inverse_hessian_is_that_of_the_function():
    fn, _, hessian = quadratic(0, 2)
    found = minimise(fn, jnp.asarray([4.0, -3.0]), max_step=1e3)
    np.testing.assert_allclose(found.inverse_hessian, np.linalg.inv(hessian), rtol=1e-2, atol=1e-2)


def test_a_region_without_values_is_walked_around():
    def fn(x):  # log is NaN for x ≤ 0; the first full step lands there
        return x[0] - 0.1 * jnp.log(x[0]) + (x[1] - jnp.sqrt(x[0])) ** 2

    found = minimise(fn, jnp.asarray([1.5, 0.0]))
    assert found.converged
    np.testing.assert_allclose(found.x, [0.1, np.sqrt(0.1)], atol=1e-6)
    assert_never_rises(found)


def test_a_finite_value_with_a_broken_gradient_is_refused():
    @jax.custom_jvp
    def fn(x):
        return jnp.where(x[0] > 0, (x[0] - 0.5) ** 2, -1.0)

    @fn.defjvp
    def _(primals, tangents):
        x = primals[0][0]
        return fn(primals[0]), jnp.where(x > 0, 2 * (x - 0.5), jnp.nan) * tangents[0][0]

    found = minimise(fn, jnp.asarray([1.2]), max_step=10.0)
    assert found.converged
    np.testing.assert_allclose(found.x, 0.5, atol=1e-6)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_start_without_a_value_is_not_converged(bad):
    found = minimise(lambda x: x[0] * 0 + bad, jnp.asarray([1.0]))
    assert not found.converged and not np.isfinite(found.value) and found.steps <= 1 and found.x[0] == 1.0


def test_lanes_are_searches_of_their_own():
    starts = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)) * 2)

    def search(x):
        return optimise.minimise(rosenbrock, x, iterations=120)

    lanes, search = jax.jit(jax.vmap(search))(starts), jax.jit(search)
    assert len(set(lanes.steps.tolist())) > 1
    for i, start in enumerate(starts):
        alone = search(start)
        assert bool(alone.converged) == bool(lanes.converged[i])
        np.testing.assert_allclose(lanes.x[i], alone.x, atol=1e-6)
        np.testing.assert_allclose(lanes.value[i], alone.value, atol=1e-12)
        # The same early path; rounding differs between the two programs and grows along it.
        np.testing.assert_allclose(lanes.values[i][:10], alone.values[:10], rtol=1e-8)
        assert_never_rises(jax.tree.map(lambda a, i=i: a[i], lanes))


def test_a_lane_that_fails_leaves_the_others_alone():
    def fn(x):
        return jnp.where(x[0] > 5, jnp.nan, (x[0] - 1) ** 2)

    lanes = jax.jit(jax.vmap(lambda x: optimise.minimise(fn, x)))(jnp.asarray([[0.0], [6.0]]))
    assert lanes.converged.tolist() == [True, False]
    np.testing.assert_allclose(lanes.x[:, 0], [1.0, 6.0], atol=1e-7)


def test_a_flat_function_is_done_at_once():
    found = minimise(lambda x: jnp.sum(0 * x) + 2.0, jnp.asarray([1.0, -1.0]))
    assert found.converged and found.steps <= 1 and found.value == 2.0
    np.testing.assert_array_equal(found.x, [1.0, -1.0])
    np.testing.assert_array_equal(found.values, 2.0)


@pytest.mark.parametrize("fn", [lambda x: -x[0], lambda x: -(x[0] ** 2) - x[0], lambda x: -jnp.exp(x[0])])
def test_a_function_without_a_lowest_point_is_not_converged(fn):
    found = minimise(fn, jnp.asarray([0.5]), iterations=60)
    assert not found.converged
    assert found.value < -50


def test_a_search_cut_short_is_not_converged():
    found = minimise(rosenbrock, jnp.asarray([-1.2, 1.0]), iterations=8)
    assert not found.converged and found.steps == 8 and found.values.shape == (8,)
    assert found.value < rosenbrock(jnp.asarray([-1.2, 1.0]))


def test_a_wrong_gradient_is_not_converged():
    @jax.custom_jvp
    def fn(x):
        return jnp.sum(x**2)

    fn.defjvp(lambda primals, tangents: (fn(primals[0]), -2 * jnp.sum(primals[0] * tangents[0])))
    found = minimise(fn, jnp.asarray([1.0]))
    assert not found.converged and found.value == 1.0


@pytest.mark.parametrize("tolerance", [1e-4, 1e-7])
def test_an_edge_with_a_slope_is_not_converged(tolerance):
    """The value falls towards an edge beyond which there is none: steps become short, the slope does not."""

    def fn(x):
        return jnp.where(x[0] > 0, x[0], jnp.nan)

    found = minimise(fn, jnp.asarray([0.7]), iterations=2000, tolerance=tolerance)
    assert not found.converged and found.steps < 2000 and found.value < 1e-6


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_converges_whatever_the_size_of_the_value(size):
    fn, lowest, _ = quadratic(1, 3)
    found = minimise(lambda x: size * (fn(x) + 3.0), jnp.zeros(3), iterations=200)
    assert found.converged
    # Decreases are measured against 1 + |f|: a function of size 1e-6 is known to that absolute measure.
    np.testing.assert_allclose(found.x, lowest, atol=1e-6 * max(1.0, size**-0.5))


def test_no_step_is_longer_than_allowed():
    found = minimise(lambda x: (x[0] - 100.0) ** 2, jnp.asarray([0.0]), iterations=3, max_step=2.0)
    assert 0 < found.x[0] <= 6.0
