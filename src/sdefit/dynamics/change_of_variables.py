"""The change of variables after which the noise of a model is constant (Lamperti), found without being asked for.

Let row i of the diffusion be g_i(t, x, θ) = g₀(x_i) s_i(t, θ), with a scale g₀ of its own for each state and a row
s_i that is free of x. Then z_i = ∫ dx_i/g₀(x_i) obeys, by Itô's formula,

    dz_i = (f_i(t, x, θ)/g₀(x_i) − ½ |s_i|² g₀'(x_i)) dt + s_i dw,        x_i = x_i(z_i).
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float
from sdefit.dynamics.model_in_z import DiffusionInZ, DriftInZ, Shapes, exact_columns, model_in_z, per_state, scales
from sdefit.dynamics.noise_recognition import TOLERANCE, draw, noise_shapes
from sdefit.dynamics.noise_shapes import NoiseShape
from sdefit.dynamics.sde import SDE


@dataclasses.dataclass(frozen=True)
class ChangeOfVariables:
    """A model in coordinates z = z(x) in which its noise is constant, and the way between x and z.

    **Attributes**
    - `original`: the model in x.
    - `model`: the model in z, of the same names. A column that measures a transformed state without noise measures z
      there, so its data are to be transformed too; every other column is h(t, x(z), θ), and its data stay as they are.
    - `shapes`: for each state how its noise depends on it, None where the state is not transformed.

    An initial value and its standard deviation are transformed too. A word stays as it is, but where f = 0 the drift
    of z is not 0, by Itô's term: a state at rest is to be found in `original`, and `to_z` of it taken.

    Where a constant of a shape is an estimated parameter, `to_z` and `to_x` need `p`, its value by name.
    """

    original: SDE
    model: SDE
    shapes: Shapes

    @property
    def sentence(self) -> str:
        """What was done, in one sentence."""
        done = [(name, shape) for name, shape in zip(self.original.states, self.shapes, strict=True) if shape]
        zs = ["z"] if len(done) == 1 else [f"z_{name}" for name, _ in done]
        formulas = _listed([f"{z} = {shape.formula(name)}" for z, (name, shape) in zip(zs, done, strict=True)])
        states = _listed([name for name, _ in done])
        head = f"The state {states} was" if len(done) == 1 else f"The states {states} were"
        return f"{head} transformed to {formulas}, in which the noise is constant."

    @property
    def exact(self) -> tuple[int | None, ...]:
        """For each column the index of the transformed state that it measures without noise, None for the others."""
        return exact_columns(self.original, self.shapes)

    def for_gap(self, gap: float) -> "ChangeOfVariables":
        """The same with a drift that stays finite at the ends of z, for data with about such a time between rows.

        The gap is rounded to a power of two, so that data alike give equal models, which share compiled programs.
        """
        rounded = 2.0 ** round(math.log2(gap)) if gap > 0 and math.isfinite(gap) else None
        drift = DriftInZ(self.original, self.shapes, rounded)
        return dataclasses.replace(self, model=self.model.replace(drift=drift))

    def to_z(self, x: Any, p: Mapping[str, Any] | None = None) -> Any:
        """z of x; the states are the last axis. x must be inside the domain."""
        return per_state(self.shapes, x, p or {}, lambda shape, one: shape.to_z(one))

    def to_x(self, z: Any, p: Mapping[str, Any] | None = None) -> Any:
        """x of z; the states are the last axis. It increases in every z, so it takes quantiles to quantiles."""
        return per_state(self.shapes, z, p or {}, lambda shape, one: shape.to_x(one))

    def transform_column(self, column: str, values: np.ndarray) -> np.ndarray:
        """The data of one column for the model in z: transformed if it measures a transformed state without noise."""
        shape = self._shape_of(column)
        return values if shape is None else shape.to_z(np.asarray(values, float))

    def log_slope(self, column: str, values: np.ndarray) -> np.ndarray:
        """log dz/dx at each measured value of a column: added to a log density of z it makes one of the value."""
        shape = self._shape_of(column)
        values = np.asarray(values, float)
        return np.zeros_like(values) if shape is None else -np.log(shape.g0(shape.to_z(values)))

    def refusal(self, values: Float[np.ndarray, "times columns"]) -> str:
        """Why data, one column for each of the model's, cannot be of the model in z; empty if they can.

        A value without noise must be inside the domain. Noise may carry a value out of it, but not most of them.
        """
        for j, state in enumerate(self.original.direct):
            shape = None if state is None else self.shapes[state]
            if state is None or shape is None or shape.names:
                continue
            column = np.asarray(values, float)[:, j]
            column, (low, high) = column[np.isfinite(column)], shape.domain
            outside = column[(column <= low) | (column >= high)]
            if outside.size and (self.exact[j] is not None or 2 * outside.size > column.size):
                name = self.original.states[state]
                measured = "" if self.original.observations[j] == name else f" by {self.original.observations[j]}"
                return (
                    f"z = {shape.formula(name)} needs {shape.domain_text(name)}, "
                    f"but {name} = {outside[0]:g} was observed{measured}."
                )
        return ""

    def _shape_of(self, column: str) -> NoiseShape | None:
        state = self.exact[self.original.observations.index(column)]
        return None if state is None else self.shapes[state]


def change_of_variables(model: SDE) -> ChangeOfVariables | None:
    """The model in coordinates in which its noise is constant, or None where there are none in closed form.

    It is for models that give their diffusion, of which some depends on x. `why_unchanged` says why there is None.

    >>> gbm = sf.SDE(lambda t, x, p: p["a"] * x, ["x"], {"a": sf.real(), "s": sf.positive()},
    ...              diffusion=lambda t, x, p: p["s"] * x)
    >>> change_of_variables(gbm).sentence
    'The state x was transformed to z = log(x), in which the noise is constant.'
    """
    found = _attempt(model)
    return None if isinstance(found, str) else found


def why_unchanged(model: SDE) -> str:
    """One sentence on why `change_of_variables` gives None; empty where it gives one."""
    found = _attempt(model)
    return found if isinstance(found, str) else ""


@functools.lru_cache(maxsize=32)
def _attempt(model: SDE) -> ChangeOfVariables | str:
    if model.g_function is None:
        return "The model gives no diffusion: its G is constant already."
    shapes = noise_shapes(model)
    if isinstance(shapes, str):
        return shapes
    if not any(shapes):
        return "The noise is constant already."
    if reason := _named_trouble(model, shapes) or _initial_trouble(model, shapes):
        return reason
    if reason := _verification(model, shapes):
        return reason
    return ChangeOfVariables(model, model_in_z(model, shapes), shapes)


def _named_trouble(model: SDE, shapes: Shapes) -> str:
    """Why a z that depends on an estimated parameter cannot be; empty if it can."""
    known = () if isinstance(model.initial, str | None) else [name for name, _, _ in model.initial]
    exact = [state for state in exact_columns(model, shapes) if state is not None]
    for i, (name, shape) in enumerate(zip(model.states, shapes, strict=True)):
        if shape is not None and shape.names and (i in exact or name in known):
            what = "is observed without noise" if i in exact else "has a given initial value"
            return f"The state {name} {what}, but its z would depend on the estimated {_listed(shape.names)}."
    return ""


def _initial_trouble(model: SDE, shapes: Shapes) -> str:
    if isinstance(model.initial, str | None):
        return ""
    for name, mean, _ in model.initial:
        shape = shapes[model.states.index(name)]
        if shape is not None and not shape.domain[0] < mean < shape.domain[1]:
            return f"z = {shape.formula(name)} needs {shape.domain_text(name)}, but initial says {name} = {mean:g}."
    return ""


def _verification(model: SDE, shapes: Shapes) -> str:
    """Whether g(x(z)) is g₀ times a row free of x at new random points of the whole domain; empty if it is."""
    rng = np.random.default_rng(1)
    draws = draw(model, rng, 16)
    scatter = rng.normal(size=draws.states.shape)
    diffusion = DiffusionInZ(model, shapes)

    def both(t: Any, names: Any, free: Any, scatter: Any) -> tuple[Array, Array]:
        def z_of(shape: NoiseShape | None, i: int) -> Array:
            return free[i] if shape is None else shape.at(names).middle + scatter[i]

        z = jnp.stack([z_of(shape, i) for i, shape in enumerate(shapes)])
        g = model.g_named(t, per_state(shapes, z, names, lambda shape, one: shape.to_x(one)), names)
        return g / scales(shapes, z, names)[:, None], diffusion(t, z, names)

    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.debug_nans(False):
        found, wanted = map(np.asarray, jax.vmap(both)(draws.times, draws.names, draws.states, scatter))
    size = np.max(np.abs(wanted), axis=2, keepdims=True)
    bad = ~(np.abs(found - wanted) <= 10 * TOLERANCE * size).all(axis=(0, 2))
    states = [name for name, one in zip(model.states, bad, strict=True) if one]
    return f"The noise of {_listed(states)} is no product of a known function of it and a scale." if states else ""


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
