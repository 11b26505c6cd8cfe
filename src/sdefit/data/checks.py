"""What numbers a series may hold, and how a refusal names the place."""

import dataclasses
import numbers
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from sdefit._jax import TRACED
from sdefit.errors import DataError

FEWEST_TIMES = 3
KINDS = {"U": "text", "S": "bytes", "b": "true or false", "c": "complex numbers", "m": "durations", "M": "dates"}


@dataclasses.dataclass(frozen=True)
class Source:
    """Where rows come from: a table's name, the word and number of each row, the time column's name."""

    table: str = ""
    word: str = "row index"
    lines: np.ndarray | None = None
    time: str = "times"

    def at(self, row: int) -> str:
        """The words that name a row."""
        return f"{self.word} {row if self.lines is None else self.lines[row]}"

    def cell(self, row: int, column: str) -> str:
        """The words that name one cell, to begin a message with."""
        return f"{self._begin}{self.at(row)}, column {show(column)}"

    def column(self, column: str) -> str:
        """The words that name one column, to begin a message with."""
        return f"{self._begin}column {show(column)}"

    def whole(self, rest: str) -> str:
        """A message about all rows together."""
        return f"{self.table}: {rest}" if self.table else rest

    @property
    def _begin(self) -> str:
        return f"{self.table}, " if self.table else ""


def show(thing: Any, maximum: int = 40) -> str:
    """A value as it may stand inside a one-line message."""
    text = " ".join(repr(thing).split())
    return text if len(text) <= maximum else f"{text[: maximum - 1]}…"


def find_twins(names: Sequence[str]) -> tuple[int, int] | None:
    """The places of the first name that stands twice; None where all differ."""
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if first.setdefault(name, i) != i:
            return first[name], i
    return None


def as_numbers(given: Any, what: str, source: Source | None = None) -> np.ndarray:
    """The argument `what` as a new float64 array, or a refusal that names it; None and masked become NaN."""
    try:
        array = np.ma.asarray(given) if isinstance(given, np.ma.MaskedArray) else np.asarray(given)
    except jax.errors.TracerArrayConversionError:
        raise DataError(f"{what} must be numbers: {TRACED}") from None
    except ValueError:
        raise DataError(f"{what} must be a rectangular array of numbers, but its rows differ in length") from None
    if array.dtype.kind == "O":
        return _from_objects(array, what, source or Source())
    if array.dtype.kind not in "iuf":
        raise DataError(f"{what} must be an array of numbers, not of {KINDS.get(array.dtype.kind, array.dtype)}")
    with np.errstate(over="ignore"):  # a wider float beyond float64 becomes infinite, which is refused by row
        return np.ma.filled(array.astype(np.float64), np.nan)


def _from_objects(array: np.ndarray, what: str, source: Source) -> np.ndarray:
    for place, one in np.ndenumerate(array):
        if one is not None and (not isinstance(one, numbers.Real) or isinstance(one, bool)):
            place = f" at {source.at(place[0])}" if place else ""
            raise DataError(f"{what} must be numbers, with NaN where not observed, but {show(one)} stands{place}")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise DataError(f"{what} must be numbers that fit in float64, but one is larger than 1.8e308") from None


def row_order(times: np.ndarray, values: np.ndarray, states: Sequence[str], source: Source) -> np.ndarray:
    """The order of rows by time, once times and values are found fit to be a series."""
    _refuse_cells(~np.isfinite(times)[:, None], times[:, None], [source.time], source)
    order = np.argsort(times, kind="stable")
    _refuse_ties(times, order, source)
    _refuse_cells(np.isinf(values), values, states, source)
    _refuse_unobserved(values, states, source)
    return order


def check_finite(columns: dict[str, np.ndarray], what: str, source: Source) -> None:
    """Refuse a missing or infinite number in columns that must be known at every row."""
    for name, column in columns.items():
        bad = ~np.isfinite(column)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"{source.cell(row, name)}: {what} must be a finite number at every time, not {column[row]}"
            )


def _refuse_cells(bad: np.ndarray, cells: np.ndarray, names: Sequence[str], source: Source) -> None:
    if not bad.any():
        return
    row, column = (int(i[0]) for i in np.nonzero(bad))
    place = source.cell(row, names[column])
    if np.isnan(cells[row, column]):
        raise DataError(f"{place}: the time is missing; fill it in or leave the row out")
    raise DataError(f"{place}: the number is infinite; correct it, or leave it empty (NaN) if it was not observed")


def _refuse_ties(times: np.ndarray, order: np.ndarray, source: Source) -> None:
    same = times[order][1:] == times[order][:-1]
    if same.any():
        tie = int(np.argmax(same))
        first, second = sorted((int(order[tie]), int(order[tie + 1])))
        raise DataError(
            f"{source.cell(second, source.time)}: the time {times[second]:.12g} already stands at {source.at(first)};"
            " average the two rows, or keep several series apart (one Series each, or group=)"
        )


def _refuse_unobserved(values: np.ndarray, states: Sequence[str], source: Source) -> None:
    observed = ~np.isnan(values)
    for state, seen in zip(states, observed.any(axis=0), strict=True):
        if len(values) and not seen:
            raise DataError(f"{source.column(state)} has no value at all; leave this state out or give it values")
    usable = int(observed.any(axis=1).sum())
    if usable < FEWEST_TIMES:
        raise DataError(
            source.whole(f"a series needs values at {FEWEST_TIMES} or more times, but {usable} came; give more rows")
        )
