"""What `simulate` is given, read into arrays or refused in one line before anything is compiled."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._jax import check_usable
from sdefit._types import Key
from sdefit.dynamics.parameters import Parameter
from sdefit.dynamics.sde import SDE
from sdefit.errors import InputError, ModelError

# The steps are numbered in 32 bits, two numbers each.
MOST_STEPS = 2**30
LARGEST_SEED = 2**32 - 1  # beyond it JAX's settings decide what key a number makes


def check_key(key: Any) -> None:
    """Refuse what is not one JAX random key (both kinds are taken), and to work where JAX cannot."""
    check_usable(key)
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ()
    raw = isinstance(key, jax.Array | np.ndarray) and key.dtype == np.uint32 and key.ndim == 1
    if not (typed or raw):
        raise InputError(f"key must be a whole number or one JAX random key, not {_short(key)}; write key=0")


def as_key(key: Any) -> Key:
    """One JAX random key of the new style: of an int the one that `jax.random.key` makes, else the given one."""
    check_usable(key)
    if not isinstance(key, int | np.integer) or key is True or key is False:
        check_key(key)
        return jax.random.wrap_key_data(key) if key.dtype == np.uint32 else key  # pyright: ignore
    if not 0 <= key <= LARGEST_SEED:
        raise InputError(f"key must be a whole number from 0 to {LARGEST_SEED}, or a JAX random key, not {key}")
    return jax.random.key(int(key))


def read_times(times: Any) -> np.ndarray:
    """Three or more increasing finite numbers, as many as a series needs."""
    t = _numbers("times", times)
    if t.ndim != 1 or t.size < 3:
        raise InputError(f"times must be a list of at least 3 numbers, not an array of shape {t.shape}")
    if not np.all(np.diff(t) > 0):
        n = int(np.argmin(np.diff(t) > 0))
        raise InputError(f"times must increase, but {t[n]:g} is followed by {t[n + 1]:g}; sort them")
    return t


def step_counts(times: np.ndarray, step: float) -> np.ndarray:
    """How many equal steps, each no longer than `step`, cross each gap between times."""
    if not (isinstance(step, int | float | np.number) and math.isfinite(step) and step > 0):
        raise InputError(f"step must be a positive number, not {step!r}")
    # The small allowance keeps rounding in the gaps from adding a step to every one of them.
    counts = np.maximum(np.ceil(np.diff(times) / step - 1e-6), 1)
    if counts.sum() > MOST_STEPS:
        total = f"{counts.sum():g}"
        raise InputError(f"step must cross the times in at most {MOST_STEPS} steps, but {step:g} takes {total}")
    return counts.astype(np.int64)


def read_params(model: SDE, params: Mapping[str, float]) -> np.ndarray:
    """The vector θ of the model's free parameters; fixed ones may be repeated, at their value."""
    if not isinstance(params, Mapping):
        raise ModelError(f"params must map parameter names to numbers, not {_short(params)}")
    unknown = [name for name in params if name not in model.params]
    missing = [name for name in model.free if name not in params]
    if unknown or missing:
        fault = f"lacks {', '.join(missing)}" if missing else f"also has {', '.join(map(str, unknown))}"
        raise ModelError(f"params must give {', '.join(model.free) or 'nothing'}, but {fault}")
    for name, value in params.items():
        _check_param(name, model.params[name], value)
    return np.asarray([float(params[name]) for name in model.free], dtype=float)


def _check_param(name: str, parameter: Parameter, value: Any) -> None:
    number = _numbers(f"parameter {name!r}", value)
    if number.ndim:
        raise ModelError(f"parameter {name!r} must be one number, not an array of shape {number.shape}")
    if parameter.value is not None and number != parameter.value:
        raise ModelError(f"parameter {name!r} is fixed at {parameter.value:g} in the model, but {number:g} was given")
    if not parameter.lower <= number <= parameter.upper:
        raise ModelError(f"parameter {name!r} must be {parameter}, but {number:g} was given")


