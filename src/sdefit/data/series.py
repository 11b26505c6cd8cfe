"""`Series`: what was observed, when, and of which states."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdefit.data.checks import Source, as_numbers, check_finite, find_twins, row_order, show
from sdefit.data.clock import as_clock, as_dates
from sdefit.display.charts import observation_charts
from sdefit.display.notebook import as_html
from sdefit.errors import DataError

SORTED = "The rows were not in the order of time and have been sorted."


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class Series:
    """Observations of one or several states at increasing times; NaN where a state was not observed.

    **Arguments**
    - `times`: N different numbers, or dates (datetime64, `datetime`, ISO text) together with `time_unit`.
    - `values`: an (N, K) array of one column per state, or (N,) for one state. NaN = not observed.
    - `states`: the K names; by default "x", or "x1", "x2", ... when there are several.
    - `path`: the true states (N, K), where they are known because the series was simulated.
    - `notes`: sentences about what was done to the data on the way in.
    - `name`: the name of the series among several (the value of the group column).
    - `time_unit`: the unit of time. Dates are counted in it: second, minute, hour, day, week, month or
      year (365.25 days). For plain numbers it is any word, shown in tables and figures.
    - `origin`: the ISO date that time 0 stands for; the first date unless given.
    - `inputs`: known inputs u(t), names to N finite numbers.

    Rows may come in any order; they are sorted and a note says so.

    **Raises** `DataError`, one line that names the row and the column.

    >>> sf.Series([0, 0.5, 1.5], [[1, 9], [1.2, np.nan], [1.1, 8]], ["prey", "predator"])
    Series(prey, predator; 3 times from 0 to 1.5; 1 of 6 values missing)
    """

    times: np.ndarray
    values: np.ndarray
    states: tuple[str, ...]
    path: np.ndarray | None
    notes: tuple[str, ...]
    name: str | None
    time_unit: str | None
    origin: str | None
    inputs: dict[str, np.ndarray]

    def __init__(
        self,
        times: Any,
        values: Any,
        states: Sequence[str] | None = None,
        *,
        path: Any = None,
        notes: Sequence[str] = (),
        name: str | None = None,
        time_unit: str | None = None,
        origin: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        source = Source()
        clock, time_unit, origin, remarks = as_clock(times, time_unit, origin, source)
        table = _table(values, clock)
        names = _names(states, table.shape[1])
        truth = None if path is None else _same_shape(path, table, names, source)
        known = _inputs(inputs or {}, clock, names, source)
        order = row_order(clock, table, names, source)
        is_sorted = bool((np.diff(order) > 0).all())
        put = object.__setattr__
        put(self, "times", _frozen(clock, order))
        put(self, "values", _frozen(table, order))
        put(self, "states", names)
        put(self, "path", None if truth is None else _frozen(truth, order))
        put(self, "notes", tuple(dict.fromkeys((*_notes(notes), *remarks, *(() if is_sorted else (SORTED,))))))
        put(self, "name", name)
        put(self, "time_unit", time_unit)
        put(self, "origin", origin)
        put(self, "inputs", {key: _frozen(column, order) for key, column in known.items()})

    @property
    def observed(self) -> np.ndarray:
        """True where a value was observed, (N, K)."""
        return ~np.isnan(self.values)

    @property
    def missing(self) -> int:
        """How many of the N·K values were not observed."""
        return int(np.isnan(self.values).sum())

    @property
    def span(self) -> float:
        """The time from the first row to the last."""
        return float(self.times[-1]) - float(self.times[0])

    def clock(self, times: Any) -> np.ndarray:
        """Other times on this series' clock: numbers as they are, dates counted from the same origin."""
        if self.origin is None and as_dates(times, Source()) is not None:
            raise DataError("times must be numbers here, not dates: this series knows no date its clock starts from")
        return as_clock(times, self.time_unit, self.origin, Source()).times

    def frame(self) -> Any:
        """A pandas data frame: the column `time`, one for each state and one for each input."""
        import pandas as pd  # here, not above: half a second that most uses do not need

        columns = np.column_stack([self.times, self.values, *self.inputs.values()])
        return pd.DataFrame(columns, columns=["time", *self.states, *self.inputs])

    def plot(self, ax: Any = None) -> Any:
        """The observations of each state over time: a matplotlib figure, or on the axes `ax`, one for each state."""
        from sdefit.display.plot import on_axes  # here, not above: matplotlib takes half a second

        since = f" since {self.origin}" if self.origin else ""
        across = f"time ({self.time_unit}{since})" if self.time_unit else "time"
        return on_axes(observation_charts(self.times, self.states, self.values, self.path, across), ax)

    def __len__(self) -> int:
        return len(self.times)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Series):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self))

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r}: "
        return f"Series({name}{', '.join(self.states)}; {'; '.join(self._facts())})"

    def __str__(self) -> str:
        head = "Series" if self.name is None else f"Series {self.name!r}"
        return "\n  ".join([f"{head} of {', '.join(self.states)}", *self._facts(), *self.notes])

    def _repr_html_(self) -> str:
        head = "Series" if self.name is None else f"Series {self.name!r}"
        return as_html(f"{head} of {', '.join(self.states)}", notes=[*self._facts(), *self.notes])

    def _facts(self) -> list[str]:
        unit = f" {self.time_unit}" if self.time_unit else ""
        since = f" since {self.origin}" if self.origin else ""
        facts = [f"{len(self)} times from {self.times[0]:g} to {self.times[-1]:g}{unit}{since}"]
        facts.append(f"{self.missing} of {self.values.size} values missing" if self.missing else "no value missing")
        if self.inputs:
            facts.append(f"inputs {', '.join(self.inputs)}")
        if self.path is not None:
            facts.append("true path known")
        return facts


