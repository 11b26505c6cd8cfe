"""AReS: θ by a game in which a Wasserstein critic learns to tell two distributions of ż apart."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Int, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.matching import critic
from sdefit.methods._latent import (
    Latent,
    PathDrift,
    Roads,
    Told,
    Warm,
    believed,
    check_free,
    check_settings,
    cold_start,
    latent_at,
    path_drift,
    warm_start,
)
from sdefit.methods._refit import Begun, Matched, Matching


class AReS(Matching):
    """Adversarial regression for SDEs.

    1. The latent Gaussian process: φ, σ and G by maximum evidence.
    2. The game: a critic learns to tell ż drawn from the data from ż drawn through the drift, and θ moves so that it
       cannot. It begins where the means of both agree and ends when θ no longer moves. A critic that dies or
       explodes is replaced by a new one; if that does not help, the status says so.
    3. The refit: the drift enters as the mean of the process, in integrated form; G, σ and θ are found again.

    `AReS.paper()` is the published recipe: clipped weights, fresh draws at every step, a random start and no refit.

    **Arguments**
    - `kernel`: covariance of the smooth part z: matern52, matern32 (both O(N)), rbf, rational_quadratic, sigmoid.
    - `samples`: draws of ż, half of them mirror images of the other half; the game goes through them in batches.
    - `batch`: draws in one batch; it divides `samples`.
    - `starts`: starting points of the search for θ at which means agree, in one batch.
    - `passes`: weak-form refits at least, after the game; 0 leaves the plain method of the
      paper. More are made, up to four times as many, until θ rests.
    - `rate`: rate γ of the latent OU process per unit of the user's time; by default it follows the length of z.
    - `evidence_starts`: lengthscales from which the evidence is maximised.
    - `iterations`: the most steps of the search for the evidence's maximum.
    - `jitter`: added to the noise variance in standardised units.
    - `steps`: the most steps of θ in the game.
    - `critic_steps`: steps of the critic before each of θ.
    - `learning_rate`: of Adam, for θ in coordinates without units.
    - `critic_rate`: of Adam, for the critic.
    - `penalty`: weight of the critic's gradient penalty; not used where weights are clipped.
    - `clip`: None, or the size at which the critic's weights are clipped.
    - `tolerance`: the game ends when θ moves by less than this between windows, or goes to and fro without a trend by
      not many times that; 0 plays all steps.
    - `restarts`: how often a critic that failed is replaced.
    - `fresh`: draw both roads anew at every step, from a start of size |N(0, 1)|: Algorithm 2 of the paper.
    """

    kernel: str = "matern52"
    samples: int = 256
    batch: int = 64
    starts: int = 4
    passes: int = 3
    rate: float | None = None
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
    fresh: bool = False

    name: ClassVar[str] = "ares"
    title: ClassVar[str] = "AReS: gradient matching by a Wasserstein critic"
    reference: ClassVar[str] = (
        "G. Abbati, P. Wenk, M. A. Osborne, A. Krause, B. Schölkopf, S. Bauer (2019), AReS and MaRS: "
        "adversarial and MMD-minimizing regression for SDEs, ICML."
    )

    def __post_init__(self) -> None:
        least = {"samples": 4, "batch": 2, "starts": 1, "passes": 0, "evidence_starts": 1, "iterations": 1}
        least |= {"steps": 1, "critic_steps": 1, "restarts": 0}
        check_settings("AReS", self, least, ("learning_rate", "critic_rate", "clip"))
        if self.batch % 2 or self.samples % self.batch:
            raise ModelError(f"AReS: batch must be even and divide samples ({self.samples}), not {self.batch}")
        for word in ("penalty", "tolerance"):
            number = getattr(self, word)
            if not (isinstance(number, int | float) and 0 <= number < math.inf):
                raise ModelError(f"AReS: {word} must be 0 or a number above it, not {number!r}")

    @classmethod
    def paper(cls, kernel: str = "rbf", steps: int = 5000) -> "AReS":
        """The recipe of the paper: dense kernel, OU rate 1, clipped weights, fresh batches of 256, no refit.

        The paper takes the sigmoid kernel for Ornstein-Uhlenbeck and the double well, rbf for Lotka-Volterra and
        Lorenz 63. It leaves open the learning rate, 1e-3 here for both players, and the critic's steps, 5 here;
        weights are clipped at 0.01, as in its code.
        """
        return cls(
            kernel, samples=256, batch=256, passes=0, rate=1.0, evidence_starts=3, steps=steps, critic_steps=5,
            learning_rate=1e-3, critic_rate=1e-3, penalty=0.0, clip=0.01, tolerance=0.0, fresh=True,
        )  # fmt: skip

    def check(self, model: SDE, pool: Pool) -> None:
        check_free("AReS", model)

    def begin(self, model: SDE, pool: Pool, start: Theta, key: Key, found: Told) -> Begun:
        draw_key, start_key, _, _ = jax.random.split(key, 4)
        latent, drift = latent_at(self, model, pool, found.u, draw_key), path_drift(model, pool, pool.times)
        if self.fresh:
            return Begun(found, latent, cold_start(model, pool, latent, drift, start, start_key))
        few = _Bank.of(latent.roads, self.batch).batch(jnp.array(0))
        return Begun(
            found, latent.drawn(), warm_start(model, pool, few, latent.speed, drift, start, self.starts, start_key)
        )

    def match(self, model: SDE, pool: Pool, start: Theta, key: Key, found: Begun) -> Matched:
        _, _, fresh_key, game_key = jax.random.split(key, 4)
        latent, warm, drift = found.latent, found.warm, path_drift(model, pool, pool.times)
        if self.fresh:
            board = self._fresh_board(latent, drift, warm, fresh_key)
        else:
            board = self._board(latent.roads, drift, warm)
        game = self._play(board, latent.roads, warm, game_key)
        theta = warm.theta(game.theta)
        near = believed(latent.roads, drift, theta, warm.by_steps)
        trace = {"loss": game.distances, "theta": jax.vmap(warm.theta)(game.path), "restarts": game.restarts}
        converged = found.told.converged & game.converged
        return Matched.after(found, theta, near, game.converged, converged, game.alive, trace)

    def _play(self, board: critic.Board, roads: Roads, warm: Warm, key: Key) -> critic.Outcome:
        """The game about θ in the coordinates of `warm`; where it begins warm, the critic first learns alone."""
        rules = critic.Rules(
            self.penalty, self.clip, self.critic_rate, self.learning_rate, self.critic_steps, self.steps,
            0 if self.fresh else critic.WINDOW, self.tolerance, self.restarts,
        )  # fmt: skip
        live = jnp.sum(roads.weight) * float(roads.dz.shape[-1])
        dim = math.prod(roads.dz.shape[1:])
        return critic.play(board, jnp.zeros_like(warm.u), lambda k: critic.new_critic(dim, live, k), rules, key)

    def _board(self, roads: Roads, drift: PathDrift, warm: Warm) -> critic.Board:
        """Draws made once, gone through batch by batch; both roads of a batch come from the same draws."""
        bank, scaled = _Bank.of(roads, self.batch), _Scaled.of(roads)

        def model(i, v):
            return scaled(bank.batch(i).model(drift, warm.theta(v)))

        return critic.Board(lambda i: scaled(bank.batch(i).dz), model)

    def _fresh_board(self, latent: Latent, drift: PathDrift, warm: Warm, key: Key) -> critic.Board:
        """Both roads drawn anew, and apart, for every batch."""
        scaled, (data_key, model_key) = _Scaled.of(latent.roads), jax.random.split(key)

        def draw(key: Key, i) -> Roads:
            return latent.draw(self.batch, jax.random.fold_in(key, i))

        def model(i, v):
            return scaled(draw(model_key, i).model(drift, warm.theta(v)))

        return critic.Board(lambda i: scaled(draw(data_key, i).dz), model)


class _Bank(eqx.Module):
    """Draws in batches, each of which holds the mirror images of its own half: its mean is that of all."""

    dz: Float[Array, "batches samples series times state"]
    x: Float[Array, "batches samples series times state"]
    o: Float[Array, "batches samples series times state"]
    roads: Roads

    @classmethod
    def of(cls, roads: Roads, size: int) -> "_Bank":
        def split(a):
            halves = a.reshape(2, -1, size // 2, *a.shape[1:])
            return jnp.swapaxes(halves, 0, 1).reshape(-1, size, *a.shape[1:])

        return cls(split(roads.dz), split(roads.x), split(roads.o), roads)

    def batch(self, i: Int[Array, ""]) -> Roads:
        """The i-th batch, in turn."""
        i = i % self.dz.shape[0]
        return Roads(self.dz[i], self.x[i], self.o[i], self.roads.times, self.roads.weight, self.roads.rate)


class _Scaled(eqx.Module):
    """What the critic sees of ż: each entry less its mean over the data's draws, in units of its spread there."""

    roads: Roads
    center: Float[Array, "dim"]
    spread: Float[Array, "dim"]

    @classmethod
    def of(cls, roads: Roads) -> "_Scaled":
        data = roads.vectors(roads.dz)
        # An entry that is known almost exactly must not drown the others: at least a hundredth of what ż is.
        spread = jnp.sqrt(jnp.var(data, axis=0) + 1e-4 * jnp.mean(data**2))
        return cls(roads, jnp.mean(data, axis=0), spread)

    def __call__(self, dz: Float[Array, "samples series times state"]) -> critic.Samples:
        return ((self.roads.vectors(dz) - self.center[None, :]) / self.spread[None, :]).astype(jnp.float32)
