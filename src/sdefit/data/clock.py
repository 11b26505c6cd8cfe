"""Times as numbers: plain numbers as they are, dates counted in a unit from an origin."""

import datetime
import re
from collections.abc import Sequence
from typing import Any

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


def unit_word(time_unit: str) -> str:
    """The full word of a unit of time ("day" for "D" or "days"); any other word comes back as it is."""
    word = time_unit.strip()
    small = word.lower()
    known = SHORT.get(small, small.removesuffix("s"))
    return known if known in SECONDS else word


def as_clock(
    times: Any, time_unit: str | None, origin: str | None, source: Source
) -> tuple[np.ndarray, str | None, str | None]:
    """The times as float64, with the word of their unit and the ISO date they are counted from."""
    if time_unit is not None and not (isinstance(time_unit, str) and time_unit.strip()):
        raise DataError(f"time_unit must be a word such as 'day', not {show(time_unit)}")
    unit = None if time_unit is None else unit_word(time_unit)
    dates = as_dates(times, source)
    if dates is None:
        return as_numbers(times, "times", source), unit, None if origin is None else iso(_read_origin(origin))
    if unit not in SECONDS:
        came = "none was given" if unit is None else f"{show(unit)} was given"
        raise DataError(
            f"{source.column(source.time)} holds dates, so time_unit must be one of {', '.join(SECONDS)}, but {came}"
        )
    start = first_date(dates) if origin is None else _read_origin(origin)
    return count(dates, start, unit), unit, iso(start)


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
    if any(zoned):
        moments = [moment.astimezone(datetime.UTC) for moment in moments]
    return np.array([moment.replace(tzinfo=None) for moment in moments], "datetime64[us]")


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
