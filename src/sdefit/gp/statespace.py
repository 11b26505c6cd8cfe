"""The latent model y = z + o + e as a linear Gaussian state space: Matérn kernels, O(N).

Per state z is a Matérn process, carried as (z, ż[, z̈]); o is the latent Ornstein-Uhlenbeck process
do = −γ o dt + G dw with o(t_1) = 0, which couples the states through G. The state vector holds the
Matérn blocks first, then o.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar, Times
from sdefit.gp import kalman
from sdefit.gp.kalman import LinearModel
from sdefit.gp.latent import Conditional, Data, Draws, Hyper, Posterior, Solver, row_normals
from sdefit.linalg import dot

Pieces = tuple[Float[Array, "times dim dim"], Float[Array, "times dim dim"], Float[Array, "dim dim"]]
EachState = tuple[
    Float[Array, "state times per per"], Float[Array, "state times per per"], Float[Array, "state per per"]
]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2


class StateSpace(Solver):
    """Kalman filtering and smoothing, for kernels with a state-space form."""

    kernel: str = eqx.field(kw_only=True)

    def log_evidence(self, hyper: Hyper, data: Data) -> Scalar:
        return kalman.log_likelihood(self._model(hyper, data.times), data.values, data.observed)

    def posterior(self, hyper: Hyper, data: Data) -> Posterior:
        model = self._model(hyper, data.times)
        mean, cov = kalman.smooth(model, kalman.run_filter(model, data.values, data.observed))
        z, dz, o = _split(mean, ORDER[self.kernel])
        variance = jnp.einsum("kd,nde,ke->nk", model.observe, cov, model.observe)
        return Posterior(z, dz, o, z + o, jnp.sqrt(jnp.maximum(variance, 0.0)))

    def condition(self, hyper: Hyper, data: Data) -> "StateSpaceConditional":
        model = self._model(hyper, data.times)
        done = kalman.run_filter(model, data.values, data.observed)
        return StateSpaceConditional(model, done, data.values, ORDER[self.kernel])

    def _model(self, hyper: Hyper, times: Times) -> LinearModel:
        gaps = jnp.diff(times, prepend=times[:1])
        matern = jax.vmap(MATERN[self.kernel], in_axes=(None, 0, 0))(gaps, hyper.scale, hyper.length)
        return latent_model(gaps, matern, hyper.G, hyper.noise**2 + self.jitter, hyper.rate)


class StateSpaceConditional(Conditional):
    """The linear model with its forward pass done."""

    model: LinearModel
    done: kalman.Filtered
    values: Float[Array, "times state"]
    per: int = eqx.field(static=True)

    def draw(self, samples: int, key) -> Draws:
        n, k = self.values.shape
        noise = row_normals(key, n, (self.model.initial.shape[0] + k, samples // 2), self.values.dtype)
        noise = jnp.concatenate([noise, -noise], axis=-1)
        paths = kalman.draw(self.model, self.done, self.values, noise[:, :-k], noise[:, -k:])
        return Draws(*_split(paths.transpose(2, 0, 1), self.per))


def _split(states: Float[Array, "*any dim"], per: int) -> tuple[Array, Array, Array]:
    """z, ż and o out of state vectors."""
    K = states.shape[-1] // (per + 1)
    first = per * np.arange(K)
    return states[..., first], states[..., first + 1], states[..., per * K :]


def latent_model(
    gaps: Times, matern: EachState, G: Float[Array, "state state"], noise: Float[Array, "state"], rate: Scalar
) -> LinearModel:
    """The linear model of y = z + o + e from the pieces of each state's Matérn process; `noise` is a variance."""
    transition, process, stationary = matern
    states, per = G.shape[0], transition.shape[-1]
    decay = jnp.exp(-rate * gaps)
    share = -jnp.expm1(-2 * rate * gaps) / (2 * rate)
    eye = jnp.eye(states, dtype=gaps.dtype)
    rows = np.zeros((states, (per + 1) * states))
    rows[np.arange(states), per * np.arange(states)] = 1
    rows[np.arange(states), per * states + np.arange(states)] = 1
    return LinearModel(
        _stacked(transition, decay[:, None, None] * eye[None]),
        _stacked(process, share[:, None, None] * (G @ G.T)[None]),
        _stacked(stationary[:, None], jnp.zeros((1, states, states), gaps.dtype))[0],
        jnp.asarray(rows, gaps.dtype),
        noise,
    )


