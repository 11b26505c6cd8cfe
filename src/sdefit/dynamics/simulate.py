"""`simulate`: paths of a model and noisy observations of them, many paths in one compiled program."""

import functools
from collections.abc import Mapping
from typing import Any, overload

import jax
import numpy as np
from numpy.typing import ArrayLike

from sdefit._jax import settings
from sdefit.data import Series
from sdefit.data.inputs import TimeWithInputs
from sdefit.dynamics.arguments import (
    as_key,
    read_diffusion,
    read_inputs,
    read_noise,
    read_params,
    read_paths,
    read_start,
    read_times,
    step_counts,
)
from sdefit.dynamics.schemes import SCHEMES, draws, march
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError, SimulationError

DEFAULT_STEPS = 20_000


@overload
def simulate(
    model: SDE, params: Mapping[str, float], x0: ArrayLike, times: ArrayLike, *, noise: ArrayLike = ...,
    G: ArrayLike | None = ..., key: int | jax.Array = ..., step: float | None = ..., paths: None = ...,
    scheme: str = ..., inputs: Mapping[str, ArrayLike] | None = ...,
) -> Series: ...  # fmt: skip


@overload
def simulate(
    model: SDE, params: Mapping[str, float], x0: ArrayLike, times: ArrayLike, *, noise: ArrayLike = ...,
    G: ArrayLike | None = ..., key: int | jax.Array = ..., step: float | None = ..., paths: int,
    scheme: str = ..., inputs: Mapping[str, ArrayLike] | None = ...,
) -> list[Series]: ...  # fmt: skip


def simulate(
    model: SDE,
    params: Mapping[str, float],
    x0: ArrayLike,
    times: ArrayLike,
    *,
    noise: ArrayLike = 0.0,
    G: ArrayLike | None = None,
    key: int | jax.Array = 0,
    step: float | None = None,
    paths: int | None = None,
    scheme: str = "euler",
    inputs: Mapping[str, ArrayLike] | None = None,
) -> Series | list[Series]:
    """A `Series` of noisy observations that keeps its true path, or a list of `paths` independent ones.

    **Arguments**
    - `model`: the `SDE`, read in the sense of Itô.
    - `params`: a value for every free parameter, by name.
    - `x0`: the state at `times[0]`.
    - `times`: increasing numbers, evenly spaced or not.
    - `noise`: the standard deviation of the observation noise, one for all states or one for each.
    - `G`: the diffusion: a lower-triangular matrix; one number suffices for a scalar model or a single
      state, one number per state for a diagonal model. An ODE (diffusion="none") takes none.
    - `key`: an int or a JAX random key; the same key gives the same bits.
    - `step`: the longest step; each gap between times is crossed in equal steps no longer than this.
      Without it the whole span takes about 20,000 steps.
    - `paths`: how many independent paths to make, all in one compiled program.
    - `scheme`: "euler" (Euler-Maruyama, strong order 1 here as G is constant) or "shark" (strong order 1.5).
    - `inputs`: the model's known inputs by name, one number per time; in between they are as the model holds them.

    **Raises** `SimulationError` naming path and time if a path leaves the finite numbers.

    >>> sf.simulate(model, {"rate": 1, "level": 2}, x0=0, times=[0, 0.5, 2], noise=0.1, G=0.3, key=1)
    Series(x; 3 times from 0 to 2; no value missing; true path known)
    """
    key = as_key(key)
    if scheme not in SCHEMES:
        raise ModelError(f"scheme must be one of {', '.join(SCHEMES)}, not {scheme!r}")
    t = read_times(times)
    maximum = float(t[-1] - t[0]) / DEFAULT_STEPS if step is None else step
    counts = step_counts(t, maximum)
    arrays = (read_params(model, params), read_start(model, x0), t, counts, read_diffusion(model, G))
    known = read_inputs(model, inputs, t)
    with settings():
        table = (t, known) if known else None
        outcome = _program(model, scheme, read_paths(paths), *arrays, read_noise(model, noise), key, table)
        # Waited for first: JAX ends the process where a result that there was no memory for is read at once.
        values, xs, ends = (np.asarray(one) for one in jax.block_until_ready(outcome))
    _refuse_blow_up(ends, maximum, single=paths is None)
    series = [Series(t, y, states=model.states, path=x, inputs=known) for y, x in zip(values, xs, strict=True)]
    return series[0] if paths is None else series


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _program(model: SDE, scheme: str, n: int, theta, x0, times, counts, G, noise, key, table) -> Any:
    """Observations, true paths and times of blow-up of n paths; the model, the scheme and shapes are compiled in."""
    keys = jax.random.split(key, n + 1)

    def drift(t, x):
        return model.f(t if table is None else TimeWithInputs(t, t, table), x, theta)

    def one(key):
        draw = draws(key, len(model.states))
        return march(SCHEMES[scheme], drift, G, x0, times, counts, draw)

    xs, ends = jax.vmap(one)(keys[1:])
    return xs + noise[None, None, :] * jax.random.normal(keys[0], xs.shape), xs, ends


def _refuse_blow_up(ends: np.ndarray, step: float, single: bool) -> None:
    missing = np.flatnonzero(np.isfinite(ends))
    if missing.size:
        first = missing[np.argmin(ends[missing])]
        who = "the path" if single else f"path {first} of {ends.size} (counted from 0)"
        more = f", and {missing.size - 1} more did later" if missing.size > 1 else ""
        raise SimulationError(
            f"{who} left the finite numbers at time {ends[first]:g}{more}; "
            f"give a step below {step:g}, another x0 or other parameters, or end earlier"
        )
