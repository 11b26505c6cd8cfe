"""Which closed form the noise of each state has, found by trying numbers: it works for any callable.

g is evaluated along a line of x_i at several (t, θ, u) and at several values of the other states. A form is fitted to
the values and slopes at a few pairs of points and then has to reproduce g at all the others in its domain. A constant
of the form must be the same number at every θ, or be one of the parameters.
"""

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sdefit.dynamics.noise_shapes import Hyperbolic, Jacobi, Linear, Logistic, NamedPower, NoiseShape, Power
from sdefit.dynamics.sde import SDE

TOLERANCE = 1e-7  # relative, of g against its closed form
SAME = 1e-6  # relative, of a constant against a parameter that it may be
LARGEST_POWER = 10.0
FEWEST = 6  # points inside the domain of a form that is to be believed
MAGNITUDES = np.logspace(-3.05, 6.05, 1830)
GRID = np.concatenate([-MAGNITUDES[::-1], MAGNITUDES])


@dataclasses.dataclass(frozen=True)
class Draws:
    """Numbers at which g is tried: times, parameters and inputs by name, and states."""

    times: np.ndarray
    names: dict[str, np.ndarray]
    states: np.ndarray


def draw(model: SDE, rng: np.random.Generator, count: int) -> Draws:
    """Random numbers inside the bounds of θ; every (t, θ, u) comes twice in succession, with different states."""
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        coordinates = jnp.asarray(0.5 * rng.normal(size=(count, len(model.free))))
        theta = np.asarray(jax.vmap(model.bounds.constrain)(coordinates)) if model.free else np.zeros((count, 0))
    # What may have either sign is tried at positive numbers: g > 0 there tells on which side of an edge x is meant.
    either = np.isinf(model.bounds.lower) & np.isinf(model.bounds.upper)
    theta = np.where(either, np.exp(theta), theta)
    names = {name: np.full(count, one.value) for name, one in model.parameters if one.value is not None}
    names |= dict(zip(model.free, theta.T, strict=True)) | {one: rng.lognormal(size=count) for one in model.inputs}
    names = {name: np.repeat(one, 2) for name, one in names.items()}
    states = rng.uniform(0.1, 0.9, size=(2 * count, len(model.states)))  # inside nearly every domain
    return Draws(np.repeat(rng.uniform(0.1, 3.0, count), 2), names, states)


def noise_shapes(model: SDE) -> tuple[NoiseShape | None, ...] | str:
    """The form of each state's noise, None where it is constant; or a sentence on why there is none."""
    draws = draw(model, np.random.default_rng(0), 4)
    found = [_shape_of(model, i, draws) for i in range(len(model.states))]
    if reasons := [one for one in found if isinstance(one, str)]:
        return reasons[0]
    return tuple(one for one in found if not isinstance(one, str))


def _shape_of(model: SDE, state: int, draws: Draws) -> NoiseShape | str | None:
    name = model.states[state]
    values, slopes = _along(model, state, draws)
    finite = np.isfinite(values).all(axis=2) & np.isfinite(slopes).all(axis=2)
    if not finite.any(axis=1).all():
        return f"The noise of {name} is not finite where it was tried."
    size = max(float(np.abs(values[finite]).max()), np.finfo(float).tiny)
    both = finite[0::2] & finite[1::2]
    if not _close(values[0::2][both], values[1::2][both]):
        return f"The noise of {name} depends on another state."
    if all(np.ptp(line[good], axis=0).max() <= 1e-12 * size for line, good in zip(values, finite, strict=True)):
        return None
    column = int(np.argmax(np.abs(np.where(finite[:, :, None], values, 0.0)).max(axis=(0, 1))))
    lines = zip(values[0::2, :, column], slopes[0::2, :, column], finite[0::2], strict=True)
    shapes = [fitted(GRID[good], line[good], slope[good]) for line, slope, good in lines]
    if any(one is None for one in shapes):
        return f"The noise of {name} is no function of {name} whose change of variables is known."
    return _common([one for one in shapes if one], draws, model) or (
        f"The noise of {name} is no product of a function of {name} and a factor that is free of {name}."
    )


def _along(model: SDE, state: int, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """The row of g of one state, and its derivative by that state, on the grid: arrays of draws, points, noises."""

    def at(t: Any, names: Any, states: Any, x: Any) -> Any:
        def row(value: Any) -> Any:
            return model.g_named(t, states.at[state].set(value), names)[state]

        return jax.jvp(row, (x,), (jnp.ones_like(x),))

    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.debug_nans(False):
        many = jax.jit(jax.vmap(jax.vmap(at, (None, None, None, 0)), (0, 0, 0, None)))
        values, slopes = many(draws.times, draws.names, draws.states, GRID)
    return np.asarray(values), np.asarray(slopes)


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all(np.abs(a - b) <= 1e-10 * np.maximum(np.abs(a), np.abs(b))))


