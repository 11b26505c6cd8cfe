"""`sdefit methods`: the ways to fit."""

from typing import Annotated

import typer

from sdefit.cli import _shared


def command(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """List the methods, the default one marked."""
    from sdefit import methods

    found = {name: methods.get(name) for name in methods.names()}
    if as_json:
        facts = {name: {"title": m.title, "reference": m.reference} for name, m in found.items()}
        _shared.print_json({"default": methods.DEFAULT, "methods": facts})
        return
    from rich.table import Table

    table = Table("name", "method", "reference")
    for name, method in found.items():
        table.add_row(f"{name} (default)" if name == methods.DEFAULT else name, method.title, method.reference)
    _shared.console().print(table)
