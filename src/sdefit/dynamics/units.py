"""The units of parameters, read off the drift: how each must change where states, time and inputs get other units.

Let states be multiplied by e^{a_k}, time by e^b, inputs by e^{c_m} and parameters by e^{e_j}. The equation stays the
same if f_i is then multiplied by e^{a_i − b}. Differentiated at 0 (Euler's theorem on homogeneous functions) that is

    Σ_k a_k x_k ∂f_i/∂x_k + b t ∂f_i/∂t + Σ_m c_m u_m ∂f_i/∂u_m + Σ_j e_j θ_j ∂f_i/∂θ_j = (a_i − b) f_i

at every point: linear in the exponents. Its solutions are all the changes of units that the drift allows. A number
with a unit inside the drift, as the 1 of x (1 − x), allows fewer: it ties the units of the data to its own.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Theta
from sdefit.data import Pool
from sdefit.dynamics.parameters import Bounds
from sdefit.dynamics.sde import SDE

_POINTS = 40  # at which the drift is looked at
_RANK = 1e-7  # share of the largest singular value below which one is rounding
_LOWEST = -70.0  # logarithm of the least distance from a bound, in units


class ScaledBounds(eqx.Module):
    """`Bounds` whose unconstrained coordinates are free of the user's units.

    A distance from a single bound is counted in units of the parameter, and so is a real number.
    """

    bounds: Bounds = eqx.field(static=True)
    unit: Theta

    @classmethod
    def of(cls, model: SDE, pool: Pool) -> "ScaledBounds":
        """The bounds of θ in the units that the data give it."""
        return cls(model.bounds, parameter_units(model, pool))

    @property
    def edges(self) -> Theta:
        return self.bounds.edges

    @property
    def one_sided(self) -> np.ndarray:
        """Which parameters have a single bound: their coordinate is a logarithm."""
        return np.isfinite(self.bounds.lower) != np.isfinite(self.bounds.upper)

    @property
    def two_sided(self) -> np.ndarray:
        """Which parameters have two."""
        return np.isfinite(self.bounds.lower) & np.isfinite(self.bounds.upper)

    def constrain(self, u: Theta) -> Theta:
        """θ(u), in the user's units."""
        return self.bounds.constrain(jnp.where(self.one_sided, u + jnp.log(self.unit), self._factor * u))

    def unconstrain(self, theta: Theta) -> Theta:
        """u(θ); a θ on or outside a bound is first moved just inside."""
        u = self.bounds.unconstrain(theta)
        return jnp.where(self.one_sided, jnp.maximum(u - jnp.log(self.unit), _LOWEST), u / self._factor)

    @property
    def _factor(self) -> Theta:
        """Of real parameters; between two bounds the interval is the unit."""
        real = np.isinf(self.bounds.lower) & np.isinf(self.bounds.upper)
        return jnp.where(real, self.unit, 1.0)


def parameter_units(model: SDE, pool: Pool) -> Theta:
    """What 1 of each free parameter is in units of the data: of their spread, their spacing and their inputs' size."""
    if not model.free:
        return jnp.zeros(0)
    sizes = [pool.scale, jnp.reshape(pool.time_scale, 1)]
    if pool.inputs is not None:
        sizes.append(jnp.stack([_size(pool.inputs[1][name]) for name in model.inputs]))
    return jnp.exp(jnp.asarray(exponents(model)) @ jnp.log(jnp.concatenate(sizes)))


def _size(values: Array) -> Array:
    """The largest size of an input; 1 for one that is always 0."""
    largest = jnp.max(jnp.abs(values))
    return jnp.where(largest > 0, largest, 1.0)


@functools.lru_cache(maxsize=256)
def exponents(model: SDE) -> Float[np.ndarray, "params sizes"]:
    """Exponents of each free parameter in the units of the states, of time and of the inputs.

    Where a change of units is not possible, the nearest one that is takes its place. A fixed parameter changes with
    the units, unless more changes are possible if it does not, as for an exponent.
    """
    free = np.array([not parameter.fixed for _, parameter in model.parameters], bool)
    found = [_changes(model, vary) for vary in ([free] if free.all() else [np.ones_like(free), free])]
    sizes, params = max(found, key=lambda pair: np.linalg.matrix_rank(pair[0], tol=_RANK))
    return np.round(params @ np.linalg.pinv(sizes, rcond=_RANK), 9)[free] + 0.0


def _changes(model: SDE, vary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A basis of all changes of units: the part of states, time and inputs, and that of the parameters that `vary`."""
    (points, f, slope), K = _look(model, vary), len(model.states)
    rows = slope * points[:, None, :]
    rows[:, :, :K] -= f[:, :, None] * np.eye(K)[None]
    rows[:, :, K] += f
    first = points.shape[1] - vary.size  # of the parameters
    rows = rows.reshape(-1, points.shape[1])
    size = np.max(np.abs(rows), axis=1)
    rows = rows[np.isfinite(size) & (size > 0)]
    rows = rows / np.max(np.abs(rows), axis=1, keepdims=True)
    held = np.eye(points.shape[1])[first:][~vary]
    _, values, vectors = np.linalg.svd(np.concatenate([rows, held]))
    values = np.pad(values, (0, len(vectors) - len(values)))
    basis = vectors[values <= _RANK * max(1.0, values[0])].T
    return basis[:first], basis[first:]


def _look(model: SDE, vary: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random points (states, time, inputs, parameters), the drift at each, and its derivative there."""
    K, params, rng = len(model.states), dict(model.parameters), np.random.default_rng(0)
    first = K + 1 + len(model.inputs)
    points = np.exp(rng.normal(size=(_POINTS, first + len(params))))
    points[1::2, :K] *= rng.choice([-1.0, 1.0], points[1::2, :K].shape)
    points[:, first:] *= [-1.0 if one.upper <= 0 else 1.0 for one in params.values()]
    held = {name: one.value for (name, one), free in zip(params.items(), vary, strict=True) if not free}

    def drift(z):
        named = dict(zip([*model.inputs, *params], z[K + 1 :], strict=True))
        return model.f_named(z[K], z[:K], named | held)

    def slopes(z, directions):  # not `jacfwd`, whose directions would each be made by a program of their own here
        return jax.vmap(lambda one: jax.jvp(drift, (z,), (one,)), out_axes=(None, -1))(directions)

    try:
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            look = jax.jit(jax.vmap(slopes, (0, None)), compiler_options={"xla_backend_optimization_level": 0})
            f, slope = look(points, np.eye(points.shape[1]))
    except jax.errors.ConcretizationTypeError:  # a fixed parameter that must be a plain number
        return points[:0], np.zeros((0, K)), np.zeros((0, K, points.shape[1]))
    return points, np.array(f), np.array(slope)
