"""The `diffusion` of a model of drifts: a structure, or the entries of a constant or varying G."""

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, get_args

from sdefit.dynamics.differentials import differentials
from sdefit.dynamics.expressions import Formula, Name, Number
from sdefit.dynamics.formula_functions import DiffusionEquations
from sdefit.dynamics.grammar import ZERO, Entry, Grammar, check_names, fill
from sdefit.dynamics.parser import read_formula
from sdefit.dynamics.sde import Structure
from sdefit.errors import ModelError

FREE = "free"
SCALAR = "G_scalar"


def diffusion_of(found: Grammar, given: Any, params: Sequence[str]) -> Any:
    """What `SDE` takes as its diffusion."""
    if found.whole:
        if given != "full" and not (given == "none" and not found.noises):
            raise ModelError("diffusion must be left out here, as the equations have dt and their own noise dw")
        size = len(found.noises)
        return DiffusionEquations(found.states, size, found.entries, found.noises) if size else "none"
    if isinstance(given, list | tuple):
        return _of_rows(found, given, params)
    if found.positions and given in get_args(Structure) and given != "none":
        return _matrix(found, _structure(found, given), given)
    return given


def free_name(found: Grammar, row: int, column: int, columns: int) -> str:
    """The name of an entry of G that is estimated: `G_x_y` for the noise of y in x."""
    noise = found.states[column] if columns == len(found.states) else str(column + 1)
    return f"G_{found.states[row]}_{noise}"


def _structure(found: Grammar, given: str) -> list[list[Formula]]:
    """G with the given structure in all states but the x of x'' = ..., which have no noise."""
    size = len(found.states)
    moved = [i for i, name in enumerate(found.states) if name not in found.positions]

    def entry(row: int, column: int) -> Formula:
        if row not in moved or column > row or (row != column and given != "full"):
            return ZERO
        return Formula((Name(SCALAR if given == "scalar" else free_name(found, row, column, size)),))

    return [[entry(row, column) for column in moved] for row in range(size)]


def _of_rows(found: Grammar, given: Sequence[Any], params: Sequence[str]) -> Any:
    size = len(found.states)
    rows = [one if isinstance(one, list | tuple) else None for one in given]
    if not any(one is not None for one in rows):
        rows = [[one if i == j else 0 for j in range(len(given))] for i, one in enumerate(given)]
    if len(rows) != size or any(one is None or len(one) != len(rows[0] or ()) or not one for one in rows):
        raise ModelError(
            f"diffusion must have {size} row(s), one per state and all of one length, or one entry per state, "
            f"not {given!r}"
        )
    cells = [[_cell(one) for one in row or ()] for row in rows]
    if structure := _as_structure(found, cells, params):
        return structure
    read = [[_entry(found, cell, i, j, len(row)) for j, cell in enumerate(row)] for i, row in enumerate(cells)]
    return _matrix(found, read, tuple(tuple(row) for row in cells))


def _cell(cell: Any) -> Any:
    is_number = isinstance(cell, numbers.Real) and not isinstance(cell, bool)
    return float(cell) if is_number else cell


def _as_structure(found: Grammar, cells: list[list[Any]], params: Sequence[str]) -> str | None:
    """The structure that rows of "free" and 0 spell out, unless the user names one of these entries."""
    size = len(cells)
    patterns: dict[str, Callable[[int, int], bool]] = {
        "none": lambda i, j: False,
        "diagonal": lambda i, j: i == j,
        "full": lambda i, j: i >= j,
    }
    named = any(free_name(found, i, j, size) in params for i in range(size) for j in range(size))
    if found.positions or named or any(len(row) != size for row in cells):
        return None
    for structure, free in patterns.items():
        if all(cells[i][j] == (FREE if free(i, j) else 0) for i in range(size) for j in range(size)):
            return structure
    return None


def _entry(found: Grammar, cell: Any, row: int, column: int, columns: int) -> Formula:
    place = f"row {row + 1} of diffusion"
    if isinstance(cell, float) and math.isfinite(cell):
        return Formula((Number(cell),))
    if cell == FREE:
        if columns == len(found.states) and column > row:
            raise ModelError(f"{place} has 'free' above the diagonal, but G is lower triangular; write 0 there")
        return Formula((Name(free_name(found, row, column, columns)),))
    if not isinstance(cell, str):
        raise ModelError(f"{place} must be made of numbers, 'free' and formulas, not {cell!r}")
    right = read_formula(cell, place)
    check_names(right, found.states, found.velocities)
    for symbol, token in differentials(right).items():
        raise right.error(f"an entry of G must be without {symbol}", token)
    return fill(right, found.abbreviations).formula


def _matrix(found: Grammar, read: list[list[Formula]], given: Any) -> Any:
    entries = tuple(
        Entry(i, j, one) for i, row in enumerate(read) for j, one in enumerate(row) if one != ZERO
    )  # fmt: skip
    if not entries:
        return "none"
    columns = len(read[0])
    taken = {name for one in found.drift for name in one.names}
    used = {name for entry in entries for name in entry.formula.names if name.startswith("G_")}
    if clash := sorted(used & taken):
        raise ModelError(f"{clash[0]!r} is an entry of G here; give the parameter of that name another one")
    return DiffusionEquations(found.states, columns, entries, tuple(f"dw{j + 1}" for j in range(columns)), given)
