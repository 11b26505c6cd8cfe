"""The posterior of θ, G and σ by NUTS, for methods with a likelihood.

The prior is the user's where a parameter has one, else uniform in θ within its bounds; the entries of G and σ are
normal about 0 with three times the spread of the data (of its increments over one typical spacing for G).
Coordinates are
those in which the likelihood is round at its maximum, so that the sampler has little left to learn.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._jax import settings
from sdefit._types import Array, Float, Key, Scalar, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.errors import InputError
from sdefit.inference.likelihood import Likelihood, filter_state
from sdefit.inference.parameterisation import cholesky_psd
from sdefit.methods.interface import LikelihoodMethod, Method
from sdefit.result import Estimate
from sdefit.uncertainty.importance import inverse_root

_WIDTH = 3.0  # of the prior on the entries of G and on σ, in standardised units


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """Draws in the user's units, (chains, draws, …), and which of them came after a divergence of the sampler."""

    theta: np.ndarray
    G: np.ndarray
    noise: np.ndarray
    diverging: np.ndarray


def sample(
    model: SDE, method: Method, pool: Pool, estimate: Estimate, *, draws: int, warmup: int, chains: int, key: Key
) -> Draws:
    """Draws from the posterior, started about the estimate."""
    for word, number in (("draws", draws), ("warmup", warmup), ("chains", chains)):
        if not (isinstance(number, int) and number >= 1):
            raise InputError(f"{word} must be a whole number of at least 1, not {number!r}")
    if not isinstance(method, LikelihoodMethod):
        raise InputError(f"posterior needs a method with a likelihood, such as sf.ESGF(), not {method.name}")
    with settings():
        pool, estimate = jax.tree.map(jnp.asarray, (pool, estimate))
        likelihood = method.likelihood(model, pool, estimate)
        u, diverging = _nuts(likelihood, filter_state(estimate).coordinates, draws, warmup, chains, key)
        theta, G, noise = jax.jit(jax.vmap(jax.vmap(lambda u: _parts(likelihood, u))))(u)
        G, noise = jax.vmap(jax.vmap(pool.unstandardise_diffusion))(G), pool.unstandardise_std(noise)
        return Draws(*(np.asarray(a) for a in (theta, G, noise, diverging)))


def _nuts(likelihood: Likelihood, center: Theta, draws: int, warmup: int, chains: int, key: Key) -> tuple[Array, Array]:
    from numpyro.infer import MCMC, NUTS  # here, not above: a second that most uses do not need

    half = jax.jit(lambda u: _half(likelihood, u))(center)
    start_key, key = jax.random.split(key)
    begin = 0.5 * jax.random.normal(start_key, (chains, center.size))
    fn = _potential(likelihood, center, half)
    sampler = MCMC(
        NUTS(potential_fn=fn, dense_mass=True, target_accept_prob=0.9),
        num_warmup=warmup, num_samples=draws, num_chains=chains, chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    sampler.run(key, init_params=begin, extra_fields=("diverging",))
    v = sampler.get_samples(group_by_chain=True)
    return center[None, None, :] + v @ half.T, sampler.get_extra_fields(group_by_chain=True)["diverging"]


def _half(likelihood: Likelihood, u: Theta) -> Float[Array, "coordinates coordinates"]:
    """A root of the covariance of the coordinates, as far as curvature tells it."""
    spreads = np.repeat([0.0, 1.0, 1.0, 1.0, 0.0], likelihood.parameterisation.sizes)
    return inverse_root(likelihood(u).curvature + jnp.diag(spreads / _WIDTH**2))


def _potential(likelihood: Likelihood, center: Theta, half) -> Callable[[Theta], Scalar]:
    """−log posterior in round coordinates, with the gradient that runs forward through the filter."""

    def both(v):
        u = center + half @ v
        at = likelihood(u)
        value, slope = jax.value_and_grad(likelihood.parameterisation.minus_log_density)(u, _WIDTH)
        total, gradient = at.value + value, half.T @ (at.gradient + slope)
        sound = jnp.isfinite(total) & jnp.all(jnp.isfinite(gradient))
        return jnp.where(sound, total, 1e10), jnp.where(sound, gradient, 0.0)

    @jax.custom_vjp
    def fn(v):
        return both(v)[0]

    fn.defvjp(both, lambda gradient, weight: (weight * gradient,))
    return fn


def _parts(likelihood: Likelihood, u: Theta) -> tuple[Array, Array, Array]:
    point = likelihood.parameterisation.point(likelihood.parameterisation.variance_params(u))
    return point.theta, cholesky_psd(point.Q), jnp.sqrt(point.variance)
