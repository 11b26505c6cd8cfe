"""From named columns to series: which column is what, and the refusals that name its rows."""

import dataclasses
import difflib
from collections.abc import Sequence

import numpy as np

from sdefit.data.checks import Source, check_finite, find_twins, row_order, show
from sdefit.data.clock import Clock, as_clock, parse_date, parse_dates
from sdefit.data.series import Series
from sdefit.errors import DataError
from sdefit.files import original_text

MISSING = frozenset({"", "na", "nan", "null", "none", "n/a", "<na>", "nat"})
Column = list[str] | np.ndarray  # cells of text, or an array of whole numbers, floats or dates


@dataclasses.dataclass(frozen=True)
class Table:
    """Named columns of equal length, with the words that name their rows."""

    columns: dict[str, Column]
    source: Source
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Roles:
    """Which columns hold the time, the states, the known inputs and the name of the series."""

    time: str
    states: tuple[str, ...]
    inputs: tuple[str, ...]
    group: str | None


def to_series(
    table: Table,
    time: str | None,
    states: Sequence[str] | None,
    group: str | None,
    time_unit: str | None,
    inputs: Sequence[str],
) -> Series | list[Series]:
    """The table as one series, or as a list of one series per value of the group column."""
    roles, notes = _roles(table, time, states, group, inputs)
    source = dataclasses.replace(table.source, time=roles.time)
    clock, unit, origin, remarks = _clock(table.columns[roles.time], time_unit, source)
    values = np.stack([numbers(table.columns[name], name, source) for name in roles.states], axis=1)
    known = {name: numbers(table.columns[name], name, source) for name in roles.inputs}

    def one(rows: np.ndarray, label: str | None) -> Series:
        here = _part(source, rows, label)
        row_order(clock[rows], values[rows], roles.states, here)
        mine = {name: column[rows] for name, column in known.items()}
        check_finite(mine, "a known input", here)
        return Series(
            clock[rows],
            values[rows],
            roles.states,
            notes=(*table.notes, *notes, *remarks),
            name=label,
            time_unit=unit,
            origin=origin,
            inputs=mine,
        )

    if roles.group is None:
        return one(np.arange(len(clock)), None)
    return [one(rows, label) for label, rows in _groups(table.columns[roles.group], roles.group, source).items()]


def numbers(cells: Column, name: str, source: Source) -> np.ndarray:
    """A column as float64, NaN where a cell is missing; anything else is refused by its row."""
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind == "M":
            raise DataError(f"{source.column(name)} must hold numbers, but holds dates")
        return cells.astype(np.float64)
    read = _read(cells)
    if None in read:
        row = read.index(None)
        raise DataError(f"{source.cell(row, name)}: {show(cells[row])} is not a number; {_remedy(cells[row])}")
    return np.array(read, np.float64)


def _read(cells: list[str]) -> list[float | None]:
    """Each cell as a number, NaN where it is missing and None where it is something else."""
    try:
        fast: list[float | None] = [*map(float, cells)]  # a column without gaps
    except ValueError:
        return [_number(cell) for cell in cells]
    # float("1_0") is 10, but nobody means that in a table.
    return [_number(cell) for cell in cells] if "_" in "".join(cells) else fast


def _number(cell: str) -> float | None:
    text = cell.strip()
    if text.lower() in MISSING:
        return np.nan
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _remedy(cell: str) -> str:
    if "," in cell and _number(cell.replace(",", ".")) is not None:
        return "write decimals with a point"
    return "correct it, or leave the cell empty if it was not observed"


def _clock(cells: Column, time_unit: str | None, source: Source) -> Clock:
    """The time column as numbers, all groups on one clock."""
    if not isinstance(cells, np.ndarray):
        cells = _dates_or_numbers(cells, source)
    return as_clock(cells, time_unit, None, source)


