"""The `Pool` of a model: data standardised, with a unit for every state, hidden ones included."""

from collections.abc import Sequence

import equinox as eqx
import numpy as np

from sdefit.data import Pool, Series, standardise
from sdefit.data.checks import show
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import exponents
from sdefit.errors import DataError


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
    return eqx.tree_at(
        lambda p: (p.center, p.scale, p.columns),
        pool,
        (center, scale, (pool.center, pool.scale)),
        is_leaf=lambda one: one is None,
    )


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
