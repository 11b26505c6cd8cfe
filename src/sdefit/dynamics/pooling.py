"""The `Pool` of a model: data standardised, with a unit for every state, hidden ones included."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import numpy as np

from sdefit.data import Pool, Series, standardise
from sdefit.data.checks import show
from sdefit.dynamics.change_of_variables import change_of_variables
from sdefit.dynamics.noise_shapes import NoiseShape
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import exponents
from sdefit.errors import DataError

_AWAY = 3.0  # typical steps of z that data keep from the ends of its range


def pool_of(model: SDE, series: Sequence[Series], *, rows: int = 0) -> Pool:
    """Standardised arrays of the series that a model is fitted to; `rows` is the least number of rows.

    Columns are standardised on the scale where the noise of their law is Gaussian. A state that a column measures as it
    is has center and scale of that column. The unit of a hidden state follows from the equations (`units`); its center
    is that of an observed state of the same unit, else 0.
    """
    if not model.general:
        return standardise(series, model.inputs, rows=rows)
    pool = standardise([_on_gaussian_scale(model, one) for one in series], model.inputs, rows=rows)
    center, scale = _states(model, pool)
    found = eqx.tree_at(
        lambda p: (p.center, p.scale, p.columns),
        pool,
        (center, scale, (pool.center, pool.scale)),
        is_leaf=lambda one: one is None,
    )
    return dataclasses.replace(found, in_z=_stays_inside(model, series))


def _stays_inside(model: SDE, series: Sequence[Series]) -> bool:
    """Whether there is a change of variables after which the noise is constant, and the data keep away from its ends.

    Near an end, such as 0 of z = 2√x, the drift of z is steep and no Gaussian describes z: the filter of x is then
    nearer to the truth. Data that come within three typical steps of an end are near.
    """
    change = change_of_variables(model)
    if change is None or any(change.refusal(one.values) for one in series):
        return False
    direct = {k: d for d, k in enumerate(model.direct) if k is not None}
    for k, shape in enumerate(change.shapes):
        if shape is None:
            continue
        if shape.names or k not in direct:
            return False
        for one in series:
            if not _keeps_away(shape, one.values[:, direct[k]]):
                return False
    return True


def _keeps_away(shape: NoiseShape, values: np.ndarray) -> bool:
    """Whether observations of a state are three typical steps or more from the ends of its z."""
    values, (low, high) = values[np.isfinite(values)], shape.domain
    if np.any(values <= low) or np.any(values >= high):
        return False
    with np.errstate(all="ignore"):
        z, ends = np.asarray(shape.to_z(values)), [float(shape.to_z(np.float64(end))) for end in (low, high)]
    ends = [end if np.isfinite(end) else side for end, side in zip(ends, (-np.inf, np.inf), strict=True)]
    step = float(np.sqrt(np.mean(np.diff(z) ** 2))) if z.size > 1 else 0.0
    return bool(np.min(z) - ends[0] >= _AWAY * step and ends[1] - np.max(z) >= _AWAY * step)


def _on_gaussian_scale(model: SDE, one: Series) -> Series:
    """The series with the columns of each law on the scale where its noise is Gaussian."""
    values = np.array(one.values)
    for d, law in enumerate(model.laws):
        if why := law.refusal(values[:, d]):
            raise DataError(f"column {show(model.observations[d])}: {why}")
        values[:, d] = law.gaussian_scale(values[:, d])
    return Series(one.times, values, one.states, name=one.name, inputs=one.inputs)


def _states(model: SDE, pool: Pool) -> tuple[np.ndarray, np.ndarray]:
    """Center and scale of each state."""
    column_center, column_scale = np.asarray(pool.center), np.asarray(pool.scale)
    sizes = [np.exp(c) if law.name == "lognormal" else s for law, c, s in zip(model.laws, column_center, column_scale,
                                                                          strict=True)]  # fmt: skip
    sizes.append(float(pool.time_scale))
    if pool.inputs is not None:
        largest = [float(np.max(np.abs(pool.inputs[1][name]))) for name in model.inputs]
        sizes += [one if one > 0 else 1.0 for one in largest]
    units = exponents(model).states
    scale = np.exp(units @ np.log(sizes))
    center = np.zeros(len(model.states))
    direct = {k: d for d, k in enumerate(model.direct) if k is not None}
    for k in range(len(model.states)):
        if k in direct:
            center[k], scale[k] = column_center[direct[k]], column_scale[direct[k]]
        elif alike := [d for j, d in direct.items() if np.array_equal(units[j], units[k])]:
            center[k] = column_center[alike[0]]
    return center, scale
