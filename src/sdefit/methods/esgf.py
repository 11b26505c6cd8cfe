"""`ESGF`: maximum likelihood of θ, G and σ by a continuous-discrete Gaussian filter."""

import dataclasses
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int, Key, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.inference.increments import Increments, interpolated
from sdefit.inference.initial_guess import guess_by_increments
from sdefit.inference.likelihood import FilterState, Likelihood, filter_pool, filter_state, step_counts
from sdefit.inference.likelihood_search import LikelihoodSearch
from sdefit.inference.observed_information import inverse_information
from sdefit.inference.parameterisation import Parameterisation, Point, cholesky_psd
from sdefit.inference.prior import BoundaryPrior, Prior, WeakPrior
from sdefit.methods._settings import check_choice, check_flag, check_not_negative, check_whole
from sdefit.methods.interface import LikelihoodMethod, ParameterCovariance, Stage
from sdefit.optimise import SearchResult
from sdefit.result import Code, Estimate
from sdefit.ssm.filter import run_smoother
from sdefit.ssm.kalman import Gaussian
from sdefit.ssm.moments import RULES

NOISE = ("each", "same", "none")  # what the observation noise of the states may be


class _Guesses(eqx.Module):
    """Where the searches begin, and more of them if need be; the filter's steps, and the scales of θ's weak prior."""

    begin: Float[Array, "starts coordinates"]
    more: Float[Array, "starts coordinates"]
    steps: Int[Array, "series times"]
    scales: Theta | None


class _Found(eqx.Module):
    """The best of all searches, but for its path."""

    state: FilterState
    converged: Bool[Array, ""]
    climb: Float[Array, "iterations"]


