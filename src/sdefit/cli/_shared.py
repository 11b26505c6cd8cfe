"""What several commands do alike: read a model, wait politely, write a run, print a fit."""

import contextlib
import dataclasses
import importlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sdefit.cli._words import in_shell
from sdefit.errors import FileError, InputError, ModelError
from sdefit.files import csv_bytes, put

if TYPE_CHECKING:
    from sdefit.diagnosis import Diagnosis
    from sdefit.dynamics.sde import SDE
    from sdefit.fitting import Fit
    from sdefit.result import Status
    from sdefit.store import Results
    from sdefit.uncertainty import Intervals

LARGEST_SEED = 2**32 - 1


def read_model(text: str | None, written: str | None = None) -> "SDE":
    """The model of a TOML file, the built-in of that name, or that of equations `written` on the command line."""
    if text is None or written is not None:
        return _written(text, written)
    from sdefit.dynamics import systems
    from sdefit.dynamics.model_file import read_model

    if text.endswith(".toml") or Path(text).exists():
        return read_model(text)
    try:
        return systems.get(text).model
    except ModelError:
        names = ", ".join(systems.setups())
        raise ModelError(f"--model must be a TOML file or one of {names}, not {text!r}") from None


def _written(text: str | None, written: str | None) -> "SDE":
    if written is None or text is not None:
        both = "neither" if written is None else "both"
        raise ModelError(f"one of --model and --equations must be given, but {both} came")
    from sdefit.dynamics.equations import equations

    return equations(written.replace(";", "\n"))


def pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    """The texts by name of an option that is given as NAME=VALUE, once for each name."""
    found: dict[str, str] = {}
    for one in given:
        name, equal, text = (part.strip() for part in one.partition("="))
        if not (name and equal and text):
            raise InputError(f"{flag} must be NAME=VALUE, such as starts=8, not {one!r}")
        if name in found:
            raise InputError(f"{flag} must give each name once, but {name!r} came twice; keep one of them")
        found[name] = text
    return found


def fit_path(run: Path) -> Path:
    """The file of the fit in a folder that `sdefit fit` wrote, or that file itself."""
    path = run / "fit.nc" if run.is_dir() else run
    if not path.exists():
        raise FileError(f"RUN must be a folder with fit.nc in it, or such a file, but {path} does not exist")
    return path


def read_times(flag: str, text: str) -> list[Any]:
    """Times divided by commas: numbers, or ISO dates as text."""
    cells = [cell.strip() for cell in text.split(",") if cell.strip()]
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        pass
    from sdefit.data.clock import parse_date

    for cell in cells:
        if parse_date(cell) is None:
            raise InputError(f"{flag} must be numbers, or ISO dates such as 2020-01-31, not {cell!r}")
    return list(cells)


@contextlib.contextmanager
def fitting_once(words: str, *, shows_fit: bool = False) -> Iterator[None]:
    """A spinner while programs that run only once are compiled, with little optimisation, and run.

    With `shows_fit`, what showing a fit needs is made ready while its programs compile.
    """
    from sdefit.programs import compilation

    with compilation(quick=True, on_compile=_prepare_to_show if shows_fit else None), waiting(words):
        yield


def _prepare_to_show(model: Any, method: Any, pool: Any, estimate: Any) -> None:
    import jax

    from sdefit.uncertainty.intervals import precompile

    precompile(model, method, pool, estimate, jax.random.key(0))
    for module in ("h5netcdf", "sdefit.report.svg"):
        importlib.import_module(module)


def console(**options: Any) -> Any:
    """Where people read: what comes from data or a model is printed as it stands, never read as markup or emoji."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, **options)


@contextlib.contextmanager
def waiting(words: str) -> Iterator[None]:
    """A spinner while work runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.text import Text

    with console(stderr=True).status(Text(words)):
        yield


