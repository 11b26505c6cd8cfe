"""`sdefit plot`: a figure of a stored fit as a file."""

import io
from pathlib import Path
from typing import Annotated

import typer

from sdefit.cli import _shared
from sdefit.errors import FileError, InputError
from sdefit.files import put


def command(
    run: Annotated[Path, typer.Argument(help="A folder that fit wrote, or a file fit.nc.")],
    kind: Annotated[
        str,
        typer.Option(
            help="states, estimates, phase, derivatives, field, increments, trace, profile, residuals, quantiles "
            "or drift."
        ),
    ] = "states",
    parameter: Annotated[str | None, typer.Option(help="For --kind profile: the parameter; all unless given.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write, .png, .pdf or .svg; KIND.png unless given.")
    ] = None,
) -> None:
    """Draw one figure of a stored fit into a file; nothing is fitted again, but for a profile."""
    from sdefit import report, store
    from sdefit.fitting import load

    stored = _shared.fit_path(run)
    record, needed = store.read(stored, "fit"), report.needs(kind)
    if parameter is not None and kind != "profile":
        raise InputError(f"--parameter must go with --kind profile, not with --kind {kind}")
    path = Path(f"{kind}.png") if out is None else out
    with _shared.waiting(f"drawing {record.facts['name']}"):
        if parameter is None and (not needed or needed in record.facts):
            figure = report.plot_fit(record, kind)
        else:
            found = load(stored)
            figure = found.plot(kind, profiles=[found.profile(parameter)] if parameter is not None else ())
    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, format=path.suffix[1:])
    except ValueError as problem:
        raise FileError(f"--out must end in .png, .pdf or .svg, but {path}: {problem}") from None
    put(path, drawn.getvalue())
    print(path)
