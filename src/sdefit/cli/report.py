"""`sdefit report`: the HTML page of a stored fit, comparison or reproduction, made again from what is stored."""

from pathlib import Path
from typing import Annotated

import typer

from sdefit.cli import _shared


def command(
    run: Annotated[Path, typer.Argument(help="A folder that fit, compare or reproduce wrote, or a file fit.nc.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file to write; report.html beside it unless given.")
    ] = None,
) -> None:
    """Write the report of a stored fit, comparison or reproduction; nothing is fitted again."""
    from sdefit import report, store

    if (run / "plan.json").exists():
        page = report.write_run(run, out)
        _shared.tell_odd_rows(store.Results(run))
        print(page)
        return
    if (run / "comparison.json").exists():
        print(report.write_comparison(run, out))
        return
    path = _shared.fit_path(run)
    page = out or path.with_name("report.html")
    report.write_fit(store.read(path, "fit"), page)
    print(page)