def _table(values: Any, clock: np.ndarray) -> np.ndarray:
    """The values as (N, K), one row per time."""
    if clock.ndim != 1:
        raise DataError(f"times must be one row of N numbers, not an array of shape {clock.shape}")
    table = as_numbers(values, "values")
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[0] != len(clock) or table.shape[1] == 0:
        order = "; transpose it" if table.ndim == 2 and table.shape[1] == len(clock) else ""
        raise DataError(
            f"values must be an array of one row per time and one column per state, ({len(clock)}, K),"
            f" not {table.shape}{order}"
        )
    return table


def _names(states: Sequence[str] | None, width: int) -> tuple[str, ...]:
    if states is None:
        return ("x",) if width == 1 else tuple(f"x{i + 1}" for i in range(width))
    if isinstance(states, str):
        raise DataError(f"states must be a list of names, not the string {show(states)}; write [{show(states)}]")
    names = tuple(states)
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"states must be names, but number {i + 1} is {show(name)}")
    if twins := find_twins(names):
        raise DataError(f"states must be different names, but {show(names[twins[0]])} stands twice")
    if len(names) != width:
        raise DataError(f"states must name each of the {width} column(s) of values, but names {len(names)}")
    return names


def _same_shape(path: Any, table: np.ndarray, names: Sequence[str], source: Source) -> np.ndarray:
    truth = as_numbers(path, "path")
    truth = truth[:, None] if truth.ndim == 1 else truth
    if truth.shape != table.shape:
        raise DataError(f"path must have the shape of values, {table.shape}, not {truth.shape}")
    check_finite(dict(zip(names, truth.T, strict=True)), "the true path", source)
    return truth


def _inputs(given: Mapping[str, Any], clock: np.ndarray, states: Sequence[str], source: Source) -> dict[str, Any]:
    known = {name: as_numbers(column, f"input {show(name)}") for name, column in given.items()}
    for name, column in known.items():
        if name in states:
            raise DataError(f"input {show(name)} must not have the name of a state; rename one of them")
        if column.shape != clock.shape:
            raise DataError(f"input {show(name)} must be one number per time, {clock.shape}, not {column.shape}")
    check_finite(known, "a known input", source)
    return known


def _notes(notes: Sequence[str]) -> tuple[str, ...]:
    return (notes,) if isinstance(notes, str) else tuple(notes)


def _frozen(array: np.ndarray, order: np.ndarray) -> np.ndarray:
    ordered = np.ascontiguousarray(array[order])
    ordered.flags.writeable = False
    return ordered


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return type(one) is type(other) and one == other
