"""CSV files: what is read, what is written, and every refusal word for word."""

import collections
import time as clock
import typing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdefit.data import Series, from_frame, read_csv, write_csv
from sdefit.errors import DataError

NAN = np.nan


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read text or bytes as the file obs.csv."""
    monkeypatch.chdir(tmp_path)

    def reader(content: str | bytes, **kwargs):
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / "obs.csv").write_bytes(data)
        return read_csv("obs.csv", **kwargs)

    return reader


def test_reads_named_columns(read):
    series = read("t,prey,other,predator\n0,1,9,2\n1.5,3,9,4\n4,5e0,9,-6\n", time="t", states=["predator", "prey"])
    assert series == Series([0, 1.5, 4], [[2, 1], [4, 3], [-6, 5]], ["predator", "prey"])


@pytest.mark.parametrize(
    "text",
    [
        "t,x,y\n0,1,2\n1,,4\n2,5,6\n",
        "\ufefft,x,y\r\n0,1,2\r\n1,,4\r\n2,5,6\r\n\r\n\r\n",
        't,x,y\r0,1,2\r1,NA,4\r2,5,6"'.replace('"', ""),
        '"t","x","y"\n"0","1","2"\n"1","","4"\n"2","5","6"\n',
        "t, x, y\n0, 1, 2\n1, nan, 4\n2, 5, 6",
        "t;x;y\n0;1;2\n1;null;4\n2;5;6\n",
        "t\tx\ty\n0\t1\t2\n1\t\t4\n2\t5\t6\n",
        "\nt,x,y\n\n0,1,2\n1, N/A ,4\n2,5,6\n,,\n  \n",
        '"x",t,y\n1,0,2\n,1,4\n5,2,6\n',
    ],
)
def test_the_ways_people_write_csv(read, text):
    assert read(text) == Series([0, 1, 2], [[1, 2], [NAN, 4], [5, 6]], ["x", "y"])


def test_time_column_by_default_and_text_columns_left_out(read):
    series = read("time,site,x\n0,a,1\n1,b,2\n2,,3\n")
    assert series == Series([0, 1, 2], [1, 2, 3], ["x"], notes=["Left out, as they hold no numbers: site."])


def test_a_column_without_a_name_is_left_out(read):
    series = read('"",t,x\n1,0,1\n2,1,2\n3,2,3\n')
    assert series == Series([0, 1, 2], [1, 2, 3], ["x"], notes=["A column without a name was left out."])


def test_groups_of_unequal_length_keep_their_order_and_names(read):
    series = read("id,t,x\nb,0,1\na,5,9\nb,2,3\nb,1,2\na,6,8\na,7,NA\na,8,7\n", group="id")
    assert series[0] == Series([0, 2, 1], [1, 3, 2], ["x"], name="b")
    assert series[1] == Series([5, 6, 7, 8], [9, 8, NAN, 7], ["x"], name="a")
    assert len(series) == 2


def test_dates_of_all_groups_run_on_one_clock(read):
    rows = "a,2020-01-02,1\na,2020-01-03,2\na,2020-01-04,3\nb,2020-01-01,1\nb,2020-01-02T12:00,2\nb,2020-01-09,4\n"
    first, second = read("id,date,x\n" + rows, time="date", group="id", time_unit="day")
    np.testing.assert_array_equal(first.times, [1, 2, 3])
    np.testing.assert_array_equal(second.times, [0, 1.5, 8])
    assert first.origin == second.origin == "2020-01-01"
    assert second.time_unit == "day"


def test_inputs(read):
    series = read("t,x,u\n0,1,5\n2,2,6\n1,3,7\n", inputs=["u"])
    assert series == Series([0, 2, 1], [1, 2, 3], ["x"], inputs={"u": [5, 6, 7]})


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(numbers, min_size=3, max_size=8, unique=True).flatmap(
        lambda times: st.tuples(
            st.just(times), st.lists(st.tuples(numbers, st.none() | numbers), min_size=len(times), max_size=len(times))
        )
    ),
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1), min_size=2, max_size=2),
)
def test_written_and_read_back_bit_for_bit(tmp_path_factory, rows, names):
    times, values = rows
    names = [f"{i}{name.strip()}" for i, name in enumerate(names)]
    values = [(a, NAN if b is None else b) for a, b in values]
    values[0] = (values[0][0], 1.0)
    series = Series(sorted(times), values, [f"x{name}".strip() for name in names], inputs={"u": times})
    path = tmp_path_factory.getbasetemp() / "round.csv"
    write_csv(series, path)
    assert read_csv(path, time="t", states=series.states, inputs=["u"]) == series


def test_several_series_written_and_read_back(tmp_path):
    path = tmp_path / "many.csv"
    rng = np.random.default_rng(0)
    many = [Series(rng.uniform(size=n), rng.normal(size=(n, 2)), name=f"s,{n}") for n in (3, 7, 5)]
    write_csv(many, path, group="who")
    back = read_csv(path, group="who")
    assert [(s.name, len(s)) for s in back] == [("s,3", 3), ("s,7", 7), ("s,5", 5)]
    for one, other in zip(many, back, strict=True):
        np.testing.assert_array_equal(one.times, other.times)
        np.testing.assert_array_equal(one.values, other.values)


def test_writing_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    series = Series([0, 1, 2], [1, 2, 3])
    with pytest.raises(DataError) as caught:
        write_csv(series, "no/where.csv")
    assert str(caught.value) == "no/where.csv: cannot be written (no such file or directory); choose another place"
    with pytest.raises(DataError) as caught:
        write_csv([series, Series([0, 1, 2], [1, 2, 3], ["y"])], "two.csv")
    assert str(caught.value) == "series must be one or more series of the same states and inputs to share a file"


def test_a_hundred_thousand_rows_take_about_a_second(tmp_path):
    path = tmp_path / "big.csv"
    values = np.random.default_rng(1).normal(size=(100_000, 2))
    values[::7, 1] = NAN
    series = Series(np.arange(100_000.0), values, ["x", "y"])
    write_csv(series, path)
    start = clock.process_time()
    assert read_csv(path) == series
    # Half a second on a slow core; the bound leaves room for a busy machine and still catches a quadratic step.
    assert clock.process_time() - start < 3


GOOD = "t,prey,predator\n0,1,2\n1,3,4\n2,5,6\n"
COLUMNS = "the columns are 't', 'prey', 'predator'"
REFUSED = {
    "duplicate time": (
        "t,x\n0,1\n1,2\n\n2,3\n1,4\n",
        {},
        "obs.csv, line 6, column 't': the time 1 already stands at line 3;"
        " average the two rows, or keep several series apart (one Series each, or group=)",
    ),
    "duplicate time in a group": (
        "g,t,x\na,0,1\nb,0,1\nb,1,2\nb,2,2\na,1,1\na,2,1\nb,1,1\n",
        {"group": "g"},
        "obs.csv, group 'b', line 8, column 't': the time 1 already stands at line 4;"
        " average the two rows, or keep several series apart (one Series each, or group=)",
    ),
    "infinite": (
        "t,x\n0,1\n1,inf\n2,3\n",
        {},
        "obs.csv, line 3, column 'x': the number is infinite; correct it,"
        " or leave it empty (NaN) if it was not observed",
    ),
    "too large for a float": (
        "t,x\n0,1\n1,1e999\n2,3\n",
        {},
        "obs.csv, line 3, column 'x': the number is infinite; correct it,"
        " or leave it empty (NaN) if it was not observed",
    ),
    "infinite time": (
        "t,x\n0,1\n1,2\n-inf,3\n",
        {},
        "obs.csv, line 4, column 't': the number is infinite; correct it,"
        " or leave it empty (NaN) if it was not observed",
    ),
    "text": (
        "t,x\n0,1\n1,high\n2,3\n",
        {},
        "obs.csv, line 3, column 'x': 'high' is not a number;"
        " correct it, or leave the cell empty if it was not observed",
    ),
    "text over two lines": (
        't,x\n0,1\n1,"hi\ngh"\n2,3\n',
        {},
        "obs.csv, line 4, column 'x': 'hi\\ngh' is not a number;"
        " correct it, or leave the cell empty if it was not observed",
    ),
    "underscore": (
        "t,x\n0,1\n1,1_0\n2,3\n",
        {},
        "obs.csv, line 3, column 'x': '1_0' is not a number;"
        " correct it, or leave the cell empty if it was not observed",
    ),
    "decimal comma": (
        "t;x\n0;1,5\n1;2\n2;3\n",
        {"states": ["x"]},
        "obs.csv, line 2, column 'x': '1,5' is not a number; write decimals with a point",
    ),
    "text in time": (
        "t,x\n0,1\nsoon,2\n2,3\n",
        {},
        "obs.csv, line 3, column 't': 'soon' is neither a number nor an ISO date;"
        " write 12.5, 2020-01-31 or 2020-01-31T12:00",
    ),
    "no such date": (
        "t,x\n2020-01-31,1\n2020-02-31,2\n2020-03-31,3\n",
        {"time_unit": "day"},
        "obs.csv, line 3, column 't': '2020-02-31' is not an ISO date; write 2020-01-31 or 2020-01-31T12:00",
    ),
    "dates without a unit": (
        "t,x\n2020-01-31,1\n2020-02-01,2\n2020-03-31,3\n",
        {},
        "obs.csv, column 't' holds dates, so time_unit must be one of second, minute, hour, day, week, month, year,"
        " but none was given",
    ),
    "missing time": (
        "t,x\n0,1\n,2\n2,3\n",
        {},
        "obs.csv, line 3, column 't': the time is missing; fill it in or leave the row out",
    ),
    "missing date": (
        "t,x\n2020-01-01,1\n,2\n2020-01-03,3\n",
        {"time_unit": "day"},
        "obs.csv, line 3, column 't': the time is missing; fill it in or leave the row out",
    ),
    "empty column": (
        "t,x,y\n0,1,\n1,2,\n2,3,NA\n",
        {},
        "obs.csv, column 'y' has no value at all; leave this state out or give it values",
    ),
    "empty column in a group": (
        "g,t,x\na,0,1\na,1,2\na,2,3\nb,0,\nb,1,\nb,2,\n",
        {"group": "g"},
        "obs.csv, group 'b', column 'x' has no value at all; leave this state out or give it values",
    ),
    "few rows": (
        "t,x\n0,1\n1,2\n2,\n",
        {},
        "obs.csv: a series needs values at 3 or more times, but 2 came; give more rows",
    ),
    "few rows in a group": (
        "g,t,x\na,0,1\na,1,2\na,2,3\nb,0,1\n",
        {"group": "g"},
        "obs.csv, group 'b': a series needs values at 3 or more times, but 1 came; give more rows",
    ),
    "missing group": (
        "g,t,x\na,0,1\n,1,2\na,2,3\n",
        {"group": "g"},
        "obs.csv, line 3, column 'g': the group is missing; fill it in or leave the row out",
    ),
    "close name": (
        GOOD,
        {"states": ["pray"]},
        f"obs.csv: there is no column 'pray'; did you mean 'prey'? {COLUMNS}",
    ),
    "other case": (GOOD, {"time": "T"}, f"obs.csv: there is no column 'T'; did you mean 't'? {COLUMNS}"),
    "no such group": (GOOD, {"group": "subject"}, f"obs.csv: there is no column 'subject'; {COLUMNS}"),
    "no such input": (GOOD, {"inputs": ["u"]}, f"obs.csv: there is no column 'u'; {COLUMNS}"),
    "many columns": (
        ",".join(f"c{i}" for i in range(14)) + "\n" + ",".join("1" * 14),
        {"time": "when"},
        "obs.csv: there is no column 'when'; the columns are 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8',"
        " 'c9', 'c10', 'c11' and 2 more",
    ),
    "no time": (
        "when,x\n0,1\n",
        {},
        "obs.csv: there is no column 't' or 'time'; name the time column, one of 'when', 'x'",
    ),
    "two roles": (GOOD, {"states": ["t"]}, "obs.csv, column 't' is asked for twice; each column has one role"),
    "no states": (GOOD, {"states": []}, "states must name one or more columns, but the list is empty"),
    "states as a string": (
        GOOD,
        {"states": "prey"},
        "states must be a list of names, not the string 'prey'; write ['prey']",
    ),
    "only time": ("t\n0\n1\n2\n", {}, "obs.csv: there is no column of numbers for a state among 't'"),
    "only text": ("t,s\n0,a\n1,b\n2,c\n", {}, "obs.csv: there is no column of numbers for a state among 't', 's'"),
    "missing input": (
        "t,x,u\n0,1,1\n1,2,\n2,3,1\n",
        {"inputs": ["u"]},
        "obs.csv, line 3, column 'u': a known input must be a finite number at every time, not nan",
    ),
    "short row": (
        "t,x\n0,1\n1\n2,3\n",
        {},
        "obs.csv, line 3: there are 1 cells, but the first line names 2 columns; add or remove cells",
    ),
    "long row": (
        "t,x\n0,1\n1,2,3\n2,3\n",
        {},
        "obs.csv, line 3: there are 3 cells, but the first line names 2 columns; add or remove cells",
    ),
    "open quote": (
        't,x\n0,1\n1,"2\n2,3\n',
        {},
        "obs.csv, line 4: the quotes or cells cannot be read (unexpected end of data)",
    ),
    "twice the same name": (
        "t,x,x\n0,1,2\n",
        {},
        "obs.csv: two columns are called 'x' (numbers 2 and 3); rename one of them",
    ),
    "no names": (
        "0,1\n1,2\n2,3\n",
        {},
        "obs.csv, line 1: this line must name the columns, but holds numbers; add a line of names",
    ),
    "empty": ("", {}, "obs.csv: the file is empty; give column names and 3 or more rows"),
    "blank": ("\n  \n", {}, "obs.csv: the file is empty; give column names and 3 or more rows"),
    "names only": ("t,x\n", {}, "obs.csv: there are column names but no rows below them; give 3 or more rows"),
    "nothing but commas": (",,\n,,\n", {}, "obs.csv: the file is empty; give column names and 3 or more rows"),
    "binary": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", {}, "obs.csv: this is not a text file; give a CSV file"),
    "utf-16": (GOOD.encode("utf-16"), {}, "obs.csv: this is UTF-16 text; save it as UTF-8"),
    "latin-1": (
        "t,x\n0,1\n1,é\n".encode("latin-1"),
        {},
        "obs.csv, line 3: this is not UTF-8 text; give a CSV file saved as UTF-8",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_word_for_word(read, case):
    content, kwargs, message = REFUSED[case]
    with pytest.raises(DataError) as caught:
        read(content, **kwargs)
    assert str(caught.value) == message
    assert "\n" not in message


def test_no_file_and_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, message in (
        ("none.csv", "none.csv: there is no such file; check the path"),
        (".", ".: this is a folder; give the path of a CSV file"),
    ):
        with pytest.raises(DataError) as caught:
            read_csv(path)
        assert str(caught.value) == message


ROWS = st.lists(st.tuples(st.integers(0, 99), st.floats(-9, 9)), min_size=3, max_size=6, unique_by=lambda row: row[0])


def test_any_bytes_give_a_series_or_one_line(tmp_path):
    path, outcomes = tmp_path / "any.csv", collections.Counter()

    @given(
        st.binary(max_size=60)
        | st.text("t,x\n\r\"'01.5e-;\t na", max_size=60).map(str.encode)
        | ROWS.map(lambda rows: ("t,x\n" + "".join(f"{t},{x}\n" for t, x in sorted(rows))).encode())
    )
    def check(content):
        path.write_bytes(content)
        series, message = None, ""
        try:
            series = read_csv(path)
        except DataError as error:
            message = str(error)
        outcomes[series is None] += 1
        if series is None:
            assert len(message.splitlines()) == 1
            return
        assert len(series) >= 1 and (np.diff(series.times) > 0).all()

    check()
    assert min(outcomes[True], outcomes[False]) >= 5


def test_tens_of_thousands_of_columns_are_read_in_seconds(read):
    count, rows = 60_000, 3
    names = ",".join(f"c{i}" for i in range(count))
    body = "".join(f"{t}{',1.5' * count}\n" for t in range(rows))
    begin = clock.perf_counter()
    series = read(f"t,{names}\n{body}")
    assert series.values.shape == (rows, count)
    assert clock.perf_counter() - begin < 10  # half a second; where each name met all before it, half a minute


def test_dates_written_as_whole_numbers(read):
    series = read("t,x\n20200131,1\n20200201,2\n20200203,3\n", time_unit="day")
    np.testing.assert_array_equal(series.times, [0, 1, 3])
    assert series.notes == ("Times such as 20200131 were read as dates, year month day.",)


@pytest.mark.parametrize("reader", [read_csv, from_frame])
def test_the_type_says_whether_one_series_comes_or_a_list(reader):
    told = {o.__annotations__["group"]: o.__annotations__["return"] for o in typing.get_overloads(reader)}
    assert told == {None: Series, str: list[Series]}
