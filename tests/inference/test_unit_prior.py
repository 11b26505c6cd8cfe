"""The prior of models with hidden states or the like: its densities written out, its derivatives, its volume."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import sdefit as sf
from sdefit.dynamics.pooling import pool_of
from sdefit.inference.parameterisation import Parameterisation
from sdefit.inference.prior import UnitPrior
from sdefit.priors import WIDTH_G, WIDTH_NOISE, WIDTH_UNIT

TEXT = "dx = a*(v - x) + m\ndv = -b*v + q\ndw = -b*w*r\nx = x\nw = w"
PARAMS = {"a": sf.positive(), "b": sf.positive(), "m": sf.real(), "q": sf.real(), "r": sf.interval(0.2, 3.0)}
GIVEN = "dx = a*(v - x)*dt + s*x*dw\ndv = (m - b*v)*dt + 0.1*dw\nx = x\nw = 2*x + v"
SOURCES = {
    "full": (TEXT, {"diffusion": "full"}),
    "diagonal": (TEXT, {"diffusion": "diagonal", "noise": {"x": sf.normal(sd=0.1)}}),
    "given": (GIVEN, {}),
    "users": (TEXT, {"diffusion": "full", "params": PARAMS | {"a": sf.Parameter(0.0, prior=dist.LogNormal(0.2, 0.7))}}),
}


@functools.cache
def made(name):
    text, settings = SOURCES[name]
    free = {word: one for word, one in PARAMS.items() if word in text.replace("dw", "")} | {"s": sf.positive()}
    params = settings.get("params", free if "s*x" in text else PARAMS)
    model = sf.equations(text, **(settings | {"params": params}))
    rng = np.random.default_rng(0)
    series = sf.Series(
        np.cumsum(rng.uniform(0.2, 0.5, 30)), [3.0, 0.2] + [2.0, 5.0] * rng.normal(size=(30, 2)), ["x", "w"]
    )
    parameterisation = Parameterisation(model, jax.tree.map(jnp.asarray, pool_of(model, [series])), "each")
    return parameterisation, UnitPrior.of(parameterisation)


def some_u(parameterisation, seed=0):
    u = np.random.default_rng(seed).normal(size=sum(parameterisation.sizes))
    P, scales, below, noise, _ = parameterisation.sizes
    u[P : P + scales] = np.abs(u[P : P + scales]) + 0.3
    u[P + scales + below : P + scales + below + noise] = 0.2 + np.abs(
        u[P + scales + below : P + scales + below + noise]
    )
    return jnp.array(u)


@pytest.mark.parametrize("name", SOURCES)
def test_its_gradient_is_that_of_its_value(name):
    parameterisation, prior = made(name)
    u = some_u(parameterisation)
    at = prior(u)
    np.testing.assert_allclose(at.gradient, jax.grad(lambda u: prior(u).value)(u), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["diagonal", "given"])
def test_its_curvature_is_that_of_its_squares(name):
    """Without correlations it is a sum of squares: its curvature is JᵀJ, and exact where the residuals are straight."""
    parameterisation, prior = made(name)
    u = some_u(parameterisation)
    J = jax.jacfwd(prior._residuals)(u)
    at = prior(u)
    np.testing.assert_allclose(at.curvature, J.T @ J, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(at.value, 0.5 * jnp.sum(prior._residuals(u) ** 2), rtol=1e-12)
    # θ and x(t_1) are straight: there it is the second derivative.
    straight = np.repeat([True, False, False, False, True], parameterisation.sizes)
    whole = np.asarray(jax.hessian(lambda u: prior(u).value)(u))
    np.testing.assert_allclose(
        np.asarray(at.curvature)[straight][:, straight], whole[straight][:, straight], atol=1e-12
    )


@pytest.mark.parametrize("name", SOURCES)
def test_its_curvature_is_never_negative(name):
    parameterisation, prior = made(name)
    for seed in range(3):
        values = np.linalg.eigvalsh(np.asarray(prior(some_u(parameterisation, seed)).curvature))
        assert values.min() > -1e-9 * values.max()


def test_its_densities_are_normal_about_units():
    """log a about its unit give or take e⁵, with the time between spacing and span; r is uniform between its bounds."""
    parameterisation, prior = made("diagonal")
    u = some_u(parameterisation)
    P = 5
    pool = parameterisation.pool
    span = float(jnp.max(pool.times)) ** 0.5 * float(pool.time_scale)
    x = float(pool.column_scale[0])
    names = parameterisation.model.free
    theta = dict(zip(names, np.asarray(parameterisation.bounds.constrain(u[:P])), strict=True))
    # a and b are rates. m is x per time, and so is a v: v has the unit of x, and q that of m.
    e5 = np.exp(WIDTH_UNIT)
    expected = 0.5 * np.sum((np.log(np.array([theta[one] for one in "ab"]) * span) / WIDTH_UNIT) ** 2)
    spacing = float(pool.time_scale)
    expected += 0.5 * np.sum((np.array([theta[one] for one in "mq"]) / (x / spacing) / e5) ** 2)
    levels = prior.levels
    G = np.abs(np.asarray(u[P : P + 3]))
    own = [float(levels.log_G[0]), 0.0, float(levels.log_G[1])]
    widths = [WIDTH_G, WIDTH_UNIT, WIDTH_G]
    expected += 0.5 * np.sum(((np.log(G) - own) / widths) ** 2)
    sigma, first = float(u[P + 3]), float(u[P + 4])  # the noise of w, as that of x is known; where v begins
    expected += 0.5 * ((np.log(sigma) - float(levels.log_noise[1])) / WIDTH_NOISE) ** 2 + 0.5 * (first / e5) ** 2
    np.testing.assert_allclose(prior(u).value, expected, rtol=1e-10)


def test_a_prior_of_the_users_takes_the_place_of_its_own():
    parameterisation, prior = made("users")
    u = some_u(parameterisation)
    other = u.at[parameterisation.model.free.index("a")].add(0.4)
    place = parameterisation.model.free.index("a")
    a, b = (float(parameterisation.bounds.constrain(one[:5])[place]) for one in (u, other))
    own = dist.LogNormal(0.2, 0.7)
    np.testing.assert_allclose(prior(other).value - prior(u).value, own.log_prob(a) - own.log_prob(b), rtol=1e-8)


def own_coordinates(prior, u):
    """What the prior is a density in: log θ of one bound (θ of a user's prior), correlations, log ‖G_k‖, log σ."""
    p = prior.parameterisation
    theta, scales, below, sigma, first = p.split(u)
    bounds = p.bounds
    user = jnp.array(prior._users_own)
    value = bounds.constrain(theta)
    logarithm = jnp.array(bounds.one_sided) & ~user
    own = jnp.where(logarithm, jnp.log(jnp.where(logarithm, jnp.abs(value), 1.0)), value)
    parts = [own]
    if scales.size:
        G = p.G(scales, below)
        Q = G @ G.T
        size = jnp.sqrt(jnp.diag(Q))
        R = Q / size[:, None] / size[None, :]
        parts += [jnp.log(size), R[np.tril_indices(len(size), -1)] if below.size else jnp.zeros(0)]
    return jnp.concatenate([*parts, jnp.log(sigma), first])


@pytest.mark.parametrize("name", SOURCES)
def test_its_log_volume_is_the_jacobian_of_its_own_coordinates(name):
    """Up to a constant: differences between two points are compared, and coordinates may be in any unit."""
    parameterisation, prior = made(name)
    found, numeric = [], []
    for seed in range(3):
        u = some_u(parameterisation, seed)
        found.append(float(prior.log_volume(u)))
        numeric.append(float(jnp.linalg.slogdet(jax.jacfwd(functools.partial(own_coordinates, prior))(u))[1]))
    np.testing.assert_allclose(np.diff(found), np.diff(numeric), rtol=1e-8, atol=1e-9)