def _dates_or_numbers(cells: list[str], source: Source) -> np.ndarray:
    read = _read(cells)
    if None not in read:
        return np.array(read, np.float64)
    gap = next((row for row, value in enumerate(read) if value is not None and np.isnan(value)), None)
    if gap is not None:
        raise DataError(f"{source.cell(gap, source.time)}: the time is missing; fill it in or leave the row out")
    row = read.index(None)
    if parse_date(cells[row]) is None:
        raise DataError(
            f"{source.cell(row, source.time)}: {show(cells[row])} is neither a number nor an ISO date;"
            " write 12.5, 2020-01-31 or 2020-01-31T12:00"
        )
    return parse_dates(cells, source)


def _groups(cells: Column, name: str, source: Source) -> dict[str, np.ndarray]:
    """Group names to their rows, in the order in which they first appear."""
    labels = [original_text(str(cell).strip()) for cell in cells]
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        if label.lower() in MISSING:
            raise DataError(f"{source.cell(row, name)}: the group is missing; fill it in or leave the row out")
        rows.setdefault(label, []).append(row)
    return {label: np.array(mine) for label, mine in rows.items()}


def _part(source: Source, rows: np.ndarray, label: str | None) -> Source:
    """The words that name the rows of one group."""
    lines = rows if source.lines is None else source.lines[rows]
    table = source.table if label is None else f"{source.table}, group {show(label)}".removeprefix(", ")
    return dataclasses.replace(source, lines=lines, table=table)


def _roles(
    table: Table, time: str | None, states: Sequence[str] | None, group: str | None, inputs: Sequence[str]
) -> tuple[Roles, tuple[str, ...]]:
    """The columns by what they are for, and notes on those left out."""
    for word, given in (("states", states), ("inputs", inputs)):
        if isinstance(given, str):
            raise DataError(f"{word} must be a list of names, not the string {show(given)}; write [{show(given)}]")
    time = _find_time(table) if time is None else time
    named = [time, *(states or ()), *inputs, *(() if group is None else (group,))]
    for name in named:
        _must_exist(name, table)
    if twins := find_twins(named):
        raise DataError(f"{table.source.column(named[twins[0]])} is asked for twice; each column has one role")
    if states is not None and not states:
        raise DataError("states must name one or more columns, but the list is empty")
    found, notes = (tuple(states), ()) if states is not None else _find_states(table, named)
    return Roles(time, found, tuple(inputs), group), notes


def _find_time(table: Table) -> str:
    for name in ("t", "time"):
        if name in table.columns:
            return name
    raise DataError(
        table.source.whole(f"there is no column 't' or 'time'; name the time column, one of {_listed(table)}")
    )


def _find_states(table: Table, taken: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Every other column with a number in it; a column of nothing but text is left out, with a note."""
    rest = [name for name in table.columns if name not in taken]
    text = {name: None for name in rest if _is_text(table.columns[name])}
    states = tuple(name for name in rest if name not in text)
    if not states:
        raise DataError(table.source.whole(f"there is no column of numbers for a state among {_listed(table)}"))
    note = f"Left out, as they hold no numbers: {', '.join(text)}."
    return states, ((note,) if text else ())


def _is_text(cells: Column) -> bool:
    if isinstance(cells, np.ndarray):
        return cells.dtype.kind == "M"
    filled = [cell for cell in cells if cell.strip().lower() not in MISSING]
    return bool(filled) and all(_number(cell) is None for cell in filled)


def _must_exist(name: str, table: Table) -> None:
    if name in table.columns:
        return
    small = {column.lower(): column for column in table.columns}
    close = difflib.get_close_matches(str(name).lower(), small, n=1)
    hint = f"did you mean {show(small[close[0]])}? " if close else ""
    raise DataError(table.source.whole(f"there is no column {show(name)}; {hint}the columns are {_listed(table)}"))


def _listed(table: Table, most: int = 12) -> str:
    names = [show(name) for name in table.columns]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
