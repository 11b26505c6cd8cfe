"""One weak-form problem along a given path: G and σ by REML, then θ by generalised least squares."""

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Bool, Float, Scalar, Theta
from sdefit.data import Pool
from sdefit.dynamics.on_path import drift_on_path, jacobian_on_path
from sdefit.dynamics.sde import SDE
from sdefit.matching import weak_form
from sdefit.matching.latent_process import observations, with_midpoints
from sdefit.matching.weak_form import LinearisedSSM, WeakFormFit
from sdefit.optimise import minimise
from sdefit.priors import ThetaPrior, noise_levels, noise_prior, theta_prior
from sdefit.ssm.kalman import Observations

_HALVINGS = 16  # at most, of a step that would make the fit worse

RowPath = Float[Array, "series rows state"]


class WeakFormProblem(eqx.Module):
    """How to find G and σ, then θ, along a path at the rows of the data and midway between them."""

    model: SDE = eqx.field(static=True)
    pool: Pool
    evidence: gp.Evidence
    rows: Observations
    prior: ThetaPrior

    @classmethod
    def of(cls, model: SDE, pool: Pool, evidence: gp.Evidence, scales: Theta) -> "WeakFormProblem":
        """The problem whose prior on θ has these natural scales."""
        return cls(model, pool, evidence, with_midpoints(pool), theta_prior(model, scales))

    def matrices(self, v: Float[Array, "coordinates"]) -> tuple[Float[Array, "state state"], Float[Array, "state"]]:
        """G and σ from their coordinates, (log σ, entries of G) as in the evidence."""
        K = self.evidence.states
        return self.evidence.diffusion.matrix(v[K:], self.evidence.even), jnp.exp(v[:K])

    def fit_noise(self, theta: Theta, path: RowPath, v, profile_weight: Scalar) -> tuple[Array, Bool[Array, ""]]:
        """Coordinates of G and σ of highest marginal likelihood from v on, θ integrated out, and whether it converged.

        A share `profile_weight` of that likelihood is about `theta`.
        """
        model = weak_form.skip_midpoints(self.linearise(theta, path))
        levels, tau = noise_levels(observations(self.pool)), (theta - self.prior.center) / self.prior.width

        def loss(v):
            G, noise = self.matrices(v)
            log_likelihood = weak_form.log_marginal_likelihood(model, G, self._variance(noise), tau, profile_weight)
            return noise_prior(jnp.log(noise), G, levels) - log_likelihood

        found = minimise(loss, v, iterations=100, tolerance=1e-7)
        return found.x, found.converged

    def fit_theta(self, theta: Theta, path: RowPath, v) -> tuple[WeakFormFit, Theta, Scalar]:
        """The fit given G and σ, its θ with the shrunken Onsager-Machlup correction, and the shrinkage."""
        fit = self.solve(theta, path, *self.matrices(v))
        jacobian = jacobian_on_path(self.model, self.pool, self.rows.times)
        correction = weak_form.onsager_machlup_correction(lambda theta: jacobian(path, theta), self.rows, theta, fit)
        shrinkage = weak_form.shrinkage(correction, fit.covariance, self.rows)
        return fit, self._inside(fit.theta + shrinkage * correction, theta), shrinkage

    def backtrack(
        self,
        theta: Theta,
        step: Theta,
        fraction: Scalar,
        path: RowPath,
        v,
        shrinkage: Scalar,
        doubtful: Bool[Array, ""],
    ) -> Scalar:
        """The fraction to take of a step to where `fit_theta` leads: halved, if `doubtful`, until θ is no worse there.

        θ is judged by what `fit_theta` would maximise if it did not linearise in θ. The Onsager-Machlup correction, of
        which it takes a share `shrinkage`, is how the likelihood changes with θ through the Jacobian at x − x̂.
        """
        G, noise = self.matrices(v)
        drift = drift_on_path(self.model, self.pool, self.rows.times)
        jacobian = jacobian_on_path(self.model, self.pool, self.rows.times)

        def likelihood(theta: Theta, of_jacobian: Theta) -> Scalar:
            along = jacobian(path, of_jacobian)
            model = weak_form.linearise(drift, self.rows, path, theta, theta, self.prior.width, along)
            return weak_form.log_likelihood_at_center(weak_form.skip_midpoints(model), G, self._variance(noise))

        def minus_log_prior(theta: Theta) -> Scalar:
            return 0.5 * jnp.sum(((theta - self.prior.center) / self.prior.width) ** 2)

        def halve(now):
            fraction, _, halvings = now
            there = theta + fraction * step
            whole, none, here = jax.vmap(likelihood)(jnp.stack([there, there, theta]), jnp.stack([there, theta, theta]))
            gain = shrinkage * whole + (1 - shrinkage) * none - here
            worse = ~(gain >= minus_log_prior(there) - minus_log_prior(theta))
            return jnp.where(worse, 0.5 * fraction, fraction), worse, halvings + 1

        begin = fraction, doubtful, jnp.array(0, jnp.int32)
        return jax.lax.while_loop(lambda now: now[1] & (now[2] < _HALVINGS), halve, begin)[0]

    def solve(self, theta: Theta, path: RowPath, G, noise) -> WeakFormFit:
        """The fit given G and σ, linearised at θ and along the path."""
        return weak_form.solve(self.linearise(theta, path), G, self._variance(noise), *self.prior)

    def follow_path(self, theta: Theta, path: RowPath, G, noise, passes: int) -> tuple[Array, Array]:
        """The path given θ, G and σ, and its standard deviation: solved again and again along the path before.

        Midpoints are left out of what is returned.
        """

        def one(path, _):
            fit = self.solve(theta, path, G, noise)
            return fit.path_at(theta), fit.std

        path, std = jax.lax.scan(one, path, None, length=passes)
        return path[:, ::2], std[-1][:, ::2]

    def linearise(self, theta: Theta, path: RowPath) -> LinearisedSSM:
        """The linear model around θ and the path."""
        drift = drift_on_path(self.model, self.pool, self.rows.times)
        jacobian = jacobian_on_path(self.model, self.pool, self.rows.times)(path, theta)
        return weak_form.linearise(drift, self.rows, path, theta, *self.prior, jacobian)

    def _variance(self, noise):
        return noise**2 + 0.01 * self.evidence.solver.jitter

    def _inside(self, theta: Theta, before: Theta) -> Theta:
        """θ kept inside its bounds: at most nine tenths of the way from where it was to a bound."""
        lower, upper = jnp.array(self.model.bounds.lower), jnp.array(self.model.bounds.upper)
        theta = jnp.where(jnp.isfinite(lower), jnp.maximum(theta, lower + 0.1 * (before - lower)), theta)
        return jnp.where(jnp.isfinite(upper), jnp.minimum(theta, upper - 0.1 * (upper - before)), theta)
