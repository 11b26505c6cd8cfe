"""A model at one θ, in the standardised units of a pool: what a filter needs to know of it.

dx = f(t, x) dt + g(t, x) dw,    y = h(t, x) + e
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.inference.parameterisation import Point, cholesky_psd, estimated_first
from sdefit.linalg import dot
from sdefit.ssm.kalman import Gaussian, Observations
from sdefit.ssm.moments import Diffusivity, Drift, Measurement, value_and_slope

_REST = 20  # Newton steps to where the drift is 0


@dataclasses.dataclass(frozen=True)
class Equation:
    """The model at the θ, G, σ and x(t_1) of a point."""

    model: SDE
    pool: Pool
    point: Point

    def drift(self, origin: Any) -> Drift:
        """f for the series with this origin."""
        drift = self.pool.drift(lambda t, x: self.model.f(t, x, self.point.theta))
        return lambda t, x: drift(t, x, origin)

    def diffusivity(self, origin: Any) -> Float[Array, "state state"] | Diffusivity:
        """g gᵀ: a matrix where it is estimated as one, a function where the model gives g."""
        if self.model.diffusion != "given":
            return self.point.Q
        g = standardised_g(self.model, self.pool, self.point.theta, origin)

        def of(t, x):
            scaled = g(t, x)
            return dot(scaled, scaled.T) + self.point.Q

        return of

    def typical_diffusion(self, path: Float[Array, "series times state"]) -> Float[Array, "state state"]:
        """The lower-triangular G whose G Gᵀ is g gᵀ, averaged along a path where it changes."""
        if self.model.diffusion != "given":
            return cholesky_psd(self.point.Q)

        def along(times, x, origin):
            Q = self.diffusivity(origin)
            return jax.vmap(Q)(times, x) if callable(Q) else Q

        every = over_series(along)(self.pool.times, path, self.pool.origins)
        found = jnp.isfinite(every)
        return cholesky_psd(jnp.sum(jnp.where(found, every, 0.0), axis=(0, 1)) / jnp.maximum(jnp.sum(found, (0, 1)), 1))

    def measurement(self, origin: Any) -> Measurement:
        """h on the scale where the noise of each law is Gaussian, and the variances of the noise."""
        pool, model, theta = self.pool, self.model, self.point.theta
        h = pool.along(lambda t, x: model.h(t, x, theta))
        known = pool.along(lambda t, x: model.noise_std(t, x, theta))

        def of(t, x):
            measured = h(t, x, origin)
            scaled = jnp.stack([law.gaussian_scale(measured[d]) for d, law in enumerate(model.laws)])
            value = (scaled - pool.column_center) / pool.column_scale
            return value, self.point.variance + (known(t, x, origin) / pool.column_scale) ** 2

        return of

    def begin(
        self, data: Observations, origin: Any, first: Float[Array, "beginnings"]
    ) -> tuple[Gaussian, Observations]:
        """The belief about x(t_1) before the rows that are left, and those rows.

        A state that the model gives begins there. One that a column measures begins, under a flat prior, where its
        first observation says, which is then used up. Any other begins at an estimated number, of `first`.
        """
        if isinstance(self.model.initial, str):
            return self.at_rest(data.times[0], origin), data
        given = _given(self.model, self.pool)
        mean, variance = jnp.asarray(given.mean), jnp.asarray(given.variance)
        for i, k in enumerate(estimated_first(self.model)):
            mean = mean.at[k].set(first[i])
        begins = zip(self.model.direct, begins_path(self.model), strict=True)
        columns = [(d, k) for d, (k, begin) in enumerate(begins) if begin]
        if not columns:
            return Gaussian(mean, jnp.diag(variance)), data
        places, states = (np.array(one) for one in zip(*columns, strict=True))
        seen = data.observed[0, places]
        earliest = jnp.argmax(data.observed[:, places], axis=0)
        mean = mean.at[states].set(jnp.take_along_axis(data.values[:, places], earliest[None, :], axis=0)[0])
        _, noise = self.measurement(origin)(data.times[0], mean)
        variance = variance.at[states].set(jnp.where(seen, noise[places], 1.0))
        used = np.isin(np.arange(data.values.shape[1]), places)
        left = data.observed & ~((jnp.arange(data.times.size) == 0)[:, None] & used[None, :])
        return Gaussian(mean, jnp.diag(variance)), Observations(data.times, data.values, left)

    def at_rest(self, t: Scalar, origin: Any) -> Gaussian:
        """x at f = 0, known; or the stationary distribution of the equation linearised there."""
        drift = self.drift(origin)

        def newton(_, x):
            value, slope = value_and_slope(drift, t, x)
            return x - jnp.linalg.solve(slope, value)

        K = len(self.model.states)
        x = jax.lax.fori_loop(0, _REST, newton, jnp.full(K, 0.1) + 0.0 * jnp.sum(self.point.theta))
        if self.model.initial == "rest":
            return Gaussian(x, jnp.zeros((K, K)) + 0.0 * jnp.sum(self.point.theta))
        slope, Q = value_and_slope(drift, t, x)[1], self.diffusivity(origin)
        rate = Q(t, x) if callable(Q) else Q
        # The Lyapunov equation A P + P Aᵀ = −Q as one linear system.
        eye = jnp.eye(K)
        P = jnp.linalg.solve(jnp.kron(slope, eye) + jnp.kron(eye, slope), -rate.reshape(-1, 1)).reshape(K, K)
        return Gaussian(x, 0.5 * (P + P.T))


def standardised_g(
    model: SDE, pool: Pool, theta: Theta, origin: Any
) -> Callable[[Scalar, Float[Array, "state"]], Float[Array, "state noises"]]:
    """The diffusion that a model gives, as a function of standardised time and state."""
    g = pool.along(lambda t, x: model.g(t, x, theta))
    unit = jnp.sqrt(pool.time_scale) / pool.scale[:, None]
    return lambda t, x: unit * g(t, x, origin)


def begins_path(model: SDE) -> tuple[bool, ...]:
    """For each column whether its first row says where the path begins, and is not predicted for that reason."""
    if not model.general:
        return (model.diffusion != "none",) * len(model.observations)
    if isinstance(model.initial, str):
        return (False,) * len(model.observations)
    given = {name for name, *_ in model.initial or ()}
    return tuple(k is not None and model.states[k] not in given for k in model.direct)


@dataclasses.dataclass(frozen=True)
class _Given:
    """What a model gives of x(t_1), in standardised units, and of which states; 0 elsewhere."""

    mean: Array
    variance: Array
    known: tuple[bool, ...]


def _given(model: SDE, pool: Pool) -> _Given:
    assert not isinstance(model.initial, str)
    said = {name: (mean, std) for name, mean, std in model.initial or ()}
    known = tuple(name in said for name in model.states)
    mean, std = (jnp.array([said.get(name, (0.0, 0.0))[i] for name in model.states]) for i in (0, 1))
    mask = np.array(known)
    return _Given(jnp.where(mask, (mean - pool.center) / pool.scale, 0.0), (std / pool.scale) ** 2, known)
