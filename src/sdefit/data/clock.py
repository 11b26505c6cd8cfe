"""Times as numbers: plain numbers as they are, dates counted in a unit from an origin."""

import datetime
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sdefit.data.checks import Source, as_numbers, show
from sdefit.errors import DataError

DAY = 86400.0
# A year is 365.25 days and a month a twelfth of it, so that the clock runs evenly.
SECONDS = {
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": DAY,
    "week": 7 * DAY,
    "month": 365.25 * DAY / 12,
    "year": 365.25 * DAY,
}
SHORT = {"s": "second", "sec": "second", "min": "minute", "h": "hour", "d": "day", "w": "week", "y": "year"}
YEAR_MONTH = re.compile(r"\d{4}-\d{2}")
# What NumPy writes for a date: years before 1 or after 9999 and nanoseconds, which `datetime` has not, included.
WRITTEN = re.compile(r"[+-]?\d+-\d{2}(-\d{2}(T[\d:.]+)?)?")
_GIVE_UNIT = "if they are dates, year month day, give time_unit, such as 'day'"


class Clock(NamedTuple):
    """Times as float64, the word of their unit, the ISO date they are counted from, and notes on how they were read."""

    times: np.ndarray
    unit: str | None
    origin: str | None
    notes: tuple[str, ...] = ()


def unit_word(time_unit: str) -> str:
    """The full word of a unit of time ("day" for "D" or "days"); any other word comes back as it is."""
    word = time_unit.strip()
    small = word.lower()
    known = SHORT.get(small, small.removesuffix("s"))
    return known if known in SECONDS else word


def as_clock(times: Any, time_unit: str | None, origin: str | None, source: Source) -> Clock:
    """The times on a clock: plain numbers as they are, dates counted in `time_unit` from `origin` or the first one."""
    if time_unit is not None and not (isinstance(time_unit, str) and time_unit.strip()):
        raise DataError(f"time_unit must be a word such as 'day', not {show(time_unit)}")
    unit = None if time_unit is None else unit_word(time_unit)
    dates, notes = as_dates(times, source), ()
    if dates is None:
        numbers = as_numbers(times, "times", source)
        # Times with an origin have been counted from it already: whole numbers among them are no dates.
        dates = compact_dates(numbers) if origin is None else None
        if dates is None:
            return Clock(numbers, unit, None if origin is None else iso(_read_origin(origin)))
        if unit not in SECONDS:
            return Clock(numbers, unit, None, (f"{_like(numbers)} were read as plain numbers; {_GIVE_UNIT}.",))
        notes = (f"{_like(numbers)} were read as dates, year month day.",)
    if unit not in SECONDS:
        came = "none was given" if unit is None else f"{show(unit)} was given"
        raise DataError(
            f"{source.column(source.time)} holds dates, so time_unit must be one of {', '.join(SECONDS)}, but {came}"
        )
    start = first_date(dates) if origin is None else _read_origin(origin)
    return Clock(count(dates, start, unit), unit, iso(start), notes)


def as_dates(times: Any, source: Source) -> np.ndarray | None:
    """The times as datetime64 if they are dates (arrays, `datetime` objects or ISO text), else None."""
    array = times if isinstance(times, np.ndarray) else _array(times)
    if array.dtype.kind == "M":
        return _finer(array)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "UO":
        return None
    if isinstance(array[0], datetime.date):
        return _dates([_moment(cell) for cell in array], source)
    if isinstance(array[0], str) and parse_date(array[0]) is not None:
        return parse_dates([str(cell) for cell in array], source)
    return None


def compact_dates(numbers: np.ndarray) -> np.ndarray | None:
    """Whole numbers such as 20200131 as datetime64, if every one of them is a date so written; else None."""
    whole = numbers.ndim == 1 and numbers.size > 0 and np.all((numbers >= 1000_01_01) & (numbers <= 9999_12_31))
    if not whole or np.any(numbers % 1):
        return None
    number = numbers.astype(np.int64)
    year, month, day = number // 10_000, number // 100 % 100, number % 100
    months = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    dates = months.astype("datetime64[D]") + (day - 1)
    if np.any((month < 1) | (month > 12) | (day < 1) | (dates.astype("datetime64[M]") != months)):
        return None
    return _finer(dates)


