"""Settings and shapes as JSON and back: values of this package's own classes, and nothing that could be code.

A value that is not described in full raises `TypeError`, so that nothing is ever taken for something else.
"""

import dataclasses
import importlib
from typing import Any

import jax
import numpy as np

PACKAGE = __name__.partition(".")[0]


def to_plain(value: Any) -> Any:
    """A tree of numbers, text, shapes of arrays and values of our own classes, ready for JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, jax.ShapeDtypeStruct):
        return {"shape": list(value.shape), "dtype": str(value.dtype)}
    if isinstance(value, dict) and all(type(name) is str for name in value):
        return {"dict": [[name, to_plain(one)] for name, one in value.items()]}
    if type(value) in (tuple, list):
        return {type(value).__name__: [to_plain(one) for one in value]}
    fields = [[name, to_plain(getattr(value, name))] for name in _fields(value)]
    return {"class": reference(type(value)), "fields": fields}


def from_plain(plain: Any) -> Any:
    """The value that `to_plain` described."""
    match plain:
        case {"shape": shape, "dtype": dtype}:
            return jax.ShapeDtypeStruct(tuple(shape), np.dtype(dtype))
        case {"dict": items}:
            return {name: from_plain(one) for name, one in items}
        case {"tuple": items}:
            return tuple(from_plain(one) for one in items)
        case {"list": items}:
            return [from_plain(one) for one in items]
        case {"class": name, "fields": items}:
            return _made(name, {field: from_plain(one) for field, one in items})
    return plain


def reference(thing: Any) -> str:
    """Where a class or function of ours comes from, as `module:name`."""
    name = f"{thing.__module__}:{thing.__qualname__}"
    if not name.startswith(f"{PACKAGE}.") or "<" in name:
        raise TypeError(f"{name} is not of this package")
    return name


def _fields(value: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        return type(value)._fields  # pyright: ignore[reportAttributeAccessIssue]
    raise TypeError(f"{type(value).__name__} is no record")


def _made(name: str, fields: dict[str, Any]) -> Any:
    """A value of a class of ours, its fields set without a call to its own code."""
    module, _, path = name.partition(":")
    if not module.startswith(f"{PACKAGE}."):
        raise TypeError(f"{name} is not of this package")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if issubclass(found, tuple):
        return tuple.__new__(found, fields.values())
    made = object.__new__(found)
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made
