"""The `sdefit` command: one file per subcommand, each of them parsing plus one library call.

Nothing here imports JAX until a command needs it, so help is instant.
"""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

INTERRUPTED = 130  # what a shell says of a command that Ctrl-C ended


def main() -> None:
    """Run `sdefit` with the arguments of this process and exit with its status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a parent has us ignore it
        signal.signal(signal.SIGINT, _interrupt)
    from sdefit.cli.app import run

    status = run(sys.argv[1:])
    gc.freeze()  # all memory goes back at once: looking through it first for what is no longer used takes half a second
    sys.exit(status)


def leave(words: str) -> NoReturn:
    """End at once with one line: a program that compiles or runs in another thread hears of no exception."""
    with contextlib.suppress(Exception):  # the stream may be in the middle of something
        sys.stdout.flush()
    cursor = "\r\033[K\033[?25h" if os.isatty(2) else ""  # a spinner had hidden it
    with contextlib.suppress(OSError):
        os.write(2, f"{cursor}sdefit: {words}\n".encode())
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def interrupted_by(farewell: Callable[[], NoReturn]) -> Iterator[None]:
    """Within it, Ctrl-C ends the command by `farewell`; not where a program of somebody else runs the command."""
    if signal.getsignal(signal.SIGINT) is not _interrupt:
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: farewell())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    """Leave without an exception, which libraries swallow while they are imported or collect garbage."""
    leave("interrupted")
