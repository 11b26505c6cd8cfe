"""pandas and polars data frames in, through narwhals."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from sdefit.data.checks import Source, find_twins, show
from sdefit.data.series import Series
from sdefit.data.tables import Column, Table, to_series
from sdefit.errors import DataError


@overload
def from_frame(
    frame: Any, *, time: str | None = ..., states: Sequence[str] | None = ...,
    group: None = ..., time_unit: str | None = ..., inputs: Sequence[str] = ...,
) -> Series: ...  # fmt: skip


@overload
def from_frame(
    frame: Any, *, time: str | None = ..., states: Sequence[str] | None = ...,
    group: str, time_unit: str | None = ..., inputs: Sequence[str] = ...,
) -> list[Series]: ...  # fmt: skip


def from_frame(
    frame: Any,
    *,
    time: str | None = None,
    states: Sequence[str] | None = None,
    group: str | None = None,
    time_unit: str | None = None,
    inputs: Sequence[str] = (),
) -> Series | list[Series]:
    """The series in a pandas or polars data frame of one column per state; with `group`, a list.

    The arguments are those of `read_csv`. Null and NaN are values that were not observed. Rows are
    named by their position, counted from 0.

    **Raises** `DataError`, one line that names the row and the column.

    >>> import pandas as pd
    >>> sf.from_frame(pd.DataFrame({"t": [0, 1, 2, 3], "x": [1.0, None, 1.2, 1.1]}))
    Series(x; 4 times from 0 to 3; 1 of 4 values missing)
    """
    return to_series(_read_frame(frame), time, states, group, time_unit, inputs)


def _read_frame(frame: Any) -> Table:
    import narwhals as nw  # here, so that reading a CSV file does not wait for it

    if type(frame).__name__ == "LazyFrame":
        raise DataError("frame must hold its rows, not a lazy query; call .collect() first")
    _refuse_twins([str(name) for name in getattr(frame, "columns", ())])
    try:
        eager = nw.from_native(frame, eager_only=True)
        names = [str(name) for name in eager.columns]
        columns = {name: _column(one) for name, one in zip(names, eager.iter_columns(), strict=True)}
    except (TypeError, nw.exceptions.NarwhalsError) as error:
        if hasattr(frame, "columns"):
            raise DataError(f"frame cannot be read: {' '.join(str(error).split())}") from None
        raise DataError(f"frame must be a pandas or polars data frame, not {type(frame).__name__}") from None
    if not len(eager):
        raise DataError("frame has no rows; give 3 or more")
    return Table(columns, Source())


def _refuse_twins(names: Sequence[str]) -> None:
    if twins := find_twins(names):
        raise DataError(f"frame: two columns are called {show(names[twins[0]])}; rename one of them")


def _column(one: Any) -> Column:
    """One narwhals column as float64 or datetime64 where it is that, else as text."""
    import narwhals as nw

    kind = one.dtype
    if kind.is_integer() and not one.null_count():
        return one.to_numpy()  # whole, since a group column may hold numbers longer than a float does
    if kind.is_numeric():
        return np.array(one.cast(nw.Float64).to_numpy(), np.float64)
    if isinstance(kind, nw.Date):
        one, kind = one.cast(nw.Datetime("us")), nw.Datetime("us")
    if isinstance(kind, nw.Datetime):
        one = one if kind.time_zone is None else one.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return np.array(one.to_numpy(), f"datetime64[{kind.time_unit}]")
    cells = zip(one.to_list(), one.is_null().to_list(), strict=True)
    return ["" if gap else str(cell) for cell, gap in cells]
