"""`Results`: a folder that many runs add rows to, each row once, and none of them ever changes.

    plan.json              what was asked for; a folder holds the results of one plan
    problems/NAME.nc       the data that was fitted and all that is known about it
    rows/CELL.csv          the rows of one cell, all digits; there when the cell is done
    fits/NAME.nc           one whole fit of each kind, for the figures

A file of rows is made under another name and linked into place: it is whole from the moment it is there,
and a second one of the same name is refused. A cell that is being worked on is locked, by one byte of
`.lock`; the system drops the locks of a process that dies. pandas reads everything in one line:

    pd.concat(map(pd.read_csv, sorted(Path("repro/rows").glob("*.csv"))))
"""

import csv
import fcntl
import io
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sdefit.errors import FileError
from sdefit.store.atomic import put, put_once
from sdefit.store.record import Record, plain, read, write

FORMAT = 1
KIND = "sdefit results"


class Results:
    """The results of one plan, in one folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._lock: int | None = None

    @property
    def begun(self) -> bool:
        """Whether the folder holds a plan."""
        return (self.folder / "plan.json").exists()

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Make the folder and write the plan, unless there is one already."""
        try:
            for part in ("problems", "rows", "fits"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise FileError(f"{self.folder} cannot be written: {problem.strerror}") from None
        put_once(self.folder / "plan.json", _json(plan))

    def replace_plan(self, plan: Mapping[str, Any]) -> None:
        """Write a plan that asks for more in place of the one that is there."""
        put(self.folder / "plan.json", _json(plan))

    def plan(self) -> dict[str, Any]:
        """The plan; a folder without one, or with one of a newer format, is refused."""
        path = self.folder / "plan.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except OSError as problem:
            raise FileError(f"{path} cannot be read: {problem.strerror}") from None
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("kind") != KIND:
            raise FileError(f"{path} is not the plan of a results folder that sdefit wrote")
        if found["format"] > FORMAT:
            raise FileError(f"{path} has format {found['format']}, newer than {FORMAT}; upgrade sdefit")
        return found

    def done(self, cell: str) -> bool:
        """Whether the rows of a cell are stored."""
        return self._rows_file(cell).exists()

    def add(self, cell: str, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Store the rows of a cell; returns whether they are new. Rows that are there already stay as they are."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO(newline="")
        out = csv.DictWriter(text, names, restval="", lineterminator="\n")
        out.writeheader()
        out.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
        return put_once(self._rows_file(cell), text.getvalue().encode())

    def rows(self) -> list[dict[str, str]]:
        """Every stored row as text, in the order of the cells' names; columns that a cell lacks are missing."""
        return [row for path in sorted((self.folder / "rows").glob("*.csv")) for row in _read_rows(path)]

    def claim(self, cell: str) -> bool:
        """Take a cell for this process, and remove what a killed one left of it; False if another has it."""
        try:
            fcntl.lockf(self._lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(cell))
        except OSError:
            return False
        for draft in self._rows_file(cell).parent.glob(f".{cell}.csv.*"):
            draft.unlink(missing_ok=True)
        return True

    def release(self, cell: str) -> None:
        """Give up a cell that was claimed."""
        fcntl.lockf(self._lock_file(), fcntl.LOCK_UN, 1, _place(cell))

    def write(self, kind: str, name: str, record: Record) -> None:
        """Store a record among the "problems" or the "fits"."""
        write(record, self.folder / kind / f"{name}.nc")

    def read(self, kind: str, name: str) -> Record | None:
        """The record of that name, or None where there is none."""
        path = self.folder / kind / f"{name}.nc"
        return read(path) if path.exists() else None

    def _rows_file(self, cell: str) -> Path:
        return self.folder / "rows" / f"{cell}.csv"

    def _lock_file(self) -> int:
        # One handle for all: closing any handle of a file gives up every lock this process has on it.
        if self._lock is None:
            try:
                self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as problem:
                raise FileError(f"{self.folder / '.lock'} cannot be written: {problem.strerror}") from None
        return self._lock


def _place(cell: str) -> int:
    """The byte that stands for a cell; two cells that shared one would only wait for each other."""
    return zlib.crc32(cell.encode())


def _json(plan: Mapping[str, Any]) -> bytes:
    facts = {"kind": KIND, "format": FORMAT} | plain(plan)
    return (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode()


def _cell(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, float) and value != value:
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def _read_rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise FileError(f"{path} cannot be read: {problem}") from None
    if not rows or any(None in row or None in row.values() for row in rows):
        raise FileError(f"{path} was changed after sdefit wrote it; remove it and run again with --resume")
    return rows