def read_inputs(model: SDE, inputs: Any, times: np.ndarray) -> dict[str, np.ndarray]:
    """The model's inputs by name, one number per time."""
    given = {} if inputs is None else inputs
    if not isinstance(given, Mapping) or set(given) != set(model.inputs):
        came = ", ".join(map(str, given)) if isinstance(given, Mapping) else _short(given)
        wanted = ", ".join(model.inputs) or "nothing"
        raise ModelError(f"inputs must give the model's inputs by name, {wanted}, but {came or 'nothing'} came")
    known = {name: _numbers(f"input {name!r}", given[name]) for name in model.inputs}
    for name, values in known.items():
        if values.shape != times.shape:
            raise InputError(f"input {name!r} must be one number per time, {times.shape}, not {values.shape}")
    return known


def read_start(model: SDE, x0: Any) -> np.ndarray:
    """The state at the first time, one number per state."""
    return _per_state("x0", model, x0, fraction=len(model.states) == 1)


def read_noise(model: SDE, noise: Any) -> np.ndarray:
    """The standard deviation of the observation noise, one number per state."""
    std = _per_state("noise", model, noise, fraction=True)
    if np.any(std < 0):
        raise InputError(f"noise must be zero or positive, a standard deviation, not {std.min():g}")
    return std


def read_diffusion(model: SDE, G: Any) -> np.ndarray:
    """The matrix G, of the shape the model says; zeros for an ODE."""
    size = len(model.states)
    if model.diffusion == "none":
        if G is not None:
            raise ModelError("G must be left out as the model is an ODE (diffusion='none'); give the model a diffusion")
        return np.zeros((size, size))
    if G is None:
        raise ModelError(f"G must be given, as the model has a {model.diffusion} diffusion; pass G=...")
    matrix = _as_matrix(model, _numbers("G", G))
    if matrix is None or not _HAS_SHAPE[model.diffusion](matrix) or np.any(np.diag(matrix) < 0):
        raise ModelError(f"G must be {_wanted(model)}, not {np.asarray(G).tolist()}{_remedy(model, G)}")
    return matrix


def read_paths(paths: int | None) -> int:
    """The number of paths to make; one when none was asked for."""
    if paths is None:
        return 1
    if not isinstance(paths, int | np.integer) or isinstance(paths, bool) or paths < 1:
        raise InputError(f"paths must be a whole number of at least 1, not {paths!r}")
    return int(paths)


_HAS_SHAPE = {
    "full": lambda m: np.array_equal(m, np.tril(m)),
    "diagonal": lambda m: np.array_equal(m, np.diag(np.diag(m))),
    "scalar": lambda m: np.array_equal(m, m[0, 0] * np.eye(len(m))),
}


def _as_matrix(model: SDE, G: np.ndarray) -> np.ndarray | None:
    size = len(model.states)
    if G.ndim == 0 and (model.diffusion == "scalar" or size == 1):
        return G * np.eye(size)
    if G.shape == (size,) and (model.diffusion == "diagonal" or size == 1):
        return np.diag(G)
    return G if G.shape == (size, size) else None


def _wanted(model: SDE) -> str:
    size = len(model.states)
    return {
        "full": f"a lower-triangular {size} by {size} matrix with no negative number on its diagonal",
        "diagonal": f"{size} number(s), one per state and none negative, or the diagonal matrix of them",
        "scalar": "one number, not negative, or that number times the unit matrix",
    }[model.diffusion]


def _remedy(model: SDE, G: Any) -> str:
    square = np.shape(G) == (len(model.states),) * 2
    return "; take the Cholesky factor of G @ G.T" if square and model.diffusion == "full" else ""


def _per_state(word: str, model: SDE, given: Any, fraction: bool) -> np.ndarray:
    size = len(model.states)
    numbers = _numbers(word, given)
    if numbers.ndim == 0 and fraction:
        return np.full(size, float(numbers))
    if numbers.shape != (size,):
        raise InputError(
            f"{word} must be {size} number(s), one each for {', '.join(model.states)}, "
            f"not an array of shape {numbers.shape}"
        )
    return numbers


def _numbers(word: str, given: Any) -> np.ndarray:
    try:
        numbers = np.array(given, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{word} must be made of numbers, not {_short(given)}") from None
    if not np.all(np.isfinite(numbers)):
        raise InputError(f"{word} must be finite, but {numbers[~np.isfinite(numbers)].flat[0]} was given")
    return numbers


def _short(given: Any) -> str:
    text = repr(given).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."