class ESGF(LikelihoodMethod):
    """Maximum likelihood by a continuous-discrete Gaussian filter (extended or sigma-point).

    **Arguments**
    - `rule`: "cubature" takes the drift's moments over the belief's spread, "extended" at its mean alone.
    - `noise`: observation noise of "each" state its own, the "same" for all in the user's units, or "none".
    - `starts`: searches in one batch. The first is the user's where start values are given; the others
      come from increments of the data, three different ones and random neighbours of these. Where they disagree or
      end at a bound, or the data are few, a second batch begins scattered about the natural scale of each parameter.
    - `iterations`: the most evaluations of each search.
    - `boundary`: the log-likelihood is raised by this times the log of every σ_k and G_kk. It counts only
      where the data do not: a maximum at zero, as when G is singular, moves just off it.
    - `weak`: in its place, the weak priors of `MaRS`: log ‖G_k‖ and log σ_k are expected about the levels at which
      each explains half of the data's roughness, give or take a factor e or e², and θ within three natural scales of
      each parameter, unless it has a prior of the user's. One that the data determine in spite of that has its own
      size as scale.

    x(t_1) has a flat prior: the likelihood is that of all rows given the first. Without diffusion (an
    ODE) x(t_1) is estimated instead, and the first row counts. Steps between rows are such that the
    drift's slope times a step is at most one half at the data. They are halved, at most twice, while
    that changes the log-likelihood by more than 0.05; the change that is left is the `step_error` of the state.

    >>> sf.fit(model, series, sf.ESGF())
    Fit(model by esgf: rate=0.788..., level=1.99...; ok)
    """

    rule: str = "cubature"
    noise: str = "each"
    starts: int = 3
    iterations: int = 50
    boundary: float = 0.1
    weak: bool = False

    name: ClassVar[str] = "esgf"
    title: ClassVar[str] = "Maximum likelihood by a Gaussian filter"
    objective_name: ClassVar[str] = "log_likelihood"
    State: ClassVar = FilterState
    knows_covariance: ClassVar[bool] = True
    reference: ClassVar[str] = "S. Särkkä and A. Solin (2019), Applied Stochastic Differential Equations, Cambridge."

    def __post_init__(self) -> None:
        check_choice(self, rule=tuple(RULES), noise=NOISE)
        check_whole(self, starts=1, iterations=1)
        check_not_negative(self, "boundary")
        check_flag(self, "weak")

    def check(self, model: SDE, pool: Pool) -> None:
        """Refuse a model that leaves nothing random."""
        if model.diffusion == "none" and self.noise == "none":
            raise ModelError("ESGF(noise='none') needs a model with diffusion: an ODE without noise explains no data")

    def stages(self) -> tuple[Stage, ...]:
        return self.guess, self.search, self.smooth_path

    def guess(self, model: SDE, pool: Pool, start: Theta, key: Key, found: None) -> _Guesses:
        """Where the searches begin, and the steps of the filter there."""
        increments = Increments.of(model, pool)
        starts = guess_by_increments(Parameterisation(model, pool, self.noise), increments, start, self.starts, key)
        return _Guesses(starts.begin, starts.more, starts.steps, starts.scales if self.weak else None)

    def search(self, model: SDE, pool: Pool, start: Theta, key: Key, found: _Guesses) -> _Found:
        """The searches, with steps short enough that halving them changes little."""
        parameterisation = Parameterisation(model, pool, self.noise)
        last = self._search(parameterisation).all(found.begin, found.more, found.steps, found.scales)
        best = last.fits.best
        first = parameterisation.point(parameterisation.variance_params(best.x)).first
        state = FilterState(best.x, best.at.curvature, -last.fits.ends, last.steps, last.step_error, last.scales, first)
        return _Found(state, best.converged, -best.values)

    def smooth_path(self, model: SDE, pool: Pool, start: Theta, key: Key, found: _Found) -> Estimate:
        """The estimate at the best point, with its path."""
        state, parameterisation = found.state, Parameterisation(model, pool, self.noise)
        point = parameterisation.point(parameterisation.variance_params(state.coordinates))
        total, done = filter_pool(model, pool, point, state.steps, self.rule)
        smooth = over_series(run_smoother)(done)
        return Estimate(
            theta=point.theta,
            G=cholesky_psd(point.Q),
            noise=jnp.sqrt(point.variance),
            mean=smooth.mean,
            std=_std(smooth),
            criterion=total,
            code=jnp.where(found.converged, Code.OK, Code.NOT_CONVERGED),
            state=state,
            trace={"log_likelihood": found.climb},
        )

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        point = Point(estimate.theta, estimate.G @ estimate.G.T, estimate.noise**2, filter_state(estimate).first)
        steps = step_counts(model, pool, interpolated(pool), estimate.theta[None])
        _, done = filter_pool(model, pool, point, steps, self.rule)
        smooth = over_series(run_smoother)(done)
        return smooth.mean, _std(smooth)

    def refit(self, model: SDE, pool: Pool, init: Estimate, key: Key) -> Estimate:
        """One search from `init`, with the steps between rows that were enough there."""
        parameterisation, scales = Parameterisation(model, pool, self.noise), None
        begin = parameterisation.at(init.theta, init.G, init.noise, init.mean[:, 0])
        if self.weak:  # scales are of these data: that they vary is part of how the estimate does
            P = init.theta.size
            scales = Increments.of(model, pool).scales_near(begin[:P], parameterisation.max_step[:P])
        steps, none = filter_state(init).steps, jnp.zeros(())
        # What is left after 1e-4 of log-likelihood is a hundredth of a standard error.
        search, _ = self._search(parameterisation).from_starts(begin[None], steps, scales, none, 1e-4)
        found: SearchResult = jax.tree.map(lambda a: a[0], search)
        point = parameterisation.point(parameterisation.variance_params(found.x))
        return dataclasses.replace(
            init,
            theta=point.theta,
            G=cholesky_psd(point.Q),
            noise=jnp.sqrt(point.variance),
            criterion=-found.at.value,
            code=jnp.where(found.converged, Code.OK, Code.NOT_CONVERGED),
            state=dataclasses.replace(filter_state(init), coordinates=found.x),
        )

    def covariance(self, model: SDE, pool: Pool, estimate: Estimate) -> ParameterCovariance:
        """From the curvature of the log-likelihood at the estimate; see `inverse_information`."""
        parameterisation = Parameterisation(model, pool, self.noise)
        state = filter_state(estimate)
        return ParameterCovariance(inverse_information(parameterisation, state.coordinates, state.steps, self.rule))

    def search_values(self, estimate: Estimate) -> Any:
        return filter_state(estimate).values

    def likelihood(self, model: SDE, pool: Pool, estimate: Estimate) -> Likelihood:
        """What the estimate is the maximum of."""
        return Likelihood(Parameterisation(model, pool, self.noise), pool, filter_state(estimate).steps, self.rule)

    def _search(self, parameterisation: Parameterisation) -> LikelihoodSearch:
        prior = functools.partial(self.prior, parameterisation)
        return LikelihoodSearch(parameterisation, self.rule, prior, self.iterations)

    def prior(self, parameterisation: Parameterisation, scales: Theta | None) -> Prior:
        return WeakPrior.of(parameterisation, scales) if self.weak else BoundaryPrior(parameterisation, self.boundary)


def _std(smooth: Gaussian) -> Array:
    return jnp.sqrt(jnp.maximum(jnp.diagonal(smooth.covariance, axis1=-2, axis2=-1), 0.0))
