"""MaRS: θ by making two distributions of ż agree in maximum mean discrepancy."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import optax

from sdefit._types import Array, Bool, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.matching import mmd
from sdefit.methods._latent import (
    PathDrift,
    Told,
    believed,
    check_free,
    check_settings,
    cold_start,
    latent_at,
    path_drift,
    warm_start,
)
from sdefit.methods._refit import Begun, Matched, Matching
from sdefit.optimise import minimise


class MaRS(Matching):
    """Maximum-mean-discrepancy-minimising regression for SDEs.

    1. The latent Gaussian process: φ, σ and G by maximum evidence.
    2. Matching: draws of ż from the data and from the drift; θ minimises MMD² between the two. The random numbers
       are drawn once, so that MMD² is a smooth function of θ; the search starts where the means agree.
    3. The refit: the drift enters as the mean of the process, in integrated form; G, σ and θ are found again.

    `MaRS.paper()` is the published recipe: no refit, and fresh draws at every step of Adam.

    **Arguments**
    - `kernel`: covariance of the smooth part z: matern52, matern32 (both O(N)), rbf, rational_quadratic, sigmoid.
    - `samples`: draws of ż, half of them mirror images of the other half.
    - `starts`: starting points of the search for θ, in one batch.
    - `passes`: weak-form refits at least, after matching; 0 leaves the plain method of the
      paper. More are made until θ rests, at most `_refit._MORE` times as many.
    - `rate`: rate γ of the latent OU process per unit of the user's time; by default it follows the length of z.
    - `evidence_starts`: lengthscales from which the evidence is maximised.
    - `iterations`: the most steps of each search.
    - `jitter`: added to the noise variance in standardised units.
    - `adam_steps`: 0, or how many steps of Adam with fresh draws take the place of the quasi-Newton search.
    - `learning_rate`: of Adam, in the unconstrained coordinates of θ.
    """

    kernel: str = "matern52"
    samples: int = 64
    starts: int = 4
    passes: int = 3
    rate: float | None = None
    evidence_starts: int = 1
    iterations: int = 200
    jitter: float = 1e-6
    adam_steps: int = 0
    learning_rate: float = 0.01

    name: ClassVar[str] = "mars"
    title: ClassVar[str] = "MaRS: gradient matching by maximum mean discrepancy"
    reference: ClassVar[str] = (
        "G. Abbati, P. Wenk, M. A. Osborne, A. Krause, B. Schölkopf, S. Bauer (2019), AReS and MaRS: "
        "adversarial and MMD-minimizing regression for SDEs, ICML."
    )

    def __post_init__(self) -> None:
        least = {"samples": 4, "starts": 1, "passes": 0, "evidence_starts": 1, "iterations": 1, "adam_steps": 0}
        check_settings(self, least, "learning_rate")

    @classmethod
    def paper(cls, kernel: str = "rbf", adam_steps: int = 2000) -> "MaRS":
        """The recipe of the paper: dense kernel, OU rate 1, Adam on fresh batches of 256, no refit.

        The paper takes the sigmoid kernel for Ornstein-Uhlenbeck and the double well, rbf for Lotka-Volterra and
        Lorenz 63.
        """
        return cls(kernel, samples=256, passes=0, rate=1.0, evidence_starts=3, adam_steps=adam_steps)

    def check(self, model: SDE, pool: Pool) -> None:
        check_free("MaRS", model)

    def begin(self, model: SDE, pool: Pool, start: Theta, key: Key, found: Told) -> Begun:
        draw_key, start_key = jax.random.split(key)
        latent, drift = latent_at(self, model, pool, found.u, draw_key), path_drift(model, pool, pool.times)
        if self.adam_steps:
            return Begun(found, latent, cold_start(model, latent, drift, start, jax.random.split(start_key)[0]))
        warm = warm_start(model, latent.roads, latent.speed, drift, start, self.starts, start_key)
        return Begun(found, latent.drawn(), warm)

    def match(self, model: SDE, pool: Pool, start: Theta, key: Key, found: Begun) -> Matched:
        drift = path_drift(model, pool, pool.times)
        if self.adam_steps:
            return self._match_fresh(found, drift, jax.random.split(jax.random.split(key)[1])[1])
        return self._match(found, drift)

    def _match(self, begun: Begun, drift: PathDrift) -> Matched:
        """θ at which the two roads agree in MMD, with the draws held fixed."""
        roads, warm = begun.latent.roads, begun.warm
        data, zero = roads.vectors(roads.dz), jnp.zeros_like(warm.u)
        first = roads.vectors(roads.model(drift, warm.theta(zero)))
        length = mmd.median_length(data, first)

        def loss(v):
            other = roads.vectors(roads.model(drift, warm.theta(v)))
            return self.samples * mmd.mmd_squared(data, other, length, paired=True)

        found = minimise(loss, zero, iterations=self.iterations, tolerance=1e-4)
        theta = warm.theta(found.x)
        near = believed(roads, drift, theta, warm.by_steps)
        return self._matched(begun, theta, near, found.converged, found.values / self.samples)

    def _match_fresh(self, begun: Begun, drift: PathDrift, key: Key) -> Matched:
        """θ by Adam on MMD², every batch of both roads drawn anew: Algorithm 3 of the paper."""
        latent, warm = begun.latent, begun.warm
        adam = optax.adam(self.learning_rate)

        def loss(u, key):
            data_key, model_key = jax.random.split(key)
            theirs, ours = latent.draw(self.samples, data_key), latent.draw(self.samples, model_key)
            vectors = latent.roads.vectors
            data, other = vectors(theirs.dz), vectors(ours.model(drift, warm.bounds.constrain(u)))
            length = mmd.median_length(jax.lax.stop_gradient(data), jax.lax.stop_gradient(other))
            return mmd.mmd_squared(data, other, length)

        def step(carry, key):
            u, state = carry
            value, gradient = jax.value_and_grad(loss)(u, key)
            move, state = adam.update(gradient, state)
            return (u + move, state), value

        keys = jax.random.split(key, self.adam_steps)
        (u, _), losses = jax.lax.scan(step, (warm.u, adam.init(warm.u)), keys)
        theta = warm.bounds.constrain(u)
        return self._matched(begun, theta, theta, jnp.all(jnp.isfinite(u)), losses)

    def _matched(self, begun: Begun, theta: Theta, near: Theta, matched: Bool[Array, ""], losses: Array) -> Matched:
        # The refit forgets where it began: whether the search for that converged does not count.
        return Matched.after(begun, theta, near, matched, begun.told.converged, jnp.array(True), {"loss": losses})
