"""Draws from a posterior, by NUTS and by importance, against ones that are known by quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions

from contract import KEY, ou_series, relaxing
from sdefit.data import Series, standardise
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import fixed, real
from sdefit.errors import InputError
from sdefit.fitting import fit
from sdefit.inference.likelihood import Likelihood
from sdefit.inference.parameterisation import Parameterisation
from sdefit.methods.esgf import ESGF
from sdefit.methods.moments import Moments
from sdefit.priors import noise_levels
from sdefit.ssm.kalman import Observations
from sdefit.uncertainty.importance import _Target, sample_posterior


def level_model(prior=None):
    params = {"rate": fixed(0.8), "level": real(prior=prior)}
    return equations("dx = rate*(level - x)", params=params, diffusion="diagonal")


@pytest.fixture(scope="module")
def drawn():
    found = fit(level_model(), ou_series(1), ESGF(noise="none"), key=KEY)
    return found, found.posterior(400, key=jax.random.key(3), warmup=200, chains=2)


def exact(values: np.ndarray, times: np.ndarray, usual: float | None = None):
    """Mean and standard deviation of level and g by quadrature: exact transitions, flat in level, normal in g.

    With `usual`, log g is normal about it with standard deviation 1 instead.
    """
    h = np.diff(times)
    decay = np.exp(-0.8 * h)
    level, g = np.meshgrid(np.linspace(-1, 3, 400), np.linspace(0.02, 2, 400), indexing="ij")
    log = np.zeros_like(level)
    for x, y, a in zip(values[:-1], values[1:], decay, strict=True):
        var = g**2 * (1 - a**2) / 1.6
        log += -0.5 * (np.log(var) + (y - level - (x - level) * a) ** 2 / var)
    spread, spacing = np.std(values), np.mean(h)
    scaled = g * np.sqrt(spacing) / spread
    log += -0.5 * (scaled / 3) ** 2 if usual is None else -0.5 * (np.log(scaled) - usual) ** 2 - np.log(g)
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
    one = found.series[0]
    for name, (mean, std) in zip(("level", "G"), exact(one.values[:, 0], one.times), strict=True):
        draws = posterior[name].to_numpy().ravel()
        assert abs(draws.mean() - mean) < 4 / np.sqrt(200) * std, name
        assert draws.std() == pytest.approx(std, rel=0.25), name
    assert tree["sample_stats"]["diverging"].to_numpy().mean() < 0.02
    assert posterior["level"].shape == (2, 400) and posterior["G"].dims == ("chain", "draw", "state", "state_2")


def test_importance_gives_the_posterior_too(drawn):
    """Of 1,000 draws in the last round at least 200 count: as above."""
    found, _ = drawn
    pool, one = standardise(found.series), found.series[0]
    with jax.enable_x64(True):
        pool, estimate = jax.tree.map(jnp.asarray, (pool, found.estimate))
        draws = jax.jit(lambda key: sample_posterior(found.model, found.method, pool, estimate, 4000, key))(
            jax.random.key(5)
        )
        levels = noise_levels(Observations(pool.times, pool.values, pool.observed))
    theta, G, noise = (np.asarray(a) for a in draws)
    G = G * np.asarray(pool.scale)[0] / np.sqrt(np.asarray(pool.time_scale))
    assert (noise == noise[0]).all()
    expected = exact(one.values[:, 0], one.times, float(levels[0][0]))
    for name, (mean, std), got in zip(("level", "G"), expected, (theta[:, 0], G[:, 0, 0]), strict=True):
        assert abs(got.mean() - mean) < 4 / np.sqrt(200) * std, name
        assert got.std() == pytest.approx(std, rel=0.25), name


def test_directions_of_rows_of_G_are_even_in_the_prior():
    """The volume that a unit of the coordinates takes is that of the directions on the sphere, by differences."""
    model = equations("dx = -x\ndy = -y\ndz = -z", diffusion="full")
    rng = np.random.default_rng(0)
    pool = standardise([Series(np.arange(9.0), rng.standard_normal((9, 3)), ["x", "y", "z"])])
    with jax.enable_x64(True):
        target = _Target(
            Likelihood(Parameterisation(model, pool, "each"), pool, jnp.ones((1, 9), jnp.int32), "extended")
        )
        v = jnp.asarray(rng.standard_normal(9))

        def directions(turns, row):
            G = target.parameterisation._G(*target._split(target.coordinates(v.at[3:6].set(turns)))[1:3])
            return G[row] / jnp.linalg.norm(G[row])

        slopes = [jax.jacfwd(directions)(v[3:6], row) for row in (1, 2)]
        area = [np.linalg.slogdet(J.T @ J)[1] / 2 for J in (slopes[0][:, :1], slopes[1][:, 1:])]
        assert float(target._stretch(v)) == pytest.approx(sum(area), rel=1e-9)


@pytest.mark.long
def test_a_prior_moves_the_estimate_and_the_posterior(drawn):
    """A normal prior as sharp as the likelihood, two standard deviations off: half-way between."""
    found, tree = drawn
    draws = tree["posterior"]["level"].to_numpy()
    prior = distributions.Normal(draws.mean() + 2 * draws.std(), draws.std())
    other = fit(level_model(prior), ou_series(1), ESGF(noise="none"), key=KEY)
    moved = (other.params["level"] - found.params["level"]) / draws.std()
    assert 0.6 < moved < 1.4  # 1 for a normal likelihood with known g; its g widens with the distance
    after = other.posterior(400, key=jax.random.key(4), warmup=200, chains=2)["posterior"]["level"].to_numpy()
    assert abs(after.mean() - other.params["level"]) < 0.5 * draws.std()
    assert after.std() < 0.9 * draws.std()


def test_refusals():
    found = fit(relaxing(), ou_series(1), Moments(starts=4, iterations=40), key=KEY)
    with pytest.raises(InputError, match=r"needs a method with a likelihood, such as sf.ESGF\(\), not moments"):
        found.posterior(10, key=KEY)
    with pytest.raises(InputError, match="draws must be a whole number of at least 1, not 0"):
        found.posterior(0, key=KEY)
