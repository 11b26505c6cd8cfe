"""`fit`, `fit_each` and `load`."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from sdefit import methods, store
from sdefit._types import Key
from sdefit.data import Series, from_frame, stack, standardise
from sdefit.data.pool import check_inputs
from sdefit.dynamics.arguments import as_key
from sdefit.dynamics.sde import SDE
from sdefit.errors import DataError, FitError, ModelError
from sdefit.fitting.outcome import Fit, provenance
from sdefit.fitting.packing import unpack
from sdefit.fitting.status import status_checks
from sdefit.methods import execution
from sdefit.methods.interface import Method
from sdefit.programs import Run
from sdefit.result import STATUS, Code

Start = Mapping[str, float]
BATCH = 128  # fits in one run of a program: enough to keep every core busy, few enough for a laptop's memory


def fit(
    model: SDE,
    series: Series | Sequence[Series] | Any,
    method: Method | str | None = None,
    *,
    key: int | jax.Array = 0,
    start: Start | None = None,
    throw: bool = False,
    time: str | None = None,
    group: str | None = None,
    time_unit: str | None = None,
) -> Fit:
    """The parameters, diffusion, noise and states of a model, estimated from one series or several.

    **Arguments**
    - `model`: the `SDE`.
    - `series`: a `Series`; or a list, pooled: one θ, one G and one noise for all of them; or a pandas or polars frame
      with a column for each of the model's states and inputs.
    - `method`: settings such as `sf.MaRS()`, or a name such as "mars"; the default method without it.
    - `key`: an int or a JAX random key; the same key gives the same bits on the same machine. `Fit.key` keeps it.
    - `start`: start values by name, over those in the model. None are needed.
    - `throw`: raise `FitError` unless the fit succeeds; otherwise `Fit.status` says how it went.
    - `time`, `group`, `time_unit`: of a frame, as in `sf.from_frame`; the series of all groups are pooled.

    **Raises** `DataError` or `ModelError`, before any compute, for what cannot be fitted.

    >>> model = sf.equations("dx = rate*(level - x)", params={"rate": sf.positive()})
    >>> fit = sf.fit(model, sf.read_csv("obs.csv"))
    >>> fit
    Fit(model by auto: rate=0.789..., level=1.99...; ok)
    """
    several = _series(model, _from_frame(model, series, time, group, time_unit))
    method, key = _method(method), as_key(key)
    values = _starts(model, start)
    pool = standardise(several, model.inputs)
    method.check(model, pool)
    run = execution.estimate(model, method, pool, values, key)
    found = _reviewed(_package(model, several, method, key, run), run, values)
    return _checked(found, throw)


def fit_each(
    model: SDE,
    series: Sequence[Series] | Any,
    method: Method | str | None = None,
    *,
    key: int | jax.Array = 0,
    start: Start | Sequence[Start | None] | None = None,
    throw: bool = False,
    batch: int = BATCH,
    time: str | None = None,
    group: str | None = None,
    time_unit: str | None = None,
) -> list[Fit]:
    """One independent `Fit` for each series, all of them in one batched program.

    The i-th is `fit(model, series[i], method, key=jax.random.fold_in(key, i))`, up to the rounding of
    batched arithmetic. A method that draws random numbers for every time draws other ones for a
    series that shares its batch with longer series.

    **Arguments** as for `fit`, and
    - `start`: start values for all, or a list of one mapping for each series.
    - `batch`: the most fits in one run of the program, of which a CPU has one on each core; fewer take less memory.

    >>> truth = {"rate": 1, "level": 2}
    >>> many = sf.simulate(model, truth, x0=0, times=times, noise=0.1, G=0.3, paths=2)
    >>> [round(one.params["level"], 1) for one in sf.fit_each(model, many, "moments")]
    [2.0, 2.0]
    """
    several = _series(model, _from_frame(model, series, time, group, time_unit))
    method, key = _method(method), as_key(key)
    if not isinstance(batch, int) or batch < 1:
        raise ModelError(f"batch must be a whole number of at least 1, not {batch!r}")
    starts = np.stack([_starts(model, one) for one in _start_list(start, len(several))])
    pools = [standardise([one], model.inputs) for one in several]
    for pool in pools:
        method.check(model, pool)
    run = execution.estimate_each(model, method, stack(pools), starts, key, batch)
    fits, keys = [], list(jax.vmap(functools.partial(jax.random.fold_in, key))(np.arange(len(several))))
    leaves, tree = jax.tree.flatten(run.value)
    for i, one in enumerate(several):
        answer = jax.tree.unflatten(tree, [a[i] for a in leaves])
        fraction = Run(answer, run.seconds / len(several), run.compile_seconds / len(several))
        fits.append(_reviewed(_package(model, [one], method, keys[i], fraction), fraction, starts[i]))
    return [_checked(one, throw, f"series {i}: ") for i, one in enumerate(fits)]


def load(path: str | os.PathLike[str], model: SDE | None = None) -> Fit:
    """The fit that `Fit.save` wrote.

    **Arguments**
    - `model`: the model, for a fit whose drift is a Python function: a file keeps only the name of
      one. Without it everything works but what has to call the drift.

    **Raises** `FileError` for a file that is foreign, damaged or of a newer format.

    >>> fit.save("fit.nc")
    >>> sf.load("fit.nc").params == fit.params
    True
    """
    if model is not None:
        _check_model(model)
    return Fit(**unpack(path, store.read(path, "fit"), model))


def _package(model: SDE, series: list[Series], method: Method, key: Key, run: Run) -> Fit:
    """The answer of a program as a `Fit`, each series' states cut to its own length."""
    answer, found = run.value, run.value.estimate
    names = model.named(found.theta)
    checks = status_checks(model, series, method, answer)
    return Fit(
        model=model,
        series=tuple(series),
        method=method,
        key=key,
        status=checks[0] if checks else STATUS[Code.OK],
        checks=checks,
        params={name: float(value) for name, value in names.items()},
        G=answer.G,
        noise=answer.noise,
        mean=tuple(mean[: len(one)] for mean, one in zip(answer.mean, series, strict=True)),
        std=tuple(std[: len(one)] for std, one in zip(answer.std, series, strict=True)),
        trace=dict(found.trace),
        estimate=found,
        seconds=run.seconds,
        compile_seconds=run.compile_seconds,
        notes=tuple(dict.fromkeys(note for one in series for note in one.notes)),
        provenance=provenance(),
    )


