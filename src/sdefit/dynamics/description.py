"""What there is to say of a model, whatever it is printed as: its equations, noises, columns and starting states."""

from typing import TYPE_CHECKING, NamedTuple

from sdefit.dynamics.expressions import Formula, Name, Number
from sdefit.dynamics.formula_functions import DiffusionEquations, Equations, ObservationEquations
from sdefit.dynamics.laws import Law

if TYPE_CHECKING:
    from sdefit.dynamics.sde import SDE

ONE, ZERO = Formula((Number(1.0),)), Formula((Number(0.0),))


class NoiseTerm(NamedTuple):
    """What stands in front of one noise: the noise's number from 1, its name in the text, and the formula."""

    number: int
    name: str
    formula: Formula


class Column(NamedTuple):
    """An observed column: what it measures (None: a function of Python says), and its law."""

    name: str
    formula: Formula | None
    law: Law
    is_state: bool  # whether the column has the name of a state


def drift_formulas(model: "SDE") -> tuple[Formula, ...] | None:
    """The drift's formulas, if it is made of some."""
    return model.drift.formulas if isinstance(model.drift, Equations) else None


def noise_terms(model: "SDE") -> list[list[NoiseTerm]] | None:
    """The noises in each state's equation, if the diffusion is made of formulas."""
    g = model.g_function
    if not isinstance(g, DiffusionEquations):
        return None
    terms = [NoiseTerm(one.column + 1, g.noises[one.column], one.formula) for one in g.entries]
    return [
        [term for one, term in zip(g.entries, terms, strict=True) if one.row == row] for row in range(len(g.states))
    ]


def noise_count(model: "SDE") -> int:
    """How many noises the given diffusion has."""
    return model.g_function.columns if isinstance(model.g_function, DiffusionEquations) else 0


def columns(model: "SDE") -> list[Column]:
    """The observed columns, in order."""
    h = model.h_function
    formulas: list[Formula | None] = [None] * len(model.observations)
    if isinstance(h, ObservationEquations):
        formulas = list(h.formulas)
    elif h is None:
        formulas = [Formula((Name(one),)) for one in model.observations]
    return [
        Column(name, formula, law, name in model.states)
        for name, formula, law in zip(model.observations, formulas, model.laws, strict=True)
    ]


def hidden_states(model: "SDE") -> list[str]:
    """The states that no column measures, alone or with others; none where a function of Python says what is."""
    formulas = [column.formula for column in columns(model)]
    if any(one is None for one in formulas):
        return []
    used = {name for one in formulas if one is not None for name in one.names}
    return [state for state in model.states if state not in used]
