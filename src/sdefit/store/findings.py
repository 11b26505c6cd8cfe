"""What was asked of a fit and stored beside it (intervals, profiles, a diagnosis), read again as it was."""

import dataclasses
import os
from collections.abc import Mapping
from itertools import repeat
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from sdefit.errors import FileError
from sdefit.store.record import read


def read_finding[T](path: str | os.PathLike[str], kind: type[T], *names: str) -> T:
    """The dataclass that `Fit.save` stored under these names; raises `FileError` where there is none."""
    found: Any = read(path, "fit").facts
    for name in names:
        if name not in found:
            raise FileError(f"{path} holds no {' '.join(names)}; fit.save(path, {names[0]}=...) stores what was found")
        found = found[name]
    return from_facts(kind, found)


def from_facts(kind: Any, facts: Any) -> Any:
    """A value of a type, such as a dataclass, from the facts (already checked) that JSON has in its place."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return kind(**{name: from_facts(one, facts[name]) for name, one in get_type_hints(kind).items()})
    if kind is np.ndarray:
        return np.array(facts, float)
    if origin is tuple:
        return tuple(map(from_facts, repeat(inner[0]) if inner[-1] is ... else inner, facts))
    if origin is Mapping:
        return {name: from_facts(inner[1], one) for name, one in facts.items()}
    return facts
