"""`sdefit compare`: several methods side by side on one's own data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sdefit.cli import _shared
from sdefit.cli.fit import read_series
from sdefit.errors import FitError, InputError, ModelError

if TYPE_CHECKING:
    from sdefit.fitting import Fit


def command(
    data: Annotated[Path, typer.Argument(help="CSV file: a column of times and a column for each state.")],
    model: Annotated[str, typer.Option(help="TOML file of equations, or a built-in: see 'sdefit models'.")],
    methods: Annotated[str, typer.Option(help="Methods, comma-separated: see 'sdefit methods'. By default all.")] = "",
    time: Annotated[str | None, typer.Option(help="The time column; t or time unless given.")] = None,
    states: Annotated[
        str | None, typer.Option(help="Columns of the model's states, in its order: a,b. Its own names unless given.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="A column that names the series of each row; the series are pooled.")
    ] = None,
    time_unit: Annotated[str | None, typer.Option(help="Unit to count dates in, such as day.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the fits, estimates.csv and report.html.")] = Path("cmp"),
    seed: Annotated[int, typer.Option(min=0, max=_shared.LARGEST_SEED, help="Seed of the random key.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that holds files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Fit a model to a CSV file by several methods and report their estimates side by side.

    Exit status: 0 every fit succeeded; 1 one did not, and all are written with their status; 2 bad input.
    """
    names = _names(methods)
    equations = _shared.read_model(model)
    series = read_series(data, equations, time, states, group, time_unit)
    _shared.claim(out, force)
    fits, refused = _fits(equations, series, names, seed, data.name)
    if not fits:
        raise InputError(next(iter(refused.values())))
    files = _write(out, fits, refused)
    if as_json:
        facts = {name: _shared.fit_facts(found, None, [f"{out / 'fits' / name}.nc"]) for name, found in fits.items()}
        _shared.print_json({"fits": facts, "refused": refused, "files": files})
    else:
        _print(fits, refused, files)
    if refused or not all(found.status.ok for found in fits.values()):
        raise typer.Exit(1)


def _names(text: str) -> list[str]:
    from sdefit import methods

    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())) or list(methods.names())
    for name in names:
        if name not in methods.names():
            raise ModelError(f"--methods must be among {', '.join(methods.names())}, not {name!r}")
    return names


def _fits(model: Any, series: Any, names: list[str], seed: int, data: str) -> "tuple[dict[str, Fit], dict[str, str]]":
    """The fit of each method, and for methods that do not take this model or these data, why."""
    import jax

    from sdefit import methods
    from sdefit.fitting import fit

    fits, refused = {}, {}
    for name in names:
        with _shared.fitting_once(f"fitting {model.name} by {name}"):
            try:
                found = fit(model, series, methods.get(name)(), key=jax.random.key(seed))
                fits[name] = _shared.with_data(found, data)
            except (InputError, FitError) as problem:
                refused[name] = str(problem)
    return fits, refused


def _write(out: Path, fits: "dict[str, Fit]", refused: dict[str, str]) -> list[str]:
    """Write fits/NAME.nc, what was refused, and the report with its data."""
    from sdefit.report.comparison import begin, write_comparison

    begin(out, {name: type(found.method).__name__ for name, found in fits.items()}, refused)
    for name, found in fits.items():
        found.save(out / "fits" / f"{name}.nc")
    return [str(out / "fits"), str(write_comparison(out))]


def _print(fits: "dict[str, Fit]", refused: dict[str, str], files: list[str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    table = Table("quantity", *(found.method.name for found in fits.values()))
    tables = [found.table() for found in fits.values()]
    for rows in zip(*tables, strict=True):
        table.add_row(escape(rows[0]["quantity"]), *(f"{row['estimate']:.4g}" for row in rows))
    table.add_section()
    table.add_row("status", *(found.status.name for found in fits.values()))
    table.add_row("seconds", *(f"{found.seconds:.2g}" for found in fits.values()))
    console.print(table)
    for name, reason in refused.items():
        console.print(escape(f"{name} was not run: {reason}"), style="red")
    console.print(escape(f"Wrote {', '.join(files)}"))
