"""`Series`: what it takes, what it keeps, and every refusal word for word."""

import collections
import dataclasses
import datetime
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sdefit.data import Series
from sdefit.errors import DataError

NAN = np.nan
DATES = ["2020-01-01", "2020-01-03", "2021-01-01"]


def refusal(*args, **kwargs) -> str:
    with pytest.raises(DataError) as caught:
        Series(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_keeps_float64_and_reads_one_column_as_one_state():
    series = Series([0, 1, 3], np.array([1, 2, 3], np.float32))
    assert series.times.dtype == series.values.dtype == np.float64
    assert series.times.shape == (3,)
    assert series.values.shape == (3, 1)
    assert series.states == ("x",)
    assert Series([0, 1, 2], np.ones((3, 2))).states == ("x1", "x2")
    assert (len(series), series.span, series.missing) == (3, 3.0, 0)


def test_rows_are_sorted_together_and_a_note_says_so():
    times = np.array([3.0, 1.0, 2.0])
    values = np.array([[30, NAN], [10, 11], [20, 21]])
    series = Series(times, values, path=values[:, :1] * [[1, 2]], inputs={"u": [3, 1, 2]}, notes=["A note."])
    np.testing.assert_array_equal(series.times, [1, 2, 3])
    np.testing.assert_array_equal(series.values, [[10, 11], [20, 21], [30, NAN]])
    np.testing.assert_array_equal(series.path, [[10, 20], [20, 40], [30, 60]])
    np.testing.assert_array_equal(series.inputs["u"], [1, 2, 3])
    np.testing.assert_array_equal(series.observed, [[True, True], [True, True], [True, False]])
    assert series.notes == ("A note.", "The rows were not in the order of time and have been sorted.")
    assert Series(np.sort(times), values).notes == ()


def test_is_a_value_that_cannot_be_changed():
    times = np.arange(3.0)
    series = Series(times, [[1, 4], [NAN, 5], [3, 6]], name="a", inputs={"u": [1, 2, 3]}, origin="2020-01-01")
    times[0] = -9
    assert series.times[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        series.values[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        series.times = times
    assert pickle.loads(pickle.dumps(series)) == series
    assert dataclasses.replace(series) == series
    assert dataclasses.replace(series, name="b") != series
    assert Series(series.times, [1, 2, 3]) != series
    assert series != "series"


def test_prints_what_it_holds():
    series = Series([2, 0, 1], [[1, 2], [NAN, 3], [4, 5]], ["prey", "predator"], name="lake", time_unit="years")
    assert repr(series) == "Series('lake': prey, predator; 3 times from 0 to 2 year; 1 of 6 values missing)"
    assert str(series).splitlines() == [
        "Series 'lake' of prey, predator",
        "  3 times from 0 to 2 year",
        "  1 of 6 values missing",
        "  The rows were not in the order of time and have been sorted.",
    ]
    known = Series(DATES, [1, 2, 3], time_unit="D", path=[1, 2, 3], inputs={"u": [0, 0, 1]})
    assert repr(known) == (
        "Series(x; 3 times from 0 to 366 day since 2020-01-01; no value missing; inputs u; true path known)"
    )


@pytest.mark.parametrize(
    "times",
    [
        np.array(DATES, "datetime64[D]"),
        np.array(DATES, "datetime64[ns]"),
        pd.DatetimeIndex(DATES),
        pd.Series(pd.to_datetime(DATES)),
        DATES,
        np.array(DATES, object),
        ["2020-01-01T00:00", "2020-01-03", "2021-01"],
        ["2020-01-01T01:00+01:00", "2020-01-03T00:00Z", "2020-12-31T19:00-05:00"],
        [datetime.date.fromisoformat(date) for date in DATES],
        [datetime.datetime.fromisoformat(date) for date in DATES],
    ],
)
def test_dates_are_counted_from_the_first(times):
    series = Series(times, [1, 2, 3], time_unit="D")
    np.testing.assert_array_equal(series.times, [0, 2, 366])
    assert (series.time_unit, series.origin) == ("day", "2020-01-01")


@pytest.mark.parametrize(
    ("word", "full", "days"),
    [
        ("s", "second", 1 / 86400),
        ("min", "minute", 1 / 1440),
        ("h", "hour", 1 / 24),
        ("day", "day", 1),
        ("weeks", "week", 7),
        ("month", "month", 365.25 / 12),
        ("Year", "year", 365.25),
    ],
)
def test_units_of_time(word, full, days):
    series = Series(DATES, [1, 2, 3], time_unit=word)
    np.testing.assert_allclose(series.times, np.array([0, 2, 366]) / days, rtol=1e-15)
    assert series.time_unit == full


def test_calendar_months_and_years_are_dates_too():
    months = np.array(["2020-01", "2020-02", "2021-01"], "datetime64[M]")
    np.testing.assert_array_equal(Series(months, [1, 2, 3], time_unit="D").times, [0, 31, 366])


def test_a_chosen_origin_and_dates_on_the_clock_of_a_series():
    series = Series(DATES, [1, 2, 3], time_unit="D", origin="2019-12-31T12:00")
    np.testing.assert_array_equal(series.times, [0.5, 2.5, 366.5])
    np.testing.assert_array_equal(series.clock(["2020-01-01", "2022-01-01"]), [0.5, 731.5])
    np.testing.assert_array_equal(series.clock([1, 2]), [1, 2])
    with pytest.raises(DataError, match=r"^times must be numbers here, not dates: this series knows no date its"):
        Series([1, 2, 3], [1, 2, 3], time_unit="day").clock(DATES)


@pytest.mark.parametrize("year", ["-0100", "0200", "12000"])
def test_an_origin_outside_the_common_era_reads_back(year):
    series = Series(np.array([year], "datetime64[Y]") + np.arange(3), [1, 2, 3], time_unit="year")
    assert dataclasses.replace(series) == series


@pytest.mark.parametrize(
    ("dates", "origin"),
    [
        (["0001-01-01T00:00+05:00", "0001-01-02T00:00+05:00", "0001-01-03T00:00+05:00"], "0000-12-31T19:00"),
        (["9999-12-29T19:00-05:00", "9999-12-30T19:00-05:00", "9999-12-31T19:00-05:00"], "9999-12-30"),
    ],
)
def test_a_time_zone_may_lead_out_of_the_years_of_the_calendar(dates, origin):
    series = Series(dates, [1, 2, 3], time_unit="day")
    np.testing.assert_array_equal(series.times, [0, 1, 2])
    assert series.origin == origin
    assert Series([0, 1, 2], [1, 2, 3], time_unit="day", origin=dates[0]).origin == origin


@pytest.mark.parametrize("dates", [[20200131, 20200201, 20210201], np.array([20200131.0, 20200201.0, 20210201.0])])
def test_dates_written_as_whole_numbers_are_dates_and_a_note_says_so(dates):
    series = Series(dates, [1, 2, 3], time_unit="day")
    np.testing.assert_array_equal(series.times, [0, 1, 367])
    assert (series.origin, series.notes) == (
        "2020-01-31",
        ("Times such as 20200131 were read as dates, year month day.",),
    )
    assert dataclasses.replace(series) == series


def test_whole_numbers_without_a_unit_stay_numbers_and_a_note_says_so():
    series = Series([20200131, 20200201, 20210201], [1, 2, 3])
    np.testing.assert_array_equal(series.times, [20200131, 20200201, 20210201])
    assert series.notes == (
        "Times such as 20200131 were read as plain numbers; if they are dates, year month day, give time_unit, such as"
        " 'day'.",
    )
    assert dataclasses.replace(series) == series


@pytest.mark.parametrize("times", [[20200131, 20200132, 20200133], [20200131, 20200201.5, 20200203], [19, 20, 21]])
def test_numbers_that_are_no_dates_stay_numbers(times):
    series = Series(times, [1, 2, 3], time_unit="day")
    np.testing.assert_array_equal(series.times, times)
    assert (series.origin, series.notes) == (None, ())


def test_any_word_is_a_unit_for_plain_numbers():
    assert Series([0, 1, 2], [1, 2, 3], time_unit="kyr").time_unit == "kyr"


def test_masked_and_none_are_missing():
    masked = np.ma.masked_array([1.0, 2.0, 3.0, 4.0], mask=[False, True, False, False])
    np.testing.assert_array_equal(Series(range(4), masked).values[:, 0], [1, NAN, 3, 4])
    np.testing.assert_array_equal(Series(range(4), [1, None, 3, 4]).values[:, 0], [1, NAN, 3, 4])


T, V = [0.0, 1.0, 2.0], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
REFUSED = [
    (
        ([0, 1, 5, 1], [1, 2, 3, 4]),
        {},
        "row index 3, column 'times': the time 1 already stands at row index 1;"
        " average the two rows, or keep several series apart (one Series each, or group=)",
    ),
    (([0, NAN, 2], V), {}, "row index 1, column 'times': the time is missing; fill it in or leave the row out"),
    (
        ([0, 1, np.inf], V),
        {},
        "row index 2, column 'times': the number is infinite; correct it,"
        " or leave it empty (NaN) if it was not observed",
    ),
    (
        (T, [[1, 2], [3, -np.inf], [5, 6]], ["prey", "predator"]),
        {},
        "row index 1, column 'predator': the number is infinite; correct it,"
        " or leave it empty (NaN) if it was not observed",
    ),
    (
        (T, [[1, NAN], [2, NAN], [3, NAN]], ["prey", "predator"]),
        {},
        "column 'predator' has no value at all; leave this state out or give it values",
    ),
    (([0, 1], [1, 2]), {}, "a series needs values at 3 or more times, but 2 came; give more rows"),
    (([], []), {}, "a series needs values at 3 or more times, but 0 came; give more rows"),
    (
        (T, [[1, NAN], [NAN, NAN], [NAN, 2]]),
        {},
        "a series needs values at 3 or more times, but 2 came; give more rows",
    ),
    (
        (T, np.ones((2, 3))),
        {},
        "values must be an array of one row per time and one column per state, (3, K), not (2, 3); transpose it",
    ),
    (
        (T, np.ones((3, 2, 1))),
        {},
        "values must be an array of one row per time and one column per state, (3, K), not (3, 2, 1)",
    ),
    (
        (T, np.ones((3, 0))),
        {},
        "values must be an array of one row per time and one column per state, (3, K), not (3, 0)",
    ),
    (([T], V), {}, "times must be one row of N numbers, not an array of shape (1, 3)"),
    ((1.0, V), {}, "times must be one row of N numbers, not an array of shape ()"),
    ((T, [[1, 2], [3]]), {}, "values must be a rectangular array of numbers, but its rows differ in length"),
    (([[1, 2], [3]], V), {}, "times must be one row of numbers or dates, but its rows differ in length"),
    ((T, ["a", "b", "c"]), {}, "values must be an array of numbers, not of text"),
    ((T, [True, False, True]), {}, "values must be an array of numbers, not of true or false"),
    ((T, [1j, 2, 3]), {}, "values must be an array of numbers, not of complex numbers"),
    ((["1", "2", "3"], V), {}, "times must be an array of numbers, not of text"),
    (
        (T, np.array([1, "b", 3], object)),
        {},
        "values must be numbers, with NaN where not observed, but 'b' stands at row index 1",
    ),
    (
        (T, [1, 10**400, 3]),
        {},
        "values must be numbers that fit in float64, but one is larger than 1.8e308",
    ),
    ((T, V, ["a"]), {}, "states must name each of the 2 column(s) of values, but names 1"),
    ((T, V, ["a", "a"]), {}, "states must be different names, but 'a' stands twice"),
    ((T, V, ["a", " "]), {}, "states must be names, but number 2 is ' '"),
    ((T, V, ["a", 2]), {}, "states must be names, but number 2 is 2"),
    ((T, [1, 2, 3], "x"), {}, "states must be a list of names, not the string 'x'; write ['x']"),
    ((T, V), {"path": [[1, 2]]}, "path must have the shape of values, (3, 2), not (1, 2)"),
    (
        (T, [1, 2, 3]),
        {"path": [1, NAN, 3]},
        "row index 1, column 'x': the true path must be a finite number at every time, not nan",
    ),
    ((T, V), {"inputs": {"u": [1, 2]}}, "input 'u' must be one number per time, (3,), not (2,)"),
    ((T, V), {"inputs": {"x1": T}}, "input 'x1' must not have the name of a state; rename one of them"),
    (
        (T, V),
        {"inputs": {"u": [1, NAN, 2]}},
        "row index 1, column 'u': a known input must be a finite number at every time, not nan",
    ),
    (
        (DATES, [1, 2, 3]),
        {},
        "column 'times' holds dates, so time_unit must be one of second, minute, hour, day, week, month, year,"
        " but none was given",
    ),
    (
        (DATES, [1, 2, 3]),
        {"time_unit": "fortnight"},
        "column 'times' holds dates, so time_unit must be one of second, minute, hour, day, week, month, year,"
        " but 'fortnight' was given",
    ),
    ((T, V), {"time_unit": 3}, "time_unit must be a word such as 'day', not 3"),
    ((T, V), {"origin": "once"}, "origin must be an ISO date such as '2020-01-31', not 'once'"),
    (
        (["2020-01-01", "2020-01-02", "soon"], [1, 2, 3]),
        {"time_unit": "D"},
        "row index 2, column 'times': 'soon' is not an ISO date; write 2020-01-31 or 2020-01-31T12:00",
    ),
    (
        (["2020-01-01", "2020-01-02", "2020-01-03T00:00Z"], [1, 2, 3]),
        {"time_unit": "D"},
        "row index 2, column 'times': a time zone here, unlike the rows above;"
        " give all dates with a zone or all without",
    ),
    (
        ([datetime.date(2020, 1, 1), 3, 4], [1, 2, 3]),
        {"time_unit": "D"},
        "times must all be dates once the first one is, but 3 is among them",
    ),
    (
        (np.array(["2020-01-01", "NaT", "2020-01-03"], "datetime64[D]"), [1, 2, 3]),
        {"time_unit": "D"},
        "row index 1, column 'times': the time is missing; fill it in or leave the row out",
    ),
]


@pytest.mark.parametrize(("args", "kwargs", "message"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refusals_word_for_word(args, kwargs, message):
    assert refusal(*args, **kwargs) == message


USUAL = st.floats(-1e3, 1e3, width=32)


def test_any_arrays_give_a_sound_series_or_one_line():
    outcomes = collections.Counter()

    @given(
        hnp.arrays(np.float64, st.integers(0, 6)) | hnp.arrays(np.float64, 4, elements=USUAL, unique=True),
        hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=6))
        | hnp.arrays(np.float64, 4, elements=USUAL),
    )
    def check(times, values):
        series, message = None, ""
        try:
            series = Series(times, values)
        except DataError as error:
            message = str(error)
        outcomes[series is None] += 1
        if series is None:
            assert len(message.splitlines()) == 1
            return
        assert (series.times[1:] > series.times[:-1]).all()
        assert np.isfinite(series.times).all()
        assert not np.isinf(series.values).any()
        assert series.observed.any(axis=0).all()

    check()
    assert min(outcomes[True], outcomes[False]) >= 5
