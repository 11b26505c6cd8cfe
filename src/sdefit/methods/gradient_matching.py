"""What MaRS and AReS have in common: the latent process they begin with, and the refinement they end with."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Bool, Float, Key, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.on_path import PathDrift, drift_on_path
from sdefit.dynamics.sde import SDE
from sdefit.matching.derivative_samples import DerivativeSamples, sample_derivatives, series_keys
from sdefit.matching.initial_guess import InitialGuess
from sdefit.matching.latent_process import LatentGPFit, LatentProcess, observations, with_midpoints
from sdefit.matching.refinement import Refinement, refine
from sdefit.matching.weak_form_problem import WeakFormProblem
from sdefit.methods.interface import ParameterCovariance
from sdefit.result import Code, Estimate
from sdefit.ssm.kalman import Observations


class Conditioned(eqx.Module):
    """The latent process given the data, and the first samples of ż.

    The refinement follows the path midway between observations too, so `rows` may have midpoints; the samples are of
    every `step`-th row, the observations alone.
    """

    sampler: gp.AncestralSampler | None  # what new draws need
    ou_rate: Array
    rows: Observations
    path: Float[Array, "series rows state"]
    samples: DerivativeSamples
    speed: Array
    step: int = eqx.field(static=True)

    def data_batch(self, samples: int, key: Key) -> Float[Array, "samples series times state"]:
        """New samples of ż from the data's model."""
        return self._over_series(lambda one, k: one.draw_dz(samples, k), key)

    def model_batch(
        self, drift: PathDrift, theta: Theta, samples: int, key: Key
    ) -> Float[Array, "samples series times state"]:
        """New samples of ż = f(x, θ) + γ o from the drift's model."""
        x, o = self._over_series(lambda one, k: tuple(one.draw_path(samples, k)), key)
        return jax.vmap(drift, in_axes=(0, None))(x, theta) + self.samples.ou_rate * o

    def _over_series(self, draw, key: Key):
        assert self.sampler is not None
        drawn = over_series(draw, out_axes=1)(self.sampler, series_keys(key, self.rows.times.shape[0]))
        return jax.tree.map(lambda a: a[:, :, :: self.step], drawn)

    def without_draws(self) -> "Conditioned":
        """The same without what new draws would need."""
        return dataclasses.replace(self, sampler=None)


class MatchingProblem(eqx.Module):
    """All that is known before θ is matched."""

    latent: LatentGPFit
    given: Conditioned
    guess: InitialGuess


class MatchingResult(eqx.Module):
    """What matching found, and what of the problem the refinement needs."""

    latent: LatentGPFit
    path: Float[Array, "series rows state"]
    begin: Theta
    scales: Theta
    plotted: DerivativeSamples
    theta: Theta
    start: Theta  # where the refinement begins
    converged: Bool[Array, ""]  # whether θ has converged without a refinement
    refinable: Bool[Array, ""]  # whether all that counts before a refinement has converged
    alive: Bool[Array, ""]  # False for a dead critic
    trace: dict[str, Array]

    @classmethod
    def of(
        cls, problem: MatchingProblem, theta: Theta, start: Theta, trace: dict[str, Array], **flags
    ) -> "MatchingResult":
        """The θ that was found, where the refinement begins, and how it went."""
        given, guess = problem.given, problem.guess
        plotted = given.samples.for_plots()
        return cls(problem.latent, given.path, guess.begin, guess.scales, plotted, theta, start, trace=trace, **flags)


class MatchingState(eqx.Module):
    """What MaRS and AReS need again after a fit.

    The coordinates of the latent process; the natural scales of θ before and after the refinement, θ as it was
    matched, and its covariance after the refinement.
    """

    latent: Float[Array, "coordinates"]
    natural_scales: Theta
    scales: Theta
    matched: Theta
    covariance: Float[Array, "params params"]


def _state(estimate: Estimate) -> MatchingState:
    assert isinstance(estimate.state, MatchingState)
    return estimate.state


