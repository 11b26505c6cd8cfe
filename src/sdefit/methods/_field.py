"""A non-parametric drift learned through simulated paths: likelihood, search, and the scale of the field.

Windows of one gap each start from the belief about x given all rows so far, as an ensemble of paths whose noise never
changes. The ensemble's mean and covariance at the next row give that row's density and the next belief: stable for a
series of any length, where the average of densities over whole paths would underflow.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar
from sdefit.data import Pool, over_series
from sdefit.dynamics.diffusion import even_scale
from sdefit.dynamics.sde import SDE
from sdefit.gp.field import Field, field_on, simulate_window
from sdefit.inference.increments import filled, increment_errors, split
from sdefit.inference.parameterisation import Parameterisation
from sdefit.matching.latent_process import observations
from sdefit.optimise import SearchResult, ValueGradHessian, levenberg_marquardt
from sdefit.priors import WIDTH_G, WIDTH_NOISE, noise_levels
from sdefit.ssm.filter import FilterPass, given_first_row, update
from sdefit.ssm.innovations import negative_log_likelihood
from sdefit.ssm.kalman import Gaussian, Observations
from sdefit.ssm.moments import small_cholesky

_WINDOW = 1.25  # the longest window in typical spacings: a longer gap is several windows
_MOST_WINDOWS = 200
_SCALES = 1e-3, 1e3  # smallest and largest scale of the field, in standard deviations of the data per typical spacing
# The field is smooth, so it competes with what is slow in the residuals. Differences of white noise have 2 − 2 cos ω of
# its variance at frequency ω: a quarter at a period of a dozen rows.
_SLOW = 0.25


class Learned(eqx.Module):
    """The field of highest posterior density with one lengthscale, and how it was found."""

    length: Scalar
    scale: Float[Array, "state"]
    fit: SearchResult
    evidence: Scalar


class Problem(eqx.Module):
    """The data, the inducing points and the noise of the paths: all that does not change during a search.

    Coordinates are u = (v state by state, then those of G and σ as `Parameterisation` has them).
    """

    model: SDE = eqx.field(static=True)
    pool: Pool
    points: Float[Array, "points state"]
    noise: Float[Array, "draws paths state"]

    @property
    def parameterisation(self) -> Parameterisation:
        bare = SDE(self.model.drift, self.model.states, {}, self.model.diffusion)
        return Parameterisation(bare, self.pool, "each")

    def begin(self) -> Float[Array, "coordinates"]:
        """No drift at all, with G and σ from the increments of the data."""
        path = over_series(filled)(self.pool.times, self.pool.values, self.pool.observed)
        errors = over_series(increment_errors, (0, 0, 0, None))(self.pool.times, path, jnp.zeros_like(path), 1)
        rest = self.parameterisation.begin(jnp.zeros(0), *split(errors), path[:, 0])
        return jnp.concatenate([jnp.zeros(self.points.size), rest])

    def variance_params(self, u: Float[Array, "coordinates"]) -> Float[Array, "natural"]:
        """(v, G Gᵀ, σ²)."""
        return jnp.concatenate([u[: self.points.size], self.parameterisation.variance_params(u[self.points.size :])])

    def parts(self, variance_params: Float[Array, "natural"]) -> tuple[Array, Array, Array]:
        """v, G Gᵀ and σ²."""
        point = self.parameterisation.point(variance_params[self.points.size :])
        return variance_params[: self.points.size].reshape(self.points.shape[::-1]).T, point.Q, point.variance

    def filter(self, field: Field, v: Array, Q: Array, variance: Array) -> FilterPass:
        """The belief about x after each row of every series, by ensembles of paths."""
        weights, G = field.weights(v), small_cholesky(Q)

        def one(times, values, observed):
            return _filter(field, weights, G, variance, Observations(times, values, observed), self.noise)

        return over_series(one)(self.pool.times, self.pool.values, self.pool.observed)

    def loss(self, field: Field, scale: Array, lost_freedom: Array, u: Float[Array, "coordinates"]) -> ValueGradHessian:
        """−log posterior density, without its constant."""

        def new(variance_params):
            return self.filter(field, *self.parts(variance_params)).innovations

        return negative_log_likelihood(new, self.variance_params(u)).reparameterise(
            self.variance_params, u
        ) + self._prior(scale, lost_freedom, u)

    def _prior(self, scale: Array, lost_freedom: Array, u: Float[Array, "coordinates"]) -> ValueGradHessian:
        """Normal in v; in the logarithms of G and σ wide around the roughness, and `lost_freedom` added back.

        With v integrated out, the likelihood has −½ log det of its curvature in v, which is a number of `lost_freedom`
        degrees of freedom times the logarithm of G and σ: without it both come out too small.
        """
        v, rest = u[: self.points.size], u[self.points.size :]
        precision = jnp.repeat(scale**-2, self.points.shape[0])
        level, width, on = self._levels()
        size = jnp.where(on, jnp.abs(rest) + 1e-30, 1.0)
        off, inverse = jnp.where(on, jnp.log(size) - level, 0.0) / width, jnp.where(on, jnp.sign(rest) / size, 0.0)
        value = 0.5 * jnp.sum(precision * v**2) + 0.5 * jnp.sum(off**2) - jnp.sum(lost_freedom * jnp.log(size))
        gradient = jnp.concatenate([precision * v, (off / width - lost_freedom) * inverse])
        return ValueGradHessian(
            value, gradient, jnp.diag(jnp.concatenate([precision, (width**-2 + lost_freedom) * inverse**2]))
        )

    def _levels(self) -> tuple[Array, Array, np.ndarray]:
        """Center and width of the priors on the logarithms of G's diagonal and σ, and which coordinates these are."""
        log_G, log_noise = noise_levels(observations(self.pool))
        if self.model.diffusion == "scalar":
            log_G = jnp.mean(log_G - jnp.log(even_scale(self.pool.scale)), keepdims=True)
        sizes = self.parameterisation.sizes[1:]
        width = jnp.asarray(np.repeat([WIDTH_G, 1.0, WIDTH_NOISE, 1.0], sizes))
        return self._placed(log_G, log_noise), width, np.repeat([True, False, True, False], sizes)

    def _placed(self, of_G: Array, of_noise: Array) -> Array:
        """Numbers for G's diagonal and for σ among the coordinates that follow v."""
        _, scales, below, sigma, first = self.parameterisation.sizes
        return jnp.concatenate([of_G[:scales], jnp.zeros(below), of_noise[:sigma], jnp.zeros(first)])

    def learn(self, lengths: tuple[float, ...], rounds: int, iterations: int) -> Learned:
        """The field of the lengthscale with the highest evidence, from the longest to shorter ones while it rises."""
        K = self.points.shape[1]
        first = field_on(self.points, jnp.array(lengths[0]))

        def one(carry, length):
            before, u, scale, lost_freedom, best, rising = carry
            field = field_on(self.points, length)
            values = before.features(self.points) @ u[: self.points.size].reshape(self.points.shape[::-1]).T
            v = jax.scipy.linalg.solve_triangular(field.chol, values, lower=True)
            u = jnp.concatenate([v.T.ravel(), u[self.points.size :]])
            # A search that begins nowhere ends at once: in a batch, it waits for the others at no cost.
            found, lost_freedom = self._rounds(
                field, jnp.where(rising, u, jnp.nan), scale, lost_freedom, rounds, iterations
            )
            rising = found.evidence > best
            best = jnp.where(rising, found.evidence, best)
            return (field, found.fit.x, found.scale, lost_freedom, best, rising), found

        none = jnp.zeros(sum(self.parameterisation.sizes))
        carry = first, self.begin(), jnp.ones(K), none, jnp.array(-jnp.inf), jnp.array(True)
        found = jax.lax.scan(one, carry, jnp.array(lengths))[1]
        best = jnp.argmax(jnp.where(jnp.isfinite(found.evidence), found.evidence, -jnp.inf))
        return jax.tree.map(lambda a: a[best], found)

    def _rounds(self, field: Field, u, scale, lost_freedom, rounds: int, iterations: int) -> tuple[Learned, Array]:
        """The field of highest density, with its scale and the lost degrees of freedom found again after each round."""
        maximum = jnp.concatenate([jnp.full(self.points.size, jnp.inf), self.parameterisation.max_step])

        def one(carry, _):
            u, scale, lost_freedom = carry

            def fn(u):
                return self.loss(field, scale, lost_freedom, u)

            fit = levenberg_marquardt(fn, u[None], max_step=maximum, iterations=iterations, tolerance=1e-5)
            fit = jax.tree.map(lambda a: a[0], fit)
            then, more, evidence = self._hyper(fit, scale, lost_freedom)
            return (fit.x, then, more), Learned(field.length, scale, fit, evidence)

        (_, _, lost_freedom), found = jax.lax.scan(one, (u, scale, lost_freedom), None, length=rounds)
        return jax.tree.map(lambda a: a[-1], found), lost_freedom

    def _hyper(self, fit: SearchResult, scale: Array, lost_freedom: Array) -> tuple[Array, Array, Scalar]:
        """The next scale of the field, the degrees of freedom that G and σ lose to it, and the evidence (Laplace)."""
        (M, K), (_, Q, variance) = self.points.shape, self.parts(self.variance_params(fit.x))
        chol = jnp.linalg.cholesky(fit.at.curvature[: M * K, : M * K])
        inverse = jax.scipy.linalg.solve_triangular(chol, jnp.eye(M * K), lower=True)
        left = jnp.sum(inverse**2, axis=0).reshape(K, M) / scale[:, None] ** 2
        used = jnp.maximum(jnp.sum(1 - left, axis=1), 1e-3)
        then = jnp.clip(jnp.linalg.norm(fit.x[: M * K].reshape(K, M), axis=1) / jnp.sqrt(used), *_SCALES)
        fraction = jnp.diagonal(Q) / (jnp.diagonal(Q) + _SLOW * variance)
        of_G = used * fraction
        if self.model.diffusion == "scalar":
            of_G = jnp.sum(of_G, keepdims=True)
        # The determinant itself takes the place of what `lost_freedom` stood for during the search.
        stood = jnp.sum(lost_freedom * jnp.log(jnp.abs(fit.x[M * K :]) + 1e-30))
        evidence = -fit.at.value - stood - jnp.sum(jnp.log(jnp.diagonal(chol))) - M * jnp.sum(jnp.log(scale))
        return then, self._placed(of_G, used * (1 - fraction)), evidence