def claim(out: Path, force: bool) -> None:
    """Make the folder of a run; one that holds files is refused unless `force`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        taken = any(out.iterdir())
    except OSError as problem:
        raise FileError(f"--out must be a folder that can be written, but {out}: {problem.strerror}") from None
    if taken and not force:
        raise InputError(f"--out must be a new or empty folder, but {out} holds files; name another or add --force")


def write_run(found: "Fit", asked: "Asked", out: Path, truth: Mapping[str, Any] | None = None) -> list[str]:
    """Write fit.nc, summary.csv and report.html; returns their paths."""
    paths = [out / name for name in ("fit.nc", "summary.csv", "report.html")]
    found.save(paths[0], truth, **asked._asdict())
    rows = found.table(asked.intervals)
    put(paths[1], csv_bytes(rows[0], [[row.get(name) for name in rows[0]] for row in rows]))
    found.report(paths[2], truth, **asked._asdict())
    return [str(path) for path in paths]


def tell_odd_rows(results: "Results") -> None:
    """Say what is odd among the rows: files that are run again, and files that are not ours."""
    for word, names in (
        ("was cut or changed after it was stored, and is run again", [f"{cell}.csv" for cell in results.damaged()]),
        ("is not of this run, and does not count", results.strangers()),
    ):
        for name in names:
            print(f"sdefit: {results.folder / 'rows' / name} {word}", file=sys.stderr)


class Asked(NamedTuple):
    """What was asked of a fit, to be shown and stored with it."""

    intervals: "Intervals | None" = None
    diagnosis: "Diagnosis | None" = None


def ask(found: "Fit", draws: int = 0, level: float = 0.9) -> Asked:
    """Of a fit of finite numbers, intervals: calibrated ones and a diagnosis, or those that need no refit."""
    if found.status.name in ("not_finite", "drift_not_finite"):
        return Asked()
    if draws:
        return Asked(found.intervals(level, draws), found.diagnose())
    return Asked(found.intervals(level, draws=0) if found.method.knows_covariance else None)


def with_data(found: "Fit", name: str) -> "Fit":
    """The fit with the name of its data in its provenance."""
    return dataclasses.replace(found, provenance=found.provenance | {"data": name})


def print_json(facts: Mapping[str, Any]) -> None:
    """One JSON object on one line; numbers that JSON cannot hold become null."""
    from sdefit.store import plain

    print(json.dumps(_finite(plain(facts))))  # in ASCII: the same to a machine, whatever stdout can encode


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fit_facts(found: "Fit", intervals: "Intervals | None", files: Sequence[str]) -> dict[str, Any]:
    """A fit for machines."""
    return {
        "status": {"ok": found.status.ok, "name": found.status.name, "message": str(found.status)},
        "checks": [dataclasses.asdict(check) for check in found.checks],
        "model": found.model.name,
        "method": found.method.name,
        "params": found.params,
        "states": found.model.states,
        "G": found.G,
        "GGt": found.GGt,
        "noise": found.noise,
        "intervals": [] if intervals is None else intervals.table(),
        found.method.objective_name: getattr(found, found.method.objective_name),
        "seconds": found.seconds,
        "compile_seconds": found.compile_seconds,
        "notes": found.notes,
        "files": files,
    }


def print_fit(found: "Fit", asked: Asked, files: Sequence[str], truth: Mapping[str, float] | None = None) -> None:
    """A fit for people: a table, how it went, what was assumed, what was written."""
    out = console(soft_wrap=True)
    colours = {"ok": "green", "warning": "yellow", "failure": "red"}
    for check in _checks(found, asked.intervals):
        out.print(in_shell(str(check)), style=colours[check.severity])
    out.print(_table(found, asked.intervals, truth))
    told = (*asked.intervals.sentences, *asked.intervals.notes()) if asked.intervals else ()
    hints = asked.diagnosis.hints if asked.diagnosis else ()
    for sentence in (*told, *hints, *found.assumed(), *found.notes):
        out.print(in_shell(sentence), style="dim")
    out.print(f"{found.seconds:.2g} s to fit, {found.compile_seconds:.2g} s to compile.", style="dim")
    out.print(f"Wrote {', '.join(files)}")


def _checks(found: "Fit", known: "Intervals | None") -> "Sequence[Status]":
    """What objects to a fit, worst first, with the parameters its intervals call not identified; else its status."""
    from sdefit.result import NOT_IDENTIFIED, worst_first

    names = [row["quantity"] for row in found.table(known) if row.get("identifiability") == "not identified"]
    names = ", ".join(name for name in names if name in found.model.free)
    message = NOT_IDENTIFIED.message.format(names=names)
    more = [dataclasses.replace(NOT_IDENTIFIED, message=message)] if names and found.status.ok else []
    return worst_first([*found.checks, *more]) or (found.status,)


def _table(found: "Fit", known: "Intervals | None", truth: Mapping[str, float] | None) -> Any:
    from rich.table import Table

    title = f"{found.model.name} by {found.method.title}"
    table = Table("quantity", title=title, title_justify="left", title_style="bold")
    table.add_column("estimate", justify="right")
    if known:
        table.add_column(f"{100 * known.level:g} % interval", justify="right")
    if truth:
        table.add_column("truth", justify="right")
    table.add_column("kind", style="dim")
    for row in found.table(known):
        name = row["quantity"]
        between = [f"{row['lower']:.4g} to {row['upper']:.4g}" if row["lower"] == row["lower"] else ""] if known else []
        true = [f"{truth[name]:.4g}" if name in truth else ""] if truth else []
        table.add_row(name, f"{row['estimate']:.4g}", *between, *true, row["kind"])
    return table
