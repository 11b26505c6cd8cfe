"""AReS: θ that minimises the Wasserstein distance between two distributions of ż (Algorithm 2 of the paper)."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from sdefit._types import Array, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.on_path import PathDrift, drift_on_path
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.matching import critic
from sdefit.matching.convergence import at_rest
from sdefit.matching.critic_input import Batches, CriticInput, in_turn
from sdefit.matching.derivative_samples import DerivativeSamples
from sdefit.matching.initial_guess import InitialGuess, guess_by_means, random_guess, select_start
from sdefit.matching.latent_process import LatentGPFit
from sdefit.methods._settings import box_of, check_flag, check_free, check_matching, check_not_negative, check_widths
from sdefit.methods.gradient_matching import (
    Conditioned,
    GradientMatching,
    MatchingProblem,
    MatchingResult,
    MatchingState,
)
from sdefit.methods.interface import Method, ParameterCovariance, Stage
from sdefit.methods.published import BATCH, CLIP, CODE_BATCH, published
from sdefit.result import Estimate


class AReS(Method):
    """Adversarial regression for SDEs.

    1. The latent Gaussian process: φ, σ and G by maximum evidence (equations 22, 23 of the paper).
    2. Training (Algorithm 2): a critic learns to distinguish samples of ż from the data-based and the SDE-based model
       (Algorithm 1), and θ moves to make them alike. It begins where the means of both agree and ends when θ no
       longer moves. A critic that fails is replaced by a new one; if that does not help, the status says so.
    3. The refinement, which the paper does not have: the drift enters the process through the weak form, and G, σ and θ
       are estimated again.

    `AReS.paper("lv")` is the published recipe: clipped weights, new samples at every step, a random start, no
    refinement.

    **Arguments**
    - `samples`: draws of ż, half of them mirror images of the other half; training goes through them in batches.
    - `batch`: draws in one batch; it divides `samples`.
    - `starts`: starting points of the search for θ at which means agree, in one batch.
    - `steps`: the most steps of θ in training.
    - `critic_steps`: steps of the critic before each of θ.
    - `learning_rate`: of Adam, for θ in coordinates without units.
    - `critic_rate`: of Adam, for the critic.
    - `penalty`: weight of the critic's gradient penalty; not used where weights are clipped.
    - `clip`: None, or the size at which the critic's weights are clipped.
    - `tolerance`: training ends when θ moves by less than this between windows of 25 steps; with 0 it makes all steps.
    - `restarts`: how often a critic that failed is replaced.
    - `widths`: nodes of the critic's two hidden layers.
    - `momentum`: of the critic's Adam; with 0 it is RMSProp but for the first steps.
    - `normalised_time`: whether the critic sees ż of standardised states per standard deviation of the times, in place
      of each entry standardised by its own spread.
    - `theta_range`: None, or with `resample` the range in which θ itself is stepped, in the user's units.
    - `resample`: draw both kinds of samples anew at every step, from a start of size |N(0, 1)| (Algorithm 2).
    - `kernel`, `refinements`, `ou_rate`, `evidence_starts`, `iterations`, `jitter`, `shared_gp`: as for `MaRS`.

    >>> plain = sf.AReS.paper("lv")
    >>> plain.refinements, plain.resample
    (0, True)
    """

    kernel: str = "matern52"
    samples: int = 256
    batch: int = 64
    starts: int = 4
    refinements: int = 3
    ou_rate: float | None = None
    evidence_starts: int = 1
    iterations: int = 200
    jitter: float = 1e-6
    steps: int = 500
    critic_steps: int = 3
    learning_rate: float = 0.02
    critic_rate: float = 1e-3
    penalty: float = 10.0
    clip: float | None = None
    tolerance: float = 0.01
    restarts: int = 3
    resample: bool = False
    widths: tuple[int, int] = critic.WIDTHS
    momentum: float = 0.5
    normalised_time: bool = False
    shared_gp: bool = False
    theta_range: tuple[float, float] | None = None

    name: ClassVar[str] = "ares"
    title: ClassVar[str] = "AReS: gradient matching by a Wasserstein critic"
    objective_name: ClassVar[str] = "log_evidence"
    State: ClassVar = MatchingState
    knows_covariance: ClassVar[bool] = True
    reference: ClassVar[str] = (
        "G. Abbati, P. Wenk, M. A. Osborne, A. Krause, B. Schölkopf, S. Bauer (2019), AReS and MaRS: "
        "adversarial and MMD-minimizing regression for SDEs, ICML."
    )

    def __post_init__(self) -> None:
        least = {"samples": 4, "batch": 2, "starts": 1, "refinements": 0, "evidence_starts": 1, "iterations": 1}
        least |= {"steps": 1, "critic_steps": 1, "restarts": 0}
        check_matching(self, least, "learning_rate", "critic_rate", "clip")
        if self.batch % 2 or self.samples % self.batch:
            raise ModelError(f"AReS: batch must be even and divide samples ({self.samples}), not {self.batch}")
        check_not_negative(self, "penalty", "tolerance", "momentum")
        check_widths(self)
        check_flag(self, "resample", "normalised_time")

    @classmethod
    def paper(cls, system: str, *, code: bool = False) -> "AReS":
        """The recipe of the paper for one of its systems (`published`): dense kernel, γ = 1, clipping, new batches.

        With `code`, what the published code does where it differs from the text.
        """
        found, batch = published(system), CODE_BATCH if code else BATCH
        return cls(
            **found.latent(code), samples=batch, batch=batch, steps=found.ares.steps, critic_steps=found.critic_steps,
            learning_rate=found.ares.rate, critic_rate=found.ares.rate, penalty=0.0, clip=CLIP, tolerance=0.0,
            resample=True, widths=found.code_critic if code else critic.WIDTHS, momentum=0.0 if code else 0.5,
            normalised_time=code,
        )  # fmt: skip

    def check(self, model: SDE, pool: Pool) -> None:
        check_free(self, model)
        box_of(model, self.theta_range)

    def stages(self) -> tuple[Stage, ...]:
        return self.fit_latent_process, self.sample_derivatives, self.match, self.refine

    def fit_latent_process(self, model: SDE, pool: Pool, start: Theta, key: Key, found: None) -> LatentGPFit:
        return self._common.process.fit(model, pool)

    def sample_derivatives(self, model: SDE, pool: Pool, start: Theta, key: Key, found: LatentGPFit) -> MatchingProblem:
        draw_key, start_key, _, _ = jax.random.split(key, 4)
        given, drift = self._common.condition(model, pool, found, draw_key), drift_on_path(model, pool, pool.times)
        if self.resample:
            box = box_of(model, self.theta_range)
            guess = random_guess(model, pool, given.samples, given.speed, drift, start, box, start_key)
            return MatchingProblem(found, given, guess)
        first_batch = Batches.of(given.samples, self.batch).batch(jnp.array(0))
        guess = guess_by_means(model, pool, first_batch, given.speed, drift, start, self.starts, start_key)
        return MatchingProblem(found, given.without_draws(), guess)

    def match(self, model: SDE, pool: Pool, start: Theta, key: Key, found: MatchingProblem) -> MatchingResult:
        _, _, draw_key, train_key = jax.random.split(key, 4)
        samples, guess, drift = found.given.samples, found.guess, drift_on_path(model, pool, pool.times)
        if self.resample:
            samplers = self._resampling(found.given, drift, guess, draw_key)
        else:
            samplers = in_turn(samples, self._critic_input(samples), self.batch, drift, guess)
        trained = self._train(samplers, samples, guess, train_key)
        theta, converged = guess.theta(trained.theta), trained.converged
        if not self.tolerance:
            converged &= at_rest(trained.path, samples, drift, guess)
        first = select_start(samples, drift, theta, guess)
        trace = {"loss": trained.distances, "theta": jax.vmap(guess.theta)(trained.path), "restarts": trained.restarts}
        refinable = found.latent.converged & converged
        flags = {"converged": converged, "refinable": refinable, "alive": trained.alive}
        return MatchingResult.of(found, theta, first, trace, **flags)

    def refine(self, model: SDE, pool: Pool, start: Theta, key: Key, found: MatchingResult) -> Estimate:
        return self._common.finish(model, pool, found)

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        return self._common.smooth(model, pool, estimate)

    def refit(self, model: SDE, pool: Pool, init: Estimate, key: Key) -> Estimate:
        if not self.refinements:
            return dataclasses.replace(self, starts=1).estimate(model, pool, init.theta, key)
        return self._common.refit(model, pool, init)

    def covariance(self, model: SDE, pool: Pool, estimate: Estimate) -> ParameterCovariance:
        return self._common.covariance(model, estimate)

    @property
    def _common(self) -> GradientMatching:
        return GradientMatching.of(self)

    def _train(
        self, samplers: critic.Samplers, samples: DerivativeSamples, guess: InitialGuess, key: Key
    ) -> critic.TrainingResult:
        """Training, with θ in whitened coordinates."""
        config = critic.WGANConfig(
            self.penalty, self.clip, self.critic_rate, self.learning_rate, self.critic_steps, self.steps,
            self.tolerance, self.restarts, self.momentum,
        )  # fmt: skip
        live = jnp.sum(samples.observed) * float(samples.dz.shape[-1])
        dim = math.prod(samples.dz.shape[1:])
        zero = jnp.zeros_like(guess.u)
        return critic.train(samplers, zero, lambda k: critic.new_critic(dim, live, k, self.widths), config, key)

    def _critic_input(self, samples: DerivativeSamples) -> CriticInput:
        return CriticInput.in_normalised_time(samples) if self.normalised_time else CriticInput.standardised(samples)

    def _resampling(self, given: Conditioned, drift: PathDrift, guess: InitialGuess, key: Key) -> critic.Samplers:
        """Both kinds of samples drawn anew, and apart, for every batch."""
        scaled, (data_key, model_key) = self._critic_input(given.samples), jax.random.split(key)

        def data(i):
            return scaled(given.data_batch(self.batch, jax.random.fold_in(data_key, i)))

        def model(i, v):
            return scaled(given.model_batch(drift, guess.theta(v), self.batch, jax.random.fold_in(model_key, i)))

        return critic.Samplers(data, model, guess.project)
