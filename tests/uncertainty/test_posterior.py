"""Draws from a posterior, by NUTS and by importance, against ones that are known by quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions

from contract import KEY, ou_series, relaxing
from sdefit.data import Series, standardise
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import fixed, interval, positive, real
from sdefit.errors import InputError
from sdefit.fitting import fit
from sdefit.inference.likelihood import Likelihood
from sdefit.inference.parameterisation import Parameterisation
from sdefit.inference.prior import BoundaryPrior, WeakPrior
from sdefit.methods.auto import Auto
from sdefit.methods.esgf import ESGF
from sdefit.methods.moments import Moments
from sdefit.priors import noise_levels
from sdefit.programs import PROGRAMS
from sdefit.ssm.kalman import Observations
from sdefit.uncertainty.density import PosteriorDensity
from sdefit.uncertainty.importance import sample_posterior
from sdefit.uncertainty.posterior import Draws


def level_model(prior=None):
    params = {"rate": fixed(0.8), "level": real(prior=prior)}
    return equations("dx = rate*(level - x)", params=params, diffusion="diagonal")


@pytest.fixture(scope="module", params=[ESGF(noise="none"), Auto(noise="none")], ids=lambda method: method.name)
def drawn(request):
    found = fit(level_model(), ou_series(1), request.param, key=KEY)
    return found, found.posterior(400, key=jax.random.key(3), warmup=200, chains=2)


def exact(found):
    """Mean and standard deviation of level and g by quadrature: exact transitions times the prior of the estimate.

    ESGF: flat in level and g, but for g^0.1. Auto: level normal about 0 with three of its scales, log g normal about
    the level of the roughness with standard deviation 1, in standardised units.
    """
    one, pool = found.series[0], standardise(found.series)
    values, h = one.values[:, 0], np.diff(one.times)
    level, g = np.meshgrid(np.linspace(-1, 3, 400), np.linspace(0.02, 2, 400), indexing="ij")
    if found.method.name == "esgf":
        log = 0.1 * np.log(g)
    else:
        with jax.enable_x64(True):
            data = map(jnp.asarray, (pool.times, pool.values, pool.observed))
            usual = float(noise_levels(Observations(*data)).log_G[0])
        scaled = g * np.sqrt(pool.time_scale) / pool.scale[0]
        log = -0.5 * (level / (3 * found.estimate.state.scales[0])) ** 2
        log += -0.5 * (np.log(scaled) - usual) ** 2 - np.log(g)
    for x, y, a in zip(values[:-1], values[1:], np.exp(-0.8 * h), strict=True):
        var = g**2 * (1 - a**2) / 1.6
        log += -0.5 * (np.log(var) + (y - level - (x - level) * a) ** 2 / var)
    weight = np.exp(log - log.max())
    weight /= weight.sum()

    def moments(q):
        mean = np.sum(weight * q)
        return mean, np.sqrt(np.sum(weight * (q - mean) ** 2))

    return moments(level), moments(g)


def test_it_is_the_posterior(drawn):
    """800 draws, of which a quarter count at least: means to 4/√200 of a standard deviation, that itself to 25%."""
    found, tree = drawn
    posterior = tree["posterior"]
    for name, (mean, std) in zip(("level", "G"), exact(found), strict=True):
        draws = posterior[name].to_numpy().ravel()
        assert abs(draws.mean() - mean) < 4 / np.sqrt(200) * std, name
        assert draws.std() == pytest.approx(std, rel=0.25), name
    assert tree["sample_stats"]["diverging"].to_numpy().mean() < 0.02
    assert posterior["level"].shape == (2, 400) and posterior["G"].dims == ("chain", "draw", "state", "state_2")


def test_a_second_posterior_compiles_nothing(drawn):
    found, tree = drawn
    before = PROGRAMS.compilations
    again = found.posterior(400, key=jax.random.key(3), warmup=200, chains=2)
    assert PROGRAMS.compilations == before
    np.testing.assert_array_equal(again["posterior"]["level"], tree["posterior"]["level"])


def test_importance_gives_the_same_posterior(drawn):
    """Of 1,000 draws in the last round at least 200 count: as above."""
    found, _ = drawn
    pool = standardise(found.series)
    with jax.enable_x64(True):
        pool, estimate = jax.tree.map(jnp.asarray, (pool, found.estimate))
        draws = jax.jit(lambda key: sample_posterior(found.model, found.method, pool, estimate, 4000, key))(
            jax.random.key(5)
        )
    theta, G, noise = (np.asarray(a) for a in draws)
    G = G * np.asarray(pool.scale)[0] / np.sqrt(np.asarray(pool.time_scale))
    assert (noise == noise[0]).all()
    for name, (mean, std), got in zip(("level", "G"), exact(found), (theta[:, 0], G[:, 0, 0]), strict=True):
        assert abs(got.mean() - mean) < 4 / np.sqrt(200) * std, name
        assert got.std() == pytest.approx(std, rel=0.25), name


PARAMS = {"a": positive(), "b": real(prior=distributions.Normal(0.0, 2.0)), "c": interval(0.0, 3.0)}
THREE = equations("dx = -a*x\ndy = b - y\ndz = c - z", params=PARAMS, diffusion="full")
OWN_COORDINATES = {
    "weak": lambda G, sigma: (jnp.log(jnp.linalg.norm(G, axis=1)), correlations(G), jnp.log(sigma)),
    "boundary": lambda G, sigma: (G[np.tril_indices(3)], sigma),
}


def correlations(G):
    unit = G / jnp.linalg.norm(G, axis=1, keepdims=True)
    return (unit @ unit.T)[np.tril_indices(3, -1)]


def three_states(kind):
    rng = np.random.default_rng(0)
    pool = standardise([Series(np.arange(9.0), rng.standard_normal((9, 3)), ["x", "y", "z"])])
    pool = jax.tree.map(jnp.asarray, pool)
    where = Parameterisation(THREE, pool, "each")
    prior = WeakPrior.of(where, jnp.array([1.0, 2.0, 3.0])) if kind == "weak" else BoundaryPrior(where, 0.1)
    likelihood = Likelihood(where, pool, jnp.ones((1, 9), jnp.int32), "extended")
    return PosteriorDensity(likelihood, prior), jnp.asarray(0.5 * rng.standard_normal(12))


@pytest.mark.parametrize("kind", list(OWN_COORDINATES))
def test_volumes_are_those_of_the_coordinates_of_the_prior(kind):
    """The log of the determinant of (θ, ...)(v), by automatic differentiation."""
    with jax.enable_x64(True):
        density, v = three_states(kind)
        where = density.likelihood.parameterisation

        def own(v):
            theta, scales, below, sigma, _ = where.split(density.coordinates(v))
            rest = OWN_COORDINATES[kind](where.G(scales, below), sigma)
            return jnp.concatenate([where.bounds.constrain(theta), *rest])

        expected = np.linalg.slogdet(jax.jacfwd(own)(v))[1]
        assert float(density.log_volume(v)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", list(OWN_COORDINATES))
def test_both_samplers_see_one_density(kind):
    """Differences between two points agree, and the gradient is that of the density, by central differences."""
    with jax.enable_x64(True):
        density, v = three_states(kind)
        plain, both = jax.jit(density.log_density), jax.jit(density.log_density_and_gradient)
        other = 0.7 * v
        assert float(plain(v) - plain(other)) == pytest.approx(float(both(v)[0] - both(other)[0]), rel=1e-8)
        moves = [(plain(v + h) - plain(v - h)) / 2e-5 for h in 1e-5 * jnp.eye(v.size)]
        np.testing.assert_allclose(both(v)[1], moves, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_prior_moves_the_estimate_and_the_posterior():
    """A normal prior as sharp as the likelihood, two standard deviations off: half-way between."""
    found = fit(level_model(), ou_series(1), ESGF(noise="none"), key=KEY)
    tree = found.posterior(400, key=jax.random.key(3), warmup=200, chains=2)
    draws = tree["posterior"]["level"].to_numpy()
    prior = distributions.Normal(draws.mean() + 2 * draws.std(), draws.std())
    other = fit(level_model(prior), ou_series(1), ESGF(noise="none"), key=KEY)
    moved = (other.params["level"] - found.params["level"]) / draws.std()
    assert 0.6 < moved < 1.4  # 1 for a normal likelihood with known g; its g widens with the distance
    after = other.posterior(400, key=jax.random.key(4), warmup=200, chains=2)["posterior"]["level"].to_numpy()
    assert abs(after.mean() - other.params["level"]) < 0.5 * draws.std()
    assert after.std() < 0.9 * draws.std()


def test_chains_that_disagree_give_a_warning():
    """Draws of two chains a standard deviation apart, and of chains of one distribution."""
    rng = np.random.default_rng(0)
    theta, G, still = rng.normal(size=(2, 200, 1)), rng.normal(size=(2, 200, 1, 1)), np.zeros((2, 200, 1))
    diverging = np.zeros((2, 200), bool)
    assert Draws(theta, G, still, diverging).r_hat() < 1.05
    assert Draws(theta + np.array([0.0, 1.0])[:, None, None], G, still, diverging).r_hat() > 1.05
    found = fit(level_model(), ou_series(1), ESGF(noise="none"), key=KEY)
    with pytest.warns(UserWarning, match=r"chains of fit\.posterior disagree .*raise warmup and draws"):
        found.posterior(10, key=KEY, warmup=1, chains=4)


def test_refusals():
    found = fit(relaxing(), ou_series(1), Moments(starts=4, iterations=40), key=KEY)
    with pytest.raises(InputError, match=r"needs a method with a likelihood, such as sf.ESGF\(\), not moments"):
        found.posterior(10, key=KEY)
    with pytest.raises(InputError, match="draws must be a whole number of at least 1, not 0"):
        found.posterior(0, key=KEY)
