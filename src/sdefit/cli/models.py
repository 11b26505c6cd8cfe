"""`sdefit models`: the built-in systems."""

from typing import Annotated

import typer

from sdefit.cli import _shared


def command(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """List the built-in systems and their set-ups."""
    from sdefit.dynamics import systems

    if as_json:
        _shared.print_json({n: {"model": s.model.name, "params": s.params} for n, s in systems.setups().items()})
        return
    from rich.table import Table

    table = Table("name", "model", "true parameters", "set-up")
    for name, setup in systems.setups().items():
        params = ", ".join(f"{p}={value:.3g}" for p, value in setup.params.items())
        table.add_row(name, setup.model.name, params, setup.note)
    _shared.console().print(table)
