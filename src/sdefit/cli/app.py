"""All commands in one application, and what each ending means to the shell.

Exit status: 0 done; 1 the fit (or the simulation) did not succeed; 2 bad input, one line on stderr.
"""

import importlib.metadata
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sdefit.cli import INTERRUPTED, cite, compare, demo, fit, methods, models, report, reproduce, simulate
from sdefit.errors import EquationError, InputError, SdefitError

# What a wrong command line raises: the class that usage errors share, wherever this version of typer keeps it.
_USAGE = typer.BadParameter.__mro__[2]

app = typer.Typer(
    help="Fit stochastic differential equations to noisy, irregular observations.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (demo, simulate, fit, compare, reproduce, report, models, methods, cite):
    app.command(_module.__name__.rpartition(".")[2])(_module.command)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        try:
            print(f"sdefit {importlib.metadata.version('sdefit')}")
        except importlib.metadata.PackageNotFoundError:
            print("sdefit, from a source tree that was never installed")


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit status."""
    command = typer.main.get_command(app)
    try:
        status = command.main(args=list(arguments) or ["--help"], prog_name="sdefit", standalone_mode=False)
    except (SdefitError, *_usage()) as problem:
        return _explain(problem)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _usage() -> tuple[type[Exception], ...]:
    return (_USAGE,) if issubclass(_USAGE, Exception) else ()


def _explain(problem: Exception) -> int:
    message = problem.format_message() if hasattr(problem, "format_message") else str(problem)  # pyright: ignore[reportAttributeAccessIssue]
    # Only an equation needs more lines than one: its own, and the caret below it.
    message = message if isinstance(problem, EquationError) else " ".join(message.split())
    print(f"sdefit: {message}", file=sys.stderr)
    known = isinstance(problem, SdefitError)
    return 1 if known and not isinstance(problem, InputError) else 2
