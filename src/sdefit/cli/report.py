"""`sdefit report`: the HTML page of a stored fit, made again from what is stored."""

from pathlib import Path
from typing import Annotated

import typer

from sdefit.errors import FileError


def command(
    run: Annotated[Path, typer.Argument(help="A folder with fit.nc in it, or such a file.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file to write; report.html beside it unless given.")
    ] = None,
) -> None:
    """Write the report of a stored fit; nothing is computed again."""
    from sdefit import report, store

    path = run / "fit.nc" if run.is_dir() else run
    if not path.exists():
        raise FileError(f"RUN must be a folder with fit.nc in it, or such a file, but {path} does not exist")
    page = out or path.with_name("report.html")
    report.write_fit(store.read(path), page)
    print(page)
