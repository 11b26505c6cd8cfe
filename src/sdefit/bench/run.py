"""Run what is missing in a results folder, here or on a cluster; what is stored is never run again."""

import collections
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sdefit.bench import cells, problems
from sdefit.bench.cells import Outcome, Task
from sdefit.bench.plan import Cell, Plan, is_recipe
from sdefit.errors import InputError, SdefitError
from sdefit.programs import compilation
from sdefit.store import Record, Results

POLL = 0.2  # seconds between looks at cells that another process has
TRIES = 5  # of a cell on a cluster that loses its workers
# A runner takes tasks as it has room for them and gives back each with its outcome. None among the tasks means that
# there is nothing to do at this moment.
Runner = Callable[[Iterable[Task | None]], Iterator[tuple[Cell, Outcome]]]
Tls = tuple[Path, Path, Path]  # files of the certificate authority, the certificate and its key


def run(results: Results, plan: Plan, runner: Runner, *, longest_first: bool = False) -> Iterator[tuple[Cell, Outcome]]:
    """Run every cell that is not stored, store it, and give it with its rows.

    Several processes may work on one folder: each cell is run by one of them. All of them end when all cells are
    stored. `longest_first` is for several workers: a long cell that begins last keeps one busy while the others wait.
    """
    made = functools.cache(lambda system: problem_record(results, plan, system))
    cells = plan.cells()
    if longest_first:
        cells.sort(key=lambda cell: -problems.get(cell.system).size)
    for cell, outcome in runner(_tasks(results, plan, cells, made)):
        if outcome.record is not None:
            results.write("fits", cell.kind, outcome.record)
        results.add(cell.name, outcome.rows)
        results.release(cell.name)
        yield cell, outcome


def problem_record(results: Results, plan: Plan, system: str) -> Record:
    """The data of a system as stored; made and stored the first time."""
    found = results.read("problems", system)
    if found is None:
        if not plan.data and not plan.sources[system].startswith("seed "):
            # The plan's own word for the folder is not followed: a file does not say which files we read.
            raise InputError(
                f"--data must be given again: the data of {system} ({plan.sources[system]}) are not in {results.folder}"
            )
        found = problems.record(problems.get(system), plan.realizations, plan.seed, plan.data)
        results.write("problems", system, found)
    return found


def _tasks(results: Results, plan: Plan, left: list[Cell], made: Callable[[str], Record]) -> Iterator[Task | None]:
    """Cells that this process could claim, with their data; None while all that is left is in other hands."""
    while left:
        waiting = []
        for cell in left:
            if results.done(cell.name):
                continue
            if not results.claim(cell.name):
                waiting.append(cell)
            elif results.done(cell.name):  # stored between the two looks
                results.release(cell.name)
            else:
                stored = made(cell.system)
                series = problems.series_of(stored, cell.first, cell.count)
                yield Task(cell, plan.seed, plan.sources[cell.system], series)
        left = [cell for cell in waiting if not results.done(cell.name)]
        if left:
            yield None


def here(tasks: Iterable[Task | None], *, quick: bool = False) -> Iterator[tuple[Cell, Outcome]]:
    """Run tasks in this process, one after the other; `quick` compiles them with little optimisation."""
    for task in tasks:
        if task is None:
            time.sleep(POLL)
        else:
            yield task.cell, _run(task, quick)


def on_cluster(client: Any, tasks: Iterable[Task | None], *, quick: bool = False) -> Iterator[tuple[Cell, Outcome]]:
    """Run tasks on a Dask cluster. A task whose worker is lost runs again on another."""
    try:
        yield from _spread(client, tasks, quick)
    except SdefitError:
        raise
    except Exception as trouble:
        if isinstance(trouble, OSError) or getattr(client, "status", "") in ("closing", "closed"):
            raise InputError(
                "--cluster: the Dask scheduler is gone, and what is stored stays; start one again and add --resume"
            ) from None
        raise


