"""pandas and polars frames give what the same CSV file gives."""

import datetime
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sdefit.data import Series, from_frame, read_csv
from sdefit.errors import DataError

NAN = np.nan
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame}
COLUMNS = {"t": [2.0, 0.0, 1.0, 5.0], "x": [1.0, None, 3.0, 4.0], "n": [1, 2, 3, 4], "site": ["a", "b", None, "d"]}


@pytest.fixture(params=FRAMES)
def frame(request):
    return FRAMES[request.param]


def refusal(*args, **kwargs) -> str:
    with pytest.raises(DataError) as caught:
        from_frame(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_same_as_the_csv_file(frame, tmp_path):
    path = tmp_path / "obs.csv"
    pl.DataFrame(COLUMNS).write_csv(path)
    series = from_frame(frame(COLUMNS))
    assert series == read_csv(path)
    np.testing.assert_array_equal(series.values, [[NAN, 2], [3, 3], [1, 1], [4, 4]])
    assert from_frame(frame(COLUMNS), time="t", states=["n"], inputs=()).states == ("n",)


def test_groups(frame):
    # Two names that are one as floats: whole numbers stay whole.
    ids = [2**53, 2**53 + 1] * 3
    data = frame({"id": ids, "time": [0, 0, 1, 1, 2, 2], "x": [1.0, 2, 3, 4, 5, 6], "u": [0, 1, 0, 1, 0, 1]})
    first, second = from_frame(data, group="id", inputs=["u"])
    assert first == Series([0, 1, 2], [1, 3, 5], ["x"], name=str(2**53), inputs={"u": [0, 0, 0]})
    assert second == Series([0, 1, 2], [2, 4, 6], ["x"], name=str(2**53 + 1), inputs={"u": [1, 1, 1]})


@pytest.mark.parametrize(
    "dates",
    [
        [datetime.datetime(2020, 1, day) for day in (1, 3, 9)],
        [datetime.datetime(2020, 1, day, tzinfo=datetime.UTC) for day in (1, 3, 9)],
        [datetime.date(2020, 1, day) for day in (1, 3, 9)],
        ["2020-01-01", "2020-01-03", "2020-01-09"],
    ],
)
def test_dates(frame, dates):
    series = from_frame(frame({"t": dates, "x": [1, 2, 3]}), time_unit="week")
    assert series == Series([0, 2 / 7, 8 / 7], [1, 2, 3], time_unit="week", origin="2020-01-01")


def test_nullable_and_text_columns_of_pandas():
    data = pd.DataFrame({"t": [0, 1, 2, 3], "x": pd.array([1, None, 3, 4], "Int64"), 5: ["1", "NA", "3", "4"]})
    assert from_frame(data) == Series(range(4), [[1, 1], [NAN, NAN], [3, 3], [4, 4]], ["x", "5"])


def test_refusals(frame):
    assert refusal(frame({"t": [0, 1, 1, 2], "x": [1, 2, 3, 4]})) == (
        "row index 2, column 't': the time 1 already stands at row index 1;"
        " average the two rows, or keep several series apart (one Series each, or group=)"
    )
    assert refusal(frame(COLUMNS), states=["site"]) == (
        "row index 0, column 'site': 'a' is not a number; correct it, or leave the cell empty if it was not observed"
    )
    assert refusal(frame(COLUMNS), states=["y"]) == ("there is no column 'y'; the columns are 't', 'x', 'n', 'site'")
    assert refusal(frame({"t": [0.0, None, 2.0], "x": [1, 2, 3]})) == (
        "row index 1, column 't': the time is missing; fill it in or leave the row out"
    )
    dates = [datetime.datetime(2020, 1, day) for day in (1, 2, 3)]
    assert refusal(frame({"t": [0, 1, 2], "x": dates}), states=["x"]) == "column 'x' must hold numbers, but holds dates"
    assert refusal(frame({"t": [0, 1], "x": [1, 2]})) == (
        "a series needs values at 3 or more times, but 2 came; give more rows"
    )
    assert refusal(frame({"t": [], "x": []})) == "frame has no rows; give 3 or more"


def test_things_that_are_no_frame():
    assert refusal([1, 2, 3]) == "frame must be a pandas or polars data frame, not list"
    assert refusal(pl.LazyFrame(COLUMNS)) == "frame must hold its rows, not a lazy query; call .collect() first"
    twins = pd.DataFrame([[0, 1, 1]], columns=["t", "x", "x"])
    assert refusal(twins) == "frame: two columns are called 'x'; rename one of them"


def test_importing_the_room_imports_no_frame_library():
    code = "import sys, sdefit.data; print([m for m in ('pandas', 'polars', 'narwhals') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
