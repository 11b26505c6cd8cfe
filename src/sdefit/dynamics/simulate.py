"""`simulate`: paths of a model and noisy observations of them, many paths in one compiled program."""

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias, overload

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from sdefit._jax import settings
from sdefit.data import Series
from sdefit.data.inputs import Table, at_time
from sdefit.dynamics.arguments import (
    as_key,
    read_diffusion,
    read_inputs,
    read_noise,
    read_params,
    read_paths,
    read_times,
    step_counts,
)
from sdefit.dynamics.choose_scheme import choose_scheme
from sdefit.dynamics.initial import Start, read_start
from sdefit.dynamics.schemes import SCHEMES, diffusion_at, draws, march
from sdefit.dynamics.sde import SDE
from sdefit.errors import SimulationError

DEFAULT_STEPS = 20_000
PerName: TypeAlias = ArrayLike | Mapping[str, float]


@overload
def simulate(
    model: SDE, params: Mapping[str, float], x0: PerName | None = ..., times: ArrayLike = ..., *,
    noise: PerName = ..., G: ArrayLike | None = ..., key: int | jax.Array = ..., step: float | None = ...,
    paths: None = ..., scheme: str | None = ..., inputs: Mapping[str, ArrayLike] | None = ...,
) -> Series: ...  # fmt: skip


@overload
def simulate(
    model: SDE, params: Mapping[str, float], x0: PerName | None = ..., times: ArrayLike = ..., *,
    noise: PerName = ..., G: ArrayLike | None = ..., key: int | jax.Array = ..., step: float | None = ...,
    paths: int, scheme: str | None = ..., inputs: Mapping[str, ArrayLike] | None = ...,
) -> list[Series]: ...  # fmt: skip


def simulate(
    model: SDE,
    params: Mapping[str, float],
    x0: PerName | None = None,
    times: ArrayLike = (),
    *,
    noise: PerName = 0.0,
    G: ArrayLike | None = None,
    key: int | jax.Array = 0,
    step: float | None = None,
    paths: int | None = None,
    scheme: str | None = None,
    inputs: Mapping[str, ArrayLike] | None = None,
) -> Series | list[Series]:
    """A `Series` of noisy observations that keeps its true path, or a list of `paths` independent ones.

    **Arguments**
    - `model`: the `SDE`, read in the sense of Itô.
    - `params`: a value for every free parameter, by name.
    - `x0`: the state at `times[0]`, one number per state or a mapping of names. It may leave out what the model's
      `initial` gives; a mean with a standard deviation there is drawn anew for each path.
    - `times`: increasing numbers, evenly spaced or not.
    - `noise`: the standard deviation of the observation noise, on the scale of each column's law: one for all columns,
      one for each, or a mapping of names. It goes with the columns whose standard deviation the model leaves open.
    - `G`: the diffusion: a lower-triangular matrix; one number suffices for a scalar model or a single
      state, one number per state for a diagonal model. An ODE (diffusion="none") takes none, nor does a model that
      gives its diffusion.
    - `key`: an int or a JAX random key; the same key gives the same bits.
    - `step`: the longest step; each gap between times is crossed in equal steps no longer than this.
      Without it the whole span takes about 20,000 steps.
    - `paths`: how many independent paths to make, all in one compiled program.
    - `scheme`: "euler" (Euler-Maruyama: strong order 1 where the diffusion does not depend on the states, else 1/2),
      "milstein" (strong order 1, for noises that commute) or "shark" (strong order 1.5, for a diffusion that does not
      depend on the states). By default "milstein" where the diffusion depends on the states and its noises commute, as
      those do that act on one state each and depend on that state alone; else "euler".
    - `inputs`: the model's known inputs by name, one number per time; in between they are as the model holds them.

    The series has the observed columns as its values; its `path` has all states, `path_states` by name.

    **Raises** `SimulationError` naming path and time if a path leaves the finite numbers, or a column its law.

    >>> sf.simulate(model, {"rate": 1, "level": 2}, x0=0, times=[0, 0.5, 2], noise=0.1, G=0.3, key=1)
    Series(x; 3 times from 0 to 2; no value missing; true path known)
    """
    key = as_key(key)
    t, theta, matrix = read_times(times), read_params(model, params), read_diffusion(model, G)
    maximum = float(t[-1] - t[0]) / DEFAULT_STEPS if step is None else step
    counts = step_counts(t, maximum)
    table: Any = (t, known) if (known := read_inputs(model, inputs, t)) else None
    with settings():
        start = read_start(model, x0, theta, matrix, float(t[0]), table)
        choice = choose_scheme(model, scheme, theta, np.asarray(start.mean), t, table)
        arrays = (theta, start, t, counts, matrix, read_noise(model, noise))
        outcome = _program(model, choice, read_paths(paths), *arrays, key, table)
        # Waited for first: JAX ends the process where a result that there was no memory for is read at once.
        values, xs, ends = (np.asarray(one) for one in jax.block_until_ready(outcome))
    _refuse_blow_up(ends, maximum, single=paths is None)
    _refuse_unlawful(model, t, values)
    series = [_series(model, t, y, x, known) for y, x in zip(values, xs, strict=True)]
    return series[0] if paths is None else series


def _series(model: SDE, times: np.ndarray, values: np.ndarray, path: np.ndarray, inputs: Mapping[str, Any]) -> Series:
    return Series(times, values, states=model.observations, path=path, path_states=model.states, inputs=inputs)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _program(model: SDE, scheme: str, n: int, theta, start: Start, times, counts, G, noise, key, table) -> Any:
    """Observations, true paths and times of blow-up of n paths; the model, the scheme and shapes are compiled in."""
    keys = jax.random.split(key, n + 1)

    def drift(t, x):
        return model.f(at_time(t, table), x, theta)

    def given(t, x):
        return model.g(at_time(t, table), x, theta)

    diffusion = given if G is None else G
    noises = jax.eval_shape(lambda: diffusion_at(diffusion, times[0], jnp.asarray(start.mean))).shape[1]

    def one(key):
        return march(SCHEMES[scheme], drift, diffusion, start.draw(key), times, counts, draws(key, noises))

    xs, ends = jax.vmap(one)(keys[1:])
    return _observed(model, theta, times, xs, noise, keys[0], table), xs, ends


def _observed(model: SDE, theta, times, xs, noise, key, table: Table | None) -> jax.Array:
    """What is measured of the paths, (paths, times, columns): noise is added on the scale of each column's law."""

    def one(t, x):
        t = at_time(t, table)
        return model.h(t, x, theta), model.noise_std(t, x, theta)

    h, given = jax.vmap(jax.vmap(one), (None, 0))(times, xs)
    errors = (given + noise[None, None, :]) * jax.random.normal(key, h.shape)
    columns = [law.measured(law.gaussian_scale(h[..., d]) + errors[..., d]) for d, law in enumerate(model.laws)]
    return jnp.stack(columns, axis=-1)


def _refuse_unlawful(model: SDE, times: np.ndarray, values: np.ndarray) -> None:
    """Refuse columns that a law cannot give, which would look like values that were not observed."""
    for d, (name, law) in enumerate(zip(model.observations, model.laws, strict=True)):
        bad = np.flatnonzero(~np.isfinite(values[..., d]).all(axis=0))
        if bad.size:
            raise SimulationError(
                f"column {name!r} is not a finite number at time {times[bad[0]]:g}: its formula or its {law.name}"
                " noise is not defined there; give another x0 or other parameters"
            )
        if reason := law.refusal(values[..., d]):
            raise SimulationError(f"column {name!r}: {reason}; give another x0 or other parameters")


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
