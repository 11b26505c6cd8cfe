"""`over_series` beside `jax.vmap`, for one series and for several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdefit.data import over_series


def one(weight, series, times):
    return {"sum": weight * jnp.cumsum(series["x"], axis=0), "last": series["x"][-1][None, :] * times[:, None]}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("out_axes", [0, 1])
def test_it_is_vmap(count, out_axes):
    rng = np.random.default_rng(count)
    inputs = 2.0, {"x": jnp.asarray(rng.normal(size=(count, 5, 2)))}, jnp.asarray(rng.normal(size=(4, count)))
    found, true = (how(one, (None, 0, 1), out_axes)(*inputs) for how in (over_series, jax.vmap))
    jax.tree.map(np.testing.assert_array_equal, found, true)


def test_one_series_is_no_batch():
    """Shapes inside are those of a series in both cases; only several are seen by JAX as a batch."""
    seen = []

    def look(x):
        seen.append((x.shape, type(x).__name__))
        return x

    for count in (1, 2):
        over_series(look)(jnp.zeros((count, 3)))
    assert [shape for shape, _ in seen] == [(3,), (3,)]
    assert ["Batch" in name for _, name in seen] == [False, True]
