"""`VGPA`: θ, G and σ by the bound that a Gaussian process posterior puts under the likelihood."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Key, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.filtering.gaussian import Cloud, Observations, after_first
from sdefit.filtering.scoring import Curved, Scored, score
from sdefit.filtering.starts import filled
from sdefit.filtering.variational import Path, Posterior, bound_and_innovations, infer, refine, steps_of
from sdefit.methods._base import Information, Method
from sdefit.methods._coordinates import Coordinates, Point, root
from sdefit.methods._increments import Increments
from sdefit.methods._likelihood import starts_from, weak_priors
from sdefit.result import Code, Estimate


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
    - `weak`: weak priors, which count only where the data tell little: those of `Auto` on G, σ and θ.
    - `boundary`: without weak priors, the bound is raised by this times the log of every σ_k and G_kk, as in `ESGF`.

    x(t_1) has a flat prior: the bound is on the likelihood of all rows given the first.
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
    reference: ClassVar[str] = (
        "C. Archambeau, D. Cornford, M. Opper and J. Shawe-Taylor (2007), Gaussian process approximations of "
        "stochastic differential equations, JMLR Workshop and Conference Proceedings 1."
    )

    def __post_init__(self) -> None:
        self.known_diffusion = _frozen(self.known_diffusion)
        if self.noise not in ("each", "same"):
            raise ModelError(f"VGPA: noise must be one of each, same, not {self.noise!r}")
        for word in ("substeps", "starts", "iterations", "sweeps"):
            number = getattr(self, word)
            if not (isinstance(number, int) and number >= 1):
                raise ModelError(f"VGPA: {word} must be a whole number of at least 1, not {number!r}")
        if not self.boundary >= 0:
            raise ModelError(f"VGPA: boundary must be 0 or more, not {self.boundary!r}")
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

    def estimate(self, model: SDE, pool: Pool, start: Theta, key: Key) -> Estimate:
        where, increments = Coordinates(model, pool, self.noise), Increments.of(model, pool)
        starts = starts_from(where, increments, start, self.starts, key)
        scales = starts.scales if self.weak else None
        return self._estimate(where, pool, starts.begin, scales)

    def refit(self, model: SDE, pool: Pool, near: Estimate, key: Key) -> Estimate:
        """One search from `near`."""
        where, P = Coordinates(model, pool, self.noise), near.theta.size
        begin = where.at(near.theta, near.G, near.noise, near.mean[:, 0])
        scales = Increments.of(model, pool).scales_near(begin[:P], where.longest[:P]) if self.weak else None
        return self._estimate(where, pool, begin[None], scales)

    def information(self, model: SDE, pool: Pool, estimate: Estimate) -> Information:
        """From the expected curvature of the bound at the estimate; 0 for a G that is known."""
        where = Coordinates(model, pool, self.noise)
        natural = where.natural(estimate.hyper["coordinates"])
        bound = _Bound(model, pool, self.substeps, self.sweeps)
        covariance = _inverse(bound.curved(lambda z: self._point(where, z), natural).curvature)
        slope = jax.jacfwd(where.quantities)(natural)
        return Information(slope @ covariance @ slope.T)

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        none = jnp.zeros((pool.times.shape[0], estimate.noise.size))
        point = Point(estimate.theta, estimate.G @ estimate.G.T, estimate.noise**2, none)
        return self._rows(_Bound(model, pool, self.substeps, self.sweeps).posterior(point).path.cloud)

    def _estimate(
        self, where: Coordinates, pool: Pool, begin: Float[Array, "starts coordinates"], scales: Theta | None
    ) -> Estimate:
        bound = _Bound(where.model, pool, self.substeps, self.sweeps)
        fits = self._search(where, bound, begin, scales)
        values = jnp.where(jnp.isfinite(fits.at.value), fits.at.value, jnp.inf)
        fit: Scored = jax.tree.map(lambda a: a[jnp.argmin(values)], fits)
        point = self._point(where, where.natural(fit.x))
        found = bound.posterior(point)
        mean, std = self._rows(found.path.cloud)
        done = fit.converged & jnp.all(found.settled)
        told = {"coordinates": fit.x, "values": -values, "sweeps": found.sweeps}
        return Estimate(
            theta=point.theta,
            G=root(point.Q),
            noise=jnp.sqrt(point.variance),
            mean=mean,
            std=std,
            objective=jnp.sum(found.bound),
            code=jnp.where(done, Code.OK, Code.NOT_CONVERGED),
            hyper=told if scales is None else told | {"scales": scales},
            trace={"bound": jnp.sum(found.bounds, axis=0), "search": -fit.values},
        )

    def _search(
        self, where: Coordinates, bound: "_Bound", begin: Float[Array, "starts coordinates"], scales: Theta | None
    ) -> Scored:
        """The highest bound near each row of `begin`."""
        prior = weak_priors(where, scales) if self.weak else lambda u: where.prior(u, self.boundary)
        known = self.known_diffusion is not None
        estimated = jnp.array(~np.repeat([False, known, known, False, False], where.sizes))

        def fn(u) -> Curved:
            given = bound.curved(lambda z: self._point(where, z), where.natural(u)).through(where.natural, u)
            at = given + prior(u)
            both = estimated[:, None] & estimated[None, :]
            return Curved(at.value, jnp.where(estimated, at.gradient, 0.0), jnp.where(both, at.curvature, 0.0))

        return score(fn, begin, longest=where.longest, iterations=self.iterations, tolerance=1e-12)

    def _point(self, where: Coordinates, natural: Float[Array, "natural"]) -> Point:
        """The parts of natural coordinates, with the known G in its place."""
        point, pool = where.point(natural), where.pool
        if self.known_diffusion is None:
            return point
        given = jnp.asarray(self.known_diffusion)
        G = given * jnp.eye(point.variance.size) if given.ndim == 0 else given
        G = G * jnp.sqrt(pool.time_scale) / pool.scale[:, None]
        return dataclasses.replace(point, Q=G @ G.T)

    def _rows(self, cloud: Cloud) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of the data."""
        variance = jnp.diagonal(cloud.covariance, axis1=-2, axis2=-1)
        return cloud.mean[:, :: self.substeps], jnp.sqrt(jnp.maximum(variance, 0.0))[:, :: self.substeps]


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

    def curved(self, point_of, natural: Float[Array, "natural"]) -> Curved:
        """Minus the bound at the best q, with its exact gradient and an expected curvature."""
        found = jax.lax.stop_gradient(self.posterior(point_of(natural)).path)

        def both(z):
            point = point_of(z)

            def one(series: "_Series", path: Path):
                drift, steps, first, data = self._parts(point, series)
                return bound_and_innovations(drift, steps, point.variance, first, data, path)

            value, new = over_series(one)(self._series(), found)
            parts = -jnp.sum(value), new.error.ravel(), new.variance.ravel()
            return parts, parts

        (gradient, de, ds), (value, _, s) = jax.jacfwd(both, has_aux=True)(natural)
        ds = ds / s[:, None]
        return Curved(value, gradient, de.T @ (de / s[:, None]) + 0.5 * ds.T @ ds)

    def _parts(self, point: Point, series: "_Series"):
        """Drift, steps, first belief and data of one series."""
        standard = self.pool.drift(lambda t, x: self.model.f(t, x, point.theta))

        def drift(t, x):
            return standard(t, x, series.origin)

        first, data = after_first(series.data, point.variance)
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
    if given is None:
        return None
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        return given
    return {0: float, 2: lambda a: tuple(map(tuple, a.tolist()))}.get(array.ndim, lambda _: given)(array)


def _is_diffusion(given: Any) -> bool:
    matrix = np.atleast_2d(np.asarray(given, np.float64)) if isinstance(given, float | tuple) else np.zeros((0, 0))
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0 and bool(np.isfinite(matrix).all())
    return square and bool(np.linalg.matrix_rank(matrix) == len(matrix)) and (isinstance(given, tuple) or given > 0)