class GradientMatching(eqx.Module):
    """The stages before and after θ is matched."""

    process: LatentProcess
    samples: int
    refinements: int

    @classmethod
    def of(cls, method: Any) -> "GradientMatching":
        """Those of MaRS or AReS, from the settings that both have."""
        names = ("kernel", "ou_rate", "evidence_starts", "iterations", "jitter", "shared_gp")
        return cls(LatentProcess(*(getattr(method, name) for name in names)), method.samples, method.refinements)

    def condition(self, model: SDE, pool: Pool, latent: LatentGPFit, key: Key) -> Conditioned:
        """The latent process at its maximum of evidence given the data, and samples of ż."""
        evidence = self.process.evidence(model, pool)
        params = evidence.params(latent.u)
        rows, step = (with_midpoints(pool), 2) if self.refinements else (observations(pool), 1)
        conditional = over_series(evidence.solver.condition, (None, 0))(params, rows)
        fine = sample_derivatives(conditional, params.ou_rate, rows, self.samples, key)
        samples, path = fine.every(step), jnp.mean(fine.x, axis=0)  # half of the draws mirror the other half
        sampler = over_series(lambda one: one.sampler())(conditional)
        return Conditioned(sampler, params.ou_rate, rows, path, samples, samples.speed(params.G), step)

    def finish(self, model: SDE, pool: Pool, found: MatchingResult) -> Estimate:
        """The refinement, where the settings ask for one, and the estimate with figures of the way there."""
        u, evidence = found.latent.u, self.process.evidence(model, pool)
        if self.refinements:
            best = refine(model, pool, evidence, u, found.path, found.start, found.scales, self.refinements)
            converged = found.refinable & best.converged
        else:
            best, converged = self._unrefined(model, pool, u, found), found.refinable & found.converged
        drift, unit = drift_on_path(model, pool, pool.times), (pool.scale / pool.time_scale)[None, None, None, :]
        trace = found.trace | {
            "derivatives_data": unit * found.plotted.dz,
            "derivatives_model_before": unit * found.plotted.from_drift(drift, found.begin),
            "derivatives_model_after": unit * found.plotted.from_drift(drift, best.theta),
        }
        state = MatchingState(u, found.scales, best.scales, found.theta, best.covariance)
        code = jnp.where(converged, Code.OK, Code.NOT_CONVERGED)
        code = jnp.where(found.alive, code, Code.DEAD_CRITIC)
        log_evidence = found.latent.log_evidence
        return Estimate(best.theta, best.G, best.noise, best.mean, best.std, log_evidence, code, state, trace)

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        """The path of the refinement if there is one, else that of the latent process."""
        u, evidence = _state(estimate).latent, self.process.evidence(model, pool)
        if not self.refinements:
            path = self.process.path(model, pool, u, observations(pool))
            return path.x, path.std
        problem = WeakFormProblem.of(model, pool, evidence, _state(estimate).scales)
        begin = self.process.path(model, pool, u, problem.rows).x
        return problem.follow_path(estimate.theta, begin, estimate.G, estimate.noise, self.refinements)

    def refit(self, model: SDE, pool: Pool, init: Estimate) -> Estimate:
        """The refinement alone, along the path that the latent process of `init` takes."""
        u, evidence = _state(init).latent, self.process.evidence(model, pool)
        path = self.process.path(model, pool, u, with_midpoints(pool)).x
        best = refine(model, pool, evidence, u, path, init.theta, _state(init).natural_scales, self.refinements)
        code = jnp.where(best.converged, Code.OK, Code.NOT_CONVERGED)
        found = dataclasses.replace(init, theta=best.theta, G=best.G, noise=best.noise, mean=best.mean, std=best.std)
        state = dataclasses.replace(_state(init), covariance=best.covariance, scales=best.scales)
        return dataclasses.replace(found, code=code, state=state)

    def covariance(self, model: SDE, estimate: Estimate) -> ParameterCovariance:
        """The covariance of θ from the refinement; nothing of G and σ."""
        P, K = len(model.free), len(model.states)
        unknown = jnp.full((P + K * K + K,) * 2, jnp.nan)
        return ParameterCovariance(unknown.at[:P, :P].set(_state(estimate).covariance))

    def _unrefined(self, model: SDE, pool: Pool, u: Array, found: MatchingResult) -> Refinement:
        """θ as it was matched, with the evidence's own G, σ and path."""
        params = self.process.evidence(model, pool).params(u)
        path, theta = self.process.path(model, pool, u, observations(pool)), found.theta
        unknown = jnp.full((theta.size, theta.size), jnp.nan)
        return Refinement(theta, unknown, found.scales, params.G, params.noise, path.x, path.std, found.converged)
