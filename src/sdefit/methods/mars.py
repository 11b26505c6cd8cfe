"""MaRS: θ that minimises the maximum mean discrepancy between two distributions of ż (Algorithm 3 of the paper)."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import optax

from sdefit._types import Array, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.on_path import PathDrift, drift_on_path
from sdefit.dynamics.sde import SDE
from sdefit.matching import mmd
from sdefit.matching.convergence import at_rest
from sdefit.matching.initial_guess import guess_by_means, random_guess, select_start
from sdefit.matching.latent_process import LatentGPFit
from sdefit.methods._settings import box_of, check_flag, check_free, check_matching
from sdefit.methods.gradient_matching import GradientMatching, MatchingProblem, MatchingResult, MatchingState
from sdefit.methods.interface import Method, ParameterCovariance, Stage
from sdefit.methods.published import BATCH, CODE_BATCH, published
from sdefit.optimise import minimise
from sdefit.result import Estimate

_LEAST = 1e-12  # below which MMD² counts as 0: its unbiased estimate may be negative, and its root is then not a number


class MaRS(Method):
    """Maximum-mean-discrepancy-minimising regression for SDEs.

    1. The latent Gaussian process: φ, σ and G by maximum evidence (equations 22, 23 of the paper).
    2. Samples of ż from the data-based and the SDE-based model (Algorithm 1), and a θ at which their means agree.
    3. Matching: θ minimises the unbiased MMD² between them (Algorithm 3). The random numbers are drawn once, so that
       MMD² is a smooth function of θ.
    4. The refinement, which the paper does not have: the drift enters the process through the weak form, and G, σ and θ
       are estimated again.

    `MaRS.paper("lv")` is the published recipe: no refinement, and new samples at every step of Adam.

    **Arguments**
    - `kernel`: covariance of the smooth part z: matern52, matern32 (both O(N)), rbf, rational_quadratic, sigmoid.
    - `samples`: draws of ż, half of them mirror images of the other half.
    - `starts`: starting points of the search for θ, in one batch.
    - `refinements`: the least passes of the refinement; up to six times as many are made until θ has converged. 0
      leaves the plain method of the paper.
    - `ou_rate`: rate γ of the latent OU process per unit of the user's time; by default it follows the length of z.
    - `evidence_starts`: lengthscales from which the evidence is maximised.
    - `iterations`: the most steps of each search.
    - `jitter`: added to the noise variance in standardised units.
    - `adam_steps`: 0, or how many steps of Adam with new samples take the place of the quasi-Newton search.
    - `learning_rate`: of Adam, in the unconstrained coordinates of θ, or in θ itself (`theta_range`).
    - `shared_gp`: one set of hyper-parameters φ and σ for all states, in standardised units.
    - `theta_range`: None, or the range in which Adam steps θ itself, in the user's units.
    - `sqrt_mmd`: whether Adam descends MMD in place of MMD², which leaves its steps long where both are small.

    >>> sf.fit(model, series, sf.MaRS())
    Fit(model by mars: rate=0.77..., level=1.99...; ok)
    """

    kernel: str = "matern52"
    samples: int = 64
    starts: int = 4
    refinements: int = 3
    ou_rate: float | None = None
    evidence_starts: int = 1
    iterations: int = 200
    jitter: float = 1e-6
    adam_steps: int = 0
    learning_rate: float = 0.01
    shared_gp: bool = False
    theta_range: tuple[float, float] | None = None
    sqrt_mmd: bool = False

    name: ClassVar[str] = "mars"
    title: ClassVar[str] = "MaRS: gradient matching by maximum mean discrepancy"
    objective_name: ClassVar[str] = "log_evidence"
    State: ClassVar = MatchingState
    knows_covariance: ClassVar[bool] = True
    reference: ClassVar[str] = (
        "G. Abbati, P. Wenk, M. A. Osborne, A. Krause, B. Schölkopf, S. Bauer (2019), AReS and MaRS: "
        "adversarial and MMD-minimizing regression for SDEs, ICML."
    )

    def __post_init__(self) -> None:
        least = {"samples": 4, "starts": 1, "refinements": 0, "evidence_starts": 1, "iterations": 1, "adam_steps": 0}
        check_matching(self, least, "learning_rate")
        check_flag(self, "sqrt_mmd")

    @classmethod
    def paper(cls, system: str, *, code: bool = False) -> "MaRS":
        """The recipe of the paper for one of its systems (`published`): dense kernel, γ = 1, Adam on new batches.

        With `code`, what the published code does where it differs from the text.
        """
        found = published(system)
        adam = found.code_mars if code else found.mars
        return cls(
            **found.latent(code), samples=CODE_BATCH if code else BATCH, adam_steps=adam.steps, learning_rate=adam.rate,
            sqrt_mmd=code,
        )  # fmt: skip

    def check(self, model: SDE, pool: Pool) -> None:
        check_free(self, model)
        box_of(model, self.theta_range)

    def stages(self) -> tuple[Stage, ...]:
        return self.fit_latent_process, self.sample_derivatives, self.match, self.refine

    def fit_latent_process(self, model: SDE, pool: Pool, start: Theta, key: Key, found: None) -> LatentGPFit:
        return self._common.process.fit(model, pool)

    def sample_derivatives(self, model: SDE, pool: Pool, start: Theta, key: Key, found: LatentGPFit) -> MatchingProblem:
        draw_key, start_key = jax.random.split(key)
        given, drift = self._common.condition(model, pool, found, draw_key), drift_on_path(model, pool, pool.times)
        if self.adam_steps:
            guess_key, _ = jax.random.split(start_key)
            box = box_of(model, self.theta_range)
            guess = random_guess(model, pool, given.samples, given.speed, drift, start, box, guess_key)
            return MatchingProblem(found, given, guess)
        guess = guess_by_means(model, pool, given.samples, given.speed, drift, start, self.starts, start_key)
        return MatchingProblem(found, given.without_draws(), guess)

    def match(self, model: SDE, pool: Pool, start: Theta, key: Key, found: MatchingProblem) -> MatchingResult:
        drift, samples = drift_on_path(model, pool, pool.times), found.given.samples
        if self.adam_steps:
            _, adam_key = jax.random.split(jax.random.split(key)[1])
            theta, trace, converged = self._by_adam(found, drift, adam_key)
            first = theta
        else:
            theta, losses, converged = self._by_quasi_newton(found, drift)
            first, trace = select_start(samples, drift, theta, found.guess), {"loss": losses}
        # The refinement forgets where it began: whether the search for that converged does not count.
        flags = {"converged": converged, "refinable": found.latent.converged, "alive": jnp.array(True)}
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

    def _by_quasi_newton(self, problem: MatchingProblem, drift: PathDrift):
        """θ of least MMD² with the samples held fixed, the losses, and whether the search converged."""
        samples, guess = problem.given.samples, problem.guess
        data, zero = samples.flat(samples.dz), jnp.zeros_like(guess.u)

        def from_drift(v):
            return samples.flat(samples.from_drift(drift, guess.theta(v)))

        length = mmd.median_length(data, from_drift(zero))

        def loss(v):
            return self.samples * mmd.mmd_squared(data, from_drift(v), length, paired=True)

        found = minimise(loss, zero, iterations=self.iterations, tolerance=1e-4)
        return guess.theta(found.x), found.values / self.samples, found.converged

    def _by_adam(self, problem: MatchingProblem, drift: PathDrift, key: Key):
        """θ by Adam on MMD² with every batch of both kinds drawn anew (Algorithm 3), and whether θ had settled."""
        given, guess = problem.given, problem.guess
        adam = optax.adam(self.learning_rate)
        center = jnp.mean(given.samples.dz, axis=0)

        def single(dz):  # about the data's mean, where single precision has digits to spare
            return given.samples.flat(dz - center[None]).astype(jnp.float32)

        def loss(v, key):
            data_key, model_key = jax.random.split(key)
            data = single(given.data_batch(self.samples, data_key))
            model = single(given.model_batch(drift, guess.theta(v), self.samples, model_key))
            length = mmd.pair_length(data, jax.lax.stop_gradient(model))
            squared = mmd.mmd_squared(data, model, length).astype(v.dtype)
            return jnp.sqrt(jnp.maximum(squared, _LEAST)) if self.sqrt_mmd else squared

        def step(carry, key):
            v, state = carry
            value, gradient = jax.value_and_grad(loss)(v, key)
            move, state = adam.update(gradient, state)
            v = guess.project(v + move)
            return (v, state), (value, v)

        keys, zero = jax.random.split(key, self.adam_steps), jnp.zeros_like(guess.u)
        (v, _), (losses, path) = jax.lax.scan(step, (zero, adam.init(zero)), keys)
        return (
            guess.theta(v),
            {"loss": losses, "theta": jax.vmap(guess.theta)(path)},
            at_rest(path, given.samples, drift, guess),
        )
