"""`NPSDE`: the drift as a Gaussian-process vector field, learned through simulated paths, then projected on f(x, θ)."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Float, Key, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.on_path import drift_on_path
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.units import ScaledBounds
from sdefit.errors import ModelError
from sdefit.gp.field import Field, field_on, matched_normals, spread_points
from sdefit.inference.increments import filled
from sdefit.inference.parameterisation import cholesky_psd
from sdefit.matching.mean_matching import match_means, spread_starts
from sdefit.matching.parameter_scales import rms, scales_on_path
from sdefit.methods._field import Learned, Problem
from sdefit.methods._settings import check_whole, is_finite
from sdefit.methods.interface import Method, Stage
from sdefit.result import Code, Estimate
from sdefit.ssm.filter import run_smoother
from sdefit.ssm.kalman import Gaussian

_KNOWN = 1e-10  # share of the largest information below which the data do not determine a direction of the field
_SAME = 1e-8  # how nearly a field must equal f(x, θ) along the path, as a share of the features' size


class FieldState(eqx.Module):
    """The learned field: inducing points and whitened values, lengthscale, scales, information; the paths' noise."""

    points: Float[Array, "points state"]
    length: Scalar
    scale: Float[Array, "state"]
    inducing_values: Float[Array, "points state"]
    precision: Float[Array, "values values"]
    noise: Float[Array, "draws paths state"]


