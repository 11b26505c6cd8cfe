"""The latent model with full covariance matrices: any kernel, O(N³).

Vectors are unrolled state by state as in the paper. An entry that was not observed is replaced by an
independent standard normal number that is 0: it adds nothing to the evidence and tells nothing.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl

from sdefit._types import Array, Float, Scalar, Times
from sdefit.gp.kernels import Kernel
from sdefit.gp.latent import AncestralSampler, Conditional, Draws, LatentParams, Posterior, Solver, row_normals
from sdefit.ssm.kalman import Observations


class _Joint(eqx.Module):
    """Prior covariances among y and s = (z, ż, o), all unrolled."""

    yy: Float[Array, "all all"]
    sy: Float[Array, "three all"]
    ss: Float[Array, "three three"]


class Dense(Solver):
    """Full matrices, for kernels that have no state-space form and as the check on those that do."""

    kernel: Kernel = eqx.field(kw_only=True)

    def log_evidence(self, params: LatentParams, data: Observations) -> Scalar:
        z, o = self._kernel_blocks(params, data.times)[0], _ou(params, data.times)
        cov, y = _observed_only(z + o, params, data, self.jitter)
        return log_normal(cov, y) + 0.5 * jnp.log(2 * jnp.pi) * jnp.sum(~data.observed)

    def posterior(self, params: LatentParams, data: Observations) -> Posterior:
        mean, cov = self._conditional(params, data)
        z, dz, o = mean
        both = cov[0][0] + cov[2][2] + cov[0][2] + cov[2][0]
        std = jnp.sqrt(jnp.maximum(jnp.diagonal(both), 0.0)).reshape(z.shape[::-1]).T
        return Posterior(z, dz, o, z + o, std)

    def condition(self, params: LatentParams, data: Observations) -> "DenseConditional":
        mean, cov = self._conditional(params, data)
        n, k = data.values.shape
        # Time by time: a row of padding comes last, and so leaves the draws of the rows before it as they are.
        full = jnp.block([list(row) for row in cov]).reshape(3 * k, n, 3 * k, n)
        full = full.transpose(1, 0, 3, 2).reshape(n * 3 * k, n * 3 * k)
        prior = jnp.diagonal(self._joint(params, data).ss).reshape(3 * k, n).T.reshape(-1)
        # A jitter far below the size of the draws, yet above what rounding leaves of the subtraction from the prior.
        chol = jnp.linalg.cholesky(full + jnp.diag(1e-8 * jnp.diagonal(full) + 1e-12 * (prior + 1)))
        return DenseConditional(jnp.stack(mean), chol)

    def _conditional(self, params: LatentParams, data: Observations):
        joint = self._joint(params, data)
        cov, y = _observed_only(joint.yy, params, data, self.jitter)
        sy = jnp.where(data.observed.T.reshape(1, -1), joint.sy, 0.0)
        chol = jnp.linalg.cholesky(cov)
        half = jsl.solve_triangular(chol, sy.T, lower=True)
        mean = half.T @ jsl.solve_triangular(chol, y, lower=True)
        n, k = data.values.shape
        left = joint.ss - half.T @ half
        blocks = tuple(tuple(jnp.split(row, 3, axis=1)) for row in jnp.split(left, 3))
        return tuple(m.T for m in mean.reshape(3, k, n)), blocks

    def _joint(self, params: LatentParams, data: Observations) -> _Joint:
        zz, dzz, zdz, dzdz = self._kernel_blocks(params, data.times)
        oo = _ou(params, data.times)
        none = jnp.zeros_like(zz)
        ss = jnp.block([[zz, zdz, none], [dzz, dzdz, none], [none, none, oo]])
        return _Joint(zz + oo, jnp.concatenate([zz, dzz, oo]), ss)

    def _kernel_blocks(self, params: LatentParams, times: Times):
        blocks = jax.vmap(self.kernel.blocks, in_axes=(None, 0, 0, 0))(times, params.scale, params.length, params.shape)
        return tuple(jsl.block_diag(*block) for block in blocks)


class DenseConditional(Conditional):
    """Means of z, ż, o and the Cholesky factor of their joint covariance, time by time."""

    mean: Float[Array, "three times state"]
    chol: Float[Array, "all all"]

    def draw(self, samples: int, key) -> Draws:
        return Draws(*_Gaussian(self.mean, self.chol).draw(samples, key))

    def sampler(self) -> "DenseSampler":
        _, n, k = self.mean.shape
        z, dz, o = jnp.moveaxis(self.chol.reshape(n, 3, k, -1), 1, 0)
        path = _Gaussian.of(jnp.stack([self.mean[0] + self.mean[2], self.mean[2]]), jnp.stack([z + o, o]))
        return DenseSampler(_Gaussian.of(self.mean[1:2], dz[None]), path)


class DenseSampler(AncestralSampler):
    """ż and (x, o) by Cholesky factors of their own, a ninth and four ninths of the joint one.

    The factors are in single precision: what they give is added to means that have all digits, and rounding it is far
    below the scatter of a batch.
    """

    dz: "_Gaussian"
    path: "_Gaussian"

    def draw_dz(self, samples: int, key) -> Float[Array, "samples times state"]:
        return self.dz.draw(samples, key)[0]

    def draw_path(self, samples: int, key) -> Float[Array, "2 samples times state"]:
        return self.path.draw(samples, key)


class _Gaussian(eqx.Module):
    """Some functions of time, jointly Gaussian: their means, and the Cholesky factor of all, time by time."""

    mean: Float[Array, "parts times state"]
    chol: Float[Array, "all all"]

    @classmethod
    def of(cls, mean: Float[Array, "parts times state"], factor: Float[Array, "parts times state all"]) -> "_Gaussian":
        """The one with this mean, and the covariance `factor` `factor`ᵀ."""
        rows = jnp.swapaxes(factor, 0, 1).reshape(mean.size, -1)
        full = rows @ rows.T
        # As in `condition`; the last term lets a part that is known exactly have a factor.
        chol = jnp.linalg.cholesky(full + jnp.diag(1e-8 * jnp.diagonal(full) + 1e-12))
        return cls(mean, chol.astype(jnp.float32))

    def draw(self, samples: int, key) -> Float[Array, "parts samples times state"]:
        parts, n, k = self.mean.shape
        noise = row_normals(key, n, (parts * k, samples // 2), self.chol.dtype).reshape(-1, samples // 2)
        moved = jnp.matmul(self.chol, noise, precision="highest").reshape(n, parts, k, samples // 2)
        moved = jnp.concatenate([moved, -moved], axis=-1).transpose(1, 3, 0, 2)
        return self.mean[:, None] + moved.astype(self.mean.dtype)


def _ou(params: LatentParams, times: Times) -> Float[Array, "all all"]:
    """B Ω Bᵀ, the covariance of o (equations 16 to 21 of the paper), with time counted from the first observation."""
    t = times - times[0]
    apart, together = jnp.abs(t[:, None] - t[None, :]), t[:, None] + t[None, :]
    omega = jnp.exp(-params.ou_rate * apart) * -jnp.expm1(-params.ou_rate * (together - apart)) / (2 * params.ou_rate)
    return jnp.kron(params.G @ params.G.T, omega)


def _observed_only(cov, params: LatentParams, data: Observations, jitter: float):
    seen = data.observed.T.reshape(-1)
    noise = jnp.repeat(params.noise**2 + jitter, data.times.shape[0])
    cov = jnp.where(seen[:, None] & seen[None, :], cov, 0.0) + jnp.diag(jnp.where(seen, noise, 1.0))
    return cov, jnp.where(seen, data.values.T.reshape(-1), 0.0)


@jax.custom_vjp
def log_normal(cov: Float[Array, "all all"], y: Float[Array, "all"]) -> Scalar:
    """log N(y | 0, cov), with the derivative ½(ααᵀ − cov⁻¹), α = cov⁻¹y, written out."""
    return _log_normal(cov, y)[0]


def _log_normal(cov, y):
    chol = jnp.linalg.cholesky(cov)
    alpha = jsl.cho_solve((chol, True), y)
    value = -0.5 * y @ alpha - jnp.sum(jnp.log(jnp.diagonal(chol))) - 0.5 * y.size * jnp.log(2 * jnp.pi)
    return value, (chol, alpha)


def _log_normal_back(saved, weight):
    chol, alpha = saved
    inverse = jsl.cho_solve((chol, True), jnp.eye(alpha.size, dtype=alpha.dtype))
    return weight * 0.5 * (jnp.outer(alpha, alpha) - inverse), -weight * alpha


log_normal.defvjp(_log_normal, _log_normal_back)
