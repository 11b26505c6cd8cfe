"""A model in coordinates z in which its noise is constant: the parts of its `SDE`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from sdefit._types import Array
from sdefit.dynamics.laws import Normal
from sdefit.dynamics.noise_shapes import NoiseShape, array_module
from sdefit.dynamics.sde import SDE

Shapes = tuple[NoiseShape | None, ...]

# A log-likelihood by Gaussian beliefs of one CIR path each, of Feller ratios 0.7, 1.2 and 4, hardly changes from 0.1 to
# 0.25, but at 0.5 and more it is further from the exact one for the two lower ratios.
EDGE = 0.25


def model_in_z(model: SDE, shapes: Shapes) -> SDE:
    """The SDE of z; every function in it is a value that holds the original model."""
    exact = exact_columns(model, shapes)
    return model.replace(
        drift=DriftInZ(model, shapes),
        diffusion=DiffusionInZ(model, shapes),
        observe=ObservationInZ(model, shapes, exact),
        observations=model.observations,
        hidden=(),
        noise={
            name: dataclasses.replace(law, sd=SpreadInZ(shapes, law.sd)) if callable(law.sd) else law
            for name, law in zip(model.observations, model.laws, strict=True)
        },
        initial=_initial_in_z(model, shapes),
    )


def _initial_in_z(model: SDE, shapes: Shapes) -> Any:
    """The mean of z is z of the mean; its standard deviation is by the delta method."""
    if isinstance(model.initial, str | None):
        return model.initial
    changed: dict[str, tuple[float, float]] = {}
    for name, mean, std in model.initial:
        shape = shapes[model.states.index(name)]
        z = mean if shape is None else float(shape.to_z(mean))
        changed[name] = z, std if shape is None else float(std / shape.g0(z))
    return changed


@dataclasses.dataclass(frozen=True)
class DriftInZ:
    """The drift of z; a value, as are the other parts of a model in z.

    At the end of a range, as of z = 2√x at 0, the drift is infinite. Given a `gap` of time it is taken no closer to the
    end than EDGE standard deviations of the noise over that gap: what averages the drift over a belief then finds
    finite numbers at every point.
    """

    original: SDE
    shapes: Shapes
    gap: Any = None

    def __call__(self, t: Any, z: Array, p: Mapping[str, Any]) -> Array:
        variances = jnp.sum(DiffusionInZ(self.original, self.shapes)(t, z, p) ** 2, axis=1)
        if self.gap is not None:
            least = EDGE * jnp.sqrt(jnp.where(variances > 0, variances, 1.0) * self.gap)
            inside = [z[i] if one is None else one.at(p).away_from_edges(z[i], least[i])
                      for i, one in enumerate(self.shapes)]  # fmt: skip
            z = jnp.stack(inside)
        f = self.original.f_named(t, per_state(self.shapes, z, p, lambda shape, one: shape.to_x(one)), p)
        return f / scales(self.shapes, z, p) - 0.5 * variances * _slopes(self.shapes, z, p)


@dataclasses.dataclass(frozen=True)
class DiffusionInZ:
    """The diffusion of z: that of x divided by g₀, at one point, as it is the same at all."""

    original: SDE
    shapes: Shapes

    def __call__(self, t: Any, z: Array, p: Mapping[str, Any]) -> Array:
        middle = _middle(self.shapes, z, p)
        x = per_state(self.shapes, middle, p, lambda shape, one: shape.to_x(one))
        return self.original.g_named(t, x, p) / scales(self.shapes, middle, p)[:, None]


@dataclasses.dataclass(frozen=True)
class ObservationInZ:
    """What the columns measure: z itself where a transformed state is measured without noise, else h(t, x(z), θ)."""

    original: SDE
    shapes: Shapes
    exact: tuple[int | None, ...]

    def __call__(self, t: Any, z: Array, p: Mapping[str, Any]) -> Array:
        h = self.original.h_named(t, per_state(self.shapes, z, p, lambda shape, one: shape.to_x(one)), p)
        return jnp.stack([h[j] if state is None else z[state] for j, state in enumerate(self.exact)])


@dataclasses.dataclass(frozen=True)
class SpreadInZ:
    """The standard deviation of a law, where the model gives it as a function of x."""

    shapes: Shapes
    sd: Callable[[Any, Any, Any], Any]

    def __call__(self, t: Any, z: Array, p: Mapping[str, Any]) -> Any:
        return self.sd(t, per_state(self.shapes, z, p, lambda shape, one: shape.to_x(one)), p)


def exact_columns(model: SDE, shapes: Shapes) -> tuple[int | None, ...]:
    """For each column the transformed state that it measures without noise, None for the others."""
    known = [type(law) is Normal and law.sd == 0.0 for law in model.laws]
    return tuple(
        state if zero and state is not None and shapes[state] is not None else None
        for state, zero in zip(model.direct, known, strict=True)
    )


def per_state(shapes: Shapes, values: Any, p: Mapping[str, Any], change: Any) -> Any:
    """The same array with `change` made to the transformed states, which are on the last axis."""
    values = np.asarray(values, float) if isinstance(values, list | tuple) else values
    parts = [values[..., i] if one is None else change(one.at(p), values[..., i]) for i, one in enumerate(shapes)]
    return array_module(values).stack(parts, axis=-1)


def scales(shapes: Shapes, z: Array, p: Mapping[str, Any]) -> Array:
    """g₀ of every state; 1 of those that are not transformed."""
    return jnp.stack([jnp.ones_like(z[i]) if one is None else one.at(p).g0(z[i]) for i, one in enumerate(shapes)])


def _slopes(shapes: Shapes, z: Array, p: Mapping[str, Any]) -> Array:
    """dg₀/dx of every state; 0 of those that are not transformed."""
    return jnp.stack([jnp.zeros_like(z[i]) if one is None else one.at(p).slope(z[i]) for i, one in enumerate(shapes)])


def _middle(shapes: Shapes, z: Array, p: Mapping[str, Any]) -> Array:
    """A z well inside the range of every state."""
    return jnp.stack([jnp.full_like(z[i], 0.5 if one is None else one.at(p).middle) for i, one in enumerate(shapes)])
