"""The command line: what it writes, what it prints, and how it says no."""

import csv
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import sdefit.errors
from sdefit import methods
from sdefit.cli import _method
from sdefit.cli._words import in_shell
from sdefit.cli.app import run
from sdefit.cli.cite import ENTRIES
from sdefit.data import read_csv, write_csv
from sdefit.dynamics.model_file import read_model
from sdefit.dynamics.simulate import simulate
from sdefit.fitting import load
from sdefit.uncertainty import Intervals

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


def child(command: list[str], stdout: Any = subprocess.PIPE, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, that finds the package where this one did."""
    source = str(Path(sdefit.errors.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source} | variables
    streams = {"stdout": stdout, "stderr": subprocess.PIPE}
    return subprocess.run([sys.executable, *command], **streams, text=True, check=False, env=environment)


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
    "dates without a unit": ("t,x\n2020-01-01,1\n2020-01-02,2\n2020-01-03,1\n", ["'t'", "--time-unit"]),
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


def test_the_first_line_names_parameters_that_are_not_identified(observed, capsys):
    """Six rows hardly identify a rate, though the search converged and no check of the fit objects."""
    Path("obs.csv").write_text("".join(Path("obs.csv").read_text().splitlines(keepends=True)[:7]))
    assert run(["fit", "obs.csv", "--model", "model.toml", "--method", "esgf", "--option", "starts=1"]) == 0
    words = dict(zip((known := load("run/fit.nc").intervals(draws=0)).names, known.identifiability, strict=True))
    named = ", ".join(name for name in ("rate", "level") if words[name] == "not identified")
    lines = capsys.readouterr().out.splitlines()
    assert named and f"not_identified: The data do not identify {named}. Observe" in lines[0]


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


def test_cite_names_the_paper_of_every_method(capsys):
    """Each method's own reference has the title and the year of the entries that are printed for it."""
    assert list(ENTRIES) == list(methods.names())
    for name in methods.names():
        assert run(["cite", "--method", name]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith("@software{sdefit")
        for entry in ENTRIES[name]:
            assert entry in printed
            title, year = (re.search(rf"{word} *= {{(.*)}}", entry)[1] for word in ("title", "year"))
            reference = methods.get(name).reference
            assert title.replace("{", "").replace("}", "").lower() in reference.lower()
            assert year in reference
    assert run(["cite"]) == 0
    printed = capsys.readouterr().out
    assert all(entry in printed for entries in ENTRIES.values() for entry in entries)
    assert "--method must be one of auto" in refusal(capsys, "cite", "--method", "magic")


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
        "slow = {'pandas', 'xarray', 'diffrax', 'numpyro', 'optax', 'arviz_base'} & set(sys.modules)\n"
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


def test_names_that_look_like_markup_are_printed_as_they_stand(observed, capsys):
    Path("esc.toml").write_text('name = "a[/b] :smile:"\nequations = "dx = rate*(level - x)"')
    assert run(["fit", "obs.csv", "--model", "esc.toml", "--method", "moments"]) == 0
    assert "a[/b] :smile: by Moments" in capsys.readouterr().out


def test_output_that_cannot_show_a_letter_shows_another(observed):
    Path("model.toml").write_text('name = "θ√"\nequations = "dx = rate*(level - x)"')
    done = child(
        ["-m", "sdefit.cli", "fit", "obs.csv", "--model", "model.toml", "--method", "moments"], PYTHONIOENCODING="ascii"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "?? by Moments" in done.stdout
    done = child(["-m", "sdefit.cli", "methods"], PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("command", [["models"], ["methods", "--json"], ["fit", "--help"]])
def test_output_to_a_full_disk_is_one_line(command):
    """What fits into the buffer of stdout fails only when it is flushed."""
    with Path("/dev/full").open("w") as full:
        done = child(["-m", "sdefit.cli", *command], stdout=full)
    assert (done.returncode, done.stderr) == (1, "sdefit: the output cannot be written: No space left on device\n")


def test_a_reader_that_has_gone_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = child(["-m", "sdefit.cli", "methods", "--json"], stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_without_a_home_there_is_no_cache_and_no_crash(observed):
    code = (
        "import pwd, sys\n"
        "def nobody(*_): raise KeyError('no such user')\n"
        "pwd.getpwuid = pwd.getpwnam = nobody\n"
        "from sdefit.cli.app import run\n"
        "sys.exit(run(['fit', 'obs.csv', '--model', 'model.toml', '--method', 'moments']))"
    )
    unset = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    source = str(Path(sdefit.errors.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=unset | {"PYTHONPATH": source}
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_more_than_the_memory_holds_is_one_line():
    done = child(["-m", "sdefit.cli", "simulate", "ou", "--paths", str(10**11)])
    assert done.returncode == 1
    assert done.stderr.startswith("sdefit: this needs more memory than there is; take fewer")
    assert done.stderr.count("\n") == 1


def test_a_fit_that_memory_does_not_hold_is_one_line(observed):
    code = (
        "import sys, jax.numpy as jnp\n"
        "from sdefit.methods.moments import Moments\n"
        "from sdefit.cli.app import run\n"
        "own = Moments.regress\n"
        "def huge(self, *rest):\n"
        "    found = own(self, *rest)\n"
        "    found.trace['loss'] = found.criterion * jnp.arange(1e12)\n"
        "    return found\n"
        "Moments.regress = huge\n"
        "sys.exit(run(['fit', 'obs.csv', '--model', 'model.toml', '--method', 'moments']))"
    )
    done = child(["-c", code])
    assert done.returncode == 1
    assert done.stderr.startswith("sdefit: this needs more memory than there is; take fewer")
    assert done.stderr.count("\n") == 1


OWN = ["--model", "model.toml"]
ONE_LINE = [
    (["fit", "obs.csv"], "one of --model and --equations must be given, but neither came"),
    (["fit", "obs.csv", *OWN, "--equations", "dx = a*x"], "must be given, but both came"),
    (["fit", "obs.csv", *OWN, "--model", "other.toml"], "--model must be given once, but stands here"),
    (["fit", "obs.csv", *OWN, "--level", "90"], "--level must lie between 0 and 1, not 90"),
    (["fit", "obs.csv", *OWN, "--option", "starts"], "--option must be NAME=VALUE, such as starts=8"),
    (["fit", "obs.csv", *OWN, "--option", "speed=1"], "--option must name a setting of auto (noise,"),
    (["fit", "obs.csv", *OWN, "--option", "starts=0"], "Auto: starts must be a whole number of at least 1, not 0"),
    (["fit", "dates.csv", *OWN], "column 't' holds dates, so --time-unit must be one of second"),
    (["fit", "clock.csv", *OWN], "name the time column with --time, one of 'clock', 'x'"),
    (["simulate"], "one of SYSTEM and --model must be given, but neither came"),
    (["simulate", "lv", "--x0", "1,2"], "--x0 must go with --model; the built-in lv has its own"),
    (["simulate", *OWN], "--x0 must be given with --model: one number each for x"),
    (["simulate", *OWN, "--x0", "1"], "one of --until and --times must be given with --model"),
    (["simulate", *OWN, "--x0", "1", "--until", "5"], "--param must give rate, level, but lacks rate"),
    (["simulate", *OWN, "--x0", "1", "--until", "5", "-p", "rate=1", "-p", "level=2"], "give --G"),
    (["simulate", *OWN, "--x0", "1", "--until", "5", "-p", "rate=1", "-p", "rate=2"], "'rate' came twi"),
    (["simulate", *OWN, "--x0", "one", "--until", "5"], "--x0 must be numbers, as in 0.5"),
    (["forecast", "none", "--until", "9"], "RUN must be a folder with fit.nc in it"),
    (["forecast", "none"], "one of --until and --times must be given, but neither came"),
    (["plot", "none", "--parameter", "rate"], "RUN must be a folder with fit.nc in it"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), ONE_LINE, ids=str)
def test_refusals_name_the_flag(arguments, message, observed, capsys):
    Path("dates.csv").write_text("t,x\n2020-01-01,1\n2020-01-02,2\n2020-01-03,1\n")
    Path("clock.csv").write_text(f"clock,x\n{ROWS}")
    assert message in refusal(capsys, *arguments)


def test_words_of_the_user_are_no_arguments():
    assert (
        in_shell("there is no column 'time_unit'; give time_unit") == "there is no column 'time_unit'; give --time-unit"
    )
    assert in_shell("Use sf.MaRS(), or try another key") == "Use --method mars, or try another --seed"


def test_equations_and_settings_on_the_command_line(observed, capsys):
    command = ["fit", "obs.csv", "--equations", "dx = rate*(level - x)", "--method", "moments"]
    assert run([*command, "--option", "starts=3", "--option", "iterations=40", "--json"]) == 0
    found = load("run/fit.nc")
    assert found.method == methods.get("moments")(starts=3, iterations=40)
    assert found.model.free == ("rate", "level")
    assert json.loads(capsys.readouterr().out)["params"] == found.params
    Path("two.csv").write_text("t,x,y\n0,1,2\n1,2,1\n2,1.5,1\n3,1.2,1.3\n4,1.1,0.2\n5,1.2,.7\n")
    assert run(["fit", "two.csv", "--equations", "dx = a*y; dy = b*x", "--method", "moments", "--out", "two"]) == 0
    assert load("two/fit.nc").model.states == ("x", "y")


@pytest.mark.parametrize(
    ("method", "options", "settings"),
    [
        ("npsde", ["lengths=4,2.5"], {"lengths": (4.0, 2.5)}),
        ("ares", ["resample=true", "clip=0.01", "ou_rate=none"], {"resample": True, "clip": 0.01, "ou_rate": None}),
        ("esgf", ["rule=extended", "boundary=0"], {"rule": "extended", "boundary": 0.0}),
    ],
)
def test_settings_of_every_kind(method, options, settings):
    assert _method.settings(method, options) == methods.get(method)(**settings)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder that `fit --method esgf --level 0.8` wrote, of data with dates."""
    from contract import ou_series

    folder = tmp_path_factory.mktemp("stored")
    days = [f"2020-01-{1 + i // 4:02d}T{6 * (i % 4):02d}:00" for i in range(100)]
    rows = (f"{day},{value}" for day, value in zip(days, ou_series(1).values[:, 0].tolist(), strict=False))
    (folder / "obs.csv").write_text("\n".join(["t,x", *rows]) + "\n")
    command = ["fit", str(folder / "obs.csv"), "--equations", "dx = rate*(level - x)", "--time-unit", "day"]
    command += ["--method", "esgf", "--option", "starts=1", "--level", "0.8", "--out", str(folder / "run")]
    assert run(command) == 0
    return folder / "run"


def test_the_level_of_intervals(stored):
    assert Intervals.load(stored / "fit.nc").level == 0.8


def test_forecast(stored, capsys):
    found = load(stored / "fit.nc")
    until = "2020-01-31"
    assert run(["forecast", str(stored), "--until", until, "--points", "4", "--draws", "50", "--level", "0.5"]) == 0
    assert "forecast.csv: mean and 50 % band of x at 4 times" in capsys.readouterr().out
    rows = list(csv.DictReader(Path("forecast.csv").read_text().splitlines()))
    assert list(rows[0]) == ["t", "date", "x", "x_lower", "x_upper"]
    assert rows[-1]["date"] == until
    times = np.linspace(found.series[0].times[-1], 30.0, 5)[1:]
    ahead = found.forecast(times, draws=50, level=0.5)
    np.testing.assert_array_equal([float(row["x"]) for row in rows], ahead.mean[:, 0])
    np.testing.assert_array_equal([float(row["x_upper"]) for row in rows], ahead.upper[:, 0])
    assert run(["forecast", str(stored), "--times", "40,41", "--draws", "50", "--seed", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [row["t"] for row in facts["rows"]] == [40.0, 41.0]
    assert facts["rows"][0]["x"] == found.forecast([40.0, 41.0], draws=50, key=3).mean[0, 0]
    assert "--until must lie after the last observation" in refusal(capsys, "forecast", str(stored), "--until", "1")
    assert "--series must be a number from 0" in refusal(
        capsys, "forecast", str(stored), "--until", "40", "--series", "1"
    )


def test_diagnose(stored, capsys):
    known = load(stored / "fit.nc").diagnose()
    assert run(["diagnose", str(stored)]) == 0
    printed = capsys.readouterr().out
    assert all(check.name in printed for check in known.checks)
    assert all(hint in printed for hint in known.hints or ("No check objects to this fit.",))
    assert run(["diagnose", str(stored / "fit.nc"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] == known.ok


def test_plot(stored, capsys):
    for kind, end, begins in (("states", "png", b"\x89PNG"), ("residuals", "pdf", b"%PDF"), ("drift", "svg", b"<?xml")):
        assert run(["plot", str(stored), "--kind", kind, "--out", f"{kind}.{end}"]) == 0
        assert Path(f"{kind}.{end}").read_bytes().startswith(begins)
    assert run(["plot", str(stored), "--kind", "profile", "--parameter", "rate"]) == 0
    assert Path("profile.png").exists()
    capsys.readouterr()
    assert "--kind must be one of estimates, states" in refusal(capsys, "plot", str(stored), "--kind", "magic")
    for name in ("figure.xyz", "figure"):
        assert "--out must end in .png" in refusal(capsys, "plot", str(stored), "--out", name)
    Path("mine").write_text("mine")
    Path("link.png").symlink_to("mine")
    assert run(["plot", str(stored), "--out", "link.png"]) == 0  # replaced, not followed
    assert Path("mine").read_text() == "mine" and Path("link.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert "no/folder.png cannot be written: No such file" in refusal(
        capsys, "plot", str(stored), "--out", "no/folder.png"
    )
    assert "--parameter must go with --kind profile" in refusal(capsys, "plot", str(stored), "--parameter", "rate")


def test_simulate_a_model_of_ones_own(capsys):
    Path("two.toml").write_text(
        'name = "mine"\nequations = """\ndx = -a*x + y\ndy = -b*y\n"""\n[parameters]\nb = 2.0\n'
    )
    command = [
        "simulate",
        "--model",
        "two.toml",
        "-p",
        "a=1.5",
        "--x0",
        "1,2",
        "--G",
        "0.3,0;0.1,0.2",
        "--noise",
        "0.1,0",
    ]
    assert run([*command, "--until", "2", "--points", "8", "--seed", "4", "--out", "mine.csv", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["truth"]["params"] == {"a": 1.5}
    model = read_model("two.toml")
    G = [[0.3, 0.0], [0.1, 0.2]]
    same = simulate(model, {"a": 1.5}, [1, 2], np.linspace(0, 2, 9), G=G, noise=[0.1, 0], key=4)
    np.testing.assert_array_equal(read_csv("mine.csv").values, same.values)
    assert run([*command, "--times", "0,0.5,3", "--out", "other.csv"]) == 0
    assert read_csv("other.csv").times.tolist() == [0.0, 0.5, 3.0]
    assert "other.csv: mine, 3 times" in capsys.readouterr().out


def test_compare_for_machines(observed, capsys):
    assert run(["compare", "obs.csv", "--model", "model.toml", "--methods", "moments", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["fits"]["moments"]["params"] == load("cmp/fits/moments.nc").params
    assert facts["refused"] == {}


def test_a_shell_completes_commands():
    variables = {"_SDEFIT_COMPLETE": "complete_bash", "COMP_WORDS": "sdefit fore", "COMP_CWORD": "1"}
    done = child(["-c", "import sys; sys.argv[0] = 'sdefit'; from sdefit.cli import main; main()"], **variables)
    assert done.stdout.split() == ["forecast"]


def test_intervals_that_are_compiled_ahead_are_those_that_are_asked_for(monkeypatch):
    """Their key must be of the kind that a fit makes, or the program of intervals is compiled twice."""
    from sdefit.cli._shared import _prepare_to_show

    asked, module = [], importlib.import_module("sdefit.uncertainty.intervals")
    monkeypatch.setattr(module, "precompile", lambda *inputs: asked.append(inputs[-1]))
    _prepare_to_show(None, None, None, None)
    own = jax.random.fold_in(jax.random.key(5), 1)
    assert (asked[0].shape, asked[0].dtype) == (own.shape, own.dtype)
