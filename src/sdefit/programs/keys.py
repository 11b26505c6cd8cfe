"""What a compiled program depends on, as one digest: two programs that differ in anything have different keys."""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr, Literal

from sdefit.dynamics.equations import Equations
from sdefit.dynamics.sde import SDE
from sdefit.programs.plain import PACKAGE, reference, to_plain

# Of these a drift may be made so that its trace describes it: its name and parameters identify each in full. What has
# derivatives of its own, or calls Python, is not among them.
_PRIMITIVES = frozenset(
    "abs acos acosh add and asin asinh atan atan2 atanh broadcast_in_dim cbrt ceil clamp concatenate cond"
    " convert_element_type copy cos cosh cumprod cumsum div dot_general dynamic_slice eq erf erf_inv erfc exp exp2"
    " expm1 floor gather ge gt integer_pow iota is_finite jit le lgamma log log1p logistic lt max min mul ne neg"
    " not or pad pjit pow reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum rem reshape rev round"
    " rsqrt scan select_n sign sin sinh slice split sqrt square squeeze stack stop_gradient sub tan tanh transpose"
    " unstack while xor".split()
)
_LIBRARIES = ("jax", "jaxlib", "numpy", "equinox", "optax", "diffrax", "numpyro")


def jax_settings() -> tuple[str, ...]:
    """Every setting of JAX as it is here and now."""
    return tuple(f"{name}={getattr(jax.config, name, None)!r}" for name in jax.config.values)


def of_request(
    function: Callable[..., Any], model: SDE, method: Hashable, inputs: tuple[Any, ...], options: Any
) -> str | None:
    """The key of `function(model, method, *inputs)`, before it is traced; None if that cannot be described in full."""
    with contextlib.suppress(TypeError):
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), inputs)
        asked = [_function(function), _model(model, jax_settings()), to_plain(method), to_plain(shapes), options]
        return _key(json.dumps(asked))
    return None


def of_lowered(lowered: Any, returns: Any, options: Any) -> str | None:
    """The key of a program that was traced and lowered, by its text; None if it calls Python."""
    with contextlib.suppress(TypeError):
        text = lowered.as_text()
        if "callback" not in text:
            return _key(json.dumps([text, to_plain(returns), options]))
    return None


def _key(text: str) -> str:
    parts = (text, *jax_settings(), *_surroundings())
    return hashlib.sha256(b"\0".join(hashlib.sha256(one.encode()).digest() for one in parts)).hexdigest()


def _function(function: Any) -> Any:
    if getattr(function, "__closure__", None):
        raise TypeError("a closure holds what its name does not say")
    return reference(function) if hasattr(function, "__qualname__") else to_plain(function)


@functools.lru_cache(maxsize=16)  # a fit asks for several programs of one model
def _model(model: SDE, settings: tuple[str, ...]) -> Any:
    """The model: its equations, or the drift's trace where it is a function of Python."""
    del settings  # the trace depends on them
    if isinstance(model.drift, Equations):
        return to_plain(model)
    rest = [model.states, model.parameters, model.diffusion, model.inputs, model.hold]
    return [_trace(model), to_plain(rest)]


def _trace(model: SDE) -> Any:
    number = jax.ShapeDtypeStruct((), np.float64)
    states, theta = (jax.ShapeDtypeStruct((len(one),), np.float64) for one in (model.states, model.free))
    inputs = dict.fromkeys(model.inputs, number)
    try:
        traced = jax.make_jaxpr(lambda t, x, theta, u: model.drift(t, x, model.named(theta) | u), return_shape=True)
        closed, shape = traced(number, states, theta, inputs)
    except Exception:  # the user's own; the program itself will say it better
        raise TypeError("the drift cannot be traced") from None
    return [_jaxpr(closed), str(jax.tree.structure(shape))]


def _jaxpr(closed: Any) -> Any:
    """A trace as plain values: variables by the order of their appearance, constants by their bytes."""
    places: dict[Any, int] = {}

    def atom(one: Any) -> Any:
        if isinstance(one, Literal):
            return [_constant(one.val), str(one.aval)]
        return [places.setdefault(one, len(places)), str(one.aval), bool(getattr(one.aval, "weak_type", False))]

    jaxpr = getattr(closed, "jaxpr", closed)  # with its constants or, in older releases of JAX, apart from them
    head = [
        [_constant(one) for one in getattr(closed, "consts", ())],
        [atom(one) for one in (*jaxpr.constvars, *jaxpr.invars)],
    ]
    steps = []
    for equation in jaxpr.eqns:
        if equation.primitive.name not in _PRIMITIVES:
            raise TypeError(f"{equation.primitive.name} is not described by its parameters")
        # Of a function within the function nothing counts but what it does: where it runs is ours to say.
        names = ["jaxpr"] if equation.primitive.name in ("jit", "pjit") else sorted(equation.params)
        given = [[name, _parameter(equation.params[name])] for name in names]
        ends = [[atom(one) for one in side] for side in (equation.invars, equation.outvars)]
        steps.append([equation.primitive.name, given, ends])
    return [head, steps, [atom(one) for one in jaxpr.outvars]]


def _parameter(value: Any) -> Any:
    if isinstance(value, Jaxpr) or hasattr(value, "jaxpr"):
        return _jaxpr(value)
    if isinstance(value, tuple | list):
        return [_parameter(one) for one in value]
    if isinstance(value, np.ndarray | jax.Array):
        return _constant(value)
    shown = repr(value)
    if (callable(value) and not isinstance(value, type)) or " at 0x" in shown:
        raise TypeError(f"{shown} is not described by its name")
    return shown


def _constant(value: Any) -> Any:
    array = np.asarray(value)
    return [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]


@functools.cache
def _surroundings() -> tuple[str, ...]:
    """What every program depends on: versions, flags, the machine, and the package's own files."""
    device = jax.devices()[0]
    base = Path(__file__).parents[1]
    return (
        *(f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES),
        device.client.platform_version,
        device.device_kind,
        str(len(jax.devices())),
        os.environ.get("XLA_FLAGS", ""),
        platform.machine(),
        _processor(),
        PACKAGE,
        *(f"{file.relative_to(base)} {_digest(file)}" for file in sorted(base.rglob("*.py"))),
    )


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _processor() -> str:
    """What the processor can do: code compiled for one may not run on another."""
    with contextlib.suppress(OSError, StopIteration), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        return next(line for line in lines if line.startswith(("flags", "Features")))
    return platform.processor()
