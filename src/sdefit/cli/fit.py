"""`sdefit fit`: parameters from a CSV file and a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sdefit.cli import _shared
from sdefit.errors import ModelError

if TYPE_CHECKING:
    from sdefit.data import Series
    from sdefit.dynamics.sde import SDE


def command(
    data: Annotated[Path, typer.Argument(help="CSV file: a column of times and a column for each state.")],
    model: Annotated[str, typer.Option(help="TOML file of equations, or a built-in: see 'sdefit models'.")],
    method: Annotated[str, typer.Option(help="How to fit: see 'sdefit methods'. The default suits most data.")] = "",
    time: Annotated[str | None, typer.Option(help="The time column; t or time unless given.")] = None,
    states: Annotated[
        str | None, typer.Option(help="Columns of the model's states, in its order: a,b. Its own names unless given.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="A column that tells several series apart; they are pooled.")
    ] = None,
    time_unit: Annotated[str | None, typer.Option(help="Unit to count dates in, such as day.")] = None,
    intervals: Annotated[
        int, typer.Option(help="Refits of simulated data for calibrated intervals, say 200; 0 takes standard errors.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="Folder for fit.nc, summary.csv and report.html.")] = Path("run"),
    seed: Annotated[int, typer.Option(min=0, max=_shared.LARGEST_SEED, help="Seed of the random key.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that holds files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Fit a model to observations in a CSV file.

    Exit status: 0 the fit succeeded; 1 it did not (what is a number is written, with its status); 2 bad input.
    """
    import jax

    from sdefit.fitting import fit

    settings = _settings(method)
    if intervals != 0 and intervals < 40:
        raise ModelError(f"--intervals must be 0 or a whole number of at least 40, not {intervals}")
    equations = _shared.read_model(model)
    series = read_series(data, equations, time, states, group, time_unit)
    _shared.claim(out, force)
    with _shared.fitting_once(f"fitting {equations.name}", shows_fit=True):
        found = fit(equations, series, settings, key=jax.random.key(seed))
        _shared.ask_intervals(found, intervals, seed)
        files = _shared.write_run(found, out)
    if as_json:
        _shared.print_json(_shared.fit_facts(found, files))
    else:
        _shared.print_fit(found, files)
    if not found.status.ok:
        raise typer.Exit(1)


def _settings(name: str) -> Any:
    from sdefit import methods

    if name and name not in methods.names():
        raise ModelError(f"--method must be one of {', '.join(methods.names())}, not {name!r}")
    return methods.get(name or methods.DEFAULT)()


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
