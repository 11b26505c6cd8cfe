"""The search for the highest likelihood of a Gaussian filter, from many starts, with steps that are short enough."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int, Scalar, Theta
from sdefit.inference.likelihood import AGREE, Likelihood, filter_pool
from sdefit.inference.parameterisation import Parameterisation
from sdefit.inference.prior import Prior
from sdefit.matching.parameter_scales import standard_errors, widened_scales_at
from sdefit.optimise import SearchResult, ValueGradHessian, levenberg_marquardt, not_started
from sdefit.ssm.moments import Rule

_HALVING = 0.05  # change of the log-likelihood by halving all steps that asks for shorter ones
_ROUNDS = 2  # of halving all steps
_FEW = 10  # observations for each coordinate, below which one batch of searches is not enough
_EDGE = -7.0  # logarithm of a distance from a bound, in units, below which θ is at it
_WIDENINGS = 4  # searches, each with a wider prior on θ than the one before, at most
# An ODE is first fitted with some diffusion (variance in one typical spacing): a filter that may correct
# its path finds θ where a path that must follow from x(t_1) alone has lost the data.
_LADDER = (0.1, 0.01, 0.0)


class Round(eqx.Module):
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


@dataclasses.dataclass(frozen=True)
class LikelihoodSearch:
    """Searches for the mode of likelihood times prior; `prior` is that of θ's scales."""

    parameterisation: Parameterisation
    rule: Rule
    prior: Callable[[Theta | None], Prior]
    iterations: int

    def all(
        self,
        begin: Float[Array, "starts coordinates"],
        more: Float[Array, "starts coordinates"],
        steps: Int[Array, "series times"],
        scales: Theta | None,
    ) -> "Round":
        """All searches, with steps short enough that halving them changes little.

        Where that may have missed the optimum, others begin at `more`: the better of both stand.
        """
        parameterisation = self.parameterisation
        ladder = jnp.array(_LADDER if parameterisation.model.diffusion == "none" else _LADDER[-1:])

        def again(last: Round):
            rough = (last.count < ladder.size + _ROUNDS) & (jnp.abs(last.step_error) > _HALVING)
            return (last.count < ladder.size) | last.doubted | rough

        def advance(last: Round) -> Round:
            steps = jnp.where((last.count < ladder.size) | last.doubted, 1, 2) * last.steps
            artificial_diffusion = ladder[jnp.minimum(last.count, ladder.size - 1)]
            begin = jnp.where(last.doubted, more, last.fits.x)
            fits, scales = self.from_starts(begin, steps, last.scales, artificial_diffusion)
            worse = last.doubted & ~(jnp.min(fits.ends) < jnp.min(last.fits.ends))
            fits, scales = jax.tree.map(lambda a, b: jnp.where(worse, a, b), (last.fits, last.scales), (fits, scales))
            doubted = (last.count + 1 == ladder.size) & self._doubtful(fits)
            new = Round(last.count + ~last.doubted, steps, fits, last.step_error, scales, doubted)
            point = parameterisation.point(parameterisation.variance_params(fits.best.x), artificial_diffusion)
            total = jax.lax.map(
                lambda n: filter_pool(parameterisation.model, parameterisation.pool, point, n * steps, self.rule)[0],
                jnp.array([1, 2]),
            )
            return eqx.tree_at(lambda r: r.step_error, new, total[1] - total[0])

        unsure = jnp.array(False)
        first = Round(jnp.array(0), steps, not_started(begin, self.iterations), jnp.zeros(()), scales, unsure)
        return jax.lax.while_loop(again, advance, first)

    def _doubtful(self, fits: SearchResult) -> Bool[Array, ""]:
        """Whether there may be a better optimum: searches end apart, the best at a bound of θ, or the data are few."""
        parameterisation = self.parameterisation
        P, count = len(parameterisation.model.free), jnp.sum(parameterisation.pool.observed)
        best, apart = fits.best.x[:P], jnp.max(fits.ends) - jnp.min(fits.ends)
        edge = (parameterisation.bounds.one_sided & (best < _EDGE)) | (
            parameterisation.bounds.two_sided & (jnp.abs(best) > -_EDGE)
        )
        return jnp.any(edge) | ~(apart < AGREE) | (count < _FEW * fits.x.shape[1])

    def from_starts(
        self,
        begin: Float[Array, "starts coordinates"],
        steps: Int[Array, "series times"],
        scales: Theta | None,
        artificial_diffusion: Scalar,
        tolerance: float = 1e-12,
    ) -> tuple[SearchResult, Theta | None]:
        """The highest likelihood near each row of `begin`, and the scales of its prior on θ."""

        parameterisation = self.parameterisation

        def climb(begin: Array, scales: Theta | None) -> SearchResult:
            prior, likelihood = (
                self.prior(scales),
                Likelihood(parameterisation, parameterisation.pool, steps, self.rule),
            )

            def fn(u) -> ValueGradHessian:
                return likelihood(u, artificial_diffusion) + prior(u)

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
