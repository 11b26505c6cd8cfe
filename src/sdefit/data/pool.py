"""Standardised arrays of one or several series, and the way back to the user's units."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from sdefit._types import Array, Bool, Float, Int, Scalar
from sdefit.data.checks import as_numbers, show
from sdefit.data.inputs import Table, TimeWithInputs
from sdefit.data.series import Series
from sdefit.errors import DataError

# Squares and cubes of the states and of time, as drifts and covariances need them, stay within float64.
SMALLEST, LARGEST = 1e-100, 1e100
# A state that varies less than this part of its own size is constant up to rounding.
CONSTANT = 1e-12
# Times closer than this part of the typical spacing are one time to `with_times`.
SAME_TIME = 1e-9
# A gap of more typical spacings than this is too long to follow a path through without the drift's own flow.
LONG_GAP = 10.0


class Pool(eqx.Module):
    """One or several series of the same states on common arrays, standardised.

    Times run from each series' own first row in units of `time_scale` (the median spacing); values are
    (value − center)/scale. Rows beyond the end of a shorter series repeat its last time and are
    observed nowhere, so they change no answer. `stack` adds a leading axis of fits. Inputs are in the user's
    units, at times of their own on the same clock.

    The arrays come as NumPy float64, whatever JAX's own default, and become JAX arrays where they are traced.
    """

    times: Float[Array, "*fits series times"]
    values: Float[Array, "*fits series times state"]  # 0 where not observed
    observed: Bool[Array, "*fits series times state"]
    center: Float[Array, "*fits state"]
    scale: Float[Array, "*fits state"]
    time_origin: Float[Array, "*fits series"]
    time_scale: Float[Array, "*fits"]
    inputs: Table | None = None  # times (*fits series rows) and values of the same shape by name

    @property
    def origins(self) -> Any:
        """What `drift` must know of each series, along a leading axis: its origin of time, and its inputs if any."""
        return self.time_origin if self.inputs is None else (self.time_origin, self.inputs)

    def drift(
        self, f: Callable[[Any, Float[Array, "state"]], Float[Array, "state"]]
    ) -> Callable[[Scalar, Float[Array, "state"], Any], Float[Array, "state"]]:
        """The user's drift f(t, x) as a function (t, x, origin) of standardised time and states.

        `origin` is one of `origins`. The t that f is given is one that `SDE.f` takes.
        """

        def standard(t, x, origin):
            return self.time_scale / self.scale * f(self.moment(t, origin), self.center + self.scale * x)

        return standard

    def moment(self, t: Scalar, origin: Any) -> Any:
        """The user's time, as `SDE.f` takes it: with the series' inputs where there are any."""
        if self.inputs is None:
            return origin + self.time_scale * t
        zero, table = origin
        return TimeWithInputs(zero + self.time_scale * t, t, table)

    def unstandardise_path(self, x: Float[Array, "*batch times state"]) -> Float[Array, "*batch times state"]:
        """Standardised states in the user's units."""
        return _beside(self.center, x) + _beside(self.scale, x) * x

    def unstandardise_std(self, s: Float[Array, "*batch state"]) -> Float[Array, "*batch state"]:
        """Standard deviations of states or of their noise in the user's units."""
        return _beside(self.scale, s) * s

    def unstandardise_diffusion(self, G: Float[Array, "state state"]) -> Float[Array, "state state"]:
        """The diffusion matrix in the user's units of state and time."""
        return self.scale[:, None] * G / self.time_scale**0.5


def _pool(**fields: Any) -> Pool:
    return Pool(**fields)


def _beside(vector: Any, x: Any) -> Any:
    """One number per state, given as many axes as x so that the product says what it broadcasts."""
    return vector.reshape((1,) * (x.ndim - 1) + (-1,))


