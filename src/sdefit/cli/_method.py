"""A method and its settings from `--method` and `--option`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from sdefit.cli._shared import pairs
from sdefit.errors import ModelError


def settings(name: str, options: Sequence[str] = ()) -> Any:
    """The method of that name (the default for none), with `options` such as "starts=8" over its own settings."""
    from sdefit import methods

    if name and name not in methods.names():
        raise ModelError(f"--method must be one of {', '.join(methods.names())}, not {name!r}")
    method = methods.get(name or methods.DEFAULT)
    own = {field.name: field.default for field in dataclasses.fields(method())}
    given = pairs("--option", options)
    for word in given:
        if word not in own:
            raise ModelError(f"--option must name a setting of {method.name} ({', '.join(own)}), not {word!r}")
    return method(**{word: _read(text, own[word]) for word, text in given.items()})


def _read(text: str, own: Any) -> Any:
    """The text as a setting of the kind of the method's own; what cannot be that stays text, and is refused."""
    if isinstance(own, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(own, str):
        return text
    if isinstance(own, tuple):
        return tuple(_number(part, type(own[0])) for part in text.split(","))
    if own is None and text.lower() == "none":
        return None
    return _number(text, int if isinstance(own, int) else float)


def _number(text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text
