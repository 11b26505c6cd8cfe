"""What increments of the data tell of θ without any filter: where to begin, and how large each parameter may be."""

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Int, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import ScaledBounds
from sdefit.inference.increments import filled, increment_errors, split
from sdefit.matching import means
from sdefit.methods._latent import local_scales, path_drift, rms, scales_of
from sdefit.optimise import levenberg_marquardt, log_mean_square

SPANS = (1, 3, 8)  # rows that an increment spans


class Agreed(eqx.Module):
    """Unconstrained θ at which increments over each span agree best with the drift, and the curvature there."""

    u: Float[Array, "spans params"]
    curvature: Float[Array, "spans params params"]


class Increments(eqx.Module):
    """The data of a pool, missing values interpolated, and the drift along them."""

    model: SDE = eqx.field(static=True)
    pool: Pool
    path: Float[Array, "series times state"]

    @property
    def bounds(self) -> ScaledBounds:
        """The bounds of θ, with coordinates in units of the data."""
        return ScaledBounds.of(self.model, self.pool)

    @classmethod
    def of(cls, model: SDE, pool: Pool) -> "Increments":
        return cls(model, pool, over_series(filled)(pool.times, pool.values, pool.observed))

    def errors(self, u: Theta, span: Int[Array, ""] | int) -> Float[Array, "series times state"]:
        """What the drift at u leaves of the increments over so many rows."""
        drifts = path_drift(self.model, self.pool, self.pool.times)(self.path, self.bounds.constrain(u))
        return over_series(increment_errors, (0, 0, 0, None))(self.pool.times, self.path, drifts, span)

    def noises(self, u: Theta) -> tuple[Float[Array, "state"], Float[Array, "state"]]:
        """Standard deviations of diffusion and of observation noise that the drift at u leaves."""
        return split(self.errors(u, 1))

    def agree(self, tries: Float[Array, "tries params"], max_step: Float[Array, "params"]) -> Agreed:
        """The best agreement over each span, from several starts whose steps are at most so long."""
        P = tries.shape[1]
        if not P:
            return Agreed(jnp.zeros((len(SPANS), 0)), jnp.zeros((len(SPANS), 0, 0)))

        def match(span):
            def mismatch(u):
                return log_mean_square(lambda u: self.errors(u, span), u)

            best = levenberg_marquardt(mismatch, tries, max_step=max_step, iterations=40).best
            return best.x, best.at.curvature

        return Agreed(*jax.vmap(match)(jnp.array(SPANS)))

    def scales_near(self, u: Theta, max_step: Float[Array, "params"]) -> Theta:
        """The `scales` where the best agreement is found from one start."""
        return self.scales(self.agree(u[None], max_step))

    def scales(self, agreed: Agreed) -> Theta:
        """The scale of each parameter, the largest of those that one span or another suggests."""
        if not self.model.free:
            return jnp.zeros(0)
        bounds, drift = self.bounds, path_drift(self.model, self.pool, self.pool.times)
        seen, thetas = jnp.any(self.pool.observed, axis=-1), jax.vmap(bounds.constrain)(agreed.u)

        def size(a):
            return rms(jnp.where(seen[..., None], a, 0.0))

        # As fast as the drift there, or as it must be to hold what the diffusion drives within a spread of 1.
        pull = size(jnp.broadcast_to(0.5 * self.noises(agreed.u[0])[0] ** 2, self.path.shape))
        speeds = jax.vmap(lambda theta: size(drift(self.path, theta)))(thetas)
        speed = jnp.hypot(jnp.max(jnp.where(jnp.isfinite(speeds), speeds, 0.0)), pull)
        natural = scales_of(drift, self.path, speed, seen, bounds.unit)

        def informed(u, theta, curvature, span):
            std = means.standard_errors(curvature) * jnp.sqrt(span)  # increments over more than one row overlap
            return means.informed_scales(u, std, bounds, natural, local_scales(drift, self.path, speed, seen, theta))

        return jnp.max(jax.vmap(informed)(agreed.u, thetas, agreed.curvature, jnp.array(SPANS, float)), axis=0)
