"""`Results`: a folder that many runs add rows to, each row once, and none of them ever changes.

    plan.json              what was asked for; a folder holds the results of one plan
    problems/NAME.nc       the data that was fitted and all that is known about it
    rows/CELL.csv          the rows of one cell, all digits; there when the cell is done
    fits/NAME.nc           one whole fit of each kind, for the figures
    .lock                  held byte by byte: one byte for each cell, file or plan that a process works on

A file of rows is made under another name and linked into place: it is whole from the moment it is there, and a second
one of the same name is refused. Its last two columns are how many rows it has and a checksum of them all: a file that
was cut or changed later counts as not there. Files that the plan does not name are never read. The system drops the
locks of a process that dies. pandas reads everything in one line:

    pd.concat(map(pd.read_csv, sorted(Path("repro/rows").glob("*.csv"))))
"""

import contextlib
import csv
import errno
import fcntl
import functools
import hashlib
import io
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sdefit.errors import FileError
from sdefit.files import contents, csv_bytes, inside, one_line, original_text, put, put_once, remove_drafts
from sdefit.store import schema
from sdefit.store.record import Record, plain, read, write

FORMAT = 2  # 1 had rows without checksums
KIND = "sdefit results"
PARTS = ("problems", "rows", "fits")
SEAL = ("cell_rows", "cell_checksum")  # the last columns of every file of rows
_PATIENCE, _POLL = 30.0, 0.05  # seconds to wait for a process that holds the plan, and between two looks