def standardise(series: Series | Sequence[Series], inputs: Sequence[str] = (), *, rows: int = 0) -> Pool:
    """One or several series of the same states as a `Pool`, with one center and scale per state for all.

    `inputs` are the names of those that the model uses; the pool carries no others. `rows` is the least number of rows,
    for a series that was fitted beside longer ones.

    **Raises** `DataError` if the series differ in their states or lack an input, if a state does not vary, or if
    times or states are too large or too small to compute with.
    """
    many = [series] if isinstance(series, Series) else list(series)
    _check_same_states(many)
    check_inputs(many, inputs)
    time_scale = _time_scale(many)
    rows = max(rows, *map(len, many))
    center, scale, standard = _standard_values(many)
    times = np.stack([_pad(_standard_times(one, time_scale), rows, edge=True) for one in many])
    known = {name: np.stack([_pad(one.inputs[name], rows, edge=True) for one in many]) for name in inputs}
    return _pool(
        times=times,
        values=np.stack([_pad(np.nan_to_num(one), rows) for one in standard]),
        observed=np.stack([_pad(one.observed, rows) for one in many]),
        center=center,
        scale=scale,
        time_origin=np.array([one.times[0] for one in many]),
        time_scale=np.asarray(time_scale),
        inputs=(times, known) if known else None,
    )


def stack(pools: Sequence[Pool]) -> Pool:
    """Pools of equally many series and states as one, with a leading axis of fits and common padding."""
    shapes = {(pool.values.shape[0], pool.values.shape[2]) for pool in pools}
    if len(shapes) != 1:
        raise DataError("pools must be one or more of equally many series and states to be stacked")
    rows = max(pool.times.shape[1] for pool in pools)
    fields = [_padded_fields(pool, rows) for pool in pools]
    return _pool(**jax.tree.map(lambda *arrays: np.stack(arrays), *fields))


def with_times(pool: Pool, times: Any) -> tuple[Pool, Int[np.ndarray, "asked"]]:
    """The pool of one series with rows at more times, observed nowhere, and the index of each time asked for.

    `times` are in the user's units, in any order. A time that is there already gets no second row.
    """
    if pool.times.shape[0] != 1:
        raise DataError(f"times can be added to one series at a time, not to {pool.times.shape[0]}; pick one")
    there = np.asarray(pool.times)[0]
    asked, tolerance = _asked(pool, times)
    new = _apart(asked, there, tolerance)
    order = np.argsort(np.concatenate([there, new]), kind="stable")
    merged = np.concatenate([there, new])[order]

    def rows(array: Any) -> np.ndarray:
        old = np.asarray(array)[0]
        return np.concatenate([old, np.zeros((len(new), old.shape[1]), old.dtype)])[order][None]

    more = _pool(
        times=merged[None],
        values=rows(pool.values),
        observed=rows(pool.observed),
        center=pool.center,
        scale=pool.scale,
        time_origin=pool.time_origin,
        time_scale=pool.time_scale,
        inputs=pool.inputs,
    )
    return more, _nearest(merged, asked)


def _check_same_states(many: Sequence[Series]) -> None:
    if not many:
        raise DataError("series must be one or more series, but the list is empty")
    for i, one in enumerate(many):
        if not isinstance(one, Series):
            raise DataError(f"series must be sf.Series, but number {i + 1} is {type(one).__name__}; use sf.Series(...)")
        if one.states != many[0].states:
            raise DataError(
                f"series must have the same states in the same order, but number {i + 1} has"
                f" {', '.join(one.states)} and the first {', '.join(many[0].states)}"
            )


def check_inputs(many: Sequence[Series], inputs: Sequence[str]) -> None:
    """Refuse series that lack an input."""
    for i, one in enumerate(many):
        lacking = [name for name in inputs if name not in one.inputs]
        if lacking:
            which = f"number {i + 1}" if one.name is None else show(one.name)
            raise DataError(
                f"series must have the model's inputs {', '.join(inputs)}, but {which} has"
                f" {', '.join(one.inputs) or 'none'}; give inputs={{{lacking[0]!r}: values}}, or the name of the column"
            )


def _time_scale(many: Sequence[Series]) -> float:
    """The median spacing of rows, over all gaps of all series: a long gap does not change it."""
    largest = max(float(np.abs(one.times).max()) for one in many)
    if largest > LARGEST:
        raise DataError(f"times must stay below {LARGEST:g}, but one is {largest:g}; choose a larger unit of time")
    scale = float(np.median(np.concatenate([np.diff(one.times) for one in many])))
    if scale < SMALLEST:
        raise DataError(f"times must be {SMALLEST:g} apart or more as a rule, not {scale:g}; choose a smaller unit")
    return scale


