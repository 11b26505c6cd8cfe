"""Files appear whole or not at all: a fault is put at every system call of a run, and the run is resumed."""

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdefit import files
from sdefit.bench import plan, problems, run
from sdefit.bench.cells import Outcome
from sdefit.cli.reproduce import _begin
from sdefit.data import Series, read_csv, write_csv
from sdefit.errors import FileError, SdefitError
from sdefit.files import csv_bytes, inside, original_text, put, put_once, safe_text
from sdefit.store import Record, Results
from sdefit.store import results as store_results

ROOT = Path(__file__).parents[2]


# Faults


class Killed(BaseException):
    """The process is gone: nothing that would run later runs."""


class Faulty:
    """The `os` of the writer; the `at`-th of its calls that change anything goes wrong."""

    CALLS = ("open", "write", "fsync", "close", "link", "replace", "unlink", "ftruncate", "pwrite")

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.at, self.calls, self.dead = kind, at, 0, False

    def __getattr__(self, name):
        real = getattr(os, name)
        return (lambda *a, **k: self._call(name, real, *a, **k)) if name in self.CALLS else real

    def _call(self, name, real, *arguments, **more):
        if self.dead:
            raise Killed
        self.calls += 1
        if self.calls - 1 != self.at:
            return real(*arguments, **more)
        if self.kind == "short" and name == "write":
            return real(arguments[0], arguments[1][: len(arguments[1]) // 2])
        if name == "write":  # some of it is on the disk before it fails
            real(arguments[0], arguments[1][: len(arguments[1]) // 3])
        if self.kind.startswith("killed"):
            self.dead = True
            if self.kind == "killed after":
                real(*arguments, **more)
            raise Killed
        if name == "close":
            real(*arguments)
        if self.kind == "short" or name == "unlink":  # a disk is never too full to remove a file
            return real(*arguments, **more) if name != "close" else None
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def small_problem(problem, count, seed, folder):
    """The data of a problem, made in no time."""
    times = problem.setup.times[:4]
    values = np.random.default_rng(seed).normal(size=(count, 4, 1))
    arrays = {"times": (("time",), times), "values": (("realization", "time", "state"), values)}
    arrays["path"] = (("realization", "time", "state"), values)
    facts = problems._facts(problem, values, "", seed) | {"limits": {}}
    return Record(arrays, facts, {"state": ("x",)})


def fake_cell(tasks):
    """A runner whose rows depend on the data alone."""
    for task in tasks:
        assert task is not None
        sums = [float(one.values.sum()) for one in task.series]
        rows = [
            {"setup": task.cell.system, "method": task.cell.method, "realization": task.cell.first + i, "sum": s}
            for i, s in enumerate(sums)
        ]
        fit = Record({"sum": (("n",), np.array(sums))}, {"kind": "fit"}) if task.cell.first == 0 else None
        yield task.cell, Outcome(rows, fit)


def work(folder: Path) -> None:
    """A run of one system, and then of one more in the same folder."""
    results = Results(folder)
    for systems in (["ou"], ["ou", "dw"]):
        asked = _begin(results, lambda systems=systems: plan.build(systems, ["moments"], 3, block=2))
        for _ in run.run(results, asked, fake_cell):
            pass


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(problems, "record", small_problem)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.csv")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full disk", "short", "killed before", "killed after"])
def test_a_fault_at_any_system_call_loses_nothing(tmp_path, monkeypatch, quick, kind):
    work(tmp_path / "whole")
    expected, said, at, reached = content(tmp_path / "whole"), [], 0, True
    assert len(expected) == 4
    while reached:
        folder, faulty = tmp_path / "broken", Faulty(kind, at)
        for module in (files, store_results):  # whatever writes, and the lock
            monkeypatch.setattr(module, "os", faulty)
        try:
            work(folder)
        except (Killed, SdefitError) as fault:
            said.append(str(fault))
        reached, at = faulty.calls > faulty.at, at + 1
        for module in (files, store_results):
            monkeypatch.setattr(module, "os", os)
        found = Results(folder)
        if found.begun:  # what is there is whole
            found.plan()
            assert found.damaged() == [] and found.strangers() == []
            assert content(folder).items() <= expected.items() and len(found.rows()) <= 6
        work(folder)
        assert content(folder) == expected
        drafts = [path.name for path in folder.rglob(".*") if path.name != ".lock"]
        assert drafts == [] or kind.startswith("killed"), drafts
        shutil.rmtree(folder)
    assert at > 60 and bool(said) == (kind != "short")
    assert kind.startswith("killed") or all(re.search(r"cannot be written: No space [^\n]+$", one) for one in said)


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path, monkeypatch, quick):
    """Drafts of rows, of the plan, of data and of fits: whoever writes that file next removes them."""
    work(tmp_path / "r")
    for name in ("rows/.ou-moments-00000.csv.1", "problems/.ou.nc.2", "fits/.ou-moments.nc.3", ".plan.json.4"):
        (tmp_path / "r" / name).write_text("half")
    for name in ("rows/ou-moments-00000.csv", "problems/ou.nc"):
        (tmp_path / "r" / name).unlink()
    work(tmp_path / "r")
    assert [path.name for path in (tmp_path / "r").rglob(".*")] == [".lock"]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out.csv").symlink_to(tmp_path / "mine")
    put(tmp_path / "out.csv", b"ours")
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / "out.csv").is_symlink()
    (tmp_path / "nowhere.csv").symlink_to(tmp_path / "none")
    assert not put_once(tmp_path / "nowhere.csv", b"ours") and not (tmp_path / "none").exists()


