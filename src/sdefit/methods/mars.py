"""MaRS: θ by making two distributions of ż agree in maximum mean discrepancy."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from sdefit._types import Array, Bool, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.matching import mmd
from sdefit.methods._base import Found
from sdefit.methods._latent import (
    Latent,
    PathDrift,
    believed,
    check_free,
    check_settings,
    latent_at,
    path_drift,
    scales_of,
    warm_start,
)
from sdefit.methods._refit import Matched, Matching
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
      paper. More are made, up to four times as many, until θ rests.
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
        check_settings("MaRS", self, least, ("learning_rate",))

    @classmethod
    def paper(cls, kernel: str = "rbf", adam_steps: int = 2000) -> "MaRS":
        """The recipe of the paper: dense kernel, OU rate 1, Adam on fresh batches of 256, no refit.

        The paper takes the sigmoid kernel for Ornstein-Uhlenbeck and the double well, rbf for Lotka-Volterra and
        Lorenz 63.
        """
        return cls(kernel, samples=256, passes=0, rate=1.0, evidence_starts=3, adam_steps=adam_steps)

    def check(self, model: SDE, pool: Pool) -> None:
        check_free("MaRS", model)

    def match(self, model: SDE, pool: Pool, start: Theta, key: Key, found: Found) -> Found:
        draw_key, start_key = jax.random.split(key)
        latent = latent_at(self, model, pool, found["u"], draw_key)
        match = self._match_fresh if self.adam_steps else self._match
        matched = match(model, latent, path_drift(model, pool, pool.times), start, start_key)
        return Matched(
            latent=found["u"],
            evidence=found["evidence"],
            path=latent.path,
            begin=matched.begin,
            theta=matched.theta,
            near=matched.near,
            scales=matched.scales,
            few=latent.roads.few(),
            matched=matched.converged,
            converged=found["converged"],
            alive=jnp.array(True),
            trace={"loss": matched.losses},
        ).plain()

    def _match(self, model: SDE, latent: Latent, drift: PathDrift, start: Theta, key: Key) -> "_Met":
        """θ at which the two roads agree: in their means first, then in MMD, with the draws held fixed."""
        roads = latent.roads
        warm = warm_start(model, roads, latent.speed, drift, start, self.starts, key)
        data, zero = roads.vectors(roads.dz), jnp.zeros(len(model.free))
        first = roads.vectors(roads.model(drift, warm.theta(zero)))
        length = mmd.median_length(data, first)

        def loss(v):
            other = roads.vectors(roads.model(drift, warm.theta(v)))
            return self.samples * mmd.mmd_squared(data, other, length, paired=True)

        found = minimise(loss, zero, iterations=self.iterations, tolerance=1e-4)
        theta = warm.theta(found.x)
        near = believed(roads, drift, theta, warm.by_steps)
        return _Met(warm.begin, theta, near, warm.scales, found.values / self.samples, found.converged)

    def _match_fresh(self, model: SDE, latent: Latent, drift: PathDrift, start: Theta, key: Key) -> "_Met":
        """θ by Adam on MMD², every batch of both roads drawn anew: Algorithm 3 of the paper."""
        roads = latent.roads
        scales = scales_of(drift, jnp.mean(roads.x, axis=0), latent.speed, roads.weight, len(model.free))
        start_key, batch_key = jax.random.split(key)
        guess = jnp.abs(jax.random.normal(start_key, start.shape))  # the published code's start
        begin = jnp.where(jnp.isfinite(start), start, guess)
        adam = optax.adam(self.learning_rate)

        def loss(u, key):
            data_key, model_key = jax.random.split(key)
            theirs, ours = latent.draw(self.samples, data_key), latent.draw(self.samples, model_key)
            data, other = roads.vectors(theirs.dz), roads.vectors(ours.model(drift, model.bounds.constrain(u)))
            length = mmd.median_length(jax.lax.stop_gradient(data), jax.lax.stop_gradient(other))
            return mmd.mmd_squared(data, other, length)

        def step(carry, key):
            u, state = carry
            value, gradient = jax.value_and_grad(loss)(u, key)
            move, state = adam.update(gradient, state)
            return (u + move, state), value

        u = model.bounds.unconstrain(begin)
        keys = jax.random.split(batch_key, self.adam_steps)
        (u, _), losses = jax.lax.scan(step, (u, adam.init(u)), keys)
        theta = model.bounds.constrain(u)
        return _Met(begin, theta, theta, scales, losses, jnp.all(jnp.isfinite(u)))


class _Met(eqx.Module):
    """Where matching began and ended, the natural scales of θ, and the loss on the way."""

    begin: Theta
    theta: Theta
    near: Theta  # where a refit begins
    scales: Theta
    losses: Array
    converged: Bool[Array, ""]
