"""Data simulated from a fit and fitted again, many at a time: what the estimates would be in a repetition."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Int, Key
from sdefit.data import Pool, over_series
from sdefit.dynamics.schemes import SCHEMES, draws, march
from sdefit.dynamics.sde import SDE
from sdefit.inference.increments import interpolated
from sdefit.inference.likelihood import step_counts
from sdefit.methods import execution
from sdefit.methods.interface import LikelihoodMethod, Method
from sdefit.programs import PROGRAMS, Run
from sdefit.result import Estimate
from sdefit.uncertainty.importance import sample_posterior

# Simulation steps for each step of the filter: the drift's slope times a step is then at most an eighth, where the
# scheme of order 1.5 errs by far less than data tell.
_FINE = 4
_FACTOR = 4.0  # the most by which a source's G is larger or smaller than the fit's


class Values(eqx.Module):
    """θ, G and σ of many fits or of many sources of data, in the user's units."""

    theta: Float[Array, "draws params"]
    G: Float[Array, "draws state state"]
    noise: Float[Array, "draws state"]


def values_of(theta: Any, G: Any, noise: Any) -> Values:
    """`Values` of NumPy arrays, outside compiled programs."""
    parts: dict[str, Any] = {"theta": np.asarray(theta), "G": np.asarray(G), "noise": np.asarray(noise)}
    return Values(**parts)


class Replicas(NamedTuple):
    """Sources of data near each fit, what was estimated from one set of data of each, and what that took.

    `generating_params` and `found` have a leading axis of fits, then one of draws. `averaged`: whether
    the generating parameters are draws from a posterior.
    """

    generating_params: Values
    found: Values
    averaged: bool
    seconds: float
    compile_seconds: float

    def of(self, i: int) -> "Replicas":
        """Those of one fit."""
        generating_params, found = jax.tree.map(lambda a: a[i], (self.generating_params, self.found))
        return self._replace(generating_params=generating_params, found=found)