def _stacked(each: Float[Array, "state times per per"], last: Float[Array, "times state state"]):
    """Block-diagonal matrices per time: the block of every state, then a block that couples the states."""
    states, times, per, _ = each.shape
    apart = jnp.eye(states, dtype=each.dtype)[None, :, None, :, None] * each.transpose(1, 0, 2, 3)[:, :, :, None, :]
    blocks = apart.reshape(times, states * per, -1)
    above = jnp.zeros((times, states * per, states), each.dtype)
    top = jnp.concatenate([blocks, above], axis=2)
    return jnp.concatenate([top, jnp.concatenate([above.transpose(0, 2, 1), last], axis=2)], axis=1)


def matern52(
    gaps: Times, scale: Scalar, length: Scalar
) -> tuple[Float[Array, "times 3 3"], Float[Array, "times 3 3"], Float[Array, "3 3"]]:
    """Transition, process noise and stationary covariance of (z, ż, z̈) over each gap.

    k(r) = scale² (1 + λr + λ²r²/3) e^{−λr} with λ = √5/length.
    """
    lam = jnp.sqrt(5.0) / length
    transition = _transition52(lam, gaps)
    var, slope = scale**2, scale**2 * lam**2 / 3
    zero = jnp.zeros_like(var)
    stationary = jnp.stack(
        [
            jnp.stack([var, zero, -slope]),
            jnp.stack([zero, slope, zero]),
            jnp.stack([-slope, zero, var * lam**4]),
        ]
    )

    def arm(s):
        return [s**2 / 2, s - lam * s**2 / 2, 1 - 2 * lam * s + lam**2 * s**2 / 2]

    return transition, _process(gaps, lam, transition, stationary, 16 / 3 * var * lam**5, arm), stationary


def matern32(gaps: Times, scale: Scalar, length: Scalar) -> Pieces:
    """Transition, process noise and stationary covariance of (z, ż) over each gap.

    k(r) = scale² (1 + λr) e^{−λr} with λ = √3/length.
    """
    lam = jnp.sqrt(3.0) / length
    t, lt = gaps, lam * gaps
    rows = [[1 + lt, t], [-lam * lt, 1 - lt]]
    transition = jnp.exp(-lt)[:, None, None] * jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
    stationary = jnp.diag(jnp.stack([scale**2, scale**2 * lam**2]))

    def arm(s):
        return [s, 1 - lam * s]

    return transition, _process(gaps, lam, transition, stationary, 4 * scale**2 * lam**3, arm), stationary


MATERN: dict[str, Callable[[Times, Scalar, Scalar], Pieces]] = {"matern52": matern52, "matern32": matern32}
ORDER = {"matern52": 3, "matern32": 2}  # how many derivatives of z are carried, z itself included


def _process(gaps, lam, transition, stationary, density, arm):
    """∫ e^{Fs} L Lᵀ e^{Fᵀs} ds over each gap, where e^{Fs} L = e^{−λs} arm(s).

    Over short gaps P − A P Aᵀ loses all digits of the z entry (of relative size (λΔ)⁵ for Matérn 5/2);
    quadrature loses none, and is positive semi-definite by construction.
    """
    s = gaps[:, None] * _NODES[None, :]
    along = jnp.exp(-lam * s)[..., None] * jnp.stack(arm(s), axis=-1)
    weighted = (density * gaps[:, None] * _WEIGHTS[None, :])[..., None] * along
    short = jnp.sum(weighted[..., :, None] * along[..., None, :], axis=1)
    long = stationary[None] - dot(dot(transition, stationary[None]), jnp.swapaxes(transition, 1, 2))
    return jnp.where((lam * gaps < 1.5)[:, None, None], short, long)


def _transition52(lam: Scalar, gaps: Times) -> Float[Array, "times 3 3"]:
    t, lt = gaps, lam * gaps
    rows = [
        [1 + lt + lt**2 / 2, t * (1 + lt), t**2 / 2],
        [-lam * lt**2 / 2, 1 + lt - lt**2, t * (1 - lt / 2)],
        [lam**2 * lt * (lt / 2 - 1), lam * lt * (lt - 3), 1 - 2 * lt + lt**2 / 2],
    ]
    return jnp.exp(-lt)[:, None, None] * jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