class NPSDE(Method):
    """A non-parametric drift, fitted by simulation and then projected on the model's own.

    1. The field f_k(x) = φ(x)·v_k, a Gaussian process on inducing points over the visited region, with G and σ: the
       highest posterior density, where paths with noise that is drawn once give the density of the data. Scale and
       lengthscale of the field have the highest evidence.
    2. The projection: θ is where the field that equals f(x, θ) along the path has the highest likelihood, as the
       quadratic around the learned field says.

    `Fit.drift(x)` gives the learned field itself; it needs no θ and is a check on the fit of any method. The field
    depends on the state alone, not on time.

    **Arguments**
    - `inducing`: inducing points for each state.
    - `lengths`: lengthscales to try, in standard deviations of the data, from the longest down.
    - `paths`: simulated paths, in mirrored pairs; at least twice the number of noise values that each path uses.
    - `steps`: steps of a path from one observation to the next.
    - `rounds`: how often scale, G and σ are found again for each lengthscale, the search going on between.
    - `iterations`: the most steps of the search in each round.
    - `starts`: starting points of the projection.

    >>> learned = sf.fit(model, series, sf.NPSDE(inducing=8))
    >>> learned.drift([1]).mean.round(0)  # where the model's own, 1.0*(2.0 - 1), is 1
    array([[1.]])
    """

    inducing: int = 16
    lengths: tuple[float, ...] = (4.0, 2.0, 1.0)
    paths: int = 32
    steps: int = 2
    rounds: int = 5
    iterations: int = 12
    starts: int = 4

    name: ClassVar[str] = "npsde"
    title: ClassVar[str] = "NPSDE: a Gaussian-process drift learned through simulated paths"
    objective_name: ClassVar[str] = "log_evidence"
    State: ClassVar = FieldState
    reference: ClassVar[str] = (
        "Ç. Yıldız, M. Heinonen, J. Intosalmi, H. Mannerström, H. Lähdesmäki (2018), Learning stochastic "
        "differential equations with Gaussian processes without gradient matching, MLSP."
    )

    def __post_init__(self) -> None:
        check_whole(self, inducing=2, paths=4, steps=1, rounds=1, iterations=1, starts=1)
        given = self.lengths
        numbers = isinstance(given, tuple) and all(is_finite(one) and one > 0 for one in given)
        if not (numbers and given and list(given) == sorted(given, reverse=True)):
            raise ModelError(f"NPSDE: lengths must be numbers above 0, the longest first, as (4.0, 2.0), not {given!r}")

    def check(self, model: SDE, pool: Pool) -> None:
        """Refuse a model with inputs."""
        if model.inputs:
            raise ModelError(
                "NPSDE needs a model without inputs, as the field it learns depends on the state alone, but the inputs"
                f" are {', '.join(model.inputs)}; take sf.Auto(), sf.MaRS() or sf.ESGF()"
            )

    def stages(self) -> tuple[Stage, ...]:
        return (self.learn_and_project,)

    def learn_and_project(self, model: SDE, pool: Pool, start: Theta, key: Key, found: None) -> Estimate:
        """The field, G and σ; the path; then θ."""
        noise_key, start_key = jax.random.split(key)
        problem = self._problem(model, pool, noise_key)
        learned = problem.learn(self.lengths, self.rounds, self.iterations)
        field = field_on(problem.points, learned.length)
        v, Q, variance = problem.parts(problem.variance_params(learned.fit.x))
        path = _smoothed(problem, field, v, Q, variance)
        theta = self._project(model, pool, field, learned, path[0], start, start_key)
        precision = learned.fit.at.curvature[: v.size, : v.size]
        state = FieldState(problem.points, learned.length, learned.scale, v, precision, problem.noise)
        code = jnp.where(learned.fit.converged, Code.OK, Code.NOT_CONVERGED)
        answer = Estimate(theta, cholesky_psd(Q), jnp.sqrt(variance), *path, learned.evidence, code, state, {})
        return self._with_trace(model, pool, answer)

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        state, G = _state(estimate), estimate.G
        problem = Problem(model, pool, state.points, state.noise)
        field = field_on(problem.points, state.length)
        return _smoothed(problem, field, state.inducing_values, G @ G.T, estimate.noise**2)

    def field(self, estimate: Estimate, x: Float[Array, "n state"]) -> tuple[Array, Array]:
        """Mean and standard deviation of the learned drift at the rows of x, in standardised units."""
        state = _state(estimate)
        phi, v = field_on(state.points, state.length).features(x), state.inducing_values
        factor = jnp.linalg.cholesky(state.precision)

        def spread(k):
            rows = jnp.zeros((x.shape[0], *v.shape[::-1])).at[:, k].set(phi).reshape(x.shape[0], -1)
            return jnp.sum(jax.scipy.linalg.solve_triangular(factor, rows.T, lower=True) ** 2, axis=0)

        known = jnp.stack([spread(k) for k in range(v.shape[1])], axis=1)
        beyond = jnp.maximum(1 - jnp.sum(phi**2, axis=1), 0.0)[:, None] * state.scale[None, :] ** 2
        return phi @ v, jnp.sqrt(known + beyond)

    def _problem(self, model: SDE, pool: Pool, key: Key) -> Problem:
        K = len(model.states)
        path = over_series(filled)(pool.times, pool.values, pool.observed).reshape(-1, K)
        points = spread_points(path, jnp.any(pool.observed, axis=-1).ravel(), self.inducing * K)
        pairs = max(self.paths // 2, K * (1 + self.steps))
        return Problem(model, pool, points, matched_normals(key, 2 * pairs, 1 + self.steps, K))

    def _project(self, model: SDE, pool: Pool, field: Field, found: Learned, path, start: Theta, key: Key) -> Theta:
        """θ of highest likelihood, by the quadratic around the learned field.

        With w(θ) the field that equals f(x, θ) along the path, J the information of the data about v and g the slope
        of the log-likelihood at the learned field, θ minimises ½ (w − v)ᵀ J (w − v) − gᵀ (w − v). The prior drew v
        towards 0 by just that slope, v = scale² g, so that it leaves no trace in θ.
        """
        if not model.free:
            return start
        bounds = ScaledBounds.of(model, pool)
        drift, seen = drift_on_path(model, pool, pool.times), jnp.any(pool.observed, axis=-1)
        v = found.fit.x[: field.points.size]
        precision = jnp.repeat(found.scale**-2, field.points.shape[0])
        known, basis = jnp.linalg.eigh(found.fit.at.curvature[: v.size, : v.size] - jnp.diag(precision))
        some = known > _KNOWN * known[-1]
        size = jnp.sqrt(jnp.where(some, known, 1.0))
        equal = _field_along(field, path, seen)

        def residual(u):
            w = equal(drift(path, bounds.constrain(u))).T.ravel()
            return jnp.where(some, size * (basis.T @ (w - v)) - (basis.T @ (precision * v)) / size, 0.0)

        learned = field.features(path.reshape(-1, path.shape[-1])) @ v.reshape(field.points.shape[::-1]).T
        speed = rms(jnp.where(seen[..., None], learned.reshape(path.shape), 0.0))
        scales = scales_on_path(drift, path, speed, seen, bounds.unit)
        starts = spread_starts(bounds, scales, start, self.starts, key)
        return bounds.constrain(match_means(residual, starts).x)

    def _with_trace(self, model: SDE, pool: Pool, answer: Estimate) -> Estimate:
        """The answer with the learned and the model's drift along the path, in the user's units, for figures."""
        flat = answer.mean.reshape(-1, answer.mean.shape[-1])
        unit = (pool.scale / pool.time_scale)[None, None, :]
        learned = [unit * part.reshape(answer.mean.shape) for part in self.field(answer, flat)]
        own = unit * drift_on_path(model, pool, pool.times)(answer.mean, answer.theta)
        answer.trace.update(field_mean=learned[0], field_std=learned[1], field_model=own)
        return answer


def _state(estimate: Estimate) -> FieldState:
    assert isinstance(estimate.state, FieldState)
    return estimate.state


def _smoothed(problem: Problem, field: Field, v, Q, variance) -> tuple[Array, Array]:
    """Mean and standard deviation of the states at every row."""
    smooth: Gaussian = over_series(run_smoother)(problem.filter(field, v, Q, variance))
    return smooth.mean, jnp.sqrt(jnp.maximum(jnp.diagonal(smooth.covariance, axis1=-2, axis2=-1), 0.0))


def _field_along(field: Field, path: Float[Array, "series times state"], seen: Array):
    """A function that gives v of the smallest field that equals given drifts along the path."""
    phi = jnp.where(seen.reshape(-1, 1), field.features(path.reshape(-1, path.shape[-1])), 0.0)
    gram = phi.T @ phi
    chol = jnp.linalg.cholesky(gram + _SAME * jnp.trace(gram) * jnp.eye(gram.shape[0]))

    def equal(drifts):
        rows = jnp.where(seen[..., None], drifts, 0.0).reshape(-1, path.shape[-1])
        return jax.scipy.linalg.cho_solve((chol, True), phi.T @ rows)

    return equal
