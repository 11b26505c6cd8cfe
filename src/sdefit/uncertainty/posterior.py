"""The posterior of θ, G and σ by NUTS, for methods with a likelihood.

It walks in the coordinates of `PosteriorDensity`, turned and scaled so that the density is round at its mode, as far as
the curvature there tells: the sampler has little left to learn.
"""

import dataclasses
import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np

from sdefit._types import Array, Key, Scalar
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.errors import InputError
from sdefit.methods.interface import LikelihoodMethod, Method
from sdefit.programs import PROGRAMS
from sdefit.result import Estimate
from sdefit.uncertainty.density import PosteriorDensity

_DISAGREE = 1.05  # split-R̂ above which chains are not of one distribution
_LEAST = 8  # draws of a chain, both halves of which have a variance that says something


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """Draws in the user's units, (chains, draws, …), and which of them came after a divergence of the sampler."""

    theta: np.ndarray
    G: np.ndarray
    noise: np.ndarray
    diverging: np.ndarray

    def r_hat(self) -> float:
        """The largest split-R̂ of all quantities that vary; NaN from too few draws to say."""
        from numpyro.diagnostics import split_gelman_rubin

        parts = (np.asarray(part).reshape(*self.diverging.shape, -1) for part in (self.theta, self.G, self.noise))
        draws = np.concatenate(list(parts), axis=-1)
        draws = draws[..., np.ptp(draws, axis=(0, 1)) > 0]
        if draws.shape[1] < _LEAST or not draws.shape[2]:
            return np.nan
        return float(np.max(split_gelman_rubin(draws)))


def sample(
    model: SDE, method: Method, pool: Pool, estimate: Estimate, *, draws: int, warmup: int, chains: int, key: Key
) -> Draws:
    """Draws from the posterior, started about the estimate; a warning where the chains disagree."""
    for word, number in (("draws", draws), ("warmup", warmup), ("chains", chains)):
        if not (isinstance(number, int) and number >= 1):
            raise InputError(f"{word} must be a whole number of at least 1, not {number!r}")
    if not isinstance(method, LikelihoodMethod):
        raise InputError(f"posterior needs a method with a likelihood, such as sf.ESGF(), not {method.name}")
    bare = eqx.tree_at(lambda e: e.trace, estimate, {})
    found = Draws(*PROGRAMS.run(_NUTS(draws, warmup, chains), model, method, pool, bare, key).value)
    if (r_hat := found.r_hat()) > _DISAGREE:
        warnings.warn(
            f"the chains of fit.posterior disagree (split-R̂ = {r_hat:.2f}, above {_DISAGREE}): their draws are not yet"
            " those of the posterior; raise warmup and draws, or take fit.intervals()",
            stacklevel=3,
        )
    return found


@dataclasses.dataclass(frozen=True)
class _NUTS:
    """The program of so many draws, after so many that adapt, in so many chains."""

    draws: int
    warmup: int
    chains: int

    def __call__(self, model: SDE, method: LikelihoodMethod, pool: Pool, estimate: Estimate, key: Key):
        from numpyro.infer import MCMC, NUTS  # here, not above: a second that most uses do not need

        posterior = PosteriorDensity.of(model, method, pool, estimate)
        center, half = posterior.begin(estimate)
        start_key, key = jax.random.split(key)
        begin = 0.5 * jax.random.normal(start_key, (self.chains, center.size))
        sampler = MCMC(
            NUTS(potential_fn=_potential(posterior, center, half), dense_mass=True, target_accept_prob=0.9),
            num_warmup=self.warmup, num_samples=self.draws, num_chains=self.chains,
            chain_method="vectorized", progress_bar=False,
        )  # fmt: skip
        sampler.run(key, init_params=begin, extra_fields=("diverging",))
        v = center[None, None, :] + sampler.get_samples(group_by_chain=True) @ half.T
        theta, G, noise = jax.vmap(jax.vmap(posterior.parts))(v)
        G, noise = jax.vmap(jax.vmap(pool.unstandardise_diffusion))(G), pool.unstandardise_std(noise)
        return theta, G, noise, sampler.get_extra_fields(group_by_chain=True)["diverging"]


def _potential(posterior: PosteriorDensity, center: Array, half: Array) -> Callable[[Array], Scalar]:
    """−log posterior in round coordinates, with a gradient of its own."""

    def both(z):
        value, gradient = posterior.log_density_and_gradient(center + half @ z)
        return -value, -(half.T @ gradient)

    @jax.custom_vjp
    def fn(z):
        return both(z)[0]

    fn.defvjp(both, lambda gradient, weight: (weight * gradient,))
    return fn
