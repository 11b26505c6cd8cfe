"""CSV files in and out."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from sdefit.data.checks import Source, find_twins, show
from sdefit.data.series import Series
from sdefit.data.tables import Table, to_series
from sdefit.errors import DataError
from sdefit.files import csv_bytes, original_text, write

UTF16 = (b"\xff\xfe", b"\xfe\xff")


@overload
def read_csv(
    path: str | os.PathLike[str], *, time: str | None = ..., states: Sequence[str] | None = ...,
    group: None = ..., time_unit: str | None = ..., inputs: Sequence[str] = ...,
) -> Series: ...  # fmt: skip


@overload
def read_csv(
    path: str | os.PathLike[str], *, time: str | None = ..., states: Sequence[str] | None = ...,
    group: str, time_unit: str | None = ..., inputs: Sequence[str] = ...,
) -> list[Series]: ...  # fmt: skip


def read_csv(
    path: str | os.PathLike[str],
    *,
    time: str | None = None,
    states: Sequence[str] | None = None,
    group: str | None = None,
    time_unit: str | None = None,
    inputs: Sequence[str] = (),
) -> Series | list[Series]:
    """The series in a CSV file of one column per state; with `group`, a list of series.

    **Arguments**
    - `path`: a UTF-8 text file whose first line names the columns. Cells that are empty, NA, NaN or
      null are values that were not observed. Commas, semicolons or tabs divide the cells.
    - `time`: the time column, of numbers or of ISO dates; by default "t" or "time".
    - `states`: the columns of the states; by default every other column that holds numbers.
    - `group`: a column whose value names the series of a row; each becomes the `name` of its series.
      Dates of all groups are counted from the first date in the file.
    - `time_unit`: the unit in which to count dates (second, minute, hour, day, week, month, year).
    - `inputs`: columns of known inputs, with a number in every row.

    **Raises** `DataError`, one line that names the file, the line and the column.

    >>> sf.read_csv("obs.csv", time="t", states=["x"])
    Series(x; 51 times from 0 to 10; no value missing)
    """
    return to_series(_read_table(path), time, states, group, time_unit, inputs)


def write_csv(
    series: Series | Sequence[Series], path: str | os.PathLike[str], *, time: str = "t", group: str = "series"
) -> None:
    """Write one series, or several with a group column, so that `read_csv` gives the same numbers back.

    Values that were not observed become empty cells. Times are written as the numbers they are. A name that a
    spreadsheet would take for a formula stands behind a quote, which `read_csv` takes away.

    >>> sf.write_csv(series, "obs.csv")
    >>> np.array_equal(sf.read_csv("obs.csv").values, series.values)
    True
    """
    many = [series] if isinstance(series, Series) else list(series)
    if not many or any((s.states, tuple(s.inputs)) != (many[0].states, tuple(many[0].inputs)) for s in many):
        raise DataError("series must be one or more series of the same states and inputs to share a file")
    names = [] if isinstance(series, Series) else [group]
    rows = []
    for i, one in enumerate(many):
        label = [one.name if one.name is not None else str(i)] if names else []
        rows += [[*label, *row] for row in np.column_stack([one.times, one.values, *one.inputs.values()]).tolist()]
    try:
        write(Path(path), csv_bytes([*names, time, *many[0].states, *many[0].inputs], rows))
    except OSError as error:
        raise DataError(f"{_name(path)}: cannot be written ({_reason(error)}); choose another place") from None


def _read_table(path: str | os.PathLike[str]) -> Table:
    name = _name(path)
    text = _read_text(path, name)
    rows, lines = _read_rows(text, name)
    if not rows:
        raise DataError(f"{name}: the file is empty; give column names and 3 or more rows")
    header = [original_text(cell.strip()) for cell in rows[0]]
    _check_header(header, lines[0], name)
    body, places = rows[1:], lines[1:]
    if not body:
        raise DataError(f"{name}: there are column names but no rows below them; give 3 or more rows")
    _refuse_ragged(body, places, len(header), name)
    columns = zip(header, zip(*body, strict=True), strict=True)
    return Table(
        {column: list(cells) for column, cells in columns if column},
        Source(table=name, word="line", lines=np.array(places)),
        ("A column without a name was left out.",) if "" in header else (),
    )


def _name(path: str | os.PathLike[str]) -> str:
    return " ".join(str(path).split())


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _read_text(path: str | os.PathLike[str], name: str) -> str:
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(f"{name}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{name}: this is a folder; give the path of a CSV file") from None
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        raise DataError(f"{name}: cannot be read ({reason})") from None
    if data.startswith(UTF16):
        raise DataError(f"{name}: this is UTF-16 text; save it as UTF-8")
    if b"\0" in data:
        raise DataError(f"{name}: this is not a text file; give a CSV file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}, line {line}: this is not UTF-8 text; give a CSV file saved as UTF-8") from None
    return text


def _read_rows(text: str, name: str) -> tuple[list[list[str]], list[int]]:
    """The rows from the header on, each with the number of the line it ends on."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = next((mark for mark in ",;\t" if mark in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    rows, lines = [], []
    try:
        for row in reader:
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: the quotes or cells cannot be read ({error})") from None
    return _without_blanks(rows, lines)


def _without_blanks(rows: list[list[str]], lines: list[int]) -> tuple[list[list[str]], list[int]]:
    """The rows that hold anything: a line without one filled cell says nothing."""
    remaining = [i for i, row in enumerate(rows) if any(cell and not cell.isspace() for cell in row)]
    return [rows[i] for i in remaining], [lines[i] for i in remaining]


def _check_header(header: list[str], line: int, name: str) -> None:
    if all(_is_number(cell) for cell in header):
        raise DataError(f"{name}, line {line}: this line must name the columns, but holds numbers; add a line of names")
    # Columns without a name are left out, however many: here each of them is called by its own place.
    twins = find_twins([cell or f"\0{i}" for i, cell in enumerate(header)])
    if twins:
        first, second = twins
        raise DataError(
            f"{name}: two columns are called {show(header[second])} (numbers {first + 1} and {second + 1});"
            " rename one of them"
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.lower() not in ("nan", "inf", "infinity")


def _refuse_ragged(rows: list[list[str]], lines: list[int], width: int, name: str) -> None:
    for row, line in zip(rows, lines, strict=True):
        if len(row) != width:
            raise DataError(
                f"{name}, line {line}: there are {len(row)} cells, but the first line names {width} columns;"
                " add or remove cells"
            )