def _reviewed(one: Fit, run: Run, start: np.ndarray) -> Fit:
    """The fit with what its method says of it; by another method where that one's answer should stand instead."""
    standard = run.value.residuals.standard
    residuals = standard[np.isfinite(standard)]
    said, instead = one.method.review(one.model, one.estimate, residuals, one.series[0].times, one.mean[0])
    if instead is not None:
        run = execution.estimate(one.model, instead, standardise(one.series, one.model.inputs), start, one.key)
        other = _package(one.model, list(one.series), instead, one.key, run)
        if other.status.ok or not one.status.ok:
            seconds, compiling = one.seconds + other.seconds, one.compile_seconds + other.compile_seconds
            one = dataclasses.replace(other, seconds=seconds, compile_seconds=compiling)
        else:
            said = f"{said} But that failed ({other.status.name}), so the first answer stands."
    return dataclasses.replace(one, notes=(*one.notes, said)) if said else one


def _checked(one: Fit, throw: bool, place: str = "") -> Fit:
    if throw and not one.status.ok:
        raise FitError(f"{place}{one.status}")
    return one


def _check_model(model: Any) -> None:
    if not isinstance(model, SDE):
        raise ModelError(f"model must be an sf.SDE, as from sf.equations(...), not {type(model).__name__}")


def _series(model: Any, series: Any) -> list[Series]:
    """The series as a list, each with the model's states in the model's order."""
    _check_model(model)
    several = [series] if isinstance(series, Series) else list(series) if isinstance(series, Sequence) else [series]
    if not several:
        raise DataError("series must be one or more sf.Series, but the list is empty")
    for i, one in enumerate(several):
        if not isinstance(one, Series):
            raise DataError(f"series must be sf.Series, but number {i + 1} is {type(one).__name__}; use sf.Series(...)")
    check_inputs(several, model.inputs)
    return [_ordered(one, model.states) for one in several]


def _from_frame(model: Any, given: Any, time: str | None, group: str | None, time_unit: str | None) -> Any:
    """The series of a data frame under the model's names; anything else comes back as it is."""
    columns = {"time": time, "group": group, "time_unit": time_unit}
    if isinstance(given, Series | Sequence) or not hasattr(given, "columns"):
        if named := [word for word, column in columns.items() if column is not None]:
            raise DataError(f"{named[0]} must go with a data frame, but series is {type(given).__name__}; leave it out")
        return given
    _check_model(model)
    return from_frame(given, time=time, states=model.states, group=group, time_unit=time_unit, inputs=model.inputs)


def _ordered(one: Series, states: tuple[str, ...]) -> Series:
    if one.states == states:
        return one
    if set(one.states) != set(states):
        raise DataError(
            f"series must have the model's states {', '.join(states)}, but has {', '.join(one.states)};"
            " name the columns with states=[...]"
        )
    order = [one.states.index(state) for state in states]
    path = None if one.path is None else one.path[:, order]
    return Series(
        one.times, one.values[:, order], states, path=path, notes=one.notes, name=one.name,
        time_unit=one.time_unit, origin=one.origin, inputs=one.inputs,
    )  # fmt: skip


def _method(method: Any) -> Method:
    if method is None:
        return methods.get(methods.DEFAULT)()
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        return methods.get(method)()
    remedy = f"; write {method.__name__}()" if isinstance(method, type) else ""
    raise ModelError(f"method must be a name or the settings of one, such as sf.Moments(), not {method!r}{remedy}")


def _starts(model: SDE, start: Any) -> np.ndarray:
    """θ's start values: the given ones, else the model's own, else NaN."""
    given = {} if start is None else start
    if not isinstance(given, Mapping):
        raise ModelError(f"start must map parameter names to numbers, not {given!r}")
    values = dict(zip(model.free, model.starts, strict=True))
    for name, number in given.items():
        if name not in values:
            raise ModelError(f"start must name free parameters ({', '.join(model.free) or 'none'}), not {name!r}")
        values[name] = _start_value(name, model, number)
    return np.array(list(values.values()), dtype=np.float64)


def _start_value(name: str, model: SDE, number: Any) -> float:
    parameter = model.params[name]
    try:
        value = float(number)
    except (TypeError, ValueError):
        raise ModelError(f"start of {name!r} must be a number, not {number!r}") from None
    if not parameter.lower < value < parameter.upper:
        raise ModelError(f"start of {name!r} must lie inside ({parameter.lower}, {parameter.upper}), not {value}")
    return value


def _start_list(start: Any, count: int) -> list[Any]:
    if start is None or isinstance(start, Mapping):
        return [start] * count
    if not isinstance(start, Sequence) or len(start) != count:
        raise ModelError(f"start must be one mapping, or a list of {count} of them, one for each series")
    return list(start)
