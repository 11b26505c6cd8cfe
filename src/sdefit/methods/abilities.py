"""What a model may ask of a method, and which methods take it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sdefit.dynamics.description import hidden_states
from sdefit.dynamics.laws import Normal
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError

if TYPE_CHECKING:
    from sdefit.methods.interface import Method


class Ability(NamedTuple):
    """Something that a model may ask of a method: in words, and whether a model does."""

    words: str
    asked_by: Callable[[SDE], bool]


def _other_laws(model: SDE) -> bool:
    return any(type(law) is not Normal for law in model.laws)


ABILITIES = {
    "ode": Ability("no process noise (an ODE)", lambda model: model.diffusion == "none"),
    "inputs": Ability("inputs", lambda model: bool(model.inputs)),
    "hidden": Ability("hidden states", lambda model: bool(hidden_states(model))),
    "observation": Ability("observation equations", lambda model: model.h_function is not None),
    "diffusion": Ability("a diffusion of its own", lambda model: model.diffusion == "given"),
    "noise": Ability("known observation noise", lambda model: not all(law.estimated for law in model.laws)),
    "laws": Ability("observation laws other than normal", _other_laws),
    "initial": Ability("a given beginning", lambda model: model.initial is not None),
}


def check_abilities(method: "Method", model: SDE) -> None:
    """Refuse a model that asks for more than the method can, by name, and say which methods take it."""
    asked = [name for name, ability in ABILITIES.items() if ability.asked_by(model)]
    lacking = [ABILITIES[name].words for name in asked if name not in method.takes]
    if lacking:
        takers = " or ".join(f'"{name}"' for name, takes in _takers().items() if set(asked) <= takes)
        raise ModelError(f"method {method.name} takes no model with {' or '.join(lacking)}; use {takers}")


def _takers() -> dict[str, frozenset[str]]:
    from sdefit import methods  # here, not above: the registry is above this module

    return {name: methods.get(name).takes for name in methods.names()}
