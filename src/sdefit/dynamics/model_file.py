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
import re
import tomllib
import types
from collections.abc import Mapping
from typing import Any

from sdefit.dynamics import printing
from sdefit.dynamics.equations import Equations, equations, model_of
from sdefit.dynamics.formula_functions import ObservationEquations
from sdefit.dynamics.laws import Law, Normal
from sdefit.dynamics.model_source import source
from sdefit.dynamics.model_table import arguments_of, check_keys, show
from sdefit.dynamics.parameters import Parameter
from sdefit.dynamics.prior_table import prior_table
from sdefit.dynamics.sde import SDE, Drift
from sdefit.errors import EquationError, FileError, ModelError
from sdefit.files import write

MAX_BYTES = 1_000_000
_KEYS = ("name", "equations", "diffusion", "inputs", "hold", "parameters", "hidden", "noise", "initial")
_STORED = (
    "name", "equations", "function", "states", "diffusion", "inputs", "hold", "parameters",
    "hidden", "noise", "initial", "observe", "observations",
)  # fmt: skip


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
    said: dict[str, Any] = {}
    if isinstance(model.drift, Equations):
        one = source(model)
        said["equations"] = one.text
        diffusion, hidden, laws = one.diffusion or model.diffusion, one.hidden, one.laws
    else:
        said["function"] = printing.reference(model.drift)
        diffusion = model.diffusion if model.g_function is None else model.g_function
        hidden = [] if model.h_function else [name for name in model.states if name not in model.observations]
        laws = {
            name: law for name, law in zip(model.observations, model.laws, strict=True) if law != Normal()
        }  # fmt: skip
    plain = {
        "name": model.name,
        **said,
        "states": list(model.states),
        "diffusion": _function(diffusion),
        "inputs": list(model.inputs),
        "hold": model.hold,
        "parameters": {name: _range(one) | _prior(one) for name, one in model.parameters},
    }
    return plain | _general(model, hidden, laws)


def _general(model: SDE, hidden: list[str], laws: Mapping[str, Law]) -> dict[str, Any]:
    """What a stored model says of its columns and its start, if that is not the plain case."""
    said: dict[str, Any] = {}
    if hidden:
        said["hidden"] = hidden
    if laws:
        said["noise"] = {name: _law(law) for name, law in laws.items()}
    if model.initial is not None:
        said["initial"] = _initial(model)
    if model.h_function is not None and not _observed_in_text(model):
        said |= {"observe": _function(model.h_function), "observations": list(model.observations)}
    return said


def _observed_in_text(model: SDE) -> bool:
    return isinstance(model.drift, Equations) and isinstance(model.h_function, ObservationEquations)


def _function(given: Any) -> Any:
    """A function as its reference, and everything else as it is."""
    return {"function": printing.reference(given)} if callable(given) else given


def _law(law: Law) -> dict[str, Any]:
    return {"law": law.name} | ({} if law.sd is None else {"sd": _function(law.sd)})


def _initial(model: SDE) -> Any:
    if isinstance(model.initial, str | None):
        return model.initial
    return {name: [mean, std] if std else mean for name, mean, std in model.initial}


def from_dict(stored: Mapping[str, Any]) -> SDE:
    """The model that `to_dict` wrote; a function that cannot be found becomes a `MissingDrift`."""
    check_keys("a stored model", stored, _STORED)
    stored = _without_told_priors(stored)
    given = arguments_of(stored, _find) | _observe(stored)
    if "equations" in stored:
        check_keys("a stored model of equations", stored, tuple(key for key in _STORED if key != "function"))
        given["diffusion"] = "full" if given["diffusion"] == "given" else given["diffusion"]
        return model_of(_text(stored), **given)
    reference, states = stored.get("function"), stored.get("states")
    if not isinstance(reference, str) or not isinstance(states, list):
        raise ModelError("a stored model must have its equations, or its function and states; this one has neither")
    return SDE(_find(reference), states, **given)


def _observe(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The observation function of a stored model, and its columns."""
    match stored:
        case {"observe": {"function": str(reference)}, "observations": list(columns)}:
            return {"observe": _find(reference), "observations": columns}
        case {"observe": _} | {"observations": _}:
            raise ModelError("a stored model must have observe and observations, a function and a list of columns")
    return {}


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
    one = source(model)
    rows = [f'name = "{_escape(model.name)}"']
    rows += [] if one.diffusion is None else [f"diffusion = {_toml_value('the diffusion', one.diffusion)}"]
    if model.inputs:
        rows += [f"inputs = {json.dumps(model.inputs)}", f'hold = "{model.hold}"']
    rows += [f"hidden = {json.dumps(one.hidden)}"] if one.hidden else []
    rows += [f"initial = {_toml_value('initial', _initial(model))}"] if model.initial is not None else []
    if model.h_function is not None and not _observed_in_text(model):
        _toml_value("observe", model.h_function)
    rows += ['equations = """', *map(_escape, one.text.split("\n")), '"""', "", "[parameters]"]
    rows += [f"{name} = {_toml_value(name, _toml_range(name, one))}" for name, one in model.parameters]
    if one.laws:
        laws = {name: law.name if law.sd is None else _law(law) for name, law in one.laws.items()}
        rows += ["", "[noise]", *(f"{name} = {_toml_value(f'the sd of {name!r}', law)}" for name, law in laws.items())]
    return "\n".join(rows) + "\n"


def _toml_value(word: str, value: Any) -> str:
    """A number, a text, a list or a table on one line, as TOML."""
    match value:
        case str():
            return f'"{_escape(value)}"'
        case list() | tuple():
            return f"[{', '.join(_toml_value(word, one) for one in value)}]"
        case {"function": str(reference)}:
            raise ModelError(f"a model file must hold formulas, but {word} is the Python function {reference}")
        case Mapping():
            return f"{{{', '.join(f'{_toml_key(name)} = {_toml_value(word, one)}' for name, one in value.items())}}}"
        case int() | float():
            return repr(value)
    return _toml_value(word, {"function": printing.reference(value)})


def _toml_key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else f'"{_escape(name)}"'


def _toml_range(name: str, one: Parameter) -> dict[str, Any]:
    if one.prior is not None and prior_table(one.prior) is None:
        raise ModelError(f"the prior of {name!r} cannot be written to a file: {one.prior}")
    return _range(one) | _prior(one)


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
    check_keys("a model", table, _KEYS)
    return equations(_text(table), **arguments_of(table))


def _text(table: Mapping[str, Any]) -> str:
    text = table.get("equations")
    if not isinstance(text, str):
        raise ModelError(f"equations must be text with one equation per line, not {show(text)}")
    return text


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


def _prior(one: Parameter) -> dict[str, Any]:
    if one.prior is None:
        return {}
    # What is in no table is for the reader of the file, and comes back only with the model itself.
    table = prior_table(one.prior)
    return {"prior": str(one.prior) if table is None else table}


def _without_told_priors(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The stored model without the priors that are told as text."""
    given = stored.get("parameters", {})
    if not isinstance(given, Mapping) or not all(isinstance(one, Mapping) for one in given.values()):
        raise ModelError("a stored model's parameters must be a table of tables")
    told = {
        name: {k: v for k, v in one.items() if k != "prior" or not isinstance(v, str)} for name, one in given.items()
    }
    return dict(stored) | {"parameters": told}


def _escape(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
