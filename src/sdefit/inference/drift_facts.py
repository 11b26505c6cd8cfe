"""How the drift along a path depends on each parameter, for the status of a fit and for what its data identify."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Bool, Float, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.linalg import diagonal, product, solve

_RANK = 1e-12  # below this share, what a parameter adds to the others is no more than rounding
_STILL = 1e-3  # of the data's spread, or of an interval's width: a change that nobody sees


class DriftFacts(eqx.Module):
    """Facts about the drift f along a path.

    - `finite`: it is a finite number at every observed row.
    - `separable`: f changes with each parameter in a way that no combination of the others makes up for.
    - `at_bound`: a bounded parameter is at one of its bounds as far as anyone can see: moving its unconstrained
      coordinate by 1 shifts the path, over its whole span, by less than a thousandth of the data's spread; or it lies
      within a thousandth of its interval of an end.
    - `together`: which parameters stand in the drift of one and the same state.
    - `natural_scales`: what each parameter must change by to change f by as much as f is; infinite where it does not.
    """

    finite: Bool[Array, ""]
    separable: Bool[Array, "params"]
    at_bound: Bool[Array, "params"]
    together: Bool[Array, "params params"]
    natural_scales: Theta


def drift_facts(model: SDE, pool: Pool, theta: Theta, mean: Float[Array, "series times state"]) -> DriftFacts:
    """The facts at θ along the standardised path `mean`."""
    middle = model.bounds.constrain(jnp.full(len(model.free), 0.1))
    theta = jnp.where(jnp.isfinite(theta), theta, middle)
    states = pool.unstandardise_path(jnp.where(jnp.isfinite(mean), mean, pool.values))
    seen = jnp.any(pool.observed, axis=-1)

    def both(t, x, origin):
        t = pool.moment(t, origin)
        return model.f(t, x, theta), jax.jacfwd(model.f, argnums=2)(t, x, theta)

    f, slope = over_series(jax.vmap(both, (0, 0, None)))(pool.times, states, pool.origins)
    finite = jnp.all(jnp.isfinite(f) | ~seen[..., None])
    usable = seen[..., None, None] & jnp.isfinite(slope)
    columns = jnp.where(usable, slope / pool.scale[None, None, :, None], 0.0).reshape(f.size, theta.size)
    speed = jnp.where(seen[..., None] & jnp.isfinite(f), f / pool.scale[None, None, :], 0.0)
    size = jnp.sqrt(jnp.sum(columns**2, axis=0))
    natural_scale = jnp.where(size > 0, jnp.sqrt(jnp.sum(speed**2)) / jnp.where(size > 0, size, 1.0), jnp.inf)
    span = pool.time_scale * jnp.max(pool.times)
    rows = jnp.maximum(jnp.sum(seen), 1)
    stands = jnp.any(columns.reshape(*f.shape, theta.size) != 0, axis=(0, 1))
    return DriftFacts(
        finite=finite,
        separable=_separable(columns) & (size > 0),
        at_bound=_at_bound(model, theta, span * size / jnp.sqrt(rows)),
        together=jnp.any(stands[:, :, None] & stands[:, None, :], axis=0),
        natural_scales=natural_scale,
    )


def _at_bound(model: SDE, theta: Theta, shift: Theta) -> Bool[Array, "params"]:
    """`shift` is how far a path moves, in spreads of the data, when each parameter changes by 1."""
    lower, upper = np.array(model.bounds.lower), np.array(model.bounds.upper)
    both = np.isfinite(lower) & np.isfinite(upper)
    u = model.bounds.unconstrain(theta)
    growth = jnp.abs(jax.jvp(model.bounds.constrain, (u,), (jnp.ones_like(u),))[1])
    end = jnp.minimum(theta - lower, upper - theta) < _STILL * np.where(both, upper - lower, 0.0)
    bounded = np.isfinite(lower) | np.isfinite(upper)
    return jnp.asarray(bounded) & (end | ~(growth * shift > _STILL))


def _separable(columns: Float[Array, "rows params"]) -> Bool[Array, "params"]:
    """Which columns, each scaled to length one, are no combination of the others."""
    if not columns.shape[1]:
        return jnp.zeros(0, bool)
    largest = jnp.max(jnp.abs(columns), axis=0)
    columns = columns / jnp.where(largest > 0, largest, 1.0)[None, :]
    length = jnp.linalg.norm(columns, axis=0)
    columns = columns / jnp.where(length > 0, length, 1.0)[None, :]
    products = product(columns, columns)
    # The inverse has on its diagonal one over the square of what each column adds to the others.
    inverse = diagonal(solve(products, jnp.eye(products.shape[0])))
    sound = jnp.all(jnp.isfinite(inverse) & (inverse > 0))
    return jnp.where(sound, inverse < 1 / _RANK, False) & (length > 0)
