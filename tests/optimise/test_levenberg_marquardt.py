"""Levenberg-Marquardt: its values with curvature, and the search over many starts."""

import jax
import jax.numpy as jnp
import numpy as np

from sdefit.optimise import ValueGradHessian, levenberg_marquardt, log_mean_square


def test_a_reparameterised_value_has_the_second_derivative_of_the_composition():
    c, b = jnp.array([[2.0, 0.5], [0.5, 1.0]]), jnp.array([0.3, -0.4])

    def inner(x):
        return jnp.stack([x[0] ** 2 * x[1], jnp.exp(x[1])])

    def outer(z):
        return 0.5 * z @ c @ z + b @ z

    x = jnp.array([0.7, -0.2])
    z = inner(x)
    got = ValueGradHessian(outer(z), c @ z + b, c).reparameterise(inner, x)
    np.testing.assert_allclose(got.gradient, jax.grad(lambda x: outer(inner(x)))(x))
    np.testing.assert_allclose(got.curvature, jax.hessian(lambda x: outer(inner(x)))(x))


def rosenbrock(x) -> ValueGradHessian:
    """A curved valley as a sum of squares, not finite beyond x_0 > 3."""

    def r(x):
        return jnp.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]])

    J, value = jax.jacfwd(r)(x), r(x)
    return ValueGradHessian(jnp.where(x[0] > 3, jnp.nan, 0.5 * value @ value), value @ J, J.T @ J)


def test_the_search_finds_the_lowest_point_and_survives_what_is_not_finite():
    starts = jnp.array([[-1.2, 1.0], [2.9, -5.0], [0.0, 30.0]])
    max_step = jnp.array([5.0, 50.0])
    each = jax.vmap(lambda x: levenberg_marquardt(rosenbrock, x[None], max_step=max_step, tolerance=1e-12))
    found = jax.jit(each)(starts)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-5)
    assert found.converged.all()
    assert (jnp.diff(found.values, axis=-1) <= 0).all()


def test_search_behind_one_that_is_done_is_given_up():
    """From afar the narrow valley of the second start takes longer than the patience with it."""
    starts = jnp.array([[1.0, 1.0], [-1.2, 1.0]])
    found = jax.jit(lambda x: levenberg_marquardt(rosenbrock, x, max_step=jnp.full(2, 0.05), iterations=200))(starts)
    assert found.steps[0] < found.steps[1] < 25
    alone = jax.jit(lambda x: levenberg_marquardt(rosenbrock, x, max_step=jnp.full(2, 0.05), iterations=200))(
        starts[1:]
    )
    assert alone.converged[0] and alone.steps[0] > 25


def test_a_search_that_cannot_begin_says_so():
    found = levenberg_marquardt(rosenbrock, jnp.array([[4.0, 1.0]]), max_step=jnp.ones(2))
    assert not found.converged[0]
    np.testing.assert_array_equal(found.x, [[4.0, 1.0]])


def test_log_mean_square_has_the_gradient_of_its_value():
    e = jnp.array(np.random.default_rng(0).normal(size=(2, 9, 3)))

    def errors(x):
        return e * x[0] + jnp.sin(x[1]) * e**2

    x = jnp.array([0.4, 0.9])
    at = log_mean_square(errors, x)
    np.testing.assert_allclose(at.gradient, jax.grad(lambda x: log_mean_square(errors, x).value)(x), rtol=1e-8)
    assert (jnp.linalg.eigvalsh(at.curvature) > 0).all()
