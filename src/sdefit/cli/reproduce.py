"""`sdefit reproduce`: every table and figure of the paper, beside the truth, the paper and maximum likelihood."""

import contextlib
import datetime
import functools
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from sdefit.cli import _shared, interrupted_by, leave
from sdefit.cli._progress import progress
from sdefit.errors import InputError

if TYPE_CHECKING:
    from sdefit.bench.plan import Plan
    from sdefit.bench.run import Runner, Tls
    from sdefit.store import Results

SYSTEMS = "ou,dw,lv,l63"
FEW = 10  # realizations up to which compiling takes longer than running


def command(
    systems: Annotated[
        str | None, typer.Option(help=f"Set-ups, comma-separated: see 'sdefit models'. By default {SYSTEMS}.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="See 'sdefit methods'; NAME:paper is the paper's recipe. By default all, mars:paper and ares:paper."
        ),
    ] = None,
    realizations: Annotated[
        int | None, typer.Option(min=1, help="Data sets of each system, each fitted by each method. By default 100.")
    ] = None,
    paper_realizations: Annotated[
        int | None,
        typer.Option(min=1, help="Of them by mars:paper and ares:paper; by default all, on a CPU five minutes' worth."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the rows and the report.")] = Path("repro"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in a folder that was begun; more systems and methods may be named.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, max=_shared.LARGEST_SEED, help="Seed of data, starts and fits. By default 0.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of frozen data NAME.npz to fit instead of data from the seed.")
    ] = None,
    block: Annotated[
        int | None, typer.Option(min=1, help="Realizations run as one program; by default what suits each system.")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler that runs the cells.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Run the cells in as many processes here.")] = None,
    dashboard: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="With --workers: a port for Dask's dashboard, on this machine."),
    ] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="Dask by TLS: file of the certificate authority.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Dask by TLS: file of the certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Dask by TLS: file of the certificate's key.")] = None,
) -> None:
    """Run the paper's experiments and write a report: each method beside the truth, the paper and maximum likelihood.

    Every fit is a row in OUT/rows, written once; --resume continues a run that was stopped. Exit status: 0 all
    cells are done (fits that failed are rows); 2 bad input; 130 interrupted.
    """
    _check_cluster(cluster, workers, dashboard)
    tls = _tls(tls_ca, tls_cert, tls_key, bool(cluster or workers))
    from sdefit.store import Results

    results = Results(out)

    def ask() -> "Plan":
        _check_folder(results, resume)
        return _asked(results, systems, methods, realizations, paper_realizations, seed, data, block)

    ask()  # what is refused is refused before the folder is touched
    asked = _begin(results, ask)
    _shared.tell_odd_rows(results)
    _work(results, asked, lambda: _runner(asked, cluster, workers, tls, dashboard), several=bool(cluster or workers))
    _report(out)


def _report(out: Path) -> None:
    from sdefit.report.reproduction import write_run

    page = write_run(out)
    print(f"Wrote {page}, {page.with_name('summary.md')} and {out / 'rows'}")


def _check_cluster(cluster: str | None, workers: int | None, dashboard: int | None) -> None:
    if cluster and workers:
        raise InputError("--cluster and --workers must not both be given: the cluster has workers of its own")
    if dashboard is not None and not workers:
        raise InputError("--dashboard must come with --workers: a cluster has a dashboard of its own")


def _check_folder(results: "Results", resume: bool) -> None:
    """Refuse, before any work, a folder that is in use or holds something else."""
    folder = results.folder
    try:
        taken = results.others()
    except OSError as problem:
        raise InputError(f"--out must be a folder that can be written, but {folder}: {problem.strerror}") from None
    if results.begun and not resume:
        raise InputError(
            f"--out must be a new or empty folder, but {folder} holds a run; add --resume to go on with it"
        )
    if taken and not results.begun:
        raise InputError(f"--out must be a new or empty folder, but {folder} holds other files; name another")


