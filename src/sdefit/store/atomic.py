"""Files that appear whole or not at all, whatever happens to the process or the machine meanwhile."""

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from sdefit.errors import FileError

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without hard links


def put(path: Path, body: bytes) -> None:
    """Write `body` to `path` in place of what was there."""
    with _draft(path, body) as draft:
        os.replace(draft, path)


def put_once(path: Path, body: bytes) -> bool:
    """Write `body` to `path` unless a file of that name is there already; returns whether it was written."""
    with _draft(path, body) as draft:
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


@contextlib.contextmanager
def _draft(path: Path, body: bytes):
    """The path of a finished file beside `path` that is gone afterwards; trouble with the disk is one line."""
    draft = None
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(handle)
        os.chmod(draft, 0o666 & ~_umask())  # mkstemp keeps files private; a result is an ordinary file
        yield draft
        _sync_folder(path.parent)
    except OSError as problem:
        raise FileError(f"{path} cannot be written: {problem.strerror}") from None
    finally:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
