"""`sdefit diagnose`: what in the data a stored fit does not explain."""

from pathlib import Path
from typing import Annotated

import typer

from sdefit.cli import _shared
from sdefit.cli._words import in_shell


def command(
    run: Annotated[Path, typer.Argument(help="A folder that fit wrote, or a file fit.nc.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Check the one-step residuals of a stored fit: what in the data it does not explain, with a hint for each."""
    from sdefit.fitting import load

    found = load(_shared.fit_path(run))
    with _shared.waiting(f"checking {found.model.name}"):
        known = found.diagnose()
    if as_json:
        _shared.print_json({"ok": known.ok, "checks": known.table(), "hints": known.hints})
        return
    from rich.table import Table

    table = Table("check", "state", "value", "p", "passes")
    for check in known.checks:
        p = f"{check.p:.3g}" if check.p == check.p else ""
        table.add_row(check.name, check.state, f"{check.value:.3g}", p, "yes" if check.ok else "no")
    out = _shared.console(soft_wrap=True)
    out.print(table)
    for hint in known.hints or ("No check objects to this fit.",):
        out.print(in_shell(hint))
