"""The command line: what it writes, what it prints, and how it says no."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sdefit.errors
from sdefit.cli.app import run
from sdefit.data import write_csv
from sdefit.fitting import load

MODEL = 'name = "relaxing"\nequations = "dx = rate*(level - x)"\n[parameters]\nrate = {lower = 0}\n'


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    Path("model.toml").write_text(MODEL)
    return tmp_path


@pytest.fixture
def observed():
    from contract import ou_series

    write_csv(ou_series(1), "obs.csv")


def child(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, that finds the package where this one did."""
    source = str(Path(sdefit.errors.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source} | variables
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env=environment)


def refusal(capsys, *arguments: str) -> str:
    """The one line a bad command line is answered with, exit status 2."""
    status = run([*arguments])
    captured = capsys.readouterr()
    assert status == 2, captured
    assert captured.out == ""
    assert captured.err.startswith("sdefit: ")
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("\n")
    return captured.err


ROWS = "0,1\n1,2\n2,1.5\n3,1.2\n"
BAD_FILES = {
    "duplicate times": ("t,x\n0,1\n1,2\n1,3\n2,1\n", ["line 4", "'t'", "line 3"]),
    "an infinity": ("t,x\n0,1\n1,inf\n2,1\n3,2\n", ["line 3", "'x'", "infinite"]),
    "text in a number column": ("t,x\n0,1\n1,many\n2,1\n3,2\n", ["line 3", "'x'", "many"]),
    "text in the time column": ("t,x\n0,1\nsoon,2\n2,1\n3,2\n", ["line 3", "'t'", "soon"]),
    "an empty column": ("t,x\n0,\n1,\n2,\n3,\n", ["'x'"]),
    "a column of missing values": ("t,x\n0,NA\n1,NaN\n2,NA\n3,NA\n", ["'x'"]),
    "two usable times": ("t,x\n0,1\n1,\n2,3\n3,\n", ["3 or more times", "2"]),
    "a missing column": (f"t,y\n{ROWS}", ["'x'", "y"]),
    "a missing time column": (f"clock,x\n{ROWS}", ["time", "clock"]),
    "ragged rows": ("t,x\n0,1\n1,2,3\n2,1\n3,2\n", ["line 3"]),
    "an empty file": ("", ["empty"]),
    "a header alone": ("t,x\n", ["no rows"]),
    "a file that is not text": (b"\x00\x01\x02\xff\xfe", ["text"]),
    "bytes that are not UTF-8": (b"t,x\n0,1\n1,\xff\n2,1\n", ["UTF-8"]),
    "dates without a unit": ("t,x\n2020-01-01,1\n2020-01-02,2\n2020-01-03,1\n", ["'t'", "time_unit"]),
    "a constant state": ("t,x\n0,1\n1,1\n2,1\n3,1\n", ["'x'", "must vary"]),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_bad_data_is_refused_in_one_line(what, capsys):
    content, words = BAD_FILES[what]
    Path("bad.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    line = refusal(capsys, "fit", "bad.csv", "--model", "model.toml", "--out", "run")
    for word in words:
        assert word in line
    assert not Path("run/fit.nc").exists()


BAD_ARGUMENTS = [
    (["fit", "none.csv", "--model", "model.toml"], "none.csv: there is no such file"),
    (["fit", "obs.csv"], "Missing option '--model'"),
    (["fit", "--model", "model.toml"], "Missing argument"),
    (["fit", "obs.csv", "--model", "none.toml"], "the model file 'none.toml' does not exist"),
    (["fit", "obs.csv", "--model", "volterra"], "--model must be a TOML file or one of ou, dw, lv, l63"),
    (["fit", "obs.csv", "--model", "model.toml", "--method", "magic"], "--method must be one of"),
    (["fit", "obs.csv", "--model", "model.toml", "--states", "x,y"], "--states must name 1 column(s), one for each of"),
    (["fit", "obs.csv", "--model", "model.toml", "--group", "who"], "'who'"),
    (["fit", "obs.csv", "--model", "model.toml", "--seed", "-1"], "--seed"),
    (["fit", "obs.csv", "--model", "model.toml", "--seed", "one"], "--seed"),
    (["fit", "obs.csv", "--model", "model.toml", "--out", "full"], "--out must be a new or empty folder, but full"),
    (["fit", "obs.csv", "--model", "model.toml", "--out", "obs.csv"], "--out must be a folder that can be written"),
    (["fit", "obs.csv", "--model", "bad.toml"], "bad.toml: this is not TOML"),
    (["fit", "obs.csv", "--model", "model.toml", "--colour"], "No such option: --colour"),
    (["simulate", "volterra"], "a built-in system must be one of"),
    (["simulate", "lv", "--out", "nowhere/obs.csv", "--paths", "0"], "--paths"),
    (["report", "full"], "RUN must be a folder with fit.nc in it"),
    (["report", "obs.csv"], "must be a NetCDF file written by fit.save"),
    (["fitt"], "No such command 'fitt'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_ARGUMENTS, ids=str)
def test_bad_arguments_are_refused_in_one_line(arguments, message, observed, capsys):
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    Path("bad.toml").write_text("equations = ")
    assert message in refusal(capsys, *arguments)


def test_an_equation_that_cannot_be_read_shows_the_place(observed, capsys):
    Path("bad.toml").write_text('equations = "dx = rate*(level - x"')
    assert run(["fit", "obs.csv", "--model", "bad.toml"]) == 2
    error = capsys.readouterr().err
    assert "dx = rate*(level - x" in error
    assert "^" in error


def test_a_fit_writes_its_run(observed, capsys):
    command = ["fit", "obs.csv", "--model", "model.toml", "--method", "moments", "--out", "run/deep"]
    assert run([*command, "--seed", "3"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "rate" in captured.out
    assert "noise[x]" in captured.out
    assert sorted(p.name for p in Path("run/deep").iterdir() if p.is_file()) == ["fit.nc", "report.html", "summary.csv"]
    found = load("run/deep/fit.nc")
    rows = list(csv.DictReader(Path("run/deep/summary.csv").read_text().splitlines()))
    assert [row["quantity"] for row in rows] == ["rate", "level", "G[x,x]", "noise[x]"]
    assert float(rows[0]["estimate"]) == found.params["rate"]
    assert rows[0]["lower"] == ""
    page = Path("run/deep/report.html").read_text()
    assert "relaxing" in page
    # The page comes again from what is stored, and a run is not overwritten unless one says so.
    Path("run/deep/report.html").unlink()
    assert run(["report", "run/deep"]) == 0
    assert Path("run/deep/report.html").read_text() == page
    assert run(command) == 2
    assert run([*command, "--force"]) == 0


def test_json_for_machines(observed, capsys):
    assert run(["fit", "obs.csv", "--model", "model.toml", "--method", "moments", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["status"]["ok"] is True
    assert facts["params"] == load("run/fit.nc").params
    assert facts["files"] == ["run/fit.nc", "run/summary.csv", "run/report.html"]
    np.testing.assert_array_equal(facts["G"], load("run/fit.nc").G)


def test_a_failed_fit_exits_1_and_is_written(observed, capsys):
    Path("nan.toml").write_text('equations = "dx = a*log(-x*x - 1)"')
    assert run(["fit", "obs.csv", "--model", "nan.toml", "--method", "moments", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["status"]["name"] == "drift_not_finite"
    assert load("run/fit.nc").status.name == "drift_not_finite"
    assert Path("run/report.html").exists()


def test_columns_by_other_names_in_groups(capsys):
    from contract import ou_series

    text = [f"{who},{t},{v}" for who, seed in (("a", 1), ("b", 2)) for t, v in _rows(ou_series(seed))]
    Path("obs.csv").write_text("\n".join(["who,hours,level", *text]) + "\n")
    columns = ["--time", "hours", "--states", "level", "--group", "who", "--time-unit", "hour"]
    assert run(["fit", "obs.csv", "--model", "model.toml", "--method", "moments", *columns]) == 0
    found = load("run/fit.nc")
    assert [one.name for one in found.series] == ["a", "b"]
    assert found.series[0].states == ("x",)
    assert found.series[0].time_unit == "hour"


def _rows(series):
    return zip(series.times.tolist(), series.values[:, 0].tolist(), strict=True)


def test_simulate_writes_what_it_says(capsys):
    assert run(["simulate", "ornstein_uhlenbeck", "--out", "one.csv", "--seed", "1", "--paths", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["truth"]["params"] == {"rate": 0.5, "level": 1.0}
    lines = Path("one.csv").read_text().splitlines()
    assert lines[0] == "series,t,x"
    assert len(lines) == 1 + 2 * 51
    assert run(["simulate", "ou", "--out", "two.csv", "--seed", "1", "--paths", "2"]) == 0
    assert Path("two.csv").read_text() == Path("one.csv").read_text()
    assert "two.csv: ornstein_uhlenbeck, 2 paths, 51 times" in capsys.readouterr().out


def test_lists(capsys):
    for command, words in (
        ("--version", ["sdefit"]),
        ("models", ["lv", "lorenz63"]),
        ("methods", ["moments", "(default)"]),
        ("cite", ["@software{sdefit", "abbati2019ares"]),
    ):
        assert run([command]) == 0
        out = capsys.readouterr().out
        assert all(word in out for word in words)
    assert run(["methods", "--json"]) == 0
    assert "moments" in json.loads(capsys.readouterr().out)["methods"]
    assert run(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lv"]["params"]["c"] == 4.0


@pytest.mark.parametrize("arguments", [["--help"], ["models", "--help"], ["fit", "--help"], ["cite"], []])
def test_help_imports_no_numerics(arguments):
    code = (
        "import sys\nfrom sdefit.cli.app import run\n"
        f"status = run({arguments!r})\n"
        "heavy = {'jax', 'numpy', 'equinox', 'pandas', 'xarray', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(status or (f'imported {heavy}' if heavy else 0))"
    )
    done = child(["-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_fit_imports_nothing_it_does_not_need(observed):
    code = (
        "import sys\nfrom sdefit.cli.app import run\n"
        "status = run(['fit', 'obs.csv', '--model', 'model.toml', '--method', 'moments'])\n"
        "slow = {'pandas', 'xarray', 'matplotlib', 'diffrax', 'numpyro', 'optax', 'arviz_base'} & set(sys.modules)\n"
        "sys.exit(status or (f'imported {slow}' if slow else 0))"
    )
    done = child(["-c", code], SDEFIT_CACHE="on", XDG_CACHE_HOME=str(Path("home").absolute()))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert any(Path("home/sdefit/programs").iterdir())


def test_a_cache_that_cannot_be_written_is_harmless(observed):
    Path("taken").write_text("a file where a folder should be")
    command = ["-m", "sdefit.cli", "fit", "obs.csv", "--model", "model.toml", "--method", "moments"]
    done = child(command, SDEFIT_CACHE="on", SDEFIT_CACHE_DIR="taken/programs")
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("run/fit.nc").exists()


@pytest.mark.slow
def test_demo(capsys):
    assert run(["demo", "--out", "demo"]) == 0
    out = capsys.readouterr().out
    assert "truth" in out
    assert {p.name for p in Path("demo").iterdir()} >= {"obs.csv", "fit.nc", "summary.csv", "report.html"}
    assert run(["demo", "--out", "demo"]) == 0
