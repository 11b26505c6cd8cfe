"""`VGPA`: θ, G and σ by the bound that a Gaussian process posterior puts under the likelihood."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Int, Key, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.inference.increments import Increments, filled
from sdefit.inference.initial_guess import guess_by_increments
from sdefit.inference.parameterisation import Parameterisation, Point, cholesky_psd
from sdefit.inference.prior import BoundaryPrior, WeakPrior
from sdefit.methods._settings import check_choice, check_flag, check_not_negative, check_whole
from sdefit.methods.interface import Method, ParameterCovariance, Stage
from sdefit.optimise import SearchResult, ValueGradHessian, levenberg_marquardt
from sdefit.result import Code, Estimate
from sdefit.ssm.filter import given_first_row
from sdefit.ssm.kalman import Gaussian, Observations
from sdefit.ssm.variational import Path, Posterior, bound_and_innovations, infer, refine, steps_of


class VariationalState(eqx.Module):
    """Coordinates, the bound at which each search ended, the sweeps, and the scales of θ's prior."""

    coordinates: Float[Array, "coordinates"]
    values: Float[Array, "starts"]
    sweeps: Int[Array, "series"]
    scales: Theta | None


class VGPA(Method):
    """Variational Gaussian process approximation: dx = (−A_t x + b_t) dt + G dw, as near the posterior as can be.

    1. For given θ, G, σ: sweeps of natural gradient find the Gaussian path q with the highest bound
       E_q[log p(y, x)] + entropy(q) on the log-likelihood.
    2. θ, G and σ maximise that bound plus the log of weak priors, by Newton steps with its exact gradient and an
       expected curvature.

    **Arguments**
    - `known_diffusion`: G in the user's units, as a matrix, or a number g for G = g I; estimated if None.
    - `noise`: observation noise of "each" state its own, or the "same" for all in the user's units.
    - `substeps`: steps of the grid from each row to the next; 1 is exact where the drift is linear.
    - `starts`: searches in one batch, begun as those of `ESGF`; `iterations`: the most evaluations of each.
    - `sweeps`: the most sweeps for one evaluation of the bound.
    - `weak`: weak priors, which matter only where the data say little: those of `Auto` on G, σ and θ.
    - `boundary`: without weak priors, the bound is raised by this times the log of every σ_k and G_kk, as in `ESGF`.

    x(t_1) has a flat prior: the bound is on the likelihood of all rows given the first.

    >>> sf.VGPA(known_diffusion=0.3, substeps=1)
    VGPA(known_diffusion=0.3, substeps=1)
    """

    known_diffusion: Any = None
    noise: str = "each"
    substeps: int = 4
    starts: int = 3
    iterations: int = 50
    sweeps: int = 50
    weak: bool = True
    boundary: float = 0.1

    name: ClassVar[str] = "vgpa"
    title: ClassVar[str] = "Variational Gaussian process approximation"
    objective_name: ClassVar[str] = "bound"
    State: ClassVar = VariationalState
    knows_covariance: ClassVar[bool] = True
    reference: ClassVar[str] = (
        "C. Archambeau, D. Cornford, M. Opper and J. Shawe-Taylor (2007), Gaussian process approximations of "
        "stochastic differential equations, JMLR Workshop and Conference Proceedings 1."
    )

    def __post_init__(self) -> None:
        self.known_diffusion = _frozen(self.known_diffusion)
        check_choice(self, noise=("each", "same"))
        check_whole(self, substeps=1, starts=1, iterations=1, sweeps=1)
        check_not_negative(self, "boundary")
        check_flag(self, "weak")
        if self.known_diffusion is not None and not _is_diffusion(self.known_diffusion):
            raise ModelError(
                f"VGPA: known_diffusion must be a positive number or a square matrix of full rank, "
                f"not {self.known_diffusion!r}"
            )

    def check(self, model: SDE, pool: Pool) -> None:
        """Refuse an ODE, and a known G of another size."""
        if model.diffusion == "none":
            raise ModelError("VGPA needs a model with diffusion, not diffusion='none'; use ESGF for an ODE")
        size = len(model.states)
        if isinstance(self.known_diffusion, tuple) and len(self.known_diffusion) != size:
            rows = len(self.known_diffusion)
            raise ModelError(f"VGPA: known_diffusion must be {size} by {size}, one row per state, not {rows} by {rows}")

    def stages(self) -> tuple[Stage, ...]:
        return (self.maximise,)

    def maximise(self, model: SDE, pool: Pool, start: Theta, key: Key, found: None) -> Estimate:
        """θ, G and σ of the highest bound."""
        parameterisation, increments = Parameterisation(model, pool, self.noise), Increments.of(model, pool)
        starts = guess_by_increments(parameterisation, increments, start, self.starts, key)
        scales = starts.scales if self.weak else None
        return self._estimate(parameterisation, pool, starts.begin, scales)

    def refit(self, model: SDE, pool: Pool, init: Estimate, key: Key) -> Estimate:
        """One search from `init`."""
        parameterisation, P = Parameterisation(model, pool, self.noise), init.theta.size
        begin = parameterisation.at(init.theta, init.G, init.noise, init.mean[:, 0])
        scales = Increments.of(model, pool).scales_near(begin[:P], parameterisation.max_step[:P]) if self.weak else None
        return self._estimate(parameterisation, pool, begin[None], scales)

    def covariance(self, model: SDE, pool: Pool, estimate: Estimate) -> ParameterCovariance:
        """From the expected curvature of the bound at the estimate; 0 for a G that is known."""
        parameterisation = Parameterisation(model, pool, self.noise)
        variance_params = parameterisation.variance_params(_state(estimate).coordinates)
        bound = _Bound(model, pool, self.substeps, self.sweeps)
        covariance = _inverse(bound.curved(lambda z: self._point(parameterisation, z), variance_params).curvature)
        slope = jax.jacfwd(parameterisation.quantities)(variance_params)
        return ParameterCovariance(slope @ covariance @ slope.T)

    def search_values(self, estimate: Estimate) -> Any:
        return _state(estimate).values

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        none = jnp.zeros((pool.times.shape[0], estimate.noise.size))
        point = Point(estimate.theta, estimate.G @ estimate.G.T, estimate.noise**2, none)
        return self._rows(_Bound(model, pool, self.substeps, self.sweeps).posterior(point).path.nodes)

    def _estimate(
        self,
        parameterisation: Parameterisation,
        pool: Pool,
        begin: Float[Array, "starts coordinates"],
        scales: Theta | None,
    ) -> Estimate:
        bound = _Bound(parameterisation.model, pool, self.substeps, self.sweeps)
        fits = self._search(parameterisation, bound, begin, scales)
        fit, values = fits.best, fits.ends
        point = self._point(parameterisation, parameterisation.variance_params(fit.x))
        found = bound.posterior(point)
        mean, std = self._rows(found.path.nodes)
        done = fit.converged & jnp.all(found.settled)
        state = VariationalState(fit.x, -values, found.sweeps, scales)
        return Estimate(
            theta=point.theta,
            G=cholesky_psd(point.Q),
            noise=jnp.sqrt(point.variance),
            mean=mean,
            std=std,
            criterion=jnp.sum(found.bound),
            code=jnp.where(done, Code.OK, Code.NOT_CONVERGED),
            state=state,
            trace={"bound": jnp.sum(found.bounds, axis=0), "search": -fit.values},
        )

    def _search(
        self,
        parameterisation: Parameterisation,
        bound: "_Bound",
        begin: Float[Array, "starts coordinates"],
        scales: Theta | None,
    ) -> SearchResult:
        """The highest bound near each row of `begin`."""
        weak = WeakPrior.of(parameterisation, scales) if self.weak else None
        prior = weak or BoundaryPrior(parameterisation, self.boundary)
        known = self.known_diffusion is not None
        estimated = jnp.array(~np.repeat([False, known, known, False, False], parameterisation.sizes))

        def fn(u) -> ValueGradHessian:
            given = bound.curved(
                lambda z: self._point(parameterisation, z), parameterisation.variance_params(u)
            ).reparameterise(parameterisation.variance_params, u)
            at = given + prior(u)
            both = estimated[:, None] & estimated[None, :]
            return ValueGradHessian(
                at.value, jnp.where(estimated, at.gradient, 0.0), jnp.where(both, at.curvature, 0.0)
            )

        return levenberg_marquardt(
            fn, begin, max_step=parameterisation.max_step, iterations=self.iterations, tolerance=1e-12
        )

    def _point(self, parameterisation: Parameterisation, variance_params: Float[Array, "natural"]) -> Point:
        """The parts of natural coordinates, with the known G in its place."""
        point, pool = parameterisation.point(variance_params), parameterisation.pool
        if self.known_diffusion is None:
            return point
        given = jnp.asarray(self.known_diffusion)
        G = given * jnp.eye(point.variance.size) if given.ndim == 0 else given
        G = G * jnp.sqrt(pool.time_scale) / pool.scale[:, None]
        return dataclasses.replace(point, Q=G @ G.T)

    def _rows(self, belief: Gaussian) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of the data."""
        variance = jnp.diagonal(belief.covariance, axis1=-2, axis2=-1)
        return belief.mean[:, :: self.substeps], jnp.sqrt(jnp.maximum(variance, 0.0))[:, :: self.substeps]


def _state(estimate: Estimate) -> VariationalState:
    assert isinstance(estimate.state, VariationalState)
    return estimate.state


@dataclasses.dataclass(frozen=True)
class _Bound:
    """The bound of a pool as a function of θ, G G^T and σ²."""

    model: SDE
    pool: Pool
    substeps: int
    sweeps: int

    def posterior(self, point: Point) -> Posterior:
        """The best q of each series."""

        def one(series: "_Series") -> Posterior:
            drift, steps, first, data = self._parts(point, series)
            return infer(drift, steps, point.variance, first, data, series.guide, self.sweeps)

        return over_series(one)(self._series())

    def curved(self, point_of, variance_params: Float[Array, "natural"]) -> ValueGradHessian:
        """Minus the bound at the best q, with its exact gradient and an expected curvature."""
        found = jax.lax.stop_gradient(self.posterior(point_of(variance_params)).path)

        def both(z):
            point = point_of(z)

            def one(series: "_Series", path: Path):
                drift, steps, first, data = self._parts(point, series)
                return bound_and_innovations(drift, steps, point.variance, first, data, path)

            value, new = over_series(one)(self._series(), found)
            parts = -jnp.sum(value), new.error.ravel(), new.variance.ravel()
            return parts, parts

        (gradient, de, ds), (value, _, s) = jax.jacfwd(both, has_aux=True)(variance_params)
        ds = ds / s[:, None]
        return ValueGradHessian(value, gradient, de.T @ (de / s[:, None]) + 0.5 * ds.T @ ds)

    def _parts(self, point: Point, series: "_Series"):
        """Drift, steps, first belief and data of one series."""
        standard = self.pool.drift(lambda t, x: self.model.f(t, x, point.theta))

        def drift(t, x):
            return standard(t, x, series.origin)

        first, data = given_first_row(series.data, point.variance)
        return drift, steps_of(drift, point.Q, data.times, series.guide), first, data

    def _series(self) -> "_Series":
        def one(times, values, observed, origin) -> _Series:
            data = refine(Observations(times, values, observed), self.substeps)
            return _Series(data, filled(data.times, data.values, data.observed), origin)

        return over_series(one)(self.pool.times, self.pool.values, self.pool.observed, self.pool.origins)


class _Series(eqx.Module):
    """One series on its grid, and the path through its values along which the drift's slope is taken."""

    data: Observations
    guide: Float[Array, "nodes state"]
    origin: Any


def _inverse(curvature: Float[Array, "natural natural"]) -> Float[Array, "natural natural"]:
    """The inverse, with zeros where a coordinate has no curvature because it is known."""
    size = jnp.diagonal(curvature)
    scale = jnp.where(size > 0, 1 / jnp.sqrt(jnp.where(size > 0, size, 1.0)), 0.0)
    both = scale[:, None] * scale[None, :]
    values, vectors = jnp.linalg.eigh(curvature * both)
    return (vectors / jnp.maximum(values, 1e-12)[None, :]) @ vectors.T * both


def _frozen(given: Any) -> Any:
    """A number or a matrix as a setting can hold it, a float or a tuple of rows; anything else as it came."""
    if given is None or isinstance(given, bool | str):
        return given
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        return given
    return {0: float, 2: lambda a: tuple(map(tuple, a.tolist()))}.get(array.ndim, lambda _: given)(array)


def _is_diffusion(given: Any) -> bool:
    matrix = np.atleast_2d(np.asarray(given, np.float64)) if isinstance(given, float | tuple) else np.zeros((0, 0))
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0 and bool(np.isfinite(matrix).all())
    return square and bool(np.linalg.matrix_rank(matrix) == len(matrix)) and (isinstance(given, tuple) or given > 0)
