"""The latent model y = z + o + e as a linear Gaussian state space: Matérn kernels, O(N).

Per state z is a Matérn process, carried as (z, ż[, z̈]); o is the latent Ornstein-Uhlenbeck process
do = −γ o dt + G dw with o(t_1) = 0 (equation 8 of the paper), which couples the states through G: this is Ω (16 to 21)
without its matrix. The state vector holds the Matérn blocks first, then o.

A Matérn process of n derivatives, z included, solves (d/dt + λ)ⁿ z = white noise, λ = √(2n − 1)/length. With time in
units of 1/λ its matrix is N − I, where N is nilpotent: e^{(N − I)u} = e^{−u} Σ_{p<n} N^p u^p/p!.
"""

import functools
import math
import operator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar, Times
from sdefit.gp.latent import Conditional, Draws, LatentParams, Posterior, Solver, row_normals
from sdefit.ssm import kalman
from sdefit.ssm.kalman import Observations, Sensors, Transitions
from sdefit.ssm.likelihood import log_marginal_likelihood

ORDER = {"matern52": 3, "matern32": 2}  # how many derivatives of z are carried, z itself included

_FOREVER = 350.0  # e^{−2u} is nothing there
_TERMS = 22  # of a series whose terms are below (2u)^k/k!, u ≤ 1


class StateSpace(Solver):
    """Kalman filtering and smoothing, for kernels with a state-space form."""

    kernel: str = eqx.field(kw_only=True)

    def log_evidence(self, params: LatentParams, data: Observations) -> Scalar:
        initial, sensors = self._observed(params)
        gaps = _gaps(data.times)
        return log_marginal_likelihood(self._transitions, params, initial, sensors, gaps, data.values, data.observed)

    def posterior(self, params: LatentParams, data: Observations) -> Posterior:
        given = self.condition(params, data)
        _, later = kalman.run_smoother(given.transitions.F, given.filtered, given.sensors)
        mean, covariance = kalman.smoothed(given.filtered, later)
        z, dz, o = _split(mean[..., 0], given.per)
        variance = jnp.einsum("kd,nde,ke->nk", given.sensors.H, covariance, given.sensors.H)
        return Posterior(z, dz, o, z + o, jnp.sqrt(jnp.maximum(variance, 0.0)))

    def condition(self, params: LatentParams, data: Observations) -> "StateSpaceConditional":
        initial, sensors = self._observed(params)
        transitions = self._transitions(params, _gaps(data.times))
        first = kalman.Gaussian(jnp.zeros_like(initial[:, :1]), initial)
        _, filtered = kalman.run_filter(first, transitions, sensors, data.values[..., None], data.observed)
        return StateSpaceConditional(initial, sensors, transitions, filtered, data.values, ORDER[self.kernel])

    def _observed(self, params: LatentParams) -> tuple[Float[Array, "dim dim"], Sensors]:
        """The covariance of the first state (stationary z, o = 0), and y = z + o + e."""
        per, states = ORDER[self.kernel], params.scale.size
        stationary = jax.vmap(functools.partial(matern_stationary, per))(params.scale, params.length)
        o = jnp.zeros((1, states, states), params.G.dtype)
        rows = np.zeros((states, (per + 1) * states))
        rows[np.arange(states), per * np.arange(states)] = 1
        rows[np.arange(states), per * states + np.arange(states)] = 1
        initial = _stacked(stationary[:, None], o)[0]
        return initial, Sensors(jnp.asarray(rows, params.G.dtype), params.noise**2 + self.jitter)

    def _transitions(self, params: LatentParams, gaps: Times) -> Transitions:
        per, states = ORDER[self.kernel], params.scale.size
        z = jax.vmap(functools.partial(matern_steps, per), in_axes=(None, 0, 0))(gaps, params.scale, params.length)
        decay = jnp.exp(-params.ou_rate * gaps)
        fraction = -jnp.expm1(-2 * params.ou_rate * gaps) / (2 * params.ou_rate)
        return Transitions(
            _stacked(z.F, decay[:, None, None] * jnp.eye(states, dtype=gaps.dtype)[None]),
            _stacked(z.Q, fraction[:, None, None] * (params.G @ params.G.T)[None]),
        )


