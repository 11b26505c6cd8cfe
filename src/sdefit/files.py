"""Files that appear whole or not at all, whatever happens to the process or the machine meanwhile.

A file is written under another name in the same folder, synced and renamed. Names that come out of other files stay in
their folder: see `inside`. Text in a CSV cell is written so that no spreadsheet takes it for a formula.
"""

import contextlib
import csv
import errno
import io
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sdefit.errors import FileError

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without hard links
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # how a spreadsheet knows one, behind quotes of our own
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def put(path: Path, body: bytes) -> None:
    """Write `body` to `path` in place of what was there; trouble with the disk is a `FileError` of one line."""
    with one_line(path):
        write(path, body)


def put_once(path: Path, body: bytes) -> bool:
    """Write `body` to `path` unless a file of that name is there already; returns whether it was written."""
    with one_line(path), _draft(path, body) as draft:
        try:
            os.link(draft, path)  # unlike a rename, it never takes the place of a file
        except FileExistsError:
            return False
        except OSError as problem:
            if problem.errno not in _NO_LINKS:
                raise
            if path.exists():
                return False
            os.replace(draft, path)
    return True


def write(path: Path, body: bytes) -> None:
    """Write `body` to `path` in place of what was there; raises `OSError`.

    A link is replaced, not followed. A pipe or a device, such as /dev/stdout, is written to as it is.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(body)
        return
    with _draft(path, body) as draft:
        os.replace(draft, path)


def contents(path: Path) -> bytes:
    """The bytes of a file; `OSError` for a pipe or a device too, whose end would be waited for."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a device or a pipe, not a file")
    return path.read_bytes()


@contextlib.contextmanager
def one_line(path: Path) -> Iterator[None]:
    """Whatever the system refuses to do in this block, as one line about `path`."""
    try:
        yield
    except OSError as problem:
        raise FileError(f"{path} cannot be written: {problem.strerror or problem}") from None
    except ValueError as problem:  # a name that no file can have
        raise FileError(f"{str(path)!r} cannot be written: {problem}") from None


@contextlib.contextmanager
def _draft(path: Path, body: bytes) -> Iterator[str]:
    """The path of a finished and synced file beside `path` that is gone afterwards."""
    draft = os.path.join(path.parent, f".{path.name}.{secrets.token_hex(6)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            write_all(handle, body)
            os.fsync(handle)
        finally:
            os.close(handle)
        yield draft
        _sync_folder(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):  # it was renamed
            os.unlink(draft)


def write_all(handle: int, body: bytes) -> None:
    """Write every byte, however few the system takes at a time; raises `OSError`."""
    left = memoryview(body)
    while left:
        written = os.write(handle, left)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[written:]


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_drafts(path: Path) -> None:
    """Remove what processes that were killed while they wrote `path` left beside it; nobody else may be writing it."""
    for draft in path.parent.glob(f".{path.name}.*"):
        draft.unlink(missing_ok=True)


def inside(folder: Path, *names: str) -> Path:
    """The path of these names below `folder`; refused where a name, or a link on the way, leads out of it."""
    for name in names:
        if name != os.path.basename(name) or name in ("", ".", "..") or "\\" in name or not name.isprintable():
            raise FileError(f"a name in {folder} must be that of a file, without folders, not {name!r}")
    path = folder.joinpath(*names)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise FileError(f"{path} is a link that leads out of {folder}; remove it")
    return path


def csv_bytes(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """A table as a CSV file: floats with every digit, NaN and None as empty cells, text safe for spreadsheets."""
    text = io.StringIO(newline="")
    out = csv.writer(text, lineterminator="\n")
    out.writerow([safe_text(name) for name in names])
    out.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue().encode(errors="replace")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return safe_text(value)
    return "" if value is None or (isinstance(value, float) and value != value) else value


def safe_text(text: str) -> str:
    """The text behind a quote where a spreadsheet would take it for a formula; `original_text` gives it back."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def original_text(text: str) -> str:
    """The text that `safe_text` made safe."""
    return text[1:] if _ESCAPED.match(text) else text