class Results:
    """The results of one plan, in one folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._lock: int | None = None
        self._intact: dict[str, tuple[int, ...]] = {}  # what the system says of each file of rows that was seen whole

    @property
    def begun(self) -> bool:
        """Whether the folder holds a plan."""
        return (self.folder / "plan.json").exists()

    def others(self) -> list[str]:
        """What the folder holds besides results; a run that was killed before its plan was stored leaves none."""
        found = sorted(self.folder.iterdir()) if self.folder.exists() else []
        mine = [path.name.startswith((".lock", ".plan.json.")) or _is_empty_part(path) for path in found]
        return [path.name for path, own in zip(found, mine, strict=True) if not own]

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Make the folder and write the plan, unless there is one already."""
        self.make()
        put_once(self._path("plan.json"), _json(plan))

    def make(self) -> None:
        """Make the folder."""
        with one_line(self.folder):
            for part in PARTS:
                (self.folder / part).mkdir(parents=True, exist_ok=True)

    def replace_plan(self, plan: Mapping[str, Any]) -> None:
        """Write a plan that asks for more in place of the one that is there."""
        put(self._path("plan.json"), _json(plan))

    def plan(self) -> dict[str, Any]:
        """The plan; a folder without one, or with one that is damaged or of a newer format, is refused."""
        path = self._path("plan.json")
        try:
            found = json.loads(contents(path).decode())
        except OSError as problem:
            raise FileError(f"{path} cannot be read: {problem.strerror}") from None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("kind") != KIND:
            raise FileError(f"{path} is not the plan of a results folder that sdefit wrote")
        version = found.get("format")
        if isinstance(version, int) and version > FORMAT:
            raise FileError(f"{path} has format {version}, newer than {FORMAT}; upgrade sdefit")
        try:
            schema.check_plan(found)
        except ValueError as problem:
            raise FileError(f"{path} is not a whole plan: {problem}") from None
        return found

    @contextlib.contextmanager
    def changing_plan(self) -> Iterator[None]:
        """Only one process at a time is in this block: what it reads of the plan stays true until it has written."""
        until, place = time.monotonic() + _PATIENCE, _place("plan.json")
        while not self._try_lock(place):
            if time.monotonic() > until:
                raise FileError(f"{self.folder / 'plan.json'} is held by {self._holder()}; end it, or wait for it")
            time.sleep(_POLL)
        with contextlib.suppress(OSError):  # a lock without a name on it is a lock
            os.ftruncate(self._lock_file(), 0)
            os.pwrite(self._lock_file(), f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        remove_drafts(self.folder / "plan.json")
        try:
            yield
        finally:
            self._unlock(place)

    def done(self, cell: str) -> bool:
        """Whether the rows of a cell are stored whole; a file that was cut or changed counts as not there."""
        path = self._rows_file(cell)
        try:
            seen = path.stat()
        except FileNotFoundError:
            return False
        mark = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
        if self._intact.get(cell) != mark:
            if self._read_rows(cell) is None:
                return False
            self._intact[cell] = mark
        return True

    def damaged(self) -> list[str]:
        """The cells whose files were cut or changed after they were written."""
        return [cell for cell in self.plan()["cells"] if self._rows_file(cell).exists() and not self.done(cell)]

    def strangers(self) -> list[str]:
        """Files among the rows that the plan does not name, such as copies a synchroniser made; they do not count."""
        known = {f"{cell}.csv" for cell in self.plan()["cells"]}
        with one_line(self.folder / "rows"):
            found = sorted(path.name for path in (self.folder / "rows").iterdir())
        return [name for name in found if name not in known and not name.startswith(".")]

    def add(self, cell: str, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Store the rows of a cell; returns whether they are new. Rows that are there already stay as they are."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = [[_cell(row.get(name)) for name in names] for row in rows]
        seal = [len(rows), _checksum(cell, names, [[str(value) for value in row] for row in table])]
        body, path = csv_bytes([*names, *SEAL], [row + seal for row in table]), self._rows_file(cell)
        if path.exists() and not self.done(cell):
            put(path, body)
            return True
        return put_once(path, body)

    def rows(self) -> list[dict[str, str]]:
        """Every stored row as text, in the order of the cells' names; columns that a cell lacks are missing."""
        found = []
        for cell in sorted(self.plan()["cells"]):
            path = self._rows_file(cell)
            rows = self._read_rows(cell) if path.exists() else []
            if rows is None:
                raise FileError(f"{path} was cut or changed after sdefit wrote it; sdefit reproduce --resume redoes it")
            found += rows
        return found

    def claim(self, cell: str) -> bool:
        """Take a cell for this process, and remove what a killed one left of it; False if another has it."""
        if not self._try_lock(_place(cell)):
            return False
        remove_drafts(self._rows_file(cell))
        return True

    def release(self, cell: str) -> None:
        """Give up a cell that was claimed."""
        self._unlock(_place(cell))

    def write(self, kind: str, name: str, record: Record) -> None:
        """Store a record among the "problems" or the "fits"."""
        path, place = self._path(kind, f"{name}.nc"), _place(f"{kind}/{name}")
        with one_line(self.folder / ".lock"):
            fcntl.lockf(self._lock_file(), fcntl.LOCK_EX, 1, place)  # whoever writes it now is soon done
        try:
            remove_drafts(path)
            write(record, path)
        finally:
            self._unlock(place)

    def read(self, kind: str, name: str) -> Record | None:
        """The record of that name, or None where there is none."""
        path = self._path(kind, f"{name}.nc")
        return read(path, {"problems": "problem", "fits": "fit"}[kind]) if path.exists() else None

    @functools.cached_property
    def _sealed(self) -> bool:
        return self.plan()["format"] > 1

    def _read_rows(self, cell: str) -> list[dict[str, str]] | None:
        """The rows of a cell's file; None if it is not as it was written."""
        path = self._rows_file(cell)
        try:
            text = contents(path).decode()
            names, *rows = ([original_text(one) for one in row] for row in _table(text))
        except OSError as problem:
            raise FileError(f"{path} cannot be read: {problem.strerror}") from None
        except (ValueError, csv.Error):
            return None
        if self._sealed or tuple(names[-2:]) == SEAL:
            names, body, seals = names[:-2], [row[:-2] for row in rows], [row[-2:] for row in rows]
            if not rows or any(seal != [str(len(rows)), _checksum(cell, names, body)] for seal in seals):
                return None
            rows = body
        whole = bool(rows) and all(len(row) == len(names) for row in rows)
        return [dict(zip(names, row, strict=True)) for row in rows] if whole else None

    def _rows_file(self, cell: str) -> Path:
        return self._path("rows", f"{cell}.csv")

    def _path(self, *names: str) -> Path:
        return inside(self.folder, *names)

    def _try_lock(self, place: int) -> bool:
        try:
            fcntl.lockf(self._lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as problem:
            if problem.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise FileError(f"{self.folder / '.lock'} cannot be locked: {problem.strerror}") from None
        return True

    def _unlock(self, place: int) -> None:
        fcntl.lockf(self._lock_file(), fcntl.LOCK_UN, 1, place)

    def _holder(self) -> str:
        """The process that changed the plan last, or changes it now."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return os.pread(self._lock_file(), 200, 0).decode().strip() or "another process"
        return "another process"

    def _lock_file(self) -> int:
        # One handle for all: closing any handle of a file gives up every lock this process has on it.
        if self._lock is None:
            path = self._path(".lock")
            with one_line(path):
                self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self._lock


def _is_empty_part(path: Path) -> bool:
    return path.name in PARTS and path.is_dir() and not any(path.iterdir())


def _place(name: str) -> int:
    """The byte that stands for a cell or a file; two that shared one would only wait for each other."""
    return zlib.crc32(name.encode())


def _json(plan: Mapping[str, Any]) -> bytes:
    facts = {"kind": KIND, "format": FORMAT} | plain(plan)
    return (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode()


def _cell(value: Any) -> Any:
    """A number or text as a file of rows holds it."""
    value = plain(value)
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def _table(text: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), strict=True)


def _checksum(cell: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A fingerprint of a table and of the cell it belongs to."""
    return hashlib.sha256(json.dumps([cell, names, rows]).encode()).hexdigest()[:16]
