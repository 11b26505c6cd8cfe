"""`sdefit models`: the built-in systems, and what a model file says."""

from typing import Annotated

import typer

from sdefit.cli import _shared
from sdefit.errors import InputError


def command(
    show: Annotated[
        str | None, typer.Option(metavar="FILE", help="Print the model of a TOML file or a built-in system.")
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="With --show: print its equations as LaTeX.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the built-in systems and their set-ups, or print one model as it was read."""
    if show is not None:
        _show(show, latex, as_json)
        return
    if latex:
        raise InputError("--latex must stand with --show FILE")
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


def _show(name: str, latex: bool, as_json: bool) -> None:
    model = _shared.read_model(name, flag="--show")
    if as_json:
        from sdefit.dynamics.model_file import to_dict

        _shared.print_json(to_dict(model) | ({"latex": model.latex()} if latex else {}))
        return
    typer.echo(model.latex() if latex else str(model))
