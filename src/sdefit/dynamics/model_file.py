"""Models on disk: `to_dict` and `from_dict` inside a stored result, TOML for people.

A model read from equations is stored as its text. One given as a Python function is stored by reference,
`module:name`, and found again only if it is a function of sdefit itself: reading a file never imports
or runs code from anywhere else.
"""

import dataclasses
import importlib
import json
import math
import os
import pathlib
import tomllib
import types
from collections.abc import Mapping
from typing import Any

from sdefit.dynamics import printing
from sdefit.dynamics.equations import Equations, equations
from sdefit.dynamics.parameters import Parameter
from sdefit.dynamics.sde import SDE, Drift
from sdefit.errors import EquationError, FileError, ModelError
from sdefit.files import write

MAX_BYTES = 1_000_000
_KEYS = ("name", "equations", "diffusion", "inputs", "hold", "parameters")
_STORED = ("name", "equations", "function", "states", "diffusion", "inputs", "hold", "parameters")
_PARAMETER_KEYS = ("lower", "upper", "start", "fixed")


@dataclasses.dataclass(frozen=True)
class MissingDrift:
    """Stands for a Python function that cannot be found here; it says so when it is called."""

    reference: str

    def __call__(self, t: Any, x: Any, p: Mapping[str, Any]) -> Any:
        raise ModelError(
            f"this model was given as a Python function {self.reference!r} that cannot be found here; "
            "pass model= to sf.load to use what needs the drift"
        )


def to_dict(model: SDE) -> dict[str, Any]:
    """The model as numbers, text and lists, ready for JSON."""
    drift = model.drift
    said = {"equations": drift.text} if isinstance(drift, Equations) else {"function": printing.reference(drift)}
    ranges = {name: _range(one) | _prior(one) for name, one in model.parameters}
    return {
        "name": model.name,
        **said,
        "states": list(model.states),
        "diffusion": model.diffusion,
        "inputs": list(model.inputs),
        "hold": model.hold,
        "parameters": ranges,
    }


def from_dict(stored: Mapping[str, Any]) -> SDE:
    """The model that `to_dict` wrote; a function that cannot be found becomes a `MissingDrift`."""
    _check_keys("a stored model", stored, _STORED)
    stored = _without_priors(stored)
    if "equations" in stored:
        return _from_table({key: one for key, one in stored.items() if key != "states"})
    reference, states = stored.get("function"), stored.get("states")
    if not isinstance(reference, str) or not isinstance(states, list):
        raise ModelError("a stored model must have its equations, or its function and states; this one has neither")
    rest = (_parameters(stored), stored.get("diffusion", "full"), _name(stored), *_inputs(stored))
    return SDE(_find(reference), states, *rest)


def read_model(path: str | os.PathLike[str]) -> SDE:
    """The model of a TOML file with `equations` and, if wanted, name, diffusion, inputs, hold and [parameters].

    >>> sf.write_model(model, "model.toml")
    >>> sf.read_model("model.toml") == model
    True
    """
    path = pathlib.Path(path)
    try:
        return _from_table(_toml(path))
    except EquationError as error:
        raise EquationError(f"{path.name}: {error}") from None
    except ModelError as error:
        raise ModelError(f"{path.name}: {error}") from None


def write_model(model: SDE, path: str | os.PathLike[str]) -> None:
    """Writes a model of equations as a TOML file that `read_model` reads back.

    >>> sf.write_model(model, "model.toml")
    >>> sf.read_model("model.toml") == model
    True
    """
    text = model_text(model)
    try:
        write(pathlib.Path(path), text.encode())
    except OSError as error:
        raise FileError(f"the model file {str(path)!r} cannot be written: {_reason(error)}") from None


def model_text(model: SDE) -> str:
    """A model of equations as the text of a TOML file."""
    if not isinstance(model.drift, Equations):
        raise ModelError(
            "a model file must hold equations, but this model is the Python function "
            f"{printing.reference(model.drift)}; write it with sf.equations"
        )
    rows = [f'name = "{_escape(model.name)}"', f'diffusion = "{model.diffusion}"']
    if model.inputs:
        rows += [f"inputs = {json.dumps(model.inputs)}", f'hold = "{model.hold}"']
    rows += ['equations = """', *map(_escape, model.drift.text.split("\n")), '"""', "", "[parameters]"]
    for name, one in model.parameters:
        inside = ", ".join(f"{key} = {value!r}" for key, value in _range(one).items())
        rows.append(f"{name} = {{{inside}}}")
    return "\n".join(rows) + "\n"


