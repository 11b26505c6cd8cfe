"""How long a fit takes: warm, in a batch, and cold from the command line; and how the evidence grows with N.

    python benchmarks/speed.py                  # everything, on one core; some minutes
    python benchmarks/speed.py --smoke          # OU alone, tiny

Seconds of CPU and of the wall clock are both printed. Ratios are to the CPU seconds of one fit by the published code
(TensorFlow 1), measured on the same kind of machine: 19 s for OU, the double well and Lotka-Volterra, about 1100 s
for Lorenz 63. They use our CPU seconds, which a busy machine changes little.
"""

import argparse
import functools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

PUBLISHED = {"ou": 19.0, "dw": 19.0, "lv": 19.0, "l63": 1100.0}  # CPU seconds of one fit
EVIDENCE_SIZES = (1_000, 10_000)
EVALUATIONS = 20  # of the evidence in one timed call


class Cost(NamedTuple):
    """Seconds of one call."""

    cpu: float
    wall: float


def main(arguments: list[str] | None = None) -> None:
    asked = parse(arguments)
    print(f"| {asked.method} | CPU s | wall s | published / ours | target |\n|---|---|---|---|---|")
    for system in asked.systems:
        for what, cost, ratio, target in measure(system, asked.method, asked.batch, asked.repeats):
            times = "" if ratio is None else f"{ratio:.0f}"
            print(f"| {system}: {what} | {cost.cpu:.3g} | {cost.wall:.3g} | {times} | {target} |", flush=True)
    print(f"\n{evidence_growth(asked.sizes, asked.repeats)}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="mars")
    parser.add_argument("--systems", default=tuple(PUBLISHED), type=lambda text: tuple(text.split(",")))
    parser.add_argument("--batch", default=100, type=int)
    parser.add_argument("--repeats", default=5, type=int, help="the best of so many counts")
    parser.add_argument("--smoke", action="store_true")
    asked = parser.parse_args(arguments)
    asked.sizes = EVIDENCE_SIZES
    if asked.smoke:
        asked.systems, asked.batch, asked.repeats, asked.sizes = ("ou",), 2, 1, (100, 1_000)
    return asked


def measure(system: str, method: str, batch: int, repeats: int):
    """Each way to fit one system: what it is, its cost, the ratio to the published code, the target."""
    single, each = warm(system, method, batch, repeats)
    yield "warm single fit", single, PUBLISHED[system] / single.cpu, "150 times"
    share = Cost(each.cpu / batch, each.wall / batch)
    yield f"one of a batch of {batch}", share, PUBLISHED[system] / share.cpu, "500 times"
    with tempfile.TemporaryDirectory() as folder:
        yield "`sdefit fit`, empty cache", cold(system, method, Path(folder), "first"), None, "12 s"
        yield "`sdefit fit`, warm cache", cold(system, method, Path(folder), "second"), None, "4 s"


def warm(system: str, method: str, batch: int, repeats: int) -> tuple[Cost, Cost]:
    """Seconds of one fit and of a batch, packaging included, after a first call has compiled the program."""
    import jax

    import sdefit as sf
    from sdefit import methods

    setup, settings, key = sf.systems.get(system), methods.get(method)(), jax.random.key(0)
    series = setup.simulate(key=key, paths=batch)
    single = best(lambda: sf.fit(setup.model, series[0], settings, key=key), repeats)
    return single, best(lambda: sf.fit_each(setup.model, series, settings, key=key), repeats)


def cold(system: str, method: str, folder: Path, name: str) -> Cost:
    """Seconds of `sdefit fit` in a new process, the start of Python and the report included."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
    }
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    command = [sys.executable, "-m", "sdefit.cli"]
    run = functools.partial(subprocess.run, check=True, env=environment, stdout=subprocess.DEVNULL)
    data = folder / "obs.csv"
    if not data.exists():
        run([*command, "simulate", system, "--out", str(data), "--seed", "0"])
        clear(folder / "cache")
    fit = [*command, "fit", str(data), "--model", system, "--method", method, "--out", str(folder / name)]
    return seconds(lambda: run(fit), children=True)


def clear(folder: Path) -> None:
    """Forget what the simulation compiled."""
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()


def evidence_growth(sizes: tuple[int, int], repeats: int) -> str:
    """How much dearer the evidence and its gradient become with more points (K = 1), in one sentence."""
    small, large = (best(evidence(points), repeats).cpu / EVALUATIONS for points in sizes)
    return (
        f"Evidence and gradient, K = 1: {small * 1e3:.3g} ms of CPU at N = {sizes[0]:,}, {large * 1e3:.3g} ms at "
        f"N = {sizes[1]:,}: {large / small:.1f} times as much (target: at most 12 for 10 times the points)."
    )


def evidence(points: int) -> Callable[[], Any]:
    """Some evaluations of the evidence's value and gradient in the default kernel, as one program, like a search."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from sdefit import gp
    from sdefit.ssm.kalman import Observations

    times = np.linspace(0.0, points / 10, points)
    values = np.sin(times)[:, None] + 0.1 * np.random.default_rng(0).normal(size=(points, 1))
    solver = gp.solver_for("matern52")

    def loss(length, data):
        one = jnp.ones(1)
        return solver.log_evidence(
            gp.LatentParams(one, length, one, 0.1 * one, 0.2 * jnp.ones((1, 1)), jnp.ones(())), data
        )

    @jax.jit
    def program(length, data):
        # Each evaluation depends on the one before, so that none is left out.
        slope = jax.grad(loss)
        return jax.lax.fori_loop(0, EVALUATIONS, lambda _, length: length + 1e-9 * slope(length, data), length)

    with jax.enable_x64(True):
        data = Observations(*map(jnp.asarray, (times, values, np.isfinite(values))))
        length = jnp.ones(1)

    def call():
        with jax.enable_x64(True):
            jax.block_until_ready(program(length, data))

    return call


def best(call: Callable[[], Any], repeats: int) -> Cost:
    """The cheapest of several calls, after one that compiles."""
    call()
    return min(seconds(call) for _ in range(repeats))


def seconds(call: Callable[[], Any], children: bool = False) -> Cost:
    """CPU seconds of all threads of this process, or of the processes it started, and of the wall clock."""
    clock = children_seconds if children else time.process_time
    cpu, wall = clock(), time.perf_counter()
    call()
    return Cost(clock() - cpu, time.perf_counter() - wall)


def children_seconds() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core, for us and the processes we start
    main()
