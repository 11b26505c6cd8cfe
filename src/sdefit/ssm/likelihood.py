"""The marginal likelihood of a linear Gaussian state-space model, with a derivative that costs one backward pass.

Differentiating the filter step by step costs several times as much to run and to compile. A long series goes block by
block: its transitions, and the derivative in them, are of one block at a time, so that what is stored a row never
outgrows a core's cache and a row costs the same in a series of any length.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Scalar, Times
from sdefit.linalg import dot
from sdefit.ssm import kalman
from sdefit.ssm.kalman import Backward, Filtered, Gaussian, Sensors, Transitions

Build = Callable[[Any, Times], Transitions]

_BLOCK = 256  # rows, whose matrices stay in a core's cache


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def log_marginal_likelihood(
    build: Build,
    params: Any,
    initial: Float[Array, "dim dim"],
    sensors: Sensors,
    gaps: Times,
    values: Float[Array, "times state"],
    observed: Bool[Array, "times state"],
) -> Scalar:
    """The log density of the observations: transitions are `build(params, gaps)`, the first state N(0, initial).

    The first gap is 0. It may be differentiated in all arguments but `H`, `gaps` and `observed`.
    """
    return _forward(build, params, initial, sensors, gaps, values, observed)[0]


def _forward(build: Build, params, initial, sensors: Sensors, gaps, values, observed):
    def block(before: Gaussian, rows):
        gaps, y, seen = rows
        end, filtered = kalman.run_filter(before, build(params, gaps), sensors, y[..., None], seen)
        return end, (kalman.log_likelihood(filtered), before, filtered)

    blocks = _blocks((gaps, values, observed))
    first = Gaussian(jnp.zeros((initial.shape[0], 1), initial.dtype), initial)
    _, (terms, before, filtered) = _scan(blocks, block, first)
    return jnp.sum(terms), (params, sensors, blocks[0], before, filtered, values)


def _backward(build: Build, saved, weight: Scalar):
    params, sensors, gaps, before, filtered, values = saved

    def block(carry, rows):
        later_rows, total = carry
        gaps, before, filtered = rows
        transitions, pull_back = jax.vjp(lambda params: build(params, gaps), params)
        later_rows, later = kalman.run_smoother(transitions.F, filtered, sensors, later_rows)
        slopes, noise = _slopes(transitions, before, filtered, later)
        return (later_rows, jax.tree.map(jnp.add, total, pull_back(slopes)[0])), (noise, -later.u[..., 0])

    nothing = kalman.nothing_later(jax.tree.map(lambda a: a[0], filtered))
    begin = nothing, jax.tree.map(jnp.zeros_like, params)
    (later_rows, slope), (noise, by_value) = _scan((gaps, before, filtered), block, begin, reverse=True)
    initial, _ = kalman.likelihood_slopes(later_rows)
    by_sensors = Sensors(jnp.zeros_like(sensors.H), jnp.sum(noise, axis=(0, 1)))
    by_value = by_value.reshape(-1, values.shape[1])[: values.shape[0]]
    return *jax.tree.map(lambda a: weight * a, (slope, initial, by_sensors)), None, weight * by_value, None


log_marginal_likelihood.defvjp(_forward, _backward)


def _slopes(transitions: Transitions, before: Gaussian, filtered: Filtered, later: Backward):
    """The derivatives of the log-likelihood in each F and Q, and in the noise variances."""
    last = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[:-1]]), before, filtered.updated)
    Q, noise = kalman.likelihood_slopes(later)
    F = dot(later.r, jnp.swapaxes(last.mean, -1, -2)) + 2 * dot(dot(Q, transitions.F), last.covariance)
    return Transitions(F, Q), noise


def _blocks(rows: Any) -> Any:
    """The rows in blocks of equal size; those that fill up the last are 0: no time passes, nothing is observed."""
    size = jax.tree.leaves(rows)[0].shape[0]
    count = -(-size // _BLOCK)

    def cut(a):
        return jnp.pad(a, [(0, -size % count)] + [(0, 0)] * (a.ndim - 1)).reshape(count, -1, *a.shape[1:])

    return jax.tree.map(cut, rows)


def _scan(blocks: Any, step: Callable, begin: Any, reverse: bool = False):
    """`jax.lax.scan`; over a single block, its step alone."""
    if jax.tree.leaves(blocks)[0].shape[0] > 1:
        return jax.lax.scan(step, begin, blocks, reverse=reverse)
    end, made = step(begin, jax.tree.map(lambda a: a[0], blocks))
    return end, jax.tree.map(lambda a: a[None], made)