def _toml(path: pathlib.Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise FileError(f"the model file {str(path)!r} does not exist") from None
    except (OSError, ValueError) as error:
        raise FileError(f"the model file {str(path)!r} cannot be read: {_reason(error)}") from None
    if len(raw) > MAX_BYTES:
        raise ModelError(f"a model file must be at most {MAX_BYTES} bytes, but this one is larger")
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ModelError("a model file must be UTF-8 text, but this one is not text") from None
    except ValueError as error:
        last = f"at line {len(raw.splitlines())}, the end of the file"
        raise ModelError(f"this is not TOML: {str(error).replace('at end of document', last)}") from None
    except RecursionError:
        raise ModelError("this is not a model: its lists or tables go too deep") from None


def _from_table(table: Mapping[str, Any]) -> SDE:
    _check_keys("a model", table, _KEYS)
    text = table.get("equations")
    if not isinstance(text, str):
        raise ModelError(f"equations must be text with one equation per line, not {_show(text)}")
    return equations(text, _parameters(table), table.get("diffusion", "full"), _name(table), *_inputs(table))


def _inputs(table: Mapping[str, Any]) -> tuple[list[str], Any]:
    inputs = table.get("inputs", [])
    if not isinstance(inputs, list) or not all(isinstance(one, str) for one in inputs):
        raise ModelError(f"inputs must be a list of names, not {_show(inputs)}")
    return inputs, table.get("hold", "linear")


def _name(table: Mapping[str, Any]) -> str:
    name = table.get("name", "model")
    if not isinstance(name, str) or not name.isprintable():
        raise ModelError(f"name must be one line of text, not {_show(name)}")
    return name


def _parameters(table: Mapping[str, Any]) -> dict[str, Parameter]:
    given = table.get("parameters", {})
    if not isinstance(given, Mapping):
        raise ModelError(f"parameters must be a table of names, not {_show(given)}")
    return {name: _parameter(name, one) for name, one in given.items()}


def _parameter(name: str, given: Any) -> Parameter:
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = {"fixed": given}
    if not isinstance(given, Mapping):
        raise ModelError(f"parameter {name!r} must be a number or a table such as {{lower = 0}}, not {_show(given)}")
    _check_keys(f"parameter {name!r}", given, _PARAMETER_KEYS)
    for key in _PARAMETER_KEYS:
        if key in given and (isinstance(given[key], bool) or not isinstance(given[key], int | float)):
            raise ModelError(f"parameter {name!r}: {key} must be a number, not {_show(given[key])}")
    try:
        return Parameter(
            given.get("lower", -math.inf), given.get("upper", math.inf), given.get("start"), given.get("fixed")
        )
    except ModelError as error:
        raise ModelError(f"parameter {name!r}: {error}") from None


def _check_keys(word: str, given: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(given, Mapping):
        raise ModelError(f"{word} must be a table of keys, not {_show(given)}")
    for key in given:
        if key not in allowed:
            raise ModelError(f"{word} has the unknown key {_show(key)}; the keys are {', '.join(allowed)}")


def _find(reference: str) -> Drift:
    module, _, name = reference.partition(":")
    public = all(part.isidentifier() and not part.startswith("_") for part in (*module.split("."), name))
    if not (module.startswith("sdefit.") and public):
        return MissingDrift(reference)
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return MissingDrift(reference)
    # Only a function written in that very module: what a module merely imported is not ours to call.
    if isinstance(found, types.FunctionType) and printing.reference(found) == reference:
        return found
    return MissingDrift(reference)


def _range(one: Parameter) -> dict[str, float]:
    said = {"lower": one.lower, "upper": one.upper, "start": one.start, "fixed": one.value}
    return {key: value for key, value in said.items() if value is not None and math.isfinite(value)}


def _prior(one: Parameter) -> dict[str, str]:
    # For the reader of the file; a prior is an object of Python and comes back only with the model itself.
    return {} if one.prior is None else {"prior": str(one.prior)}


def _without_priors(stored: Mapping[str, Any]) -> dict[str, Any]:
    given = stored.get("parameters", {})
    if not isinstance(given, Mapping) or not all(isinstance(one, Mapping) for one in given.values()):
        raise ModelError("a stored model's parameters must be a table of tables")
    cleaned = {name: {key: one[key] for key in one if key != "prior"} for name, one in given.items()}
    return dict(stored) | {"parameters": cleaned}


def _escape(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
