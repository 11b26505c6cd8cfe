"""`ESGF`: maximum likelihood of θ, G and σ by a continuous-discrete Gaussian filter."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Int, Key, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.filtering.gaussian import Cloud, Innovations, run_smoother
from sdefit.filtering.moments import RULES
from sdefit.filtering.scoring import Curved, Scored, negative_log_likelihood, score, unsearched
from sdefit.matching import means
from sdefit.methods._base import Information, Stage, Staged
from sdefit.methods._coordinates import Coordinates, Point, root
from sdefit.methods._increments import Increments
from sdefit.methods._likelihood import Likelihood, filter_pool, starts_from, step_counts, weak_priors
from sdefit.result import Code, Estimate

_HALVING = 0.05  # change of the log-likelihood by halving all steps that asks for shorter ones
_ROUNDS = 2  # of halving all steps
_AGREE = 0.1  # log-likelihood within which two searches found the same
_FEW = 10  # observations for each coordinate, below which one batch of searches is not enough
_EDGE = -7.0  # logarithm of a distance from a bound, in units, below which θ is at it
_WIDENINGS = 4  # searches, each with a wider prior on θ than the one before, at most
# An ODE is first fitted with some diffusion (variance in one typical spacing): a filter that may correct
# its path finds θ where a path that must follow from x(t_1) alone has lost the data.
_LADDER = (0.1, 0.01, 0.0)


class ESGF(Staged):
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
      each parameter, unless it has a prior of the user's. One that is told in spite of that has its own size as scale.

    x(t_1) has a flat prior: the likelihood is that of all rows given the first. Without diffusion (an
    ODE) x(t_1) is estimated instead, and the first row counts. Steps between rows are such that the
    drift's slope times a step is at most one half at the data. They are halved, at most twice, while
    that changes the log-likelihood by more than 0.05; `hyper["halving"]` is the change that is left.
    """

    rule: str = "cubature"
    noise: str = "each"
    starts: int = 3
    iterations: int = 50
    boundary: float = 0.1
    weak: bool = False

    name: ClassVar[str] = "esgf"
    title: ClassVar[str] = "Maximum likelihood by a Gaussian filter"
    reference: ClassVar[str] = "S. Särkkä and A. Solin (2019), Applied Stochastic Differential Equations, Cambridge."

    def __post_init__(self) -> None:
        for word, given, known in (("rule", self.rule, tuple(RULES)), ("noise", self.noise, ("each", "same", "none"))):
            if given not in known:
                raise ModelError(f"ESGF: {word} must be one of {', '.join(known)}, not {given!r}")
        for word, number in (("starts", self.starts), ("iterations", self.iterations)):
            if not (isinstance(number, int) and number >= 1):
                raise ModelError(f"ESGF: {word} must be a whole number of at least 1, not {number!r}")
        if not self.boundary >= 0:
            raise ModelError(f"ESGF: boundary must be 0 or more, not {self.boundary!r}")

    def check(self, model: SDE, pool: Pool) -> None:
        """Refuse a model that leaves nothing random."""
        if model.diffusion == "none" and self.noise == "none":
            raise ModelError("ESGF(noise='none') needs a model with diffusion: an ODE without noise explains no data")

    def stages(self) -> tuple[Stage, ...]:
        return self._begin, self._climb, self._tell

    def _begin(self, model: SDE, pool: Pool, start: Theta, key: Key, found: None) -> dict[str, Any]:
        """Where the searches begin, and the steps of the filter there."""
        increments = Increments.of(model, pool)
        starts = starts_from(Coordinates(model, pool, self.noise), increments, start, self.starts, key)
        scales = {"scales": starts.scales} if self.weak else {}
        return {"begin": starts.begin, "more": starts.more, "steps": starts.steps} | scales

    def _climb(self, model: SDE, pool: Pool, start: Theta, key: Key, found: dict[str, Any]) -> dict[str, Any]:
        """The searches, with steps short enough that halving them changes little."""
        where = Coordinates(model, pool, self.noise)
        last = self._rounds(where, pool, found["begin"], found["more"], found["steps"], found.get("scales"))
        values = last.values
        best: Scored = jax.tree.map(lambda a: a[jnp.argmin(values)], last.fits)
        hyper = {"coordinates": best.x, "curvature": best.at.curvature, "values": -values}
        hyper |= {"halving": last.halving, "steps": last.steps}
        hyper |= {} if last.scales is None else {"scales": last.scales}
        return {"hyper": hyper, "converged": best.converged, "climb": -best.values}

    def _tell(self, model: SDE, pool: Pool, start: Theta, key: Key, found: dict[str, Any]) -> Estimate:
        """The estimate at the best point, with its path."""
        hyper, where = found["hyper"], Coordinates(model, pool, self.noise)
        point = where.point(where.natural(hyper["coordinates"]))
        total, filtered = filter_pool(model, pool, point, hyper["steps"], self.rule)
        smooth = over_series(run_smoother)(filtered)
        excess, told = _kurtosis(filtered.new)
        return Estimate(
            theta=point.theta,
            G=root(point.Q),
            noise=jnp.sqrt(point.variance),
            mean=smooth.mean,
            std=_std(smooth),
            objective=total,
            code=jnp.where(found["converged"], Code.OK, Code.NOT_CONVERGED),
            hyper=hyper | {"first": point.first, "kurtosis": excess, "errors": told},
            trace={"log_likelihood": found["climb"]},
        )

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        point = Point(estimate.theta, estimate.G @ estimate.G.T, estimate.noise**2, estimate.hyper["first"])
        steps = step_counts(model, pool, estimate.theta[None])
        _, filtered = filter_pool(model, pool, point, steps, self.rule)
        smooth = over_series(run_smoother)(filtered)
        return smooth.mean, _std(smooth)

    def refit(self, model: SDE, pool: Pool, near: Estimate, key: Key) -> Estimate:
        """One search from `near`, with the steps between rows that were enough there."""
        where, scales = Coordinates(model, pool, self.noise), None
        begin = where.at(near.theta, near.G, near.noise, near.mean[:, 0])
        if self.weak:  # scales are of these data: that they vary is part of how the estimate does
            P = near.theta.size
            scales = Increments.of(model, pool).scales_near(begin[:P], where.longest[:P])
        steps, none = near.hyper["steps"], jnp.zeros(())
        # What is left after 1e-4 of log-likelihood is a hundredth of a standard error.
        search, _ = self._search(where, pool, steps, scales, none, begin[None], 1e-4)
        found: Scored = jax.tree.map(lambda a: a[0], search)
        point = where.point(where.natural(found.x))
        return dataclasses.replace(
            near,
            theta=point.theta,
            G=root(point.Q),
            noise=jnp.sqrt(point.variance),
            objective=-found.at.value,
            code=jnp.where(found.converged, Code.OK, Code.NOT_CONVERGED),
            hyper=near.hyper | {"coordinates": found.x},
        )

    def information(self, model: SDE, pool: Pool, estimate: Estimate) -> Information:
        """From the curvature of the log-likelihood at the estimate; see `observed_information`."""
        where = Coordinates(model, pool, self.noise)
        return observed_information(where, pool, estimate.hyper["coordinates"], estimate.hyper["steps"], self.rule)

    def likelihood(self, model: SDE, pool: Pool, estimate: Estimate) -> Likelihood:
        """What the estimate is the maximum of."""
        return Likelihood(Coordinates(model, pool, self.noise), pool, estimate.hyper["steps"], self.rule)

    def _rounds(
        self,
        where: Coordinates,
        pool: Pool,
        begin: Float[Array, "starts coordinates"],
        more: Float[Array, "starts coordinates"],
        steps: Int[Array, "series times"],
        scales: Theta | None,
    ) -> "_Round":
        """All searches, with steps short enough that halving them changes little.

        Where that may have missed the optimum, others begin at `more`: the better of both stand.
        """
        ladder = jnp.array(_LADDER if where.model.diffusion == "none" else _LADDER[-1:])

        def again(last: _Round):
            rough = (last.count < ladder.size + _ROUNDS) & (jnp.abs(last.halving) > _HALVING)
            return (last.count < ladder.size) | last.doubted | rough

        def advance(last: _Round) -> _Round:
            steps = jnp.where((last.count < ladder.size) | last.doubted, 1, 2) * last.steps
            loose = ladder[jnp.minimum(last.count, ladder.size - 1)]
            begin = jnp.where(last.doubted, more, last.fits.x)
            fits, scales = self._search(where, pool, steps, last.scales, loose, begin)
            worse = last.doubted & ~(jnp.min(_ends(fits)) < jnp.min(last.values))
            fits, scales = jax.tree.map(lambda a, b: jnp.where(worse, a, b), (last.fits, last.scales), (fits, scales))
            doubted = (last.count + 1 == ladder.size) & self._doubtful(where, fits)
            new = _Round(last.count + ~last.doubted, steps, fits, last.halving, scales, doubted)
            point = where.point(where.natural(fits.x[jnp.argmin(new.values)]), loose)
            total = jax.lax.map(
                lambda n: filter_pool(where.model, pool, point, n * steps, self.rule)[0], jnp.array([1, 2])
            )
            return eqx.tree_at(lambda r: r.halving, new, total[1] - total[0])

        unsure = jnp.array(False)
        first = _Round(jnp.array(0), steps, unsearched(begin, self.iterations), jnp.zeros(()), scales, unsure)
        return jax.lax.while_loop(again, advance, first)

    def _doubtful(self, where: Coordinates, fits: Scored) -> Bool[Array, ""]:
        """Whether there may be a better optimum: searches end apart, the best at a bound of θ, or the data are few."""
        values, P, told = _ends(fits), len(where.model.free), jnp.sum(where.pool.observed)
        best = fits.x[jnp.argmin(values), :P]
        edge = (where.bounds.one_sided & (best < _EDGE)) | (where.bounds.two_sided & (jnp.abs(best) > -_EDGE))
        return jnp.any(edge) | ~(jnp.max(values) - jnp.min(values) < _AGREE) | (told < _FEW * fits.x.shape[1])

    def prior(self, where: Coordinates, scales: Theta | None) -> Callable[[Array], Curved]:
        """−log of the priors at coordinates u; without scales of the parameters there is none of ours on θ."""
        return weak_priors(where, scales) if self.weak else lambda u: where.prior(u, self.boundary)

    def _search(
        self,
        where: Coordinates,
        pool: Pool,
        steps: Array,
        scales: Theta | None,
        loose: Scalar,
        begin: Array,
        tolerance: float = 1e-12,
    ) -> tuple[Scored, Theta | None]:
        """The highest likelihood near each row of `begin`, and the scales of θ's prior: wider where θ was told."""

        def climb(begin: Array, scales: Theta | None) -> Scored:
            prior = self.prior(where, scales)

            def fn(u) -> Curved:
                return Likelihood(where, pool, steps, self.rule)(u, loose) + prior(u)

            return score(fn, begin, longest=where.longest, iterations=self.iterations, tolerance=tolerance)

        if scales is None or not where.model.free:
            return climb(begin, scales), scales

        def again(last: _Widened) -> _Widened:
            fits = climb(last.fits.x, last.scales)
            best = jax.tree.map(lambda a: a[jnp.argmin(_ends(fits))], fits)
            P = last.scales.size
            theta, slope = jax.jvp(where.bounds.constrain, (best.x[:P],), (jnp.ones(P),))
            std = jnp.abs(slope) * means.standard_errors(best.at.curvature)[:P]
            wider = means.widened_scales(theta, std, where.model.bounds, last.scales)
            grew = jnp.any(wider > 1.1 * last.scales)
            return _Widened(last.count + 1, fits, jnp.where(grew, wider, last.scales), grew)

        first = _Widened(jnp.array(0), unsearched(begin, self.iterations), scales, jnp.array(True))
        last = jax.lax.while_loop(lambda last: last.grew & (last.count < _WIDENINGS), again, first)
        return last.fits, last.scales