def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    put(tmp_path / "pipe", b"ours")
    assert reader.communicate(timeout=20)[0] == b"ours" and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "no/folder/x"])
def test_a_name_that_no_file_can_have_is_one_line(tmp_path, name):
    with pytest.raises(FileError, match=r"cannot be written: [^\n]+$"):
        put(tmp_path / name, b"")


# Names that come out of files


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/b", "..", ".", "", "a\\b", "a\0b", "a\nb"])
def test_names_out_of_files_stay_in_their_folder(tmp_path, name):
    with pytest.raises(FileError, match="must be that of a file, without folders"):
        inside(tmp_path, name)


def test_links_that_lead_out_of_a_results_folder_are_not_followed(tmp_path, quick):
    work(tmp_path / "r")
    for name, word in [("rows", "rows"), ("problems", "problems"), (".lock", ".lock"), ("plan.json", "plan.json")]:
        copy = Path(shutil.copytree(tmp_path / "r", tmp_path / f"copy{word}"))
        (copy / "rows" / "ou-moments-00000.csv").unlink()
        (copy / name).rename(tmp_path / f"out{word}")
        (copy / name).symlink_to(tmp_path / f"out{word}")
        before = {path: path.stat().st_mtime_ns for path in tmp_path.glob(f"out{word}/*")}
        with pytest.raises(FileError, match="is a link that leads out of"):
            work(copy)
        assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob(f"out{word}/*")}


# Cells of spreadsheets


@given(st.text())
def test_text_comes_back_and_is_no_formula(text):
    safe = safe_text(text)
    assert original_text(safe) == text
    assert not safe.startswith(("=", "@", "\t", "\r", "+", "-")) or float(safe) == float(text)


def test_numbers_stay_numbers():
    assert csv_bytes(["a", "=b"], [[-1.5, "-1.5"], [np.float64(-0.0), "=1+1"], [float("nan"), None], [-3, "x"]]) == (
        b"a,'=b\n-1.5,-1.5\n-0.0,'=1+1\n,\n-3,x\n"
    )


def test_a_series_of_a_hostile_name_comes_back(tmp_path):
    names = ["=cmd|'/C calc'!A0", "+1+1", "-x", "@SUM(A1)", "'quoted", "'=quoted", "plain"]
    made = [Series([0.0, 1.0, 2.0], [[-1.0, 2.0]] * 3, ["=x", "-y"], name=name) for name in names]
    write_csv(made, tmp_path / "a.csv")
    for line in (tmp_path / "a.csv").read_text().splitlines():
        assert line[0] not in "=+-@"
    assert read_csv(tmp_path / "a.csv", group="series") == made


# The lock on the plan

ADD = """
import sys
from sdefit.cli.app import run
from sdefit.cli import reproduce
import sdefit.bench.run
sdefit.bench.run.run = lambda *_: iter(())
sdefit.bench.run.missing = lambda *_: []
import sdefit.report.reproduction
sdefit.report.reproduction.write_run = lambda out: out / "report.html"
sys.exit(run(["reproduce", "--out", sys.argv[1], "--resume", "--systems", sys.argv[2]]))
"""


def test_two_that_add_systems_at_once_lose_none(tmp_path, quick):
    results = Results(tmp_path / "r")
    results.begin(plan.build(["ou"], ["moments"], 2).facts())
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(tmp_path)}
    names = ["dw", "dw_code", "lv", "lv_text"]
    others = [
        subprocess.Popen(
            [sys.executable, "-c", ADD, str(tmp_path / "r"), name], env=environment, stderr=subprocess.PIPE
        )
        for name in names
    ]
    for other in others:
        said = other.communicate(timeout=120)[1]
        assert other.returncode == 0, said
    assert set(results.plan()["systems"]) == {"ou", *names}
    assert {cell.rpartition("-moments")[0] for cell in results.plan()["cells"]} == {"ou", *names}


