"""Formulas as the functions of a model: its drift, diffusion and observation, and the standard deviation of a column.

Each is a value: equal to every other with the same formulas, so that equal models share compiled programs.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from sdefit._types import Array, Float, Scalar
from sdefit.dynamics.expressions import PLAIN, Formula
from sdefit.dynamics.grammar import Entry
from sdefit.errors import ModelError


@dataclasses.dataclass(frozen=True)
class Equations:
    """A drift f(t, x, p) read from text; a value, equal to every other with the same formulas."""

    states: tuple[str, ...]
    formulas: tuple[Formula, ...]
    inputs: tuple[str, ...]
    # As the user wrote it, comments and all; two texts of the same formulas are the same drift.
    text: str = dataclasses.field(compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name in the formulas, in order of appearance."""
        return names_of(self.formulas)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that are parameters, in order of appearance."""
        return tuple(name for name in self.names if name not in ("t", "pi", *self.states, *self.inputs))

    def __call__(self, t: Any, x: Any, p: Mapping[str, Any]) -> Float[Array, "state"]:
        return jnp.stack(evaluated("the drift", self.formulas, self.states, t, x, p))


@dataclasses.dataclass(frozen=True)
class DiffusionEquations:
    """A diffusion g(t, x, p) read from text: a matrix with a row for each state and a column for each noise."""

    states: tuple[str, ...]
    columns: int
    entries: tuple[Entry, ...]
    # What the noises are called, and what the user gave as `diffusion` (None: whole equations); both for writing.
    noises: tuple[str, ...] = dataclasses.field(compare=False, repr=False)
    given: Any = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name in the formulas, in order of appearance."""
        return names_of(entry.formula for entry in self.entries)

    @property
    def signed(self) -> tuple[str, ...]:
        """The names whose sign matters: those in front of a noise that a state above has too."""
        first: dict[int, int] = {}
        for entry in self.entries:
            first[entry.column] = min(entry.row, first.get(entry.column, entry.row))
        return names_of(entry.formula for entry in self.entries if entry.row > first[entry.column])

    def __call__(self, t: Any, x: Any, p: Mapping[str, Any]) -> Float[Array, "state noises"]:
        formulas = tuple(entry.formula for entry in self.entries)
        values = evaluated("the diffusion", formulas, self.states, t, x, p)
        zero = jnp.zeros((), values[0].dtype)
        found = {(one.row, one.column): value for one, value in zip(self.entries, values, strict=True)}
        cells = [found.get((row, column), zero) for row in range(len(self.states)) for column in range(self.columns)]
        return jnp.stack(cells).reshape(len(self.states), self.columns)


@dataclasses.dataclass(frozen=True)
class ObservationEquations:
    """An observation function h(t, x, p) read from text: one number for each observed column."""

    states: tuple[str, ...]
    formulas: tuple[Formula, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name in the formulas, in order of appearance."""
        return names_of(self.formulas)

    def __call__(self, t: Any, x: Any, p: Mapping[str, Any]) -> Float[Array, "columns"]:
        return jnp.stack(evaluated("the observation", self.formulas, self.states, t, x, p))


@dataclasses.dataclass(frozen=True)
class SpreadEquation:
    """The standard deviation sd(t, x, p) of one column's noise, read from text."""

    states: tuple[str, ...]
    formula: Formula
    text: str = dataclasses.field(compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name in the formula, in order of appearance."""
        return self.formula.names

    def __call__(self, t: Any, x: Any, p: Mapping[str, Any]) -> Scalar:
        return evaluated("the sd of a column", (self.formula,), self.states, t, x, p)[0]


def names_of(formulas: Iterable[Formula]) -> tuple[str, ...]:
    """Every name in the formulas, in order of appearance."""
    return tuple(dict.fromkeys(name for formula in formulas for name in formula.names))


def evaluated(
    word: str, formulas: Sequence[Formula], states: tuple[str, ...], t: Any, x: Any, p: Mapping[str, Any]
) -> list[Array]:
    """The value of each formula at one point, in the dtype of x."""
    x = jnp.asarray(x, jnp.result_type(x, float))
    if x.shape != (len(states),):
        raise ModelError(f"x must hold {len(states)} number(s), one per state, but its shape is {x.shape}")
    values = {"t": jnp.asarray(t, x.dtype)} | {name: x[i] for i, name in enumerate(states)}
    for name in names_of(formulas):
        if name in values:
            continue
        if name not in p and name != "pi":
            raise ModelError(f"{word} needs a value for {name!r}, but only {', '.join(p) or 'none'} came")
        values[name] = jnp.asarray(p.get(name, math.pi), x.dtype)
    return [jnp.asarray(one.evaluate(values, _TRACED), x.dtype) for one in formulas]


def _power(base: Any, exponent: Any) -> Any:
    # A whole constant exponent becomes multiplications: faster, and exact derivatives at and below zero.
    if isinstance(exponent, float) and exponent.is_integer() and abs(exponent) <= 64:
        return base ** int(exponent)
    return jnp.power(base, exponent)


_TRACED = PLAIN | {word: getattr(jnp, word) for word in PLAIN if word.isalpha() and word != "negate"} | {"**": _power}
