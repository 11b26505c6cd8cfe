"""Stage 1 of MaRS and AReS: the latent model y = z + o + e of a pool, its evidence, and the path it gives."""

import equinox as eqx
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Bool, Float, Scalar
from sdefit.data import Pool, over_series
from sdefit.dynamics.diffusion import DiffusionShape, even_scale
from sdefit.dynamics.sde import SDE
from sdefit.priors import noise_levels
from sdefit.ssm.kalman import Observations


class LatentGPFit(eqx.Module):
    """φ, σ and G of maximum evidence: their coordinates, the log evidence there, and whether the search converged."""

    u: Float[Array, "coordinates"]
    log_evidence: Scalar
    converged: Bool[Array, ""]


class LatentProcess(eqx.Module):
    """Settings of the latent process; see `sdefit.MaRS` for what they mean."""

    kernel: str
    ou_rate: float | None
    evidence_starts: int
    iterations: int
    jitter: float
    shared: bool = False  # φ and σ are the same for all states

    def evidence(self, model: SDE, pool: Pool) -> gp.Evidence:
        """The evidence of φ, σ and G for these data."""
        return gp.Evidence(
            gp.solver_for(self.kernel, self.jitter),
            DiffusionShape(model.diffusion, len(model.states)),
            gp.get_kernel(self.kernel).shaped,
            even_scale(pool.scale),
            pool.time_scale if self.ou_rate is not None else jnp.ones(()),
            self.ou_rate,
            self.shared,
        )

    def fit(self, model: SDE, pool: Pool) -> LatentGPFit:
        """φ, σ and G by maximum evidence: p(y | φ, σ, G) with z and o integrated out (paper, eqs. 22, 23)."""
        data = observations(pool)
        found = gp.fit_evidence(
            self.evidence(model, pool), data, noise_levels(data), self.evidence_starts, self.iterations
        )
        return LatentGPFit(found.x, -found.value, found.converged)

    def path(self, model: SDE, pool: Pool, u: Float[Array, "coordinates"], rows: Observations) -> gp.Posterior:
        """What the latent process alone says of the path at these rows."""
        evidence = self.evidence(model, pool)
        return over_series(evidence.solver.posterior, (None, 0))(evidence.params(u), rows)


def observations(pool: Pool) -> Observations:
    """The pool as filters and solvers take it, with a leading axis of series."""
    return Observations(pool.times, pool.values, pool.observed)


def with_midpoints(pool: Pool) -> Observations:
    """The pool with one more row, observed nowhere, in the middle of each gap, for the refinement."""

    def between(a, middle):
        both = jnp.stack([a[:, :-1], middle], axis=2).reshape(a.shape[0], -1, *a.shape[2:])
        return jnp.concatenate([both, a[:, -1:]], axis=1)

    return Observations(
        between(pool.times, 0.5 * (pool.times[:, :-1] + pool.times[:, 1:])),
        between(pool.values, jnp.zeros_like(pool.values[:, 1:])),
        between(pool.observed, jnp.zeros_like(pool.observed[:, 1:])),
    )