def test_a_plan_in_other_hands_is_waited_for_and_named(tmp_path, monkeypatch):
    from sdefit.store import results as module

    results = Results(tmp_path / "r")
    results.begin(plan.build(["ou"], ["moments"], 2).facts())
    code = f"""
import time
from sdefit.store import Results
with Results({str(tmp_path / "r")!r}).changing_plan():
    print("held", flush=True)
    time.sleep(60)"""
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        words = rf"plan\.json is held by process {other.pid} on \S+; end it, or wait"
        with pytest.raises(FileError, match=words), results.changing_plan():
            pass
        other.kill()
        other.wait()
    with results.changing_plan():  # the lock died with its process
        pass


def test_a_file_system_without_locks_is_one_line_and_no_endless_wait(tmp_path, monkeypatch):
    import fcntl

    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    results = Results(tmp_path / "r")
    results.begin(plan.build(["ou"], ["moments"], 2).facts())
    monkeypatch.setattr(fcntl, "lockf", none)
    with pytest.raises(FileError, match=r"\.lock cannot be locked: No locks available"):
        results.claim("ou-moments-00000")


# Rows that were cut, changed, copied or planted


@pytest.fixture
def stored(tmp_path, quick):
    work(tmp_path / "r")
    return tmp_path / "r"


def changes(text: str):
    """What happens to files: cut at any line or byte, a digit changed, a row twice, another's content, nothing left."""
    lines = text.splitlines(keepends=True)
    yield from (text[:-1], text[: len(text) // 2], "".join(lines[:-1]), "", lines[0], "\0" * 40)
    yield text.replace("0", "1", 1) if "0" in text else text.replace("2", "1", 1)
    yield text + lines[-1]
    yield text.replace("ou", "lv")
    yield "".join([lines[0], *reversed(lines[1:])])
    yield "".join(line.rpartition(",")[0] + "\n" for line in lines)
    yield "x,y\n1,2\n"


def test_rows_that_were_changed_are_redone(stored):
    path, expected = stored / "rows" / "ou-moments-00000.csv", content(stored)
    text = path.read_text()
    for bad in [*changes(text), (stored / "rows" / "dw-moments-00000.csv").read_text()]:
        if bad.splitlines() == text.splitlines():
            continue
        path.write_text(bad)
        assert not Results(stored).done("ou-moments-00000"), bad
        assert Results(stored).damaged() == ["ou-moments-00000"]
        work(stored)
        assert content(stored) == expected


@pytest.mark.parametrize("name", ["rows/ou-moments-00000.csv", "plan.json", "problems/ou.nc"])
def test_a_pipe_among_results_is_one_line_and_no_endless_wait(stored, name):
    (stored / name).unlink()
    os.mkfifo(stored / name)
    code = f"""
from sdefit.errors import FileError
from sdefit.store import Results
results = Results({str(stored)!r})
try:
    results.rows(), results.read("problems", "ou")
except FileError as no:
    print(no)"""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout == f"{stored / name} cannot be read: it is a device or a pipe, not a file\n", done.stderr


def test_copies_of_rows_do_not_count(stored):
    rows, text = Results(stored).rows(), (stored / "rows" / "ou-moments-00000.csv").read_text()
    copies = ["ou-moments-00000 (1).csv", "ou-moments-00000.sync-conflict-20250101-1.csv", "rows.csv", "photo.jpg"]
    for name in copies:
        (stored / "rows" / name).write_text(text)
    assert Results(stored).rows() == rows and Results(stored).strangers() == sorted(copies)


def test_rows_of_the_version_before_are_read_and_gone_on_with(stored):
    import json

    facts = json.loads((stored / "plan.json").read_text()) | {"format": 1}
    (stored / "plan.json").write_text(json.dumps(facts))
    rows = Results(stored).rows()
    for path in (stored / "rows").iterdir():
        path.write_text("".join(line.rsplit(",", 2)[0] + "\n" for line in path.read_text().splitlines()))
    assert Results(stored).rows() == rows and Results(stored).damaged() == []
    (stored / "rows" / "ou-moments-00000.csv").unlink()
    work(stored)
    assert Results(stored).rows() == rows and Results(stored).plan()["format"] == 1


def test_nothing_but_this_module_writes_files():
    """A file that is written in another way can be found half, and its failure is a traceback."""
    writes = re.compile(
        r"""\.write_(text|bytes)\(|open\([^)]*["'][wxa]b?\+?["']|csv\.(Dict)?[wW]riter\(|\.to_csv\(|savefig\(\w*path"""
    )
    own = {"files.py", "disk.py"}  # the cache of programs has a rule of its own
    sources = (path for path in (ROOT / "src").rglob("*.py") if path.name not in own)
    assert [str(path) for path in sources if writes.search(path.read_text(encoding="utf-8"))] == []