def _standard_times(one: Series, time_scale: float) -> np.ndarray:
    # The origin goes first: a clock that shows 1e9 then costs no digits of the spacing.
    times = (one.times - one.times[0]) / time_scale
    tied = np.diff(times) <= 0
    if tied.any():
        a, b = one.times[np.argmax(tied)], one.times[np.argmax(tied) + 1]
        raise DataError(
            f"times must differ, but {a:g} and {b:g} are the same beside a median spacing of {time_scale:g}"
        )
    return times


def _standard_values(many: Sequence[Series]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Center and scale (mean and standard deviation) of each state, and every series in these units."""
    every = np.concatenate([one.values for one in many])
    size = np.nanmax(np.abs(every), axis=0)
    unit = np.where(size > 0, size, 1.0)
    _refuse_sizes(size, many[0].states)
    # Shares of the largest value, so that no square of a value overflows or vanishes.
    center = np.nanmean(every / unit, axis=0)
    scale = np.sqrt(np.nanmean((every / unit - center) ** 2, axis=0))
    _refuse_constant(scale, center * unit, many[0].states)
    return center * unit, scale * unit, [(one.values / unit - center) / scale for one in many]


def _refuse_sizes(size: np.ndarray, states: Sequence[str]) -> None:
    for state, largest in zip(states, size, strict=True):
        if largest > LARGEST or 0 < largest < SMALLEST:
            raise DataError(
                f"state {show(state)} must lie between {SMALLEST:g} and {LARGEST:g} in size, but its largest value"
                f" is {largest:g}; give it in another unit"
            )


def _refuse_constant(fraction: np.ndarray, center: np.ndarray, states: Sequence[str]) -> None:
    for state, one, value in zip(states, fraction, center, strict=True):
        if one <= CONSTANT:
            raise DataError(
                f"state {show(state)} must vary, but every value is {value:g};"
                " leave it out of the model, or make it a parameter there"
            )


def _pad(array: np.ndarray, rows: int, edge: bool = False) -> np.ndarray:
    """The array with rows added at its end: copies of the last (edge), or zeros."""
    if len(array) == rows:
        return array
    fill = ((0, rows - len(array)),) + ((0, 0),) * (array.ndim - 1)
    return np.pad(array, fill, mode="edge" if edge else "constant")


def _padded_fields(pool: Pool, rows: int) -> dict[str, Any]:
    def padded_all(array: Any, edge: bool = False) -> np.ndarray:
        return np.stack([_pad(one, rows, edge) for one in np.asarray(array)])

    return {
        "times": padded_all(pool.times, edge=True),
        "values": padded_all(pool.values),
        "observed": padded_all(pool.observed),
        "center": np.asarray(pool.center),
        "scale": np.asarray(pool.scale),
        "time_origin": np.asarray(pool.time_origin),
        "time_scale": np.asarray(pool.time_scale),
        "inputs": jax.tree.map(lambda array: padded_all(array, edge=True), pool.inputs),
    }


def _asked(pool: Pool, times: Any) -> tuple[np.ndarray, float]:
    """The times asked for on the pool's clock, and how near two of them are one."""
    user = np.atleast_1d(as_numbers(times, "times"))
    if user.ndim != 1 or not user.size or not np.isfinite(user).all() or np.abs(user).max() > LARGEST:
        raise DataError(f"times must be one row of finite numbers, not {show(user.tolist(), 80)}")
    origin, scale = float(np.asarray(pool.time_origin)[0]), float(np.asarray(pool.time_scale))
    rounding = 4 * np.finfo(np.float64).eps * max(float(np.abs(user).max()), abs(origin)) / scale
    return (user - origin) / scale, max(SAME_TIME, rounding)


def _apart(asked: np.ndarray, there: np.ndarray, tolerance: float) -> np.ndarray:
    """The sorted times asked for that lie apart from those there and from each other."""
    asked = np.unique(asked)
    new = asked[np.abs(there[_nearest(there, asked)] - asked) > tolerance]
    return new[np.diff(new, prepend=-np.inf) > tolerance] if new.size else new


def _nearest(times: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The index of the nearest of the sorted times, the first of equal ones."""
    right = np.clip(np.searchsorted(times, asked), 0, len(times) - 1)
    left = np.maximum(right - 1, 0)
    left = np.searchsorted(times, times[left])
    return np.where(np.abs(times[left] - asked) < np.abs(times[right] - asked), left, right)
