"""A plan: which systems, methods and realizations; and its cells, each a block of realizations run as one program."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from sdefit import methods
from sdefit.bench import problems
from sdefit.errors import InputError, ModelError
from sdefit.methods.interface import Method
from sdefit.methods.published import published
from sdefit.store.schema import MOST_REALIZATIONS

PAPER = ":paper"  # after a method's name: as the paper ran it
PATIENCE = 300.0  # seconds of one core for the realizations of a system by a recipe of the paper, on a CPU


@dataclasses.dataclass(frozen=True)
class Cell:
    """Some realizations of one system, to be fitted by one method."""

    system: str
    method: str
    first: int
    count: int

    @property
    def kind(self) -> str:
        """The name of all cells of this system and method, fit for a file."""
        return f"{self.system}-{self.method.replace(':', '_')}"

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.first:05d}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that decides what the rows will be, but for the code that makes them.

    - `seed`: of data, starts and fits. `data`: a folder of frozen data instead of data from the seed, or "".
    - `block`: realizations of a cell, or 0 for as many as suit each system.
    - `counts`: of each system, how many realizations a recipe of the paper fits; every other method fits all.
    - `settings`: of each system and method, what differs from the method's defaults.
    - `sources`: of each system, where its data come from.
    """

    systems: tuple[str, ...]
    methods: tuple[str, ...]
    realizations: int
    seed: int
    data: str
    block: int
    settings: dict[str, dict[str, str]]
    sources: dict[str, str]
    counts: dict[str, dict[str, int]]

    def cells(self) -> list[Cell]:
        """Every cell, those that share a program next to each other."""
        return [
            Cell(system, method, first, min(size, count - first))
            for system in self.systems
            for size in [self.block or problems.get(system).block]
            for method in self.methods
            for count in [self.counts[system].get(method, self.realizations)]
            for first in range(0, count, size)
        ]

    def facts(self) -> dict[str, Any]:
        """The plan as JSON holds it, with the titles of its methods for the report."""
        about = {name: method_facts(name) for name in self.methods}
        return dataclasses.asdict(self) | {"about": about, "cells": [cell.name for cell in self.cells()]}


def build(
    systems: Sequence[str],
    chosen: Sequence[str],
    realizations: int,
    *,
    seed: int = 0,
    data: str = "",
    block: int = 0,
    sources: Mapping[str, str] | None = None,
    paper_realizations: int | None = None,
    counts: Mapping[str, Mapping[str, int]] | None = None,
) -> Plan:
    """The plan, its names and its data checked; refused by name before anything is run.

    `sources` says of systems whose data are stored already where these came from, `counts` how many realizations of
    them a recipe of the paper was to fit. New ones fit `paper_realizations`, by default what suits the device.
    """
    names = tuple(dict.fromkeys(problems.get(name).name for name in systems))
    chosen = tuple(dict.fromkeys(chosen))
    if not names or not chosen:
        raise InputError("--systems and --methods must each name one or more")
    if realizations > MOST_REALIZATIONS:
        raise InputError(f"--realizations must be at most {MOST_REALIZATIONS:,}, not {realizations:,}")
    made = {name: {method: settings_text(settings(name, method)) for method in chosen} for name in names}
    known = sources or {}
    place = {name: known.get(name) or problems.data_label(name, data, seed) for name in names}
    begun = counts if counts and paper_realizations is None else {}
    recipes = [method for method in chosen if is_recipe(method)]
    some = {
        name: {m: begun.get(name, {}).get(m) or _count(name, m, realizations, paper_realizations) for m in recipes}
        for name in names
    }
    return Plan(names, chosen, realizations, seed, data, block, made, place, some)


def default_methods() -> tuple[str, ...]:
    """Every method, and after those that have one the paper's own recipe."""
    both = ((name, name + PAPER) for name in methods.names())
    return tuple(name for pair in both for name in pair if not name.endswith(PAPER) or is_recipe(name))


def is_recipe(name: str) -> bool:
    """Whether a method is asked for as the paper ran it, with starts and settings of its own."""
    return name.endswith(PAPER) and hasattr(methods.get(name.removesuffix(PAPER)), "paper")


def _count(system: str, method: str, realizations: int, wanted: int | None) -> int:
    """Realizations of a recipe of the paper: as many as wanted, on a CPU as many as `PATIENCE` lets by."""
    if wanted is not None:
        return min(realizations, wanted)
    if jax.default_backend() != "cpu":
        return realizations
    seconds = published(system).cpu_seconds[method.removesuffix(PAPER)]
    return min(realizations, max(1, int(PATIENCE / seconds)))


def settings(system: str, name: str) -> Method:
    """A method as it runs on a system: given what the set-up gives, and as in the paper where that is asked for."""
    base, problem = name.removesuffix(PAPER), problems.get(system)
    if base not in methods.names():
        known = ", ".join(methods.names())
        raise ModelError(f"--methods must be among {known} (NAME:paper is the paper's recipe), not {name!r}")
    kind = methods.get(base)
    told = _told(kind, problem.told)
    if base == name:
        return kind(**told)
    if is_recipe(name):
        return dataclasses.replace(kind.paper(system), **told)
    recipe = _known(problem.recipe, [field.name for field in dataclasses.fields(kind)])
    if not recipe:
        raise ModelError(f"--methods must be among those with a recipe of the paper's own, not {name!r}; write {base}")
    return kind(**told, **recipe)


def _told(kind: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that a method has a setting for, and takes: one cannot do without noise, say."""
    found = _known(facts, [field.name for field in dataclasses.fields(kind)])
    return {name: value for name, value in found.items() if _takes(kind, name, value)}


def _takes(kind: Any, name: str, value: Any) -> bool:
    try:
        kind(**{name: value})
    except ModelError:
        return False
    return True


def _known(facts: Any, names: Any) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name in names}


def settings_text(method: Method) -> str:
    """The settings that differ from the defaults, as a row states them."""
    usual = type(method)()
    pairs = [(f.name, getattr(method, f.name), getattr(usual, f.name)) for f in dataclasses.fields(method) if f.init]
    return ", ".join(f"{name}={value}" for name, value, default in pairs if value != default) or "default"


def method_facts(name: str) -> dict[str, str]:
    """The names and the reference of a method, for the report."""
    kind = methods.get(name.removesuffix(PAPER))
    title = f"{kind.title}, the paper's recipe" if name.endswith(PAPER) else kind.title
    short = f"{kind.__name__} (paper)" if name.endswith(PAPER) else kind.__name__
    return {"short": short, "title": title, "reference": kind.reference}


def agree(stored: dict[str, Any], asked: Plan) -> None:
    """Refuse a plan that is not the one a folder was begun with, naming what differs."""
    options = {"realizations": "--realizations", "seed": "--seed", "block": "--block"}
    for field, option in options.items():
        if stored[field] != getattr(asked, field):
            raise InputError(f"this folder was begun with {option} {stored[field]}, not {getattr(asked, field)}")
    for system, counts in stored.get("counts", {}).items():
        for method, count in counts.items():
            if (now := asked.counts[system][method]) != count:
                raise InputError(f"this folder was begun with {count} realizations of {system} by {method}, not {now}")
    for system in stored["sources"]:  # all of them are asked for again
        if stored["sources"][system] != asked.sources[system]:
            raise InputError(
                f"this folder was begun with data of {system} from {stored['sources'][system]},"
                f" not {asked.sources[system]}"
            )
        for method in stored["settings"][system]:
            before, now = stored["settings"][system][method], asked.settings[system][method]
            if before != now:
                raise InputError(f"this folder was begun with {method} set to {before} on {system}, not {now}")
