"""Kill `sdefit reproduce` at random moments, resume it each time, and compare the rows with an uninterrupted run's.

    python experiments/kill_and_resume.py --kills 20
    python experiments/kill_and_resume.py --kills 5 --workers 2     # kill Dask workers instead, all in one run

Prints one line for each kill and exits with an error unless every row is there once and equal, times aside.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

TIMES = ["seconds", "compile_seconds", "cell_checksum"]
SMALL = ["--systems", "ou,dw", "--methods", "moments", "--realizations", "40", "--block", "1"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, help="run on as many Dask workers and kill those")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args(arguments)
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        whole, broken = Path(place) / "whole", Path(place) / "broken"
        assert finish(start(whole)) == ""
        print(f"uninterrupted: {len(rows(whole))} rows")
        if asked.workers:
            kill_workers(broken, asked.kills, asked.workers, rng)
        else:
            kill_runs(broken, asked.kills, rng)
        compare(rows(whole), rows(broken))
    print("equal: every row is there once")


def start(out: Path, *more: str) -> subprocess.Popen:
    # A process group of its own, so that its children can be found.
    command = [sys.executable, "-m", "sdefit.cli", "reproduce", *SMALL, "--out", str(out), "--resume", *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def kill_runs(out: Path, kills: int, rng: random.Random) -> None:
    """Kill a run and begin it again, then let it finish.

    Every fourth is killed while it starts up, the others soon after they store a cell, in the middle of the next.
    """
    for kill in range(kills):
        process, before = start(out), cells(out)
        deadline = time.monotonic() + (rng.uniform(0.0, 8.0) if kill % 4 == 0 else 300.0)
        while time.monotonic() < deadline and cells(out) == before and process.poll() is None:
            time.sleep(0.002)
        if kill % 4:
            time.sleep(rng.uniform(0.0, 0.2))
        process.kill()
        process.communicate()
        print(f"kill {kill + 1}: {before} cells stored before, {cells(out)} after", flush=True)
    assert finish(start(out)) == ""


def finish(process: subprocess.Popen) -> str:
    """Wait for a run; what it said if it failed."""
    said = process.communicate()[1].decode()
    return f"exit status {process.returncode}: {said}" if process.returncode else ""


def cells(out: Path) -> int:
    return len(list(out.glob("rows/*.csv")))


def kill_workers(out: Path, kills: int, workers: int, rng: random.Random) -> None:
    """Kill one worker after another of a run that goes on, each when a cell was stored since the last."""
    process = start(out, "--workers", str(workers))
    done = before = 0
    while done < kills and process.poll() is None:
        time.sleep(0.01)
        if cells(out) > before and (found := worker_processes(process.pid)):
            time.sleep(rng.uniform(0.0, 0.5))
            victim, before = rng.choice(found), cells(out)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                done += 1
                print(f"killed worker {victim}: {before} cells stored", flush=True)
    assert done == kills, f"only {done} workers could be killed before all was done"
    assert finish(process) == ""


def worker_processes(group: int) -> list[int]:
    """The processes that work for a run: those of its group that Dask's nannies started."""
    found = subprocess.run(["ps", "-eo", "pid,sid,args"], capture_output=True, text=True, check=True).stdout
    split = [line.split(None, 2) for line in found.splitlines()[1:]]
    return [int(pid) for pid, session, what in split if session == str(group) and "spawn_main" in what]


def rows(folder: Path) -> pd.DataFrame:
    found = pd.concat(map(pd.read_csv, sorted(folder.glob("rows/*.csv"))), ignore_index=True)
    return found.drop(columns=TIMES).sort_values(["setup", "method", "realization"], ignore_index=True)


def compare(whole: pd.DataFrame, broken: pd.DataFrame) -> None:
    twice = broken.duplicated(["setup", "method", "realization"]).sum()
    assert not twice, f"{twice} rows are there twice"
    assert len(broken) == len(whole), f"{len(whole) - len(broken)} rows are missing"
    pd.testing.assert_frame_equal(whole, broken)


if __name__ == "__main__":
    main()
