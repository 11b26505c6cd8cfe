"""`over_series`: what is done to one series, done to each of a pool."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Axes = int | None


def over_series(one: Callable[..., Any], in_axes: Axes | tuple[Axes, ...] = 0, out_axes: int = 0) -> Callable[..., Any]:
    """`jax.vmap(one, in_axes, out_axes)`, with no batch where there is but one series.

    Most pools are of one series, and each batch around a loop is one more copy of the loop for JAX to trace.
    """

    def every(*inputs: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(inputs)
        pairs = list(zip(inputs, axes, strict=True))
        sizes = {a.shape[axis] for x, axis in pairs if axis is not None for a in jax.tree.leaves(x)}
        if sizes != {1}:
            return jax.vmap(one, in_axes, out_axes)(*inputs)
        only = (x if axis is None else jax.tree.map(lambda a, k=axis: jnp.squeeze(a, k), x) for x, axis in pairs)
        return jax.tree.map(lambda a: jnp.expand_dims(a, out_axes), one(*only))

    return every
