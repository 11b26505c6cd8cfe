"""`sdefit fit`: parameters from a CSV file and a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdefit.cli import _method, _shared
from sdefit.errors import ModelError

if TYPE_CHECKING:
    from sdefit.data import Series
    from sdefit.dynamics.sde import SDE


def command(
    data: Annotated[Path, typer.Argument(help="CSV file: a column of times and a column for each state.")],
    model: Annotated[
        str | None, typer.Option(help="TOML file of equations, or a built-in: see 'sdefit models'.")
    ] = None,
    equations: Annotated[
        str | None,
        typer.Option(help='In place of --model: "dx = rate*(level - x)", several divided by ;. All parameters real.'),
    ] = None,
    method: Annotated[str, typer.Option(help="How to fit: see 'sdefit methods'. The default suits most data.")] = "",
    option: Annotated[
        list[str] | None, typer.Option(help="A setting of the method, such as starts=8; may be given several times.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="The time column; t or time unless given.")] = None,
    states: Annotated[
        str | None, typer.Option(help="Columns of the model's states, in its order: a,b. Its own names unless given.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="A column that names the series of each row; the series are pooled.")
    ] = None,
    time_unit: Annotated[str | None, typer.Option(help="Unit to count dates in, such as day.")] = None,
    intervals: Annotated[
        int,
        typer.Option(help="Refits of simulated data for bootstrap intervals, say 200; 0 for none."),
    ] = 0,
    level: Annotated[float, typer.Option(help="The share of intervals that should hold the truth.")] = 0.9,
    out: Annotated[Path, typer.Option(help="Folder for fit.nc, summary.csv and report.html.")] = Path("run"),
    seed: Annotated[int, typer.Option(min=0, max=_shared.LARGEST_SEED, help="Seed of the random key.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that holds files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Fit a model to observations in a CSV file.

    Exit status: 0 the fit succeeded; 1 it did not (what is a number is written, with its status); 2 bad input.
    """
    from sdefit.fitting import fit

    settings = _method.settings(method, option or ())
    if not 0 < level < 1:
        raise ModelError(f"--level must lie between 0 and 1, not {level:g}")
    if intervals != 0 and intervals < 40:
        raise ModelError(f"--intervals must be 0 or a whole number of at least 40, not {intervals}")
    sde = _shared.read_model(model, equations)
    series = read_series(data, sde, time, states, group, time_unit)
    _shared.claim(out, force)
    with _shared.fitting_once(f"fitting {sde.name}", shows_fit=True):
        found = _shared.with_data(fit(sde, series, settings, key=seed), data.name)
        asked = _shared.ask(found, intervals, level)
        files = _shared.write_run(found, asked, out)
    if as_json:
        _shared.print_json(_shared.fit_facts(found, asked.intervals, files))
    else:
        _shared.print_fit(found, asked, files)
    if not found.status.ok:
        raise typer.Exit(1)


def read_series(
    data: Path, model: "SDE", time: str | None, states: str | None, group: str | None, time_unit: str | None
) -> "list[Series]":
    """The series of a CSV file under the model's names for its states."""
    from sdefit.data import read_csv

    names = list(model.states) if states is None else [name.strip() for name in states.split(",")]
    if len(names) != len(model.states):
        wanted = ", ".join(model.states)
        raise ModelError(f"--states must name {len(model.states)} column(s), one for each of {wanted}, not {states!r}")
    read = read_csv(data, time=time, states=names, group=group, time_unit=time_unit, inputs=model.inputs)
    return [_renamed(one, model) for one in (read if isinstance(read, list) else [read])]


def _renamed(one: "Series", model: "SDE") -> "Series":
    """The series with its columns called by the model's names for them."""
    from sdefit.data import Series

    return Series(
        one.times, one.values, model.states, notes=one.notes, name=one.name, time_unit=one.time_unit,
        origin=one.origin, inputs=one.inputs,
    )  # fmt: skip
