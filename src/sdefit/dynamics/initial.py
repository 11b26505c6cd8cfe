"""Where simulated states begin: at an x0 that is given, or as the model says."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Key
from sdefit.data.inputs import Table, at_time
from sdefit.dynamics.arguments import per_name
from sdefit.dynamics.sde import SDE
from sdefit.errors import InputError

_STARTS = 60  # of the search for states at which the drift is zero
_OWN_DRAW = 2**32 - 1  # the number of a random draw that no step of a path has


class Start(NamedTuple):
    """The normal distribution of the first state: its mean, and a factor of its covariance, None for no spread."""

    mean: Float[Array | np.ndarray, "state"]
    factor: Float[Array | np.ndarray, "state state"] | None

    def draw(self, key: Key) -> Float[Array, "state"]:
        """The first state of the path that has this key."""
        if self.factor is None:
            return jnp.asarray(self.mean)
        normal = jax.random.normal(jax.random.fold_in(key, np.uint32(_OWN_DRAW)), self.mean.shape)
        return jnp.asarray(self.mean) + jnp.sum(self.factor * normal[None, :], axis=1)


def read_start(model: SDE, x0: Any, theta: np.ndarray, G: np.ndarray | None, time: float, table: Table | None) -> Start:
    """The first state: x0 where it is given, else what the model knows of it."""
    if x0 is None and isinstance(model.initial, str):
        mean = _rest(model, theta, time, table)
        spread = _stationary_factor(model, theta, G, time, table, mean) if model.initial == "stationary" else None
        return Start(mean, spread)
    known = () if model.initial is None or isinstance(model.initial, str) else model.initial
    means, stds = {name: mean for name, mean, _ in known}, {name: std for name, _, std in known}
    if x0 is not None and not isinstance(x0, Mapping):
        return Start(per_name("x0", model.states, x0, single=len(model.states) == 1), None)
    if x0 is None and not known:
        raise InputError(f"x0 must be given: one number each for {', '.join(model.states)}")
    given = {} if x0 is None else dict(x0)
    if unknown := [one for one in given if one not in model.states]:
        raise InputError(f"x0 must name states ({', '.join(model.states)}), not {unknown[0]!r}")
    if missing := [one for one in model.states if one not in given and one not in means]:
        raise InputError(f"x0 must give every state that the model's initial does not, but lacks {', '.join(missing)}")
    mean = per_name("x0", model.states, [(means | given)[one] for one in model.states], single=False)
    std = np.array([0.0 if one in given else stds[one] for one in model.states])
    return Start(mean, np.diag(std) if std.any() else None)


def _rest(model: SDE, theta: np.ndarray, time: float, table: Table | None) -> np.ndarray:
    """The one state at which the drift is zero, or the one stable of several."""
    points = _zeros(model, theta, time, table)
    stable = [one for one in points if _growth(_drift(model, theta, one, time, table)[1]) < 0]
    several = stable or points
    if len(several) == 1:
        return several[0]
    if not several:
        raise InputError("x0 must be given, as no isolated state was found at which the drift is zero")
    text = ", ".join(str(one.round(4).tolist()) for one in several[:3])
    raise InputError(f"x0 must be given, as the drift is zero at several states: {text}")


def _zeros(model: SDE, theta: np.ndarray, time: float, table: Table | None) -> list[np.ndarray]:
    """The different states at which the drift is zero, searched from many of all sizes and signs."""
    from scipy.optimize import fsolve  # here, not above: most simulations do without it

    rng, K = np.random.default_rng(0), len(model.states)
    starts = 10.0 ** (rng.uniform(-2, 6, size=(_STARTS, 1)) + rng.normal(scale=0.5, size=(_STARTS, K)))
    starts[1::2] *= rng.choice([-1.0, 1.0], starts[1::2].shape)
    found: list[np.ndarray] = []
    for start in [np.zeros(K), np.ones(K), *starts]:
        with np.errstate(all="ignore"):
            x = fsolve(lambda x: np.asarray(_drift(model, theta, x, time, table)[0]), start, full_output=True)[0]
        f, slope = (np.asarray(one) for one in _drift(model, theta, x, time, table))
        finite = np.isfinite(f).all() and np.isfinite(slope).all()
        if not finite or np.linalg.matrix_rank(slope) < K:
            continue
        # A Newton step that is still long belongs to a drift that only fades away.
        step = np.linalg.solve(slope, f)
        settled = np.all(np.abs(step) <= 1e-6 * (1 + np.abs(x)))
        if settled and not any(np.allclose(x, one, rtol=1e-5, atol=1e-5) for one in found):
            found.append(x - step)
    return found


def _stationary_factor(
    model: SDE, theta: np.ndarray, G: np.ndarray | None, time: float, table: Table | None, rest: np.ndarray
) -> np.ndarray:
    """A factor of the covariance P of dz = A z dt + G dw, the equation linearised at rest: A P + P Aᵀ + G Gᵀ = 0."""
    A = np.asarray(_drift(model, theta, rest, time, table)[1])
    if G is None:
        now, x = at_time(jnp.asarray(time), table), jnp.asarray(rest)
        G = np.asarray(model.g(now, x, jnp.asarray(theta)))
    if _growth(A) >= 0:
        raise InputError("x0 must be given, as the linearised equation has no stationary distribution")
    unit = np.eye(rest.size)
    P = np.linalg.solve(np.kron(A, unit) + np.kron(unit, A), -(G @ G.T).ravel()).reshape(A.shape)
    values, vectors = np.linalg.eigh((P + P.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _growth(slope: Any) -> float:
    """The largest rate at which the linearised equation grows; negative where it is stable."""
    return float(np.max(np.real(np.linalg.eigvals(np.asarray(slope)))))


@functools.partial(jax.jit, static_argnums=0)
def _drift(model: SDE, theta: Array, x: Array, time: Array, table: Table | None) -> Any:
    """The drift at one state, and its derivatives."""

    def f(x):
        return model.f(at_time(time, table), x, theta)

    return f(x), jax.jacfwd(f)(x)
