"""Where searches begin for models with hidden states or a given diffusion: the likeliest of many random points.

The units of the data give the size of each parameter but for one thing: how fast the system moves. So each candidate
draws a time scale, from the spacing of the rows to the length of the series, and θ about its units at that scale. A
filter pass says how likely each of them is. Where every state is measured, half of them have the θ at which the drift
explains the increments of the data best.
"""

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import ScaledBounds, parameter_units
from sdefit.inference.increments import SPANS, Increments, interpolated
from sdefit.inference.initial_guess import InitialGuesses
from sdefit.inference.likelihood import filter_pool, filtered_path, step_counts
from sdefit.inference.parameterisation import Parameterisation
from sdefit.matching.latent_process import observations
from sdefit.priors import noise_levels
from sdefit.ssm.moments import Rule

_CANDIDATES = 128
_FAR = 30.0  # units, at most, that hidden states begin away from their center
_STEPS = 2  # of the filter between two rows, for the candidates
_LOOSE = 0.1  # artificial diffusion for candidates of hidden states: variance in one typical spacing


def guess_by_candidates(
    parameterisation: Parameterisation, start: Theta, count: int, key: Key, rule: Rule
) -> InitialGuesses:
    """The `count` likeliest candidates, as many after them, and the steps that the filter needs at the first ones."""
    model, pool = parameterisation.model, parameterisation.pool
    u = _candidates(parameterisation, start, key)
    steps = jnp.where(jnp.diff(pool.times, axis=1, prepend=pool.times[:, :1]) > 0, _STEPS, 0).astype(jnp.int32)
    extra = _LOOSE if model.hidden else 0.0

    def misfit(u):
        point = parameterisation.point(parameterisation.variance_params(u), extra)
        total, done = filter_pool(model, pool, point, steps, rule)
        return jnp.where(jnp.isfinite(total), -total, jnp.inf), filtered_path(model, pool, point, done)

    misfits = jax.lax.map(lambda u: misfit(u)[0], u)
    order = jnp.argsort(misfits)
    begin, more = u[order[:count]], u[order[count : 2 * count]]
    path = misfit(begin[0])[1]
    path = jnp.where(jnp.isfinite(path), path, state_path(model, pool))
    thetas = jax.vmap(parameterisation.bounds.constrain)(begin[:, : len(model.free)])
    return InitialGuesses(begin, more, step_counts(model, pool, path, thetas), jnp.ones(len(model.free)))


def state_path(model: SDE, pool: Pool) -> Float[Array, "series times state"]:
    """The states as the columns show them, missing values interpolated; a hidden one at its center."""
    columns = interpolated(pool)
    hidden = jnp.zeros(columns.shape[:2])
    direct = {k: d for d, k in enumerate(model.direct) if k is not None}
    return jnp.stack([columns[..., direct[k]] if k in direct else hidden for k in range(len(model.states))], axis=-1)


def _candidates(parameterisation: Parameterisation, start: Theta, key: Key) -> Float[Array, "candidates coordinates"]:
    model, pool, bounds = parameterisation.model, parameterisation.pool, parameterisation.bounds
    P, n = len(model.free), _CANDIDATES
    keys = jax.random.split(key, 5)
    theta = _in_units(parameterisation, keys[0])
    given = jnp.where(jnp.isnan(start), 0.0, bounds.unconstrain(jnp.nan_to_num(start, nan=1.0)))
    about = given[None, :] + 0.5 * jax.random.normal(keys[1], (n, P)) * (jnp.arange(n) > 0)[:, None]
    theta = jnp.where(jnp.isnan(start)[None, :], theta, about)
    if not model.hidden and P:
        theta = _with_increments(parameterisation, theta, start)
    levels = noise_levels(observations(pool))
    # The roughness of a column is noise, or it is not: observation noise at its level, or up to a hundredth of that.
    less = jnp.exp(-4.6 * jax.random.uniform(keys[2], (n, 1)) * (jnp.arange(n) % 2)[:, None])
    noise = jnp.exp(levels.log_noise)[None, :] * less
    direct = {k: d for d, k in enumerate(model.direct) if k is not None}
    usual = jnp.stack([jnp.exp(levels.log_G[direct[k]]) if k in direct else jnp.ones(()) for k in
                       range(len(model.states))])  # fmt: skip
    diffusion = usual[None, :] * jnp.exp(jax.random.normal(keys[3], (n, len(model.states))))
    # A hidden state may begin far from what is seen of the others: from one to thirty units away.
    far = jnp.exp(jnp.log(_FAR) * jax.random.uniform(keys[2], (n, 1)))
    first = far * jax.random.normal(keys[4], (n, parameterisation.sizes[4])) * (jnp.arange(n) > 0)[:, None]
    return jax.vmap(parameterisation.begin)(theta, diffusion, noise, first)


def _in_units(parameterisation: Parameterisation, key: Key) -> Float[Array, "candidates params"]:
    """Unconstrained θ about its units, each candidate with a time scale of its own."""
    model, pool, bounds = parameterisation.model, parameterisation.pool, parameterisation.bounds
    scale_key, key = jax.random.split(key)
    log_span = jnp.log(jnp.maximum(jnp.max(pool.times), 2.0))
    time = jnp.exp(log_span * jax.random.uniform(scale_key, (_CANDIDATES,)))
    unit = jax.vmap(lambda time: parameter_units(model, pool, time))(time) / bounds.unit[None, :]
    normal = jax.random.normal(key, unit.shape)
    return jnp.where(bounds.one_sided, jnp.log(unit) + normal, jnp.where(bounds.two_sided, 1.5 * normal, unit * normal))


def _with_increments(parameterisation: Parameterisation, theta: Array, start: Theta) -> Array:
    """Every second candidate with the drift that explains the increments best; what is not in the drift stays."""
    model, pool = parameterisation.model, parameterisation.pool
    increments = Increments(model, pool, state_path(model, pool), ScaledBounds.of(model, pool))
    agreed = increments.agree(theta[:4], parameterisation.max_step[: theta.shape[1]])
    in_drift = jnp.diagonal(agreed.curvature, axis1=1, axis2=2) > 0
    lane = np.arange(theta.shape[0]) // 2 % len(SPANS)
    use = (np.arange(theta.shape[0]) % 2 == 1)[:, None] & in_drift[lane] & jnp.isnan(start)[None, :]
    return jnp.where(use & jnp.isfinite(agreed.u[lane]), agreed.u[lane], theta)