def _filter(field: Field, weights, G, variance, data: Observations, noise) -> FilterPass:
    """One series: windows of paths from row to row."""
    first, data = given_first_row(data, variance)
    gaps = jnp.diff(data.times, prepend=data.times[:1])
    windows = jnp.ceil(gaps / _WINDOW)
    long = windows > _MOST_WINDOWS
    counts = jnp.where(long, 0, windows).astype(jnp.int32)

    def row(last, inputs):
        gap, count, long, value, observed = inputs
        h = gap / ((noise.shape[0] - 1) * jnp.maximum(count, 1))

        def window(_, carry):
            (mean, covariance), transition = carry
            chol = small_cholesky(covariance)
            end = simulate_window(field, weights, mean, chol, G, h, noise)
            along = jax.scipy.linalg.solve_triangular(chol.T, end.cross.T, lower=False).T
            return Gaussian(end.mean, end.covariance), along @ transition

        # Begun as functions of the belief and of G, as they go on: the loops are then traced once.
        same = jnp.eye(last.mean.size) + 0.0 * last.covariance
        moved = jax.lax.fori_loop(0, count, window, (last, same))
        # Behind a gap too long to simulate, x is where the data are as a rule: standardised, N(0, 1).
        anew = Gaussian(jnp.zeros_like(last.mean), same), jnp.zeros_like(same)
        predicted, transition = jax.tree.map(lambda a, b: jnp.where(long, a, b), anew, moved)
        return update(predicted, value, observed, variance, transition)

    first = Gaussian(first.mean + 0.0 * weights[0], first.covariance + 0.0 * G)
    return jax.lax.scan(row, first, (gaps, counts, long, data.values, data.observed))[1]
