"""All commands in one application, and what each ending means to the shell.

Exit status: 0 done; 1 the fit (or the simulation) did not succeed; 2 bad input, one line on stderr.
"""

import contextlib
import errno
import importlib.metadata
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sdefit.cli import (
    INTERRUPTED,
    cite,
    compare,
    demo,
    diagnose,
    fit,
    forecast,
    methods,
    models,
    plot,
    report,
    reproduce,
    simulate,
)
from sdefit.cli._command import Once
from sdefit.cli._words import in_shell
from sdefit.errors import EquationError, InputError, SdefitError

# What a wrong command line raises: the class that usage errors share, wherever this version of typer keeps it.
_USAGE = typer.BadParameter.__mro__[2]

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"  # how JAX's RuntimeError says that the memory does not suffice
_CANNOT_PRINT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)  # of a file that stdout leads to
_SMALLER = (
    "this needs more memory than there is; take fewer or shorter series, paths or refits, or a machine with more memory"
)

app = typer.Typer(
    help="Fit stochastic differential equations to noisy, irregular observations.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (demo, simulate, fit, diagnose, forecast, plot, report, compare, reproduce, models, methods, cite):
    app.command(_module.__name__.rpartition(".")[2], cls=Once)(_module.command)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        try:
            print(f"sdefit {importlib.metadata.version('sdefit')}")
        except importlib.metadata.PackageNotFoundError:
            print("sdefit, from a source tree that was never installed")


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no θ shows a question mark
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # where it keeps its fonts is no news to the user
    command = typer.main.get_command(app)
    try:
        status = command.main(args=list(arguments) or ["--help"], prog_name="sdefit", standalone_mode=False)
        print(end="", flush=True)  # here, and not when Python ends, where a full disk is a traceback
    except (SdefitError, *_usage()) as problem:
        return _explain(problem)
    except OSError as problem:
        if problem.errno not in _CANNOT_PRINT or problem.filename is not None:
            raise
        return _no_output(problem)
    except (MemoryError, RuntimeError) as problem:
        if isinstance(problem, RuntimeError) and _OUT_OF_MEMORY not in str(problem):
            raise
        print(f"sdefit: {_SMALLER}", file=sys.stderr)
        return 1
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _usage() -> tuple[type[Exception], ...]:
    return (_USAGE,) if issubclass(_USAGE, Exception) else ()


def _no_output(problem: OSError) -> int:
    """What a command says that cannot write to stdout; nothing if its reader, such as head, has what it wanted."""
    if problem.errno != errno.EPIPE:
        print(f"sdefit: the output cannot be written: {problem.strerror or problem}", file=sys.stderr)
    with contextlib.suppress(OSError, ValueError):  # what is left of it would fail again when Python ends
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return 1


def _explain(problem: Exception) -> int:
    message = problem.format_message() if hasattr(problem, "format_message") else str(problem)  # pyright: ignore[reportAttributeAccessIssue]
    # Only an equation needs more lines than one: its own, and the caret below it.
    message = in_shell(message)
    message = message if isinstance(problem, EquationError) else " ".join(message.split())
    print(f"sdefit: {message}", file=sys.stderr)
    known = isinstance(problem, SdefitError)
    return 1 if known and not isinstance(problem, InputError) else 2