class StateSpaceConditional(Conditional):
    """The linear model with its forward pass done."""

    initial: Float[Array, "dim dim"]
    sensors: Sensors
    transitions: Transitions
    filtered: kalman.Filtered
    values: Float[Array, "times state"]
    per: int = eqx.field(static=True)

    def draw(self, samples: int, key) -> Draws:
        n, k = self.values.shape
        noise = row_normals(key, n, (self.initial.shape[0] + k, samples // 2), self.values.dtype)
        noise = jnp.concatenate([noise, -noise], axis=-1)
        return self.draw_from(noise[:, :-k], noise[:, -k:])

    def draw_from(self, state_noise: Array, observation_noise: Array) -> Draws:
        """The draws that these standard normal numbers make."""
        model = self.initial, self.transitions, self.sensors, self.filtered, self.values
        paths = kalman.draw_posterior(*model, state_noise, observation_noise)
        return Draws(*_split(paths.transpose(2, 0, 1), self.per))


def _gaps(times: Times) -> Times:
    return jnp.diff(times, prepend=times[:1])


def _split(states: Float[Array, "*any dim"], per: int) -> tuple[Array, Array, Array]:
    """z, ż and o out of state vectors."""
    K = states.shape[-1] // (per + 1)
    first = per * np.arange(K)
    return states[..., first], states[..., first + 1], states[..., per * K :]


def _stacked(per_state: Float[Array, "state times per per"], last: Float[Array, "times state state"]):
    """Block-diagonal matrices per time: the block of every state, then a block that couples the states."""
    states, times, per, _ = per_state.shape
    apart = (
        jnp.eye(states, dtype=per_state.dtype)[None, :, None, :, None]
        * per_state.transpose(1, 0, 2, 3)[:, :, :, None, :]
    )
    blocks = apart.reshape(times, states * per, -1)
    above = jnp.zeros((times, states * per, states), per_state.dtype)
    top = jnp.concatenate([blocks, above], axis=2)
    return jnp.concatenate([top, jnp.concatenate([above.transpose(0, 2, 1), last], axis=2)], axis=1)


def matern_steps(order: int, gaps: Times, scale: Scalar, length: Scalar) -> Transitions:
    """Transition and process noise of a Matérn process and its derivatives over each gap."""
    to_units, stretch = _units(order, scale, length)
    u = _lam(order, length) * gaps
    fading = jnp.exp(-u)
    transition = _combined([u**p * fading for p in range(order)], _unit(order).flow)
    return Transitions(to_units[None] * transition, stretch[None] * _process(order, u))


def matern_stationary(order: int, scale: Scalar, length: Scalar) -> Float[Array, "per per"]:
    """Covariance of a stationary Matérn process and its derivatives."""
    return _units(order, scale, length)[1] * _unit(order).stationary


def _lam(order: int, length: Scalar) -> Scalar:
    return np.sqrt(2 * order - 1) / length


def _units(order: int, scale: Scalar, length: Scalar) -> tuple[Float[Array, "per per"], Float[Array, "per per"]]:
    """What turns transitions and covariances of the unit process, of λ = 1 and scale 1, into those of this one."""
    row, column, lam = np.arange(order)[:, None], np.arange(order)[None, :], _lam(order, length)
    return lam ** (row - column), scale**2 * lam ** (row + column)


class _Unit(NamedTuple):
    """The Matérn process of λ = 1 and scale 1."""

    flow: np.ndarray  # e^{u} times its transition over u: coefficients of u^p
    process: np.ndarray  # what the moments ∫ v^p e^{−2v} dv are to be multiplied by
    stationary: np.ndarray


@functools.cache
def _unit(order: int) -> _Unit:
    N = np.eye(order) + np.eye(order, k=1)
    N[-1] -= [math.comb(order, k) for k in range(order)]
    flow = np.array([np.linalg.matrix_power(N, p) / math.factorial(p) for p in range(order)])
    kicked = flow[:, :, -1]
    process = np.zeros((2 * order - 1, order, order))
    for p, q in np.ndindex(order, order):
        process[p + q] += np.outer(kicked[p], kicked[q])
    forever = np.array([math.factorial(p) / 2 ** (p + 1) for p in range(2 * order - 1)])
    stationary = np.tensordot(forever, process, axes=1)
    return _Unit(flow, process / stationary[0, 0], stationary / stationary[0, 0])


def _combined(weights: list[Times], matrices: np.ndarray) -> Float[Array, "times per per"]:
    terms = (weight[:, None, None] * matrix[None] for weight, matrix in zip(weights, matrices, strict=True))
    return functools.reduce(operator.add, terms)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _process(order: int, u: Times) -> Float[Array, "times per per"]:
    """The process noise of the unit process over u: an integral, whose derivative is the integrand.

    Over short gaps P − A P Aᵀ loses all digits of the z entry (of relative size u⁵ for Matérn 5/2); sums of moments
    lose none.
    """
    return _combined(_moments(2 * order - 2, u), _unit(order).process)


@_process.defjvp
def _(order: int, primals, tangents):
    (u,), (du,) = primals, tangents
    late = jnp.minimum(u, _FOREVER)
    fading = du * jnp.exp(-2 * late)
    slope = _combined([late**p * fading for p in range(2 * order - 1)], _unit(order).process)
    return _process(order, u), slope


def _moments(last: int, u: Times) -> list[Times]:
    """∫_0^u v^p e^{−2v} dv for p = 0 … `last`, to full relative precision.

    By parts, each follows from its neighbour. Towards lower p all terms are positive, and the last moment has a series
    of positive terms; beyond u = 1 that is long, but going to higher p loses nothing either.
    """
    late = jnp.minimum(u, _FOREVER)
    short_gap, short = late <= 1, jnp.minimum(late, 1.0)
    fading = [late**p * jnp.exp(-2 * late) for p in range(last + 1)]
    series = jnp.ones_like(u)
    for k in range(_TERMS, 0, -1):
        series = 1 + 2 / (last + 1 + k) * short * series
    down = [short * fading[last] * series / (last + 1)]
    for p in range(last, 0, -1):
        down.insert(0, (2 * down[0] + fading[p]) / p)
    up = [-jnp.expm1(-2 * late) / 2]
    for p in range(1, last + 1):
        up.append((p * up[-1] - fading[p]) / 2)
    # The barrier keeps the compiler from computing them again for each entry of a matrix.
    return jax.lax.optimization_barrier([jnp.where(short_gap, a, b) for a, b in zip(down, up, strict=True)])