def replicas(
    model: SDE, method: Method, pools: Pool, estimates: Estimate, draws: int, key: Key, batch: int
) -> Replicas:
    """Data of sources near each fit, fitted again; `pools` and `estimates` have a leading axis of fits.

    A source is one that the data leave possible, since the truth need not be what was found: with a G too small, as
    where σ takes up some of the noise, intervals would be too short. For a method with a likelihood the sources are
    draws from its posterior. For others the first half of the draws simulates from the fit itself, and what its
    estimates of G and σ miss by, turned round, gives the sources of the second. θ is then the fit's: turned round it
    may be one whose paths blow up, and how far estimates of θ fall depends more on how strong the noises are.
    """
    keys = jax.random.split(key)
    averaged = isinstance(method, LikelihoodMethod)
    init = _from_posterior if averaged else _from_first_half
    which, generating_params, before = init(model, method, pools, estimates, draws, keys[0], batch)
    run = refit(model, method, pools, estimates, which, generating_params, keys[1], batch)

    fits = len(estimates.theta)

    def apart(values: Values) -> Values:
        return jax.tree.map(lambda a: a.reshape(fits, len(which) // fits, *a.shape[1:]), values)

    seconds, compile_seconds = before.seconds + run.seconds, before.compile_seconds + run.compile_seconds
    return Replicas(apart(generating_params), apart(run.value[0]), averaged, seconds, compile_seconds)


Sources = tuple[np.ndarray, Values, Run]  # the fit that each is near, the sources, and what they cost


def _from_first_half(model, method, pools: Pool, estimates: Estimate, draws: int, key: Key, batch: int) -> Sources:
    """Half as many sources as `draws`, from estimates of data of the fits themselves."""
    which = np.repeat(np.arange(len(estimates.theta)), draws // 2)
    here = jax.tree.map(lambda a: a[which], generating_of(pools, estimates))
    first = refit(model, method, pools, estimates, which, here, key, batch)
    return which, reflect(here, first.value[0]), first


def _from_posterior(model, method, pools: Pool, estimates: Estimate, draws: int, key: Key, batch: int) -> Sources:
    """As many sources as `draws`."""
    fits = len(estimates.theta)

    def rows(index: np.ndarray) -> tuple[Any, ...]:
        return *jax.tree.map(lambda a: a[index], (pools, estimates)), index, key

    run = PROGRAMS.run_each(_Possible(draws), model, method, rows, fits, batch)
    which = np.repeat(np.arange(fits), draws)
    return which, values_of(*(a.reshape(len(which), *a.shape[2:]) for a in run.value)), run


@dataclasses.dataclass(frozen=True)
class _Possible:
    """The program of so many draws from the posterior of each of many fits, in the user's units."""

    draws: int

    def __call__(self, model: SDE, method: Method, pools: Pool, estimates: Estimate, index: Array, key: Key):
        def one(pool, estimate, i):
            theta, G, noise = sample_posterior(model, method, pool, estimate, self.draws, jax.random.fold_in(key, i))
            return theta, jax.vmap(pool.unstandardise_diffusion)(G), pool.unstandardise_std(noise)

        return execution.vmap_series(one, pools, estimates, index)


def refit(
    model: SDE,
    method: Method,
    pools: Pool,
    estimates: Estimate,
    which: np.ndarray,
    generating_params: Values,
    key: Key,
    batch: int,
) -> Run:
    """The `Values` and status codes estimated from data of each source; `which` is the fit that it is near.

    `pools` and `estimates` have a leading axis of fits. The i-th uses `jax.random.fold_in(key, i)`; at most `batch` of
    them run at a time in one program.
    """

    def rows(index: np.ndarray) -> tuple[Any, ...]:
        init = which[index].astype(np.int32)
        return pools, estimates, init, jax.tree.map(lambda a: a[index], generating_params), index, key

    return PROGRAMS.run_each(_refits, model, method, rows, len(which), batch)


def _refits(
    model: SDE,
    method: Method,
    pools: Pool,
    estimates: Estimate,
    which: Array,
    generating_params: Values,
    index: Array,
    key: Key,
) -> tuple[Values, Int[Array, "draws"]]:
    def one(row, source: Values, i):
        pool, init = jax.tree.map(lambda a: a[row], (pools, estimates))
        G = source.G * jnp.sqrt(pool.time_scale) / pool.scale[:, None]
        init = eqx.tree_at(lambda e: (e.theta, e.G, e.noise), init, (source.theta, G, source.noise / pool.scale))
        data_key, fit_key = jax.random.split(jax.random.fold_in(key, i))
        again = replica(model, pool, init, data_key)
        found = method.refit(model, again, in_units_of(again, pool, init), fit_key)
        # What is not asked for (paths, traces) is not computed either.
        return Values(
            found.theta, again.unstandardise_diffusion(found.G), again.unstandardise_std(found.noise)
        ), found.code

    return execution.vmap_series(one, which, generating_params, index)


def generating_of(pools: Pool, estimates: Estimate) -> Values:
    """What was estimated, in the user's units; pools and estimates have a leading axis of fits."""
    scale, time_scale = np.asarray(pools.scale), np.asarray(pools.time_scale)
    G = scale[:, :, None] * np.asarray(estimates.G) / np.sqrt(time_scale)[:, None, None]
    return values_of(estimates.theta, G, scale * np.asarray(estimates.noise))


def reflect(here: Values, found: Values) -> Values:
    """Sources whose G and σ lie as far from `here` as those of `found` do, on the other side.

    Far means by a factor for G, which may be known no better than to one: from G to G*, and so from G G*⁻¹ G to G. σ
    counts by differences, up to its sign, which no data see.

    A draw that failed leaves its source where it was.
    """
    failed = ~finite(found)
    noise = np.where(failed[:, None], here.noise, np.abs(2 * here.noise - found.noise))
    tame = np.where(failed[:, None, None], here.G, found.G)
    return values_of(here.theta, _opposite(np.asarray(here.G), tame), noise)


def _opposite(G: np.ndarray, other: np.ndarray) -> np.ndarray:
    """G G*⁻¹ G for many pairs of lower-triangular G and G*, both as if within a factor `_FACTOR` of each other."""
    K, every = G.shape[-1], np.arange(G.shape[-1])
    size = np.linalg.norm(G, axis=-1)
    # A singular G leaves a direction without noise; a hundredth of the row's spread stands for it.
    own = np.maximum(G[:, every, every], 1e-2 * size)
    firm = np.where(np.eye(K, dtype=bool), own[:, :, None], G)
    firm = np.where((size > 0).all(axis=-1)[:, None, None], firm, np.eye(K))
    free = np.maximum(other[:, every, every], 1e-300)
    capped = np.clip(free, own / _FACTOR, np.maximum(own, 1e-300) * _FACTOR)
    columns = other * (capped / free)[:, None, :]
    columns = np.where(np.eye(K, dtype=bool), np.maximum(capped, 1e-300)[:, None, :], columns)
    turned = np.tril(G @ np.linalg.solve(columns, firm))
    growth = np.linalg.norm(turned, axis=-1) / np.maximum(size, 1e-300)
    turned = turned * np.minimum(1.0, _FACTOR / np.maximum(growth, 1e-300))[..., None]
    return np.where((size > 0).all(axis=-1)[:, None, None], turned, G)


def finite(values: Values) -> np.ndarray:
    """Which draws ended in finite numbers."""
    flat = [np.asarray(part).reshape(len(part), -1) for part in (values.theta, values.G, values.noise)]
    return np.isfinite(np.concatenate(flat, axis=1)).all(axis=1)


def in_units_of(pool: Pool, own: Pool, estimate: Estimate) -> Estimate:
    """An estimate from the pool `own` in the standardised units of another pool with the same clock."""
    ratio = own.scale / pool.scale
    mean = (own.unstandardise_path(estimate.mean) - pool.center[None, None, :]) / pool.scale[None, None, :]
    parts = (ratio[:, None] * estimate.G, ratio * estimate.noise, mean)
    return eqx.tree_at(lambda e: (e.G, e.noise, e.mean), estimate, parts)


def replica(model: SDE, pool: Pool, source: Estimate, key: Key) -> Pool:
    """A pool like the given one, with values simulated from `source` at the same times and gaps, standardised anew."""
    path_key, noise_key = jax.random.split(key)
    noise = source.noise[None, None, :] * jax.random.normal(noise_key, pool.values.shape)
    counts = _FINE * jnp.maximum(step_counts(model, pool, interpolated(pool), source.theta[None]), 1)
    values = paths(model, pool, source, counts, path_key) + noise
    count = jnp.maximum(jnp.sum(pool.observed, axis=(0, 1)), 1)
    center = jnp.sum(jnp.where(pool.observed, values, 0.0), axis=(0, 1)) / count
    away = jnp.where(pool.observed, values - center[None, None, :], 0.0)
    scale = jnp.sqrt(jnp.sum(away**2, axis=(0, 1)) / count)
    parts = (away / scale[None, None, :], pool.center + pool.scale * center, pool.scale * scale)
    return eqx.tree_at(lambda p: (p.values, p.center, p.scale), pool, parts)


def paths(
    model: SDE, pool: Pool, source: Estimate, counts: Int[Array, "series times"], key: Key
) -> Float[Array, "series times state"]:
    """States simulated from `source` at every time of the pool, in `counts` steps to each, standardised."""
    drift = pool.drift(lambda t, x: model.f(t, x, source.theta))

    def one(times, origin, first, counts, key):
        def own(t, x):
            return drift(t, x, origin)

        return march(SCHEMES["shark"], own, source.G, first, times, counts[1:], draws(key, first.size))[0]

    keys = jax.random.split(key, pool.times.shape[0])
    return over_series(one)(pool.times, pool.origins, source.mean[:, 0], counts, keys)
