"""`sdefit simulate`: observations of a built-in system, or of a model of one's own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sdefit.cli import _shared
from sdefit.errors import InputError, ModelError


def command(
    system: Annotated[
        str | None, typer.Argument(help="A built-in, such as lotka_volterra or lv: see 'sdefit models'.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="In place of a built-in: TOML file of equations. The options up to --times go with it."),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A parameter: -p rate=0.5 -p level=1.")
    ] = None,
    x0: Annotated[str | None, typer.Option("--x0", help="The first state, one number for each: 5,3.")] = None,
    G: Annotated[
        str | None,
        typer.Option("--G", help="Diffusion: 0.5, a diagonal 0.3,0.2 or the rows of a matrix 0.3,0;0.1,0.2."),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="Standard deviation of the observation noise, one for all or for each; 0 unless given."),
    ] = None,
    until: Annotated[float | None, typer.Option(help="The last time, evenly spaced from 0.")] = None,
    points: Annotated[int | None, typer.Option(min=2, help="With --until: how many steps, by default 100.")] = None,
    times: Annotated[str | None, typer.Option(help="In place of --until: times, comma-separated.")] = None,
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path("obs.csv"),
    seed: Annotated[int, typer.Option(min=0, max=_shared.LARGEST_SEED, help="Seed of the random key.")] = 0,
    paths: Annotated[int | None, typer.Option(min=1, help="How many paths, in a column 'series'.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the truth as one JSON object.")] = False,
) -> None:
    """Simulate a built-in system or a model of your own, and write noisy observations of it as CSV."""
    from sdefit.data import write_csv
    from sdefit.dynamics import simulate

    own = {"--param": param, "--x0": x0, "--G": G, "--noise": noise, "--until": until, "--points": points}
    named = {flag: value for flag, value in (own | {"--times": times}).items() if value not in (None, [])}
    if (system is None) == (model is None):
        raise InputError(f"one of SYSTEM and --model must be given, but {'neither' if model is None else 'both'} came")
    if system is not None and named:
        raise InputError(f"{next(iter(named))} must go with --model; the built-in {system} has its own")
    name, given, note = _builtin(str(system)) if model is None else _own(model, named)
    with _shared.waiting(f"simulating {given['model'].name}"):
        series = simulate(**given, key=seed, paths=paths)  # pyright: ignore[reportArgumentType, reportCallIssue]
    write_csv(series, out)
    sde, at = given.pop("model"), given.pop("times")
    if as_json:
        _shared.print_json({"system": name, "truth": given, "seed": seed, "files": [str(out)]})
    else:
        many = "" if paths is None else f"{paths} paths, "
        print(f"{out}: {sde.name}, {many}{len(at)} times{note}")


def _builtin(name: str) -> tuple[str, dict[str, Any], str]:
    """The name of a built-in, what `simulate` is given for it, and where that comes from."""
    from sdefit.dynamics import systems

    one = systems.get(name)
    given = {"model": one.model, "params": one.params, "x0": one.x0, "times": one.times, "G": one.G, "noise": one.noise}
    return one.name, given, f", {one.note}"


def _own(model: str, named: Mapping[str, Any]) -> tuple[str, dict[str, Any], str]:
    """The same for a model file and the options beside it."""
    sde, flags = _shared.read_model(model), set(named)
    if "--x0" not in flags:
        raise ModelError(f"--x0 must be given with --model: one number each for {', '.join(sde.states)}")
    if ("--until" in flags) == ("--times" in flags):
        came = "both" if "--until" in flags else "neither"
        raise InputError(f"one of --until and --times must be given with --model, but {came} came")
    if "--times" in flags and "--points" in flags:
        raise InputError("--points must go with --until, not with --times")
    params = _shared.pairs("--param", named.get("--param", ()))
    given = {
        "model": sde,
        "params": {name: _numbers("--param", text) for name, text in params.items()},
        "x0": _numbers("--x0", named["--x0"]),
        "times": _numbers("--times", named["--times"]) if "--times" in flags else _evenly(named),
        "G": _numbers("--G", named["--G"]) if "--G" in flags else None,
        "noise": _numbers("--noise", named.get("--noise", "0")),
    }
    return sde.name, given, ""


def _evenly(named: Mapping[str, Any]) -> Any:
    import numpy as np

    return np.linspace(0.0, named["--until"], named.get("--points", 100) + 1)


def _numbers(flag: str, text: str) -> Any:
    """One number, a row of them divided by commas, or rows divided by semicolons."""
    import numpy as np

    try:
        rows = [[float(cell) for cell in row.split(",")] for row in text.split(";")]
        return np.squeeze(np.array(rows)) if len(rows) == 1 else np.array(rows)
    except ValueError:
        raise InputError(f"{flag} must be numbers, as in 0.5, 0.3,0.2 or 0.3,0;0.1,0.2, not {text!r}") from None
