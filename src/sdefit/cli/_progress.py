"""How far a run of many cells is: a bar on a terminal, a line for each cell elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Tell = Callable[[str, int, int], None]  # a cell's name, how many fits it had, how many of them failed


@contextlib.contextmanager
def progress(cells: int, left: int) -> Iterator[Tell]:
    """A function to be told of each cell that is done, of `cells` of which `left` are still to do."""
    with _bar(cells, left) if sys.stderr.isatty() else contextlib.nullcontext(_lines(cells, left)) as tell:
        yield tell


def _lines(cells: int, left: int) -> Tell:
    begin, done, failed = time.monotonic(), 0, 0

    def tell(name: str, fits: int, failures: int) -> None:
        nonlocal done, failed
        done, failed = done + 1, failed + failures
        remaining = (time.monotonic() - begin) / done * (left - done)
        words = f"{fits} fits, {failures} failed; so far {failed} failed, about {remaining / 60:.1f} min left"
        print(f"[{cells - left + done}/{cells}] {name}: {words}", file=sys.stderr, flush=True)

    return tell


@contextlib.contextmanager
def _bar(cells: int, left: int) -> Iterator[Tell]:
    from rich import progress as rich
    from rich.console import Console

    parts = [rich.TextColumn("cells"), rich.BarColumn(), rich.MofNCompleteColumn()]
    parts += [rich.TextColumn("· {task.fields[rate]} · {task.fields[failed]} failed ·"), rich.TimeElapsedColumn()]
    parts += [rich.TextColumn("· left"), rich.TimeRemainingColumn()]
    begin, fits, failed = time.monotonic(), 0, 0
    with rich.Progress(*parts, console=Console(stderr=True), speed_estimate_period=3600) as bar:
        task = bar.add_task("cells", total=cells, completed=cells - left, rate="starting", failed=0)

        def tell(name: str, count: int, failures: int) -> None:
            nonlocal fits, failed
            fits, failed = fits + count, failed + failures
            rate = f"{60 * fits / (time.monotonic() - begin):.3g} fits/min"
            bar.update(task, advance=1, rate=rate, failed=failed)

        yield tell
