"""Where the searches of a likelihood begin: from increments of the data, and from the user's own start values."""

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Int, Key, Theta
from sdefit.dynamics.units import ScaledBounds
from sdefit.inference.increments import SPANS, Increments, exchanged
from sdefit.inference.likelihood import step_counts
from sdefit.inference.parameterisation import Parameterisation
from sdefit.matching.mean_matching import spread_starts

_TRIES = 6  # searches for start values per span


class InitialGuesses(eqx.Module):
    """Where the searches begin, and more of them if need be; the filter's steps, and the scale of each parameter."""

    begin: Float[Array, "starts coordinates"]
    more: Float[Array, "starts coordinates"]
    steps: Int[Array, "series times"]
    scales: Theta


def guess_by_increments(
    parameterisation: Parameterisation, increments: Increments, start: Theta, count: int, key: Key
) -> InitialGuesses:
    """Starts from the increments of the data, and the user's own where there is one."""
    model, pool, size, bounds = (
        parameterisation.model,
        parameterisation.pool,
        len(parameterisation.model.free),
        parameterisation.bounds,
    )
    given = jnp.where(jnp.isnan(start), 0.5, bounds.unconstrain(jnp.nan_to_num(start)))
    random = jax.random.normal(key, (_TRIES + count, size))
    # Half of them about the user's start, half about none: a start that is far off must not spoil the others.
    about = jnp.where((jnp.arange(_TRIES) % 2 == 0)[:, None], given[None, :], 0.5)
    tries = about + jnp.where(jnp.arange(_TRIES)[:, None] > 1, 1.5 * random[:_TRIES], 0.0)
    agreed = increments.agree(tries, parameterisation.max_step[:size])
    scales = increments.scales(agreed)
    matched = jax.vmap(lambda u: searchable(bounds, u, scales))(agreed.u)
    steps = step_counts(model, pool, increments.path, jax.vmap(bounds.constrain)(matched))
    # The user's own start comes first where there is one, and the matched ones after it.
    own = ~jnp.any(jnp.isnan(start))
    lane = jnp.arange(count) - own
    u = matched[lane % len(SPANS)] + jnp.where((lane >= len(SPANS))[:, None], random[_TRIES:], 0.0)
    u = jnp.where((lane < 0)[:, None], given[None, :], u)
    spread = spread_starts(bounds, scales, jnp.full(size, jnp.nan), count, jax.random.fold_in(key, 1))

    def begun(u, odd):
        own = increments.noises(u)
        other = exchanged(*own)
        diffusion, noise = (jnp.where(odd, b, a) for a, b in zip(own, other, strict=True))
        return parameterisation.begin(u, diffusion, noise, increments.path[:, 0])

    begin = jax.vmap(begun)(jnp.concatenate([u, spread]), jnp.arange(2 * count) % 2 == 1)
    return InitialGuesses(begin[:count], begin[count:], steps, scales)


def searchable(bounds: ScaledBounds, u: Theta, scales: Theta) -> Theta:
    """u moved to where a search can leave it: a twentieth of its scale off a bound, and within ten of a bound or 0.

    A rate that matching takes for 0 is dead there: its coordinate is a logarithm, in which the likelihood is flat.
    """
    away = jnp.abs(scales / bounds.unit)
    logs = jnp.log(away)
    lowest, highest = (
        jnp.where(bounds.one_sided, logs - 3.0, -10 * away),
        jnp.where(bounds.one_sided, logs + 2.3, 10 * away),
    )
    return jnp.where(bounds.two_sided, jnp.clip(u, -4.0, 4.0), jnp.clip(u, lowest, highest))
