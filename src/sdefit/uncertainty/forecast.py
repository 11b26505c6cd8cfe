"""`Forecast`: where paths of the fitted model go from the last smoothed state, and how good that proves to be."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit import metrics
from sdefit._types import Key, Scalar
from sdefit.data import Pool, Series
from sdefit.display.charts import band_charts
from sdefit.display.notebook import as_html, by_state
from sdefit.dynamics.sde import SDE
from sdefit.errors import DataError, InputError
from sdefit.methods.interface import Method
from sdefit.programs import PROGRAMS
from sdefit.result import Estimate
from sdefit.ssm.moments import value_and_slope
from sdefit.uncertainty.bootstrap import paths

_REACH = 0.1  # slope of the drift times one step, at most


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """Simulated states and observations after the last row of a series, with their mean and band.

    - `times` (T,); `mean`, `lower`, `upper` (T, K): of the states, which the band holds with probability `level`.
    - `states`, `observations` (draws, T, K): the paths themselves, and with observation noise.
    - `failed`: how many paths left the finite numbers; they are not among the draws.
    - `notes`: sentences on what was assumed.

    >>> ahead = fit.forecast([11, 12], draws=100)
    >>> ahead.mean.shape, ahead.observations.shape
    ((2, 1), (100, 2, 1))
    """

    times: np.ndarray
    names: tuple[str, ...]
    states: np.ndarray
    observations: np.ndarray
    level: float
    failed: int
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> np.ndarray:
        return np.mean(self.states, axis=0)

    @property
    def lower(self) -> np.ndarray:
        return np.quantile(self.states, 0.5 - self.level / 2, axis=0)

    @property
    def upper(self) -> np.ndarray:
        return np.quantile(self.states, 0.5 + self.level / 2, axis=0)

    def table(self) -> list[dict[str, Any]]:
        """One plain mapping for each time and state."""
        return by_state(self.times, self.names, mean=self.mean, lower=self.lower, upper=self.upper)

    def frame(self) -> Any:
        """The table as a pandas data frame."""
        import pandas as pd  # here, not above: half a second that most uses do not need

        return pd.DataFrame(self.table())

    def plot(self, ax: Any = None) -> Any:
        """The mean of each state in its band: a matplotlib figure, or on the axes `ax`, one for each state."""
        from sdefit.display.plot import on_axes  # here, not above: matplotlib takes half a second

        return on_axes(band_charts(self.times, self.names, self.mean, self.lower, self.upper, self.level), ax)

    def __repr__(self) -> str:
        return f"Forecast({', '.join(self.names)}; {len(self.times)} times, {len(self.states)} paths)"

    def _repr_html_(self) -> str:
        return as_html(f"Forecast: mean and {100 * self.level:g} % band", self.table(), self.notes)

    def score(self, held_back: Series | Any) -> dict[str, Any]:
        """Proper scores of the observations that came: CRPS of each time and state, energy of each time, and means.

        `held_back` is a `Series` at the forecast's times, or its values (T, K). Lower is better. The coverage is
        the share of values inside the band of the observations.
        """
        seen = held_back.values if isinstance(held_back, Series) else np.asarray(held_back, float)
        seen = seen.reshape(len(self.times), -1)
        if isinstance(held_back, Series) and not np.allclose(held_back.times, self.times):
            raise DataError("held_back must be a series at the forecast's own times; forecast at held_back.times")
        if seen.shape != self.mean.shape:
            raise DataError(f"held_back must have the shape {self.mean.shape} of the forecast, not {seen.shape}")
        crps, energy = metrics.crps(self.observations, seen), metrics.energy_score(self.observations, seen)
        low, high = np.quantile(self.observations, [0.5 - self.level / 2, 0.5 + self.level / 2], axis=0)
        inside = (low <= seen) & (seen <= high)
        known = np.isfinite(seen)
        return {
            "crps": crps,
            "energy": energy,
            "mean_crps": dict(zip(self.names, np.nanmean(crps, axis=0).tolist(), strict=True)),
            "mean_energy": float(np.nanmean(energy)),
            "coverage": float(inside[known].mean()),
        }


def forecast(
    model: SDE, method: Method, pool: Pool, estimate: Estimate, series: int, times: np.ndarray, std: np.ndarray,
    *, draws: int, level: float, key: Key,
) -> Forecast:  # fmt: skip
    """Paths from the last smoothed state of one series, drawn with its spread, at `times` after it."""
    last = float(
        np.asarray(pool.time_origin)[series] + np.asarray(pool.time_scale) * np.asarray(pool.times)[series].max()
    )
    if times.ndim != 1 or not times.size or not np.isfinite(times).all() or np.any(np.diff(times, prepend=last) <= 0):
        raise DataError(
            f"times must increase from after the last observation at {last:g}; fit.states(times) is for others"
        )
    if not (isinstance(draws, int) and draws >= 2):
        raise InputError(f"draws must be a whole number of at least 2, not {draws!r}")
    if not (isinstance(level, float) and 0 < level < 1):
        raise InputError(f"level must lie between 0 and 1, not {level!r}")
    horizon = _ahead(pool, series, np.concatenate([[last], times]))
    row = int(np.sum(np.diff(np.asarray(pool.times)[series]) > 0))
    place = np.asarray(estimate.mean)[series, row], std / np.asarray(pool.scale)
    inputs = (pool, horizon, estimate, *place, np.arange(draws, dtype=np.int32), key)
    found = PROGRAMS.run(_forecast, model, method, *inputs).value
    states, observations = (np.asarray(one)[:, 1:] for one in found)
    finite_paths = np.isfinite(states).all(axis=(1, 2))
    if finite_paths.sum() < 2:
        raise InputError("a forecast must stay finite, but paths of the fitted model diverge; forecast less far ahead")
    notes = _notes(model, last)
    return Forecast(
        times, model.states, states[finite_paths], observations[finite_paths], level, int((~finite_paths).sum()), notes
    )


def _notes(model: SDE, last: float) -> tuple[str, ...]:
    if not model.inputs:
        return ()
    names = ", ".join(model.inputs)
    return (f"No value of {names} is known after time {last:g}: the last one is held. Add rows that give inputs only.",)


def _ahead(pool: Pool, series: int, times: np.ndarray) -> Pool:
    """A pool of one series that is observed nowhere, at the times of a forecast."""
    origin, scale = float(np.asarray(pool.time_origin)[series]), float(np.asarray(pool.time_scale))
    K = np.asarray(pool.values).shape[-1]
    parts = (
        ((times - origin) / scale)[None],
        np.broadcast_to(np.asarray(pool.values)[series, :1], (len(times), K))[None],
        np.zeros((1, len(times), K), bool),
        np.asarray(pool.time_origin)[series : series + 1],
        jax.tree.map(lambda a: np.asarray(a)[series : series + 1], pool.inputs),
    )
    return eqx.tree_at(
        lambda p: (p.times, p.values, p.observed, p.time_origin, p.inputs), pool, parts, is_leaf=lambda a: a is None
    )


def _forecast(model: SDE, method: Method, pool: Pool, horizon: Pool, estimate: Estimate, mean, std, index, key):
    """States and observations in the user's units, (draws, times, state), from states drawn about `mean`."""
    del method
    gaps = jnp.diff(horizon.times, axis=1, prepend=horizon.times[:, :1])
    counts = jnp.maximum(jnp.ceil(gaps * _steepest(model, pool, estimate) / _REACH), 1).astype(jnp.int32)

    def one(i):
        first_key, path_key, noise_key = jax.random.split(jax.random.fold_in(key, i), 3)
        first = mean + std * jax.random.normal(first_key, mean.shape)
        source = eqx.tree_at(lambda e: e.mean, estimate, first[None, None, :])
        states = paths(model, horizon, source, counts, path_key)
        seen = states + estimate.noise[None, None, :] * jax.random.normal(noise_key, states.shape)
        return horizon.unstandardise_path(states)[0], horizon.unstandardise_path(seen)[0]

    return jax.vmap(one)(index)


def _steepest(model: SDE, pool: Pool, estimate: Estimate) -> Scalar:
    """The largest slope of the drift along the smoothed paths, in standardised units."""
    drift = pool.drift(lambda t, x: model.f(t, x, estimate.theta))

    def size(t, x, origin):
        return jnp.linalg.norm(value_and_slope(lambda t, x: drift(t, x, origin), t, x)[1])

    sizes = jax.vmap(jax.vmap(size, (0, 0, None)))(pool.times, estimate.mean, pool.origins)
    return jnp.max(jnp.where(jnp.isfinite(sizes), sizes, 0.0))
