"""The standardised drift and its Jacobian along whole paths."""

from collections.abc import Callable

import jax

from sdefit._types import Array, Float, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE

Path = Float[Array, "series times state"]
PathDrift = Callable[[Path, Theta], Path]


def drift_on_path(model: SDE, pool: Pool, times: Float[Array, "series times"]) -> PathDrift:
    """f(x, θ) at these times, as a function of a path x and of θ."""

    def drift(x: Path, theta: Theta) -> Path:
        one = pool.drift(lambda t, state: model.f(t, state, theta))
        return over_series(jax.vmap(one, in_axes=(0, 0, None)))(times, x, pool.origins)

    return drift


def jacobian_on_path(
    model: SDE, pool: Pool, times: Float[Array, "series times"]
) -> Callable[[Path, Theta], Float[Array, "series times state state"]]:
    """∂f/∂x at these times, as a function of a path x and of θ."""

    def jacobian(x: Path, theta: Theta):
        one = pool.drift(lambda t, state: model.f(t, state, theta))
        along = jax.vmap(jax.jacfwd(one, argnums=1), in_axes=(0, 0, None))
        return over_series(along)(times, x, pool.origins)

    return jacobian
