"""Ten thousand made-up inputs through `sf.fit`: each must end in finite numbers or in one of our own errors.

    python experiments/fuzz.py --workers 2            # 10,000 inputs
    python experiments/fuzz.py --inputs 200           # small
    python experiments/fuzz.py --seed 1               # other ones

Inputs have few or many times, one to three states, scales from 1e-12 to 1e12, offsets, dates, gaps, ties, constants,
infinities, missing values, unsorted rows and wrong types. Settings are tiny, since this tries what goes wrong, not how
well it fits. Lengths are few, and inputs of one model and method are taken together, so that most share a compiled
program. A warning counts as trouble too.
"""

import argparse
import collections
import concurrent.futures
import multiprocessing
import warnings

import jax
import numpy as np

import sdefit as sf

LENGTHS = (0, 1, 2, 3, 4, 7, 20, 20, 20, 300)
QUICK = (
    sf.Moments(),
    sf.ESGF(starts=1, iterations=8),
    sf.MaRS(samples=4, starts=1, refinements=1, iterations=8),
    sf.Auto(starts=1),
)
MODELS = {
    1: sf.equations("dx = rate*(level - x)", params={"rate": sf.positive(), "level": sf.real()}),
    2: sf.equations("dx = a*x - b*x*y\ndy = b*x*y - c*y", diffusion="diagonal"),
    3: sf.equations("dx = -a*x + b\ndy = x - y\ndz = tanh(x) - c*z", diffusion="scalar"),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", default=10_000, type=int)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--workers", default=1, type=int, help="processes")
    asked = parser.parse_args(arguments)
    groups = [(asked.seed, numbers) for numbers in alike(asked.seed, asked.inputs)]
    ends: collections.Counter[str] = collections.Counter()
    bad = done = 0
    for found in mapped(group_ends, groups, asked.workers):
        for number, end in found:
            ends[end.partition(":")[0]] += 1
            if end.startswith("!"):
                bad += 1
                print(f"input {number}: {end}", flush=True)
        done += len(found)
        print(f"{done} inputs, {bad} bad: {dict(ends)}", flush=True)
    if bad:
        raise SystemExit(1)


def mapped(function, items: list, workers: int):
    """`function` of each item, in this process or in others."""
    if workers == 1:
        yield from map(function, items)
        return
    with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for future in concurrent.futures.as_completed([pool.submit(function, item) for item in items]):
            yield future.result()


def alike(seed: int, inputs: int) -> list[list[int]]:
    """The numbers of all inputs in groups of one model and method."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number in range(inputs):
        groups.setdefault(drawn(np.random.default_rng([seed, number])), []).append(number)
    return sorted(groups.values(), key=len, reverse=True)


def group_ends(group: tuple[int, list[int]]) -> list[tuple[int, str]]:
    """How each input of a group ended."""
    warnings.simplefilter("error")
    seed, numbers = group
    return [(number, outcome(np.random.default_rng([seed, number]))) for number in numbers]


def drawn(rng: np.random.Generator) -> tuple[int, int]:
    """How many states, and which method."""
    return int(rng.integers(1, 4)), int(rng.choice(len(QUICK), p=(0.55, 0.2, 0.15, 0.1)))


def outcome(rng: np.random.Generator) -> str:
    """How one input ended: a status, one of our errors, or "!" and what went wrong."""
    states, which = drawn(rng)
    method = QUICK[which]
    try:
        times, values = made(rng, states)
        series = sf.Series(times, values, list(MODELS[states].states), **clock(rng, times))
        fit = sf.fit(MODELS[states], series, method, key=jax.random.key(int(rng.integers(2**31))))
    except sf.SdefitError as refused:
        text = str(refused)
        return type(refused).__name__ if text and "\n" not in text.strip() else f"! {type(refused).__name__}: {text!r}"
    except Exception as trouble:
        return f"! {type(trouble).__name__} ({method.name}, {states}): {str(trouble)[:200]!r}"
    numbers = [*fit.params.values(), *fit.G.ravel(), *fit.noise, *fit.mean[0].ravel(), *fit.std[0].ravel()]
    if fit.status.ok and not np.isfinite(numbers).all():
        return f"! ok but not finite ({method.name}, {states})"
    return fit.status.name if fit.status.ok or fit.status.remedy else f"! {fit.status.name} without a remedy"


def made(rng: np.random.Generator, states: int):
    """Times and values, more often strange than not."""
    rows = int(rng.choice(LENGTHS))
    times = np.cumsum(rng.exponential(size=rows)) if rng.random() < 0.5 else np.arange(rows, dtype=float)
    times = times * 10.0 ** rng.uniform(-12, 12) + (10.0 ** rng.uniform(-3, 6) if rng.random() < 0.3 else 0.0)
    values = rng.standard_normal((rows, states)).cumsum(axis=0)
    if rng.random() < 0.5:
        values = values * 10.0 ** rng.uniform(-12, 12, states)
    if rng.random() < 0.3:
        values = values + 10.0 ** rng.uniform(-6, 12)
    if rng.random() < 0.3:
        values[rng.random(values.shape) < rng.uniform(0, 1)] = np.nan
    if rng.random() < 0.05 and rows:
        values[:, int(rng.integers(states))] = rng.choice([0.0, 1.0, np.nan])
    if rng.random() < 0.05 and values.size:
        values.flat[int(rng.integers(values.size))] = rng.choice([np.inf, -np.inf, 1e300, -1e-300])
    if rng.random() < 0.1:
        order = rng.permutation(rows)
        times, values = times[order], values[order]
    if rng.random() < 0.05 and rows > 1:
        times[1] = times[0]
    return strange(rng, times, values)


def strange(rng: np.random.Generator, times: np.ndarray, values: np.ndarray):
    """The same as another type, or one that cannot be meant."""
    odd = rng.random()
    if odd < 0.03:
        return times.tolist(), values.tolist()
    if odd < 0.05:
        with np.errstate(over="ignore"):
            return times, values.astype(np.float32)
    if odd < 0.06:
        return times, values.astype(str)
    if odd < 0.07:
        return None, values
    if odd < 0.08:
        return times, values.T
    if odd < 0.09:
        return times[:-1], values
    if odd < 0.10:
        return times + 1j, values
    if odd < 0.11:
        return times, values > 0
    if odd < 0.14:
        return np.datetime64("1990-01-01") + np.arange(len(times)).astype("timedelta64[D]"), values
    return times, values


def clock(rng: np.random.Generator, times) -> dict:
    dates = getattr(times, "dtype", None) is not None and times.dtype.kind == "M"
    return {"time_unit": str(rng.choice(["day", "year", "fortnight"]))} if dates and rng.random() < 0.8 else {}


if __name__ == "__main__":
    main()
