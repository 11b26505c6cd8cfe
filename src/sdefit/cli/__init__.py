"""The `sdefit` command: one file per subcommand, each of them parsing plus one library call.

Nothing here imports JAX until a command needs it, so help is instant.
"""

import gc
import os
import signal
import sys
import threading
from typing import Any

INTERRUPTED = 130  # what a shell says of a command that Ctrl-C ended
_PATIENCE = 1.5  # seconds that a command has to leave after an interrupt


def main() -> None:
    """Run `sdefit` with the arguments of this process and exit with its status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a parent has us ignore it
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from sdefit.cli.app import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = say_interrupted()
    if status == INTERRUPTED:
        _leave()
    gc.freeze()  # all memory goes back at once: looking through it first for what is no longer used takes half a second
    sys.exit(status)


def say_interrupted() -> int:
    """The one line for Ctrl-C; gives the exit status."""
    print("sdefit: interrupted", file=sys.stderr)
    return INTERRUPTED


def _interrupt(number: int, frame: Any) -> None:
    """Raise `KeyboardInterrupt`; where a library swallows it or computes on, leave all the same a little later."""
    late = threading.Timer(_PATIENCE, lambda: (say_interrupted(), _leave()))
    late.daemon = True
    late.start()
    signal.default_int_handler(number, frame)


def _leave() -> None:
    """End at once: a program that compiles or runs in another thread hears of no exception."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)
