"""Which scheme a simulation takes: what each needs of the diffusion is tried at states near the first one."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array
from sdefit.data.inputs import Table, at_time
from sdefit.dynamics.schemes import SCHEMES, diffusion_slopes
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError

_NEAR = 4  # states and times at which the diffusion is looked at, each of them
_ROUNDING = 1e-9  # share of the largest slope below which two of them are equal


class NoiseStructure(NamedTuple):
    """What a diffusion g(t, x) proves to be at some points.

    `smooth`: its derivatives are finite at the first state. `commutes`: L^j g_k = L^k g_j for any two of its columns.
    `additive`: it does not depend on the states.
    """

    smooth: bool
    commutes: bool
    additive: bool


def choose_scheme(
    model: SDE, scheme: str | None, theta: np.ndarray, x0: np.ndarray, times: np.ndarray, table: Table | None
) -> str:
    """The scheme asked for, if it suits the model's diffusion; by default the best of "euler" and "milstein"."""
    if scheme is not None and scheme not in SCHEMES:
        raise ModelError(f"scheme must be one of {', '.join(SCHEMES)}, not {scheme!r}")
    if model.diffusion != "given" or scheme == "euler":
        return scheme or "euler"
    noise = noise_structure(model, theta, x0, times, table)
    if scheme is None:
        return "milstein" if noise.smooth and noise.commutes and not noise.additive else "euler"
    if scheme == "shark" and not noise.additive:
        raise ModelError("scheme 'shark' needs a diffusion that does not depend on the states; use 'milstein'")
    if scheme == "milstein" and not noise.smooth:
        raise ModelError(
            "scheme 'milstein' needs a diffusion with finite derivatives at x0; use 'euler', or another x0"
        )
    if scheme == "milstein" and not noise.commutes:
        raise ModelError(
            "scheme 'milstein' needs noises that commute, as where each acts on one state and depends on that state"
            " alone, but the model's do not; use 'euler'"
        )
    return scheme


def noise_structure(
    model: SDE, theta: np.ndarray, x0: np.ndarray, times: np.ndarray, table: Table | None
) -> NoiseStructure:
    """The structure of a given diffusion, from its derivatives at x0 and states near it, at times of the simulation.

    Nearby states are looked at too because noise that is proportional to a state commutes with all where that is 0.
    """
    rng = np.random.default_rng(0)
    away = rng.normal(size=(_NEAR, x0.size)) * 0.1 * (np.arange(_NEAR) > 0)[:, None]
    states = np.where(x0 == 0, np.abs(away), x0 * np.exp(away))
    some = times[np.linspace(0, len(times) - 1, _NEAR).astype(int)]
    slopes, gradients = (np.asarray(one) for one in _derivatives(model, theta, states, some, table))
    finite = np.isfinite(slopes).all(axis=(2, 3, 4)) & np.isfinite(gradients).all(axis=(2, 3, 4))
    slopes, gradients, smooth = slopes[finite], gradients[finite], bool(finite[0, 0])
    size = np.max(np.abs(slopes), axis=(1, 2, 3), initial=0.0, keepdims=True)
    commutes = bool(np.all(np.abs(slopes - slopes.transpose(0, 3, 2, 1)) <= _ROUNDING * size))
    return NoiseStructure(smooth, commutes, smooth and not gradients.any())


@functools.partial(jax.jit, static_argnums=0)
def _derivatives(model: SDE, theta: Array, states: Array, times: Array, table: Table | None) -> Any:
    """At each state and time L^j g_k for all pairs of noises, and the derivatives of g in the states."""

    def g(t, x):
        return model.g(at_time(t, table), x, theta)

    def one(x, t):
        return diffusion_slopes(g, t, x), jax.jacfwd(lambda x: g(t, x))(x)

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(jnp.asarray(states), jnp.asarray(times))
