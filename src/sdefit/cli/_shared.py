"""What several commands do alike: read a model, wait politely, write a run, print a fit."""

import contextlib
import csv
import dataclasses
import importlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdefit.errors import FileError, InputError, ModelError

if TYPE_CHECKING:
    from sdefit.dynamics.sde import SDE
    from sdefit.fitting import Fit

LARGEST_SEED = 2**32 - 1


def read_model(text: str) -> "SDE":
    """The model of a TOML file, or the built-in of that name."""
    from sdefit.dynamics import systems
    from sdefit.dynamics.model_file import read_model

    if text.endswith(".toml") or Path(text).exists():
        return read_model(text)
    try:
        return systems.get(text).model
    except ModelError:
        names = ", ".join(systems.setups())
        raise ModelError(f"--model must be a TOML file or one of {names}, not {text!r}") from None


def compile_quickly() -> None:
    """For commands that run each program once: compile with little optimisation, and keep the result for next time.

    Most of a first fit is compilation. Without the costly passes it takes half as long, and one fit runs for a
    tenth of a second more.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_optimization_level" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=0".strip()
    keep_programs()


def keep_programs() -> None:
    """Keep compiled programs in the user's cache folder, so that the next process need not make them."""
    from sdefit.methods import _driver

    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sdefit"
    with contextlib.suppress(OSError):  # no cache is slower, not wrong
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK):
            _driver.PROGRAMS.folder = base / "programs"


def prepare_beside_fits() -> None:
    """For commands that show a fit: while its programs compile, make ready what showing it needs."""
    import numpy as np

    from sdefit.methods import _driver
    from sdefit.uncertainty.intervals import ahead

    def follow(model: Any, method: Any, pool: Any, estimate: Any) -> None:
        ahead(model, method, pool, estimate, np.zeros(2, np.uint32))
        for module in ("h5netcdf", "sdefit.report.fit"):
            importlib.import_module(module)

    _driver.PROGRAMS.follow = follow


@contextlib.contextmanager
def waiting(words: str) -> Iterator[None]:
    """A spinner while work runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
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


def write_run(found: "Fit", out: Path, truth: Mapping[str, Any] | None = None) -> list[str]:
    """Write fit.nc, summary.csv and report.html; returns their paths."""
    paths = [out / name for name in ("fit.nc", "summary.csv", "report.html")]
    found.save(paths[0], truth)
    with paths[1].open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(found.table()[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: "" if v != v else v for k, v in row.items()} for row in found.table())
    found.report(paths[2], truth)
    return [str(path) for path in paths]


def ask_intervals(found: "Fit", draws: int, seed: int) -> None:
    """Have a fit of finite numbers keep intervals: by refits and with a diagnosis, or without refits."""
    import jax

    if not draws or found.status.name in ("not_finite", "drift_not_finite"):
        found.keep_errors()
        return
    found.intervals(draws=draws, key=jax.random.fold_in(jax.random.key(seed), 1))
    found.diagnose()


def print_json(facts: Mapping[str, Any]) -> None:
    """One JSON object on one line; numbers that JSON cannot hold become null."""
    from sdefit.store import plain

    print(json.dumps(_finite(plain(facts)), ensure_ascii=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fit_facts(found: "Fit", files: Sequence[str]) -> dict[str, Any]:
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
        "intervals": found.kept["intervals"].table() if "intervals" in found.kept else [],
        "objective": found.objective,
        "seconds": found.seconds,
        "compile_seconds": found.compile_seconds,
        "notes": found.notes,
        "files": files,
    }


def print_fit(found: "Fit", files: Sequence[str], truth: Mapping[str, float] | None = None) -> None:
    """A fit for people: a table, how it went, what was assumed, what was written."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    colours = {"ok": "green", "warning": "yellow", "failure": "red"}
    for check in found.checks or (found.status,):
        console.print(f"[{colours[check.severity]}]{escape(str(check))}[/]")
    console.print(_table(found, truth))
    known = found.kept.get("intervals")
    told = (*known.sentences, *known.notes()) if known else ()
    hints = found.kept["diagnosis"].hints if "diagnosis" in found.kept else ()
    for sentence in (*told, *hints, *found.assumed(), *found.notes):
        console.print(escape(sentence), style="dim")
    console.print(escape(f"{found.seconds:.2g} s to fit, {found.compile_seconds:.2g} s to compile."), style="dim")
    console.print(escape(f"Wrote {', '.join(files)}"))


def _table(found: "Fit", truth: Mapping[str, float] | None) -> Any:
    from rich.markup import escape
    from rich.table import Table

    title = f"{found.model.name} by {found.method.title}"
    table = Table("quantity", title=title, title_justify="left", title_style="bold")
    table.add_column("estimate", justify="right")
    known = found.kept.get("intervals")
    if known:
        table.add_column(f"{100 * known.level:g} % interval", justify="right")
    if truth:
        table.add_column("truth", justify="right")
    table.add_column("kind", style="dim")
    for row in found.table():
        name = row["quantity"]
        between = [f"{row['lower']:.4g} to {row['upper']:.4g}" if row["lower"] == row["lower"] else ""] if known else []
        true = [f"{truth[name]:.4g}" if name in truth else ""] if truth else []
        table.add_row(escape(name), f"{row['estimate']:.4g}", *between, *true, row["kind"])
    return table