class _Round(eqx.Module):
    """All searches with steps of one length, and how much halving these changes the best log-likelihood."""

    count: Int[Array, ""]
    steps: Int[Array, "series times"]
    fits: Scored
    halving: Scalar
    scales: Theta | None  # of the prior on θ
    doubted: Bool[Array, ""]  # whether to search from more starts

    @property
    def values(self) -> Float[Array, "starts"]:
        return _ends(self.fits)


class _Widened(eqx.Module):
    """All searches with one prior on θ, and its scales, or much wider ones that it should have had."""

    count: Int[Array, ""]
    fits: Scored
    scales: Theta
    grew: Bool[Array, ""]


def _ends(fits: Scored) -> Float[Array, "starts"]:
    """Where each search ended; infinite for one that ended in no number."""
    return jnp.where(jnp.isfinite(fits.at.value), fits.at.value, jnp.inf)


def observed_information(where: Coordinates, pool: Pool, u: Array, steps: Array, rule: str) -> Information:
    """The inverse of the observed information at coordinates u.

    The second derivative in (θ, G Gᵀ, σ²) is taken as differences of the exact gradient over a
    thousandth of a standard error. Where it is not positive (the likelihood is not concave there),
    the expected information stands in for it.
    """
    natural = where.natural(u)

    def at(z) -> Curved:
        return negative_log_likelihood(lambda z: filter_pool(where.model, pool, where.point(z), steps, rule)[1].new, z)

    def around(_, before):
        """Slopes about u at moves of a thousandth of a standard error, once the curvature there is known."""
        size, *_ = before
        moves = jnp.concatenate([jnp.diag(size), -jnp.diag(size), jnp.zeros((1, size.size))])
        there = jax.vmap(lambda move: at(natural + move))(moves)
        expected = there.curvature[-1]
        return 1e-3 / jnp.sqrt(jnp.maximum(jnp.diagonal(expected), 1e-300)), size, there.gradient, expected

    # Two rounds of one loop, so that the filter is traced once: the first does not move.
    n = natural.size
    begin = jnp.zeros(n), jnp.zeros(n), jnp.zeros((2 * n + 1, n)), jnp.zeros((n, n))
    _, size, slopes, expected = jax.lax.fori_loop(0, 2, around, begin)
    up, down, here = slopes[:n], slopes[n:-1], slopes[-1]
    # A variance near zero cannot be lowered: there the difference is taken on one side.
    rows = jnp.where(jnp.isfinite(down), (up - down) / 2, up - here[None, :]) / size[:, None]
    covariance = _inverse(0.5 * (rows + rows.T), expected, size)
    slope = jax.jacfwd(where.quantities)(natural)
    return Information(slope @ covariance @ slope.T)


def _inverse(observed, expected, size):
    """The inverse of the observed information if it is positive, else of the expected one."""

    def inverse(matrix):
        values, vectors = jnp.linalg.eigh(matrix * size[:, None] * size[None, :])
        inverse = (vectors / jnp.maximum(values, 1e-18)[None, :]) @ vectors.T * size[:, None] * size[None, :]
        return values[0], inverse

    lowest, first = inverse(jnp.where(jnp.isfinite(observed), observed, expected))
    return jnp.where(lowest > 1e-18, first, inverse(expected)[1])


def _kurtosis(new: Innovations) -> tuple[Scalar, Int[Array, ""]]:
    """The excess kurtosis of the standardised prediction errors, and how many there are; 0 for Gaussian ones."""
    made = new.error != 0
    told = jnp.maximum(jnp.sum(made), 1)
    squares = new.error**2 / new.variance
    spread = jnp.sum(squares) / told
    return jnp.sum(squares**2) / told / jnp.maximum(spread**2, 1e-300) - 3, told


def _std(smooth: Cloud) -> Array:
    return jnp.sqrt(jnp.maximum(jnp.diagonal(smooth.covariance, axis1=-2, axis2=-1), 0.0))