def _asked(
    results: "Results",
    systems: str | None,
    methods: str | None,
    realizations: int | None,
    paper_realizations: int | None,
    seed: int | None,
    data: Path | None,
    block: int | None,
) -> "Plan":
    """The plan of the command line; what it leaves out is as the folder was begun, else the default."""
    from sdefit.bench import plan

    stored = results.plan() if results.begun else {}
    names = _names(systems) if systems else stored.get("systems", SYSTEMS.split(","))
    chosen = _names(methods) if methods else stored.get("methods", plan.default_methods())
    added = [name for name in names if name not in stored.get("systems", names)]
    if added and stored.get("data") and data is None:
        raise InputError(f"--data must be given with the new systems {', '.join(added)}, as for those that are begun")
    # What was begun stays in the plan: its rows are there.
    asked = plan.build(
        [*stored.get("systems", ()), *names],
        [*stored.get("methods", ()), *chosen],
        stored.get("realizations", 100) if realizations is None else realizations,
        seed=stored.get("seed", 0) if seed is None else seed,
        data="" if data is None else str(data),
        block=stored.get("block", 0) if block is None else block,
        sources=stored.get("sources", {}) if data is None else {},
        paper_realizations=paper_realizations,
        counts=stored.get("counts"),
    )
    if stored:
        try:
            plan.agree(stored, asked)
        except InputError as problem:
            raise InputError(f"--out: {problem} ({results.folder}); name another folder") from None
    return asked


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _begin(results: "Results", ask: "Callable[[], Plan]") -> "Plan":
    """Make the folder, or add to its plan as it is at this moment: another process may have added to it just now."""
    results.make()
    with results.changing_plan():
        asked = ask()
        facts = asked.facts()
        if not results.begun:
            begun = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            run = shlex.join(["sdefit", *sys.argv[1:]]) if Path(sys.argv[0]).name != "pytest" else "sdefit reproduce"
            results.begin(facts | {"begun": begun, "command": run})
        stored = results.plan()
        if facts["cells"] != stored["cells"]:
            results.replace_plan(stored | facts | {"data": stored["data"]})
    return asked


def _tls(ca: Path | None, cert: Path | None, key: Path | None, spread: bool) -> "Tls | None":
    """The three files of TLS, or None without them."""
    if ca is None and cert is None and key is None:
        return None
    if ca is None or cert is None or key is None:
        raise InputError("--tls-ca, --tls-cert and --tls-key must be given together")
    if not spread:
        raise InputError("--tls-ca, --tls-cert and --tls-key must come with --cluster or --workers")
    return ca, cert, key


def _work(
    results: "Results",
    asked: "Plan",
    runner_of: "Callable[[], contextlib.AbstractContextManager[Runner]]",
    *,
    several: bool,
) -> None:
    """Run what is missing, showing how far it is; an interrupt ends it with a word on how to go on."""
    try:
        with interrupted_by(lambda: _stop(results, asked)):
            from sdefit.bench.run import missing, run

            left = missing(results, asked.cells())
            with runner_of() as runner, progress(len(asked.cells()), len(left)) as tell:
                if left:
                    for cell, outcome in run(results, asked, runner, longest_first=several):
                        tell(cell.name, len(outcome.rows), outcome.failures)
    except KeyboardInterrupt:
        _stop(results, asked)


@contextlib.contextmanager
def _runner(
    asked: "Plan", cluster: str | None, workers: int | None, tls: "Tls | None", dashboard: int | None
) -> "Iterator[Runner]":
    from sdefit.bench import run

    quick = asked.realizations <= FEW
    if not cluster and not workers:
        yield functools.partial(run.here, quick=quick)
        return
    client = run.connect(cluster, workers, tls, dashboard)
    try:
        yield functools.partial(run.on_cluster, client, quick=quick)
    finally:
        owned = client.cluster
        client.close()
        if owned is not None and not cluster:
            owned.close()


def _stop(results: "Results", asked: "Plan") -> NoReturn:
    """End at once, as nothing that is stored can be hurt, and say how to go on."""
    words = "stopped; --resume goes on from there"
    with contextlib.suppress(Exception):  # whatever was interrupted: a module that is half imported, too
        from sdefit.bench.run import missing

        cells = asked.cells()
        done = len(cells) - len(missing(results, cells))
        words = f"stopped with {done} of {len(cells)} cells stored; --resume goes on from there"
    leave(words)
