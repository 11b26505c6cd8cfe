"""The entries of a model's table, as TOML or JSON holds it, read into arguments or refused in one line."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from sdefit.dynamics.laws import LAWS, Law
from sdefit.dynamics.parameters import Parameter
from sdefit.dynamics.prior_table import prior_of
from sdefit.errors import ModelError

_PARAMETER_KEYS = ("lower", "upper", "start", "fixed", "prior")
_LAW_KEYS = ("law", "sd")
Find = Callable[[str], Any]  # the function of a reference


def arguments_of(table: Mapping[str, Any], find: Find | None = None) -> dict[str, Any]:
    """What a table says beside its equations, as arguments of `equations`.

    `find` reads functions, which a stored result names and a file for people does not.
    """
    return {
        "params": parameters_of(table),
        "diffusion": _function(table.get("diffusion", "full"), find),
        "name": _name(table),
        "inputs": _names(table, "inputs"),
        "hold": table.get("hold", "linear"),
        "hidden": _names(table, "hidden"),
        "noise": _noise(table, find),
        "initial": _initial(table),
    }


def check_keys(word: str, given: Any, allowed: tuple[str, ...]) -> None:
    """Refuse what is not a table, and a key that means nothing."""
    if not isinstance(given, Mapping):
        raise ModelError(f"{word} must be a table of keys, not {show(given)}")
    for key in given:
        if key not in allowed:
            raise ModelError(f"{word} has the unknown key {show(key)}; the keys are {', '.join(allowed)}")


def show(value: Any) -> str:
    """A value in an error, shortened."""
    if value is None:
        return "nothing"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"


def parameters_of(table: Mapping[str, Any]) -> dict[str, Parameter]:
    """The ranges of the parameters by name."""
    given = table.get("parameters", {})
    if not isinstance(given, Mapping):
        raise ModelError(f"parameters must be a table of names, not {show(given)}")
    return {name: _parameter(name, one) for name, one in given.items()}


def _function(given: Any, find: Find | None) -> Any:
    """The function that `{"function": reference}` names, or else what came."""
    match given:
        case {"function": str(reference)} if find is not None and len(given) == 1:
            return find(reference)
    return given


def _names(table: Mapping[str, Any], key: str) -> list[str]:
    names = table.get(key, [])
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ModelError(f"{key} must be a list of names, not {show(names)}")
    return names


def _name(table: Mapping[str, Any]) -> str:
    name = table.get("name", "model")
    if not isinstance(name, str) or not name.isprintable():
        raise ModelError(f"name must be one line of text, not {show(name)}")
    return name


def _parameter(name: str, given: Any) -> Parameter:
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = {"fixed": given}
    if not isinstance(given, Mapping):
        raise ModelError(f"parameter {name!r} must be a number or a table such as {{lower = 0}}, not {show(given)}")
    check_keys(f"parameter {name!r}", given, _PARAMETER_KEYS)
    for key in _PARAMETER_KEYS[:-1]:
        if key in given and not _is_number(given[key]):
            raise ModelError(f"parameter {name!r}: {key} must be a number, not {show(given[key])}")
    prior = prior_of(name, given["prior"]) if "prior" in given else None
    try:
        return Parameter(
            given.get("lower", -math.inf), given.get("upper", math.inf), given.get("start"), given.get("fixed"), prior
        )
    except ModelError as error:
        raise ModelError(f"parameter {name!r}: {error}") from None


def _noise(table: Mapping[str, Any], find: Find | None) -> dict[str, Law] | None:
    given = table.get("noise", {})
    if not isinstance(given, Mapping):
        raise ModelError(f"noise must be a table of columns, not {show(given)}")
    return {name: _law(name, one, find) for name, one in given.items()} or None


def _law(name: str, given: Any, find: Find | None) -> Law:
    if isinstance(given, str):
        given = {"law": given}
    if not isinstance(given, Mapping):
        raise ModelError(f"the noise of {name!r} must be a law or a table such as {{sd = 0.1}}, not {show(given)}")
    check_keys(f"the noise of {name!r}", given, _LAW_KEYS)
    law, sd = given.get("law", "normal"), _function(given.get("sd"), find)
    if not isinstance(law, str) or law not in LAWS:
        raise ModelError(f"the law of {name!r} must be one of {', '.join(LAWS)}, not {show(law)}")
    if not (sd is None or isinstance(sd, str) or callable(sd) or _is_number(sd)):
        raise ModelError(f"the sd of {name!r} must be a number or a formula, not {show(sd)}")
    try:
        return LAWS[law](sd)
    except ModelError as error:
        raise ModelError(f"the noise of {name!r}: {error}") from None


def _initial(table: Mapping[str, Any]) -> Any:
    given = table.get("initial")
    if not isinstance(given, Mapping):
        return given
    for name, one in given.items():
        pair = one if isinstance(one, list) else [one]
        if not (1 <= len(pair) <= 2 and all(map(_is_number, pair))):
            raise ModelError(
                f"initial of {name!r} must be a number, or a mean and a standard deviation, not {show(one)}"
            )
    return {name: tuple(one) if isinstance(one, list) and len(one) == 2 else one for name, one in given.items()}


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)