def parse_dates(cells: Sequence[str], source: Source) -> np.ndarray:
    """ISO dates or date-times as datetime64, those with a time zone taken to UTC; refused by row."""
    moments = []
    for row, cell in enumerate(cells):
        moment = parse_date(cell)
        if moment is None:
            raise DataError(
                f"{source.cell(row, source.time)}: {show(cell)} is not an ISO date;"
                " write 2020-01-31 or 2020-01-31T12:00"
            )
        moments.append(moment)
    return _dates(moments, source)


def parse_date(cell: str) -> datetime.datetime | None:
    """One ISO date, year-month or date-time; None if the text is none of these."""
    text = cell.strip()
    try:
        return datetime.datetime.fromisoformat(f"{text}-01" if YEAR_MONTH.fullmatch(text) else text)
    except ValueError:
        return None


def count(dates: np.ndarray, origin: np.datetime64, unit: str) -> np.ndarray:
    """Dates as numbers of units since the origin; NaT becomes NaN."""
    return (dates - origin) / np.timedelta64(1, "s") / SECONDS[unit]


def dates_at(times: np.ndarray, origin: str, unit: str) -> list[str]:
    """Numbers of units since the origin as ISO dates, to the second."""
    seconds = np.round(np.asarray(times) * SECONDS[unit]).astype("timedelta64[s]")
    return [iso(date) for date in _read_origin(origin).astype("datetime64[s]") + seconds]


def first_date(dates: np.ndarray) -> np.datetime64:
    """The earliest of the dates that are there."""
    there = dates[~np.isnat(dates)]
    return there.min() if there.size else np.datetime64(0, "s")


def iso(date: np.datetime64) -> str:
    """The date as ISO text, no longer than it needs to be."""
    return str(np.datetime_as_string(date, unit="auto"))


def _array(times: Any) -> np.ndarray:
    try:
        return np.asarray(times)
    except ValueError:
        raise DataError("times must be one row of numbers or dates, but its rows differ in length") from None


def _finer(dates: np.ndarray) -> np.ndarray:
    """Dates in seconds or finer: calendar months and years have no fixed length to divide by."""
    return dates.astype("datetime64[s]") if np.datetime_data(dates.dtype)[0] in "YMWDhm" else dates


def _moment(cell: Any) -> datetime.datetime:
    if isinstance(cell, datetime.datetime):
        return cell
    if isinstance(cell, datetime.date):
        return datetime.datetime(cell.year, cell.month, cell.day)
    raise DataError(f"times must all be dates once the first one is, but {show(cell)} is among them")


def _dates(moments: Sequence[datetime.datetime], source: Source) -> np.ndarray:
    zoned = [moment.tzinfo is not None for moment in moments]
    if any(zoned) and not all(zoned):
        row = zoned.index(not zoned[0])
        raise DataError(
            f"{source.cell(row, source.time)}: {'a' if zoned[row] else 'no'} time zone here, unlike the rows above;"
            " give all dates with a zone or all without"
        )
    # Not `astimezone`, which ends at the years 1 and 9999.
    offsets = [moment.utcoffset() or datetime.timedelta(0) for moment in moments]
    local = np.array([moment.replace(tzinfo=None) for moment in moments], "datetime64[us]")
    return local - np.array(offsets, "timedelta64[us]")


def _like(numbers: np.ndarray) -> str:
    return f"Times such as {numbers[0]:.0f}"


def _read_origin(origin: str) -> np.datetime64:
    if isinstance(origin, str) and WRITTEN.fullmatch(origin):
        try:
            return _finer(np.array([origin], "datetime64"))[0]
        except ValueError:
            pass
    moment = parse_date(origin) if isinstance(origin, str) else None
    if moment is None:
        raise DataError(f"origin must be an ISO date such as '2020-01-31', not {show(origin)}")
    return _dates([moment], Source())[0]