def fitted(x: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> NoiseShape | None:
    """The form that values and slopes at points x are of, up to a factor; None if they are of none."""
    used = values != 0
    x, values, slopes = x[used], values[used], slopes[used]
    best: tuple[tuple[bool, float], NoiseShape] | None = None
    for shape in dict.fromkeys(_candidates(x, values, slopes)):
        error, positive = _misfit(shape, x, values)
        # Of two sides of an edge, that of positive noise; of zero that of positive x, unless there is no noise.
        if isinstance(shape, Linear | Power) and shape.edge == 0:
            positive = shape.side == 1
            error = math.inf if not positive and (x > 0).any() else error
        rank = (not positive, error)
        if error < TOLERANCE and (best is None or rank < best[0]):
            best = rank, shape
    return best[1] if best else None


def _misfit(shape: NoiseShape, x: np.ndarray, values: np.ndarray) -> tuple[float, bool]:
    """The relative spread of g/g₀ inside the domain, and whether it is positive there."""
    low, high = shape.domain
    inside = (x > low) & (x < high)
    if inside.sum() < FEWEST:
        return math.inf, False
    with np.errstate(all="ignore"):
        ratio = values[inside] / shape.g0(shape.to_z(x[inside]))
    if not np.isfinite(ratio).all():
        return math.inf, False
    middle = float(np.median(ratio))
    return (float(np.max(np.abs(ratio - middle))) / abs(middle) if middle else math.inf), middle > 0


def _candidates(x: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> Iterator[NoiseShape]:
    """What the forms would be if g were of them, from pairs of points."""
    apart = max(2, x.size // 60)
    for a in np.unique(np.linspace(0, x.size - 1 - apart, 40).astype(int)) if x.size > apart else ():
        b = a + apart
        pair = np.array([a, b])
        with np.errstate(all="ignore"):
            yield from _powers(x[pair], values[pair], slopes[pair])
            yield from _intervals(x[pair], values[pair], slopes[pair])


def _powers(x: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> Iterator[NoiseShape]:
    """g/g' = (x − edge)/γ is on a line."""
    lengths = values / slopes
    exponent = _tidied((x[1] - x[0]) / (lengths[1] - lengths[0]))
    edge = _tidied(x[0] - exponent * lengths[0])
    if not (math.isfinite(edge) and 1e-3 < abs(exponent) < LARGEST_POWER):
        return
    for side in (1, -1):
        yield Linear(edge, side) if exponent == 1 else Power(edge, side, exponent)


def _intervals(x: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> Iterator[NoiseShape]:
    """g or g² is a polynomial of degree two."""
    for order in (1, 2):
        p, dp = values[0] ** order, order * values ** (order - 1) * slopes
        half = (dp[1] - dp[0]) / (x[1] - x[0]) / 2
        centre, depth = x[0] - dp[0] / (2 * half), p / half - (dp[0] / (2 * half)) ** 2
        if not (math.isfinite(centre) and math.isfinite(depth)) or depth == 0:
            continue
        reach = math.sqrt(abs(depth))
        if depth < 0 and half < 0:
            yield (Logistic if order == 1 else Jacobi)(_tidied(centre - reach), _tidied(centre + reach))
        elif depth > 0 and half > 0 and order == 2:
            yield Hyperbolic(_tidied(centre), _tidied(reach))


def _tidied(value: float) -> float:
    """The simple fraction that a computed number is up to rounding, or the number without its last digits."""
    if not math.isfinite(value):
        return value
    simple = float(Fraction(value).limit_denominator(12))
    return simple if abs(value - simple) < 1e-9 * max(1.0, abs(value)) else float(f"{value:.13g}")


def _common(shapes: list[NoiseShape], draws: Draws, model: SDE) -> NoiseShape | None:
    """The one form that all draws are of, its constants numbers or names of parameters."""
    kinds = {type(one) for one in shapes}
    if kinds == {Linear, Power}:  # γ may happen to be 1
        shapes = [Power(one.edge, one.side, 1.0) if isinstance(one, Linear) else one for one in shapes]
        kinds = {Power}
    if len(kinds) != 1:
        return None
    constants: dict[str, Any] = {}
    for field in dataclasses.fields(shapes[0]):
        constants[field.name] = _constant([getattr(one, field.name) for one in shapes], draws, model)
    if any(one is None for one in constants.values()):
        return None
    if isinstance(constants.get("exponent"), str):
        return NamedPower(**constants)
    return kinds.pop()(**constants)


def _constant(values: list[Any], draws: Draws, model: SDE) -> Any:
    """The number that all of these are, or the name of the parameter that each of them is; None if there is neither."""
    found = np.asarray(values, float)
    if np.ptp(found) <= 1e-9 * max(1e-3, float(np.abs(found).max())):
        return values[0]
    for name in model.free:
        if np.all(np.abs(found - draws.names[name][0::2]) <= SAME * np.abs(found)):
            return name
    return None
