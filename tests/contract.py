"""What every registered method must do, whatever it estimates. `test_contract.py` runs it on each of them.

A new method is under contract as soon as it is in the registry. Where its defaults are slow, or its
random numbers depend on the length of a series, it says so in `CASES`.
"""

import contextlib
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from sdefit import methods
from sdefit.data import Series
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import positive, real
from sdefit.dynamics.sde import SDE
from sdefit.fitting import Fit
from sdefit.methods.interface import Method
from sdefit.ssm.kalman import Observations

KEY = jax.random.key(7)
TIMES = 20


@dataclasses.dataclass(frozen=True)
class Case:
    """Settings for short tests, how near a batched fit must come to the same fit alone, and what is refused."""

    settings: dict = dataclasses.field(default_factory=dict)
    alone: float = 1e-6  # relative, for series of the batch's full length
    padded: float = 1e-6  # relative, for a shorter series: larger where draws depend on the length
    refuses: dict = dataclasses.field(default_factory=dict)  # structures of G with the reason, the start of a message


CASES: dict[str, Case] = {
    "auto": Case({"starts": 2}),
    "mars": Case({"samples": 16, "starts": 2, "refinements": 1}),
    "ares": Case({"samples": 32, "batch": 16, "starts": 2}),
    "npsde": Case({"inducing": 8, "lengths": (2.0,), "paths": 8, "rounds": 3}),
    "moments": Case({"starts": 4, "iterations": 40}),
    "vgpa": Case({"substeps": 2, "starts": 2}, refuses={"none": "VGPA needs a model with diffusion"}),
}


def case(name: str) -> Case:
    return CASES.get(name, Case())


def quick(name: str) -> Method:
    return methods.get(name)(**case(name).settings)


@functools.cache
def relaxing() -> SDE:
    """One state that returns to a level; the same object each time, as a user would have it."""
    return equations("dx = rate*(level - x)", params={"rate": positive(), "level": real()})


def ou_series(seed: int, rows: int = TIMES, *, irregular: bool = False, missing: float = 0.0) -> Series:
    """Exact draws of dx = 0.8 (1 − x) dt + 0.3 dw, seen with noise 0.05."""
    rng = np.random.default_rng(seed)
    gaps = rng.uniform(0.1, 0.6, rows - 1) if irregular else np.full(rows - 1, 0.35)
    x = [4.0]
    for gap in gaps:
        decay = np.exp(-0.8 * gap)
        x.append(1 + (x[-1] - 1) * decay + 0.3 * np.sqrt((1 - decay**2) / 1.6) * rng.standard_normal())
    values = np.array(x) + 0.05 * rng.standard_normal(rows)
    values[rng.permutation(rows)[: int(missing * rows)]] = np.nan
    return Series(np.concatenate([[0.0], np.cumsum(gaps)]), values)


def two_state_series(seed: int) -> Series:
    """Two states of which each has gaps of its own."""
    one, two = ou_series(seed), ou_series(seed + 1000)
    values = np.column_stack([one.values[:, 0], two.values[:, 0]])
    values[3, 0], values[7, 1], values[8, 1] = np.nan, np.nan, np.nan
    return Series(one.times, values, states=["x", "y"])


def is_finite(found: Fit) -> bool:
    parts = [*found.params.values(), *found.G.ravel(), *found.noise]
    return bool(np.isfinite(parts).all() and all(np.isfinite(m).all() for m in (*found.mean, *found.std)))


def equal_bits(one: Fit, other: Fit) -> bool:
    parts = [(one.G, other.G), (one.noise, other.noise), *zip(one.mean + one.std, other.mean + other.std, strict=True)]
    return one.params == other.params and all(np.array_equal(a, b, equal_nan=True) for a, b in parts)


def assert_near(one: Fit, other: Fit, relative: float) -> None:
    """Equal within a share of each quantity's own size, noise and G within one of the data's spread."""
    spread = float(np.nanstd(one.series[0].values))
    for name, value in one.params.items():
        np.testing.assert_allclose(value, other.params[name], rtol=relative, atol=relative, err_msg=name)
    np.testing.assert_allclose(one.G, other.G, rtol=relative, atol=relative * spread)
    np.testing.assert_allclose(one.noise, other.noise, rtol=relative, atol=relative * spread)
    np.testing.assert_allclose(one.mean[0], other.mean[0], rtol=relative, atol=relative * spread)


@contextlib.contextmanager
def compilations():
    """Counts every program XLA compiles inside the block, ours or not."""
    seen: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "backend_compile" in event:
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def scattered(seed, size=40, states=1, missing=0.0, regular=False):
    """Mean-reverting noise at irregular times with values missing, the first row complete."""
    rng = np.random.default_rng(seed)
    times = np.arange(size) * 0.4 if regular else np.cumsum(rng.uniform(0.05, 0.8, size))
    values = 1.0 + 0.6 * rng.normal(size=(size, states))
    observed = rng.uniform(size=(size, states)) >= missing
    observed[0] = True
    return Observations(jnp.array(times), jnp.array(np.where(observed, values, 0.0)), jnp.array(observed))
