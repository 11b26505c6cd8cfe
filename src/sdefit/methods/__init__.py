"""The ways to fit, by name. A method becomes known everywhere by its line in `REGISTRY`."""

import importlib

from sdefit.errors import ModelError

# Name → where the class lives. Text, so that listing names or reading help imports no numerics.
REGISTRY: dict[str, str] = {
    "auto": "sdefit.methods.auto:Auto",
    "mars": "sdefit.methods.mars:MaRS",
    "ares": "sdefit.methods.ares:AReS",
    "esgf": "sdefit.methods.esgf:ESGF",
    "vgpa": "sdefit.methods.vgpa:VGPA",
    "npsde": "sdefit.methods.npsde:NPSDE",
    "moments": "sdefit.methods.moments:Moments",
}
DEFAULT = "auto"


def names() -> tuple[str, ...]:
    """The names of all methods."""
    return tuple(REGISTRY)


def get(name: str):
    """The class of settings of the method called `name`."""
    if name not in REGISTRY:
        raise ModelError(f"method must be one of {', '.join(REGISTRY)}, not {name!r}")
    module, attribute = REGISTRY[name].split(":")
    return getattr(importlib.import_module(module), attribute)
