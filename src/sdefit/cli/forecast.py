"""`sdefit forecast`: where paths of a stored fit go after the last observation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sdefit.cli import _shared
from sdefit.errors import FileError, InputError

if TYPE_CHECKING:
    from sdefit.fitting import Fit
    from sdefit.uncertainty import Forecast


def command(
    run: Annotated[Path, typer.Argument(help="A folder that fit wrote, or a file fit.nc.")],
    until: Annotated[str | None, typer.Option(help="The last time, a number or an ISO date.")] = None,
    points: Annotated[int, typer.Option(min=1, help="With --until: evenly spaced times up to there.")] = 50,
    times: Annotated[str | None, typer.Option(help="In place of --until: times, comma-separated.")] = None,
    draws: Annotated[int, typer.Option(help="Simulated paths.")] = 500,
    level: Annotated[float, typer.Option(help="The probability of the band.")] = 0.9,
    series: Annotated[int, typer.Option(help="Which of several pooled series, counted from 0.")] = 0,
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path("forecast.csv"),
    seed: Annotated[
        int | None, typer.Option(min=0, max=_shared.LARGEST_SEED, help="Seed of the random key; by default the fit's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the forecast as one JSON object too.")] = False,
) -> None:
    """Simulate a stored fit beyond its last observation: mean and band of each state as CSV."""
    from sdefit.fitting import load

    if (until is None) == (times is None):
        raise InputError(f"one of --until and --times must be given, but {'neither' if until is None else 'both'} came")
    if not 0 < level < 1:
        raise InputError(f"--level must lie between 0 and 1, not {level:g}")
    found = load(_shared.fit_path(run))
    if not 0 <= series < len(found.series):
        raise InputError(f"--series must be a number from 0 to {len(found.series) - 1}, not {series}")
    asked = _evenly(found, series, str(until), points) if times is None else _shared.read_times("--times", times)
    with _shared.waiting(f"simulating {found.model.name}"):
        predicted = found.forecast(asked, draws, key=seed, series=series, level=level)
    rows = _rows(found, series, predicted)
    _write(rows, out)
    if as_json:
        facts = {"level": level, "draws": len(predicted.states), "failed": predicted.failed, "notes": predicted.notes}
        _shared.print_json(facts | {"rows": rows, "files": [str(out)]})
        return
    print(f"{out}: mean and {100 * level:g} % band of {', '.join(predicted.names)} at {len(rows)} times")
    for note in predicted.notes:
        print(note)


def _evenly(found: "Fit", series: int, until: str, points: int) -> Any:
    """As many times, evenly spaced, after the last row up to `until`."""
    import numpy as np

    one, end = found.series[series], _shared.read_times("--until", until)
    if len(end) != 1:
        raise InputError(f"--until must be one time, not {until!r}")
    first, last = float(one.times[-1]), float(one.clock(end)[0])
    if not last > first:
        raise InputError(f"--until must lie after the last observation at {first:g}, not at {last:g}")
    return np.linspace(first, last, points + 1)[1:]


def _rows(found: "Fit", series: int, predicted: "Forecast") -> list[dict[str, Any]]:
    """A row for each time: the time, its date where the series has dates, and mean and band of each state."""
    from sdefit.data.clock import dates_at

    one, columns = found.series[series], {"t": predicted.times.tolist()}
    if one.origin is not None and one.time_unit is not None:
        columns["date"] = dates_at(predicted.times, one.origin, one.time_unit)
    for k, name in enumerate(predicted.names):
        ends = {name: predicted.mean, f"{name}_lower": predicted.lower, f"{name}_upper": predicted.upper}
        columns |= {word: values[:, k].tolist() for word, values in ends.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _write(rows: list[dict[str, Any]], out: Path) -> None:
    from sdefit.files import csv_bytes, write

    try:
        write(out, csv_bytes(rows[0], (list(row.values()) for row in rows)))
    except OSError as problem:
        raise FileError(f"--out must be a file that can be written, but {out}: {problem.strerror}") from None
