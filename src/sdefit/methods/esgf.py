"""`ESGF`: maximum likelihood of θ, G and σ by a continuous-discrete Gaussian filter."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int, Key, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.inference.increments import Increments, interpolated
from sdefit.inference.initial_guess import guess_by_increments
from sdefit.inference.likelihood import AGREE, FilterState, Likelihood, filter_pool, filter_state, step_counts
from sdefit.inference.parameterisation import Parameterisation, Point, cholesky_psd
from sdefit.inference.prior import BoundaryPrior, Prior, WeakPrior
from sdefit.matching.parameter_scales import standard_errors, widened_scales_at
from sdefit.methods._settings import check_choice, check_flag, check_not_negative, check_whole
from sdefit.methods.interface import LikelihoodMethod, ParameterCovariance, Stage
from sdefit.optimise import SearchResult, ValueGradHessian, levenberg_marquardt, not_started
from sdefit.result import Code, Estimate
from sdefit.ssm.filter import run_smoother
from sdefit.ssm.innovations import negative_log_likelihood
from sdefit.ssm.kalman import Gaussian
from sdefit.ssm.moments import RULES

NOISE = ("each", "same", "none")  # what the observation noise of the states may be
_HALVING = 0.05  # change of the log-likelihood by halving all steps that asks for shorter ones
_ROUNDS = 2  # of halving all steps
_FEW = 10  # observations for each coordinate, below which one batch of searches is not enough
_EDGE = -7.0  # logarithm of a distance from a bound, in units, below which θ is at it
_WIDENINGS = 4  # searches, each with a wider prior on θ than the one before, at most
# An ODE is first fitted with some diffusion (variance in one typical spacing): a filter that may correct
# its path finds θ where a path that must follow from x(t_1) alone has lost the data.
_LADDER = (0.1, 0.01, 0.0)


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
        last = self._rounds(parameterisation, pool, found.begin, found.more, found.steps, found.scales)
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
        search, _ = self._search(parameterisation, pool, steps, scales, none, begin[None], 1e-4)
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
        """From the curvature of the log-likelihood at the estimate; see `observed_information`."""
        parameterisation = Parameterisation(model, pool, self.noise)
        state = filter_state(estimate)
        return observed_information(parameterisation, pool, state.coordinates, state.steps, self.rule)

    def search_values(self, estimate: Estimate) -> Any:
        return filter_state(estimate).values

    def likelihood(self, model: SDE, pool: Pool, estimate: Estimate) -> Likelihood:
        """What the estimate is the maximum of."""
        return Likelihood(Parameterisation(model, pool, self.noise), pool, filter_state(estimate).steps, self.rule)

    def _rounds(
        self,
        parameterisation: Parameterisation,
        pool: Pool,
        begin: Float[Array, "starts coordinates"],
        more: Float[Array, "starts coordinates"],
        steps: Int[Array, "series times"],
        scales: Theta | None,
    ) -> "_Round":
        """All searches, with steps short enough that halving them changes little.

        Where that may have missed the optimum, others begin at `more`: the better of both stand.
        """
        ladder = jnp.array(_LADDER if parameterisation.model.diffusion == "none" else _LADDER[-1:])

        def again(last: _Round):
            rough = (last.count < ladder.size + _ROUNDS) & (jnp.abs(last.step_error) > _HALVING)
            return (last.count < ladder.size) | last.doubted | rough

        def advance(last: _Round) -> _Round:
            steps = jnp.where((last.count < ladder.size) | last.doubted, 1, 2) * last.steps
            artificial_diffusion = ladder[jnp.minimum(last.count, ladder.size - 1)]
            begin = jnp.where(last.doubted, more, last.fits.x)
            fits, scales = self._search(parameterisation, pool, steps, last.scales, artificial_diffusion, begin)
            worse = last.doubted & ~(jnp.min(fits.ends) < jnp.min(last.fits.ends))
            fits, scales = jax.tree.map(lambda a, b: jnp.where(worse, a, b), (last.fits, last.scales), (fits, scales))
            doubted = (last.count + 1 == ladder.size) & self._doubtful(parameterisation, fits)
            new = _Round(last.count + ~last.doubted, steps, fits, last.step_error, scales, doubted)
            point = parameterisation.point(parameterisation.variance_params(fits.best.x), artificial_diffusion)
            total = jax.lax.map(
                lambda n: filter_pool(parameterisation.model, pool, point, n * steps, self.rule)[0], jnp.array([1, 2])
            )
            return eqx.tree_at(lambda r: r.step_error, new, total[1] - total[0])

        unsure = jnp.array(False)
        first = _Round(jnp.array(0), steps, not_started(begin, self.iterations), jnp.zeros(()), scales, unsure)
        return jax.lax.while_loop(again, advance, first)

    def _doubtful(self, parameterisation: Parameterisation, fits: SearchResult) -> Bool[Array, ""]:
        """Whether there may be a better optimum: searches end apart, the best at a bound of θ, or the data are few."""
        P, count = len(parameterisation.model.free), jnp.sum(parameterisation.pool.observed)
        best, apart = fits.best.x[:P], jnp.max(fits.ends) - jnp.min(fits.ends)
        edge = (parameterisation.bounds.one_sided & (best < _EDGE)) | (
            parameterisation.bounds.two_sided & (jnp.abs(best) > -_EDGE)
        )
        return jnp.any(edge) | ~(apart < AGREE) | (count < _FEW * fits.x.shape[1])

    def prior(self, parameterisation: Parameterisation, scales: Theta | None) -> Prior:
        return WeakPrior.of(parameterisation, scales) if self.weak else BoundaryPrior(parameterisation, self.boundary)

    def _search(
        self,
        parameterisation: Parameterisation,
        pool: Pool,
        steps: Array,
        scales: Theta | None,
        artificial_diffusion: Scalar,
        begin: Array,
        tolerance: float = 1e-12,
    ) -> tuple[SearchResult, Theta | None]:
        """The highest likelihood near each row of `begin`, and the scales of its prior on θ."""

        def climb(begin: Array, scales: Theta | None) -> SearchResult:
            prior = self.prior(parameterisation, scales)

            def fn(u) -> ValueGradHessian:
                return Likelihood(parameterisation, pool, steps, self.rule)(u, artificial_diffusion) + prior(u)

            return levenberg_marquardt(
                fn, begin, max_step=parameterisation.max_step, iterations=self.iterations, tolerance=tolerance
            )

        if scales is None or not parameterisation.model.free:
            return climb(begin, scales), scales

        def again(last: _Widened) -> _Widened:
            fits = climb(last.fits.x, last.scales)
            best = fits.best
            P = last.scales.size
            std = standard_errors(best.at.curvature)[:P]
            wider = widened_scales_at(best.x[:P], std, parameterisation.bounds, last.scales)
            grew = jnp.any(wider > 1.1 * last.scales)
            return _Widened(last.count + 1, fits, jnp.where(grew, wider, last.scales), grew)

        first = _Widened(jnp.array(0), not_started(begin, self.iterations), scales, jnp.array(True))
        last = jax.lax.while_loop(lambda last: last.grew & (last.count < _WIDENINGS), again, first)
        return last.fits, last.scales


class _Round(eqx.Module):
    """All searches with steps of one length, and how much halving these changes the best log-likelihood."""

    count: Int[Array, ""]
    steps: Int[Array, "series times"]
    fits: SearchResult
    step_error: Scalar
    scales: Theta | None  # of the prior on θ
    doubted: Bool[Array, ""]  # whether to search from more starts


class _Widened(eqx.Module):
    """All searches with one prior on θ, and its scales, or much wider ones that it should have had."""

    count: Int[Array, ""]
    fits: SearchResult
    scales: Theta
    grew: Bool[Array, ""]


def observed_information(
    parameterisation: Parameterisation, pool: Pool, u: Array, steps: Array, rule: str
) -> ParameterCovariance:
    """The inverse of the observed information at coordinates u.

    The second derivative in (θ, G Gᵀ, σ²) is taken as differences of the exact gradient over a
    thousandth of a standard error. Where it is not positive (the likelihood is not concave there),
    the expected information stands in for it.
    """
    variance_params = parameterisation.variance_params(u)

    def at(z) -> ValueGradHessian:
        return negative_log_likelihood(
            lambda z: filter_pool(parameterisation.model, pool, parameterisation.point(z), steps, rule)[1].innovations,
            z,
        )

    def around(_, before):
        """Slopes about u at moves of a thousandth of a standard error, once the curvature there is known."""
        size, *_ = before
        moves = jnp.concatenate([jnp.diag(size), -jnp.diag(size), jnp.zeros((1, size.size))])
        there = jax.vmap(lambda move: at(variance_params + move))(moves)
        expected = there.curvature[-1]
        return 1e-3 / jnp.sqrt(jnp.maximum(jnp.diagonal(expected), 1e-300)), size, there.gradient, expected

    # Two rounds of one loop, so that the filter is traced once: the first does not move.
    n = variance_params.size
    begin = jnp.zeros(n), jnp.zeros(n), jnp.zeros((2 * n + 1, n)), jnp.zeros((n, n))
    _, size, slopes, expected = jax.lax.fori_loop(0, 2, around, begin)
    up, down, here = slopes[:n], slopes[n:-1], slopes[-1]
    # A variance near zero cannot be lowered: there the difference is taken on one side.
    rows = jnp.where(jnp.isfinite(down), (up - down) / 2, up - here[None, :]) / size[:, None]
    covariance = _inverse(0.5 * (rows + rows.T), expected, size)
    slope = jax.jacfwd(parameterisation.quantities)(variance_params)
    return ParameterCovariance(slope @ covariance @ slope.T)


def _inverse(observed, expected, size):
    """The inverse of the observed information if it is positive, else of the expected one."""

    def inverse(matrix):
        values, vectors = jnp.linalg.eigh(matrix * size[:, None] * size[None, :])
        inverse = (vectors / jnp.maximum(values, 1e-18)[None, :]) @ vectors.T * size[:, None] * size[None, :]
        return values[0], inverse

    lowest, first = inverse(jnp.where(jnp.isfinite(observed), observed, expected))
    return jnp.where(lowest > 1e-18, first, inverse(expected)[1])


def _std(smooth: Gaussian) -> Array:
    return jnp.sqrt(jnp.maximum(jnp.diagonal(smooth.covariance, axis1=-2, axis2=-1), 0.0))
