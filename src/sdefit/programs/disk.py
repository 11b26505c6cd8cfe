"""Compiled programs in files, so that another process need not compile them.

JAX's own persistent cache would not do: it is one for the whole process, so that the user's programs would end up in
our folder or ours in theirs; it needs the program traced and lowered first, which takes most of a second start; and a
file that was cut short stays damaged.

A file holds machine code, so whoever can write one can run anything as its reader. The folder is therefore used only if
it belongs to the user and nobody else may enter it (mode 700). This is checked on the open folder, whatever its parents
are: what is replaced by a symbolic link or by somebody else's folder is not used. Each file begins with a digest of its
key and its content. One that is damaged, or that stands in another's place, counts as missing. Trouble with the folder
or a file is never an error: the program is compiled again.
"""

import contextlib
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from sdefit.errors import InputError
from sdefit.files import write_all

_MOST_FILES = 100  # of a megabyte or two each as a rule; the least recently used goes first
_MOST_BYTES = 500_000_000
_STALE = 3600.0  # seconds after which the draft of a file belongs to a writer that was killed
_OURS = re.compile(r"[0-9a-f]{64}\.(program|[0-9a-f]{16}\.draft)")
_DIGEST = hashlib.sha256().digest_size


def folder() -> Path | None:
    """Where the environment has programs kept; None if nowhere."""
    switch = os.environ.get("SDEFIT_CACHE") or "on"
    if switch not in ("on", "off"):
        raise InputError(f"the environment variable SDEFIT_CACHE must be on or off, not {switch!r}")
    if switch == "off" or not hasattr(os, "geteuid"):  # without owners of files nobody can be trusted
        return None
    if chosen := os.environ.get("SDEFIT_CACHE_DIR"):
        return Path(chosen).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if base.is_absolute():
        return base / "sdefit" / "programs"
    with contextlib.suppress(RuntimeError):  # no HOME, and no entry for the user in the system's list
        return Path.home() / ".cache" / "sdefit" / "programs"
    return None


def read(folder: Path, key: str) -> bytes | None:
    """What was written under a key; None if nothing was, if it is damaged, or if the folder cannot be trusted."""
    with contextlib.suppress(OSError), _private(folder) as here:
        handle = os.open(f"{key}.program", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here)
        with os.fdopen(handle, "rb") as file:
            _check_private(os.fstat(handle))
            data = file.read(_MOST_BYTES)
            os.utime(handle)
        if data[:_DIGEST] == _digest(key, data[_DIGEST:]):
            return data[_DIGEST:]
    return None


def write(folder: Path, key: str, data: bytes) -> None:
    """Keep `data` under a key (64 hexadecimal digits), if the folder can be had and trusted."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _private(folder) as here:
            _put(here, key, _digest(key, data) + data)
            _prune(here)


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


@contextlib.contextmanager
def _private(folder: Path) -> Iterator[int]:
    """A descriptor of the folder; `OSError` unless it is a folder, not a link, that is the user's alone."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check_private(os.fstat(here))
        yield here
    finally:
        os.close(here)


def _check_private(facts: os.stat_result) -> None:
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise PermissionError


def _put(here: int, key: str, data: bytes) -> None:
    """The file appears whole or not at all."""
    draft = f"{key}.{secrets.token_hex(8)}.draft"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=here)
    try:
        try:
            write_all(handle, data)
        finally:
            os.close(handle)
        os.replace(draft, f"{key}.program", src_dir_fd=here, dst_dir_fd=here)
    except BaseException:
        os.unlink(draft, dir_fd=here)
        raise


def _prune(here: int) -> None:
    """Remove drafts that nobody finishes, and the least recently used files beyond what the folder may hold."""
    with os.scandir(here) as entries:
        ours = [(one.stat(follow_symlinks=False), one.name) for one in entries if _OURS.fullmatch(one.name)]
    files, size = 0, 0
    for facts, name in sorted(ours, key=lambda one: -one[0].st_mtime):
        if name.endswith(".draft"):
            surplus = facts.st_mtime < time.time() - _STALE
        else:
            files, size = files + 1, size + facts.st_size
            surplus = files > _MOST_FILES or size > _MOST_BYTES
        if surplus:
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                os.unlink(name, dir_fd=here)