def _spread(client: Any, tasks: Iterable[Task | None], quick: bool) -> Iterator[tuple[Cell, Outcome]]:
    source, running, tries = iter(tasks), {}, collections.Counter()
    more = True
    while more or running:
        room = 2 * max(1, len(client.ncores())) - len(running)
        while more and room > 0:
            task = next(source, _END)
            more = task is not _END
            if task is _END or task is None:
                break
            running[_submit(client, task, quick)] = task
            room -= 1
        for future in _done(list(running)):
            task = running.pop(future)
            if future.status == "finished":
                yield task.cell, future.result()
                continue
            # What a fit raises is an outcome: here a worker was lost, or the cluster cannot run our code at all.
            tries[task.cell] += 1
            if tries[task.cell] >= TRIES:
                reason = " ".join(str(future.exception()).split())
                raise InputError(f"--cluster: cell {task.cell.name} was lost {TRIES} times; the last reason: {reason}")
            running[_submit(client, task, quick)] = task


_END: Any = object()


def _run(task: Task, quick: bool) -> Outcome:
    with compilation(quick=quick and not is_recipe(task.cell.method)):  # which runs for longer than it compiles
        return cells.run(task)


def _submit(client: Any, task: Task, quick: bool) -> Any:
    return client.submit(_run, task, quick, pure=False)


def _done(futures: list[Any]) -> list[Any]:
    """Those that are done, after a wait for the first of them."""
    finished = [future for future in futures if future.done()]
    if not finished:
        time.sleep(POLL)
    return finished


def connect(address: str | None, workers: int | None, tls: Tls | None = None, dashboard: int | None = None) -> Any:
    """A `distributed.Client` of the cluster at an address, or of a new one with that many processes on this machine.

    - `tls`: the files with which all ends prove who they are; a new cluster has a certificate made for it without them.
    - `dashboard`: the port on which this machine alone sees Dask's dashboard of a new cluster; none without it.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise InputError(
            "--cluster and --workers need the package distributed; install it with: pip install 'sdefit[cluster]'"
        ) from None
    security = _security(tls) if tls else None if address else _certificate_of_its_own()
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # `on_cluster` says it in one line
    try:
        if address is None:
            return Client(
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address=f"127.0.0.1:{dashboard or 0}",
                    scheduler_kwargs={"dashboard": dashboard is not None},
                    security=security,
                )
            )
        return Client(address, timeout=10, security=security)
    except (OSError, ValueError, RuntimeError) as trouble:
        reason = " ".join(str(trouble).split())
        what = f"--cluster must be the address of a Dask scheduler, not {address!r}"
        raise InputError(f"{what if address else f'--workers {workers} could not be started'}: {reason}") from None


def _certificate_of_its_own() -> Any:
    """A key that this process makes and its workers inherit: nobody else on this machine has it."""
    from distributed.security import Security

    try:
        return Security.temporary()
    except ImportError:
        raise InputError(
            "--workers needs the package cryptography, or files of --tls-ca, --tls-cert and --tls-key; install it with:"
            " pip install 'sdefit[cluster]'"
        ) from None


def _security(tls: Tls) -> Any:
    """What `distributed` is to encrypt and check with, from files."""
    from distributed.security import Security

    for option, file in zip(("--tls-ca", "--tls-cert", "--tls-key"), tls, strict=True):
        if not file.is_file():
            raise InputError(f"{option} must be a file in PEM format, but there is no file {file}")
    ca, cert, key = map(str, tls)
    ends = ("client", "scheduler", "worker")
    files = {f"tls_{end}_cert": cert for end in ends} | {f"tls_{end}_key": key for end in ends}
    return Security(tls_ca_file=ca, require_encryption=True, **files)


def missing(results: Results, wanted: Sequence[Cell]) -> list[Cell]:
    """The cells that are not stored."""
    return [cell for cell in wanted if not results.done(cell.name)]
