"""What MaRS and AReS end with: the weak-form refit, in which the drift is the mean of the process.

The drift enters in integrated form; G, σ and θ are found again along a path that is found again too.
"""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Bool, Float, Int, Key, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.sde import SDE
from sdefit.gp import weak
from sdefit.gp.evidence import noise_prior
from sdefit.linalg import diagonal, solve
from sdefit.matching import means
from sdefit.methods._base import Information, Stage
from sdefit.methods._latent import (
    Latent,
    LatentSettings,
    Roads,
    Told,
    Warm,
    data_of,
    data_with_midpoints,
    evidence_of,
    expected,
    fit_latent,
    path_drift,
)
from sdefit.optimise import minimise
from sdefit.result import Code, Estimate

_REST = 1e-6  # θ rests when a pass moves it by less, in standard errors: its start is then forgotten
_MORE = 6  # times as many passes as were asked for are the most
_LEAST = 0.1  # share of a step that is taken at least
_NEAR = 0.1  # G and σ may be judged at the moved θ once a pass moves it by less, in standard errors
_HALVINGS = 16  # of a step that would make the fit worse


class Begun(eqx.Module):
    """A matching method before θ is matched: the latent process, draws from it, and where the search begins."""

    told: Told
    latent: Latent
    warm: Warm


class Matched(eqx.Module):
    """A matching method before its last stage: θ is matched, the refit is to come."""

    told: Told
    path: Float[Array, "series rows state"]
    begin: Theta
    scales: Theta
    few: Roads
    theta: Theta
    near: Theta  # where the refit begins
    matched: Bool[Array, ""]  # whether the search for θ converged
    converged: Bool[Array, ""]  # whether all that counts has so far
    alive: Bool[Array, ""]
    trace: dict[str, Array]

    @classmethod
    def after(
        cls,
        begun: Begun,
        theta: Theta,
        near: Theta,
        matched: Bool[Array, ""],
        converged: Bool[Array, ""],
        alive: Bool[Array, ""],
        trace: dict[str, Array],
    ) -> "Matched":
        """What a method found from where it began, with what of that the refit needs."""
        latent, warm = begun.latent, begun.warm
        return cls(
            begun.told, latent.path, warm.begin, warm.scales, latent.roads.few(), theta, near, matched, converged,
            alive, trace,
        )  # fmt: skip


class Matching(LatentSettings):
    """A method of four stages: the latent process, draws and a start for θ, the matching of θ, and the refit.

    Those in the middle are its own.
    """

    def stages(self) -> tuple[Stage, ...]:
        return self._latent, self.begin, self.match, self._refit

    @abc.abstractmethod
    def begin(self, model: SDE, pool: Pool, start: Theta, key: Key, found: Told) -> Begun:
        """Draws, and where the search for θ begins."""

    @abc.abstractmethod
    def match(self, model: SDE, pool: Pool, start: Theta, key: Key, found: Begun) -> Matched:
        """θ from there."""

    def _latent(self, model: SDE, pool: Pool, start: Theta, key: Key, found: None) -> Told:
        return fit_latent(self, model, pool)

    def _refit(self, model: SDE, pool: Pool, start: Theta, key: Key, found: Matched) -> Estimate:
        """The refit, where the settings ask for one, and all that is told of the way there."""
        half, u = found, found.told.u
        evidence, drift = evidence_of(self, model, pool), path_drift(model, pool, pool.times)
        if self.passes:
            best = _refine(model, pool, evidence, u, half.path, half.near, half.scales, self.passes)
        else:
            best = _unrefined(evidence, u, pool, half.theta, half.scales, half.matched)
        trace = half.trace | {
            "derivatives_data": _figure_samples(pool, half.few.dz),
            "derivatives_model_before": _figure_samples(pool, half.few.model(drift, half.begin)),
            "derivatives_model_after": _figure_samples(pool, half.few.model(drift, best.theta)),
        }
        kept = {"latent": u, "natural": half.scales, "scales": best.scales}
        kept |= {"matched": half.theta, "covariance": best.covariance}
        code = jnp.where(half.converged & best.converged, Code.OK, Code.NOT_CONVERGED)
        code = jnp.where(half.alive, code, Code.DEAD_CRITIC)
        return Estimate(best.theta, best.G, best.noise, best.mean, best.std, half.told.evidence, code, kept, trace)

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        """The path of the refit if there is one, else that of the Gaussian process."""
        evidence, u = evidence_of(self, model, pool), estimate.hyper["latent"]
        if not self.passes:
            path = _latent_path(evidence, u, data_of(pool))
            return path.x, path.std
        rows = data_with_midpoints(pool)
        problem = _Refit(model, pool, evidence, rows, *expected(model, estimate.hyper["scales"]))
        begin = _latent_path(evidence, u, rows).x
        return problem.settle(estimate.theta, begin, estimate.G, estimate.noise, self.passes)

    def refit(self, model: SDE, pool: Pool, near: Estimate, key: Key) -> Estimate:
        """The refit alone, where there is one, along the path that the latent process of `near` takes."""
        if not self.passes:
            return dataclasses.replace(self, starts=1).estimate(model, pool, near.theta, key)
        evidence, u = evidence_of(self, model, pool), near.hyper["latent"]
        path = _latent_path(evidence, u, data_with_midpoints(pool)).x
        best = _refine(model, pool, evidence, u, path, near.theta, near.hyper["natural"], self.passes)
        code = jnp.where(best.converged, Code.OK, Code.NOT_CONVERGED)
        found = dataclasses.replace(near, theta=best.theta, G=best.G, noise=best.noise, mean=best.mean, std=best.std)
        return dataclasses.replace(
            found, code=code, hyper=near.hyper | {"covariance": best.covariance, "scales": best.scales}
        )

    def information(self, model: SDE, pool: Pool, estimate: Estimate) -> Information:
        """The covariance of θ from the refit; nothing of G and σ."""
        P, K = len(model.free), len(model.states)
        unknown = jnp.full((P + K * K + K,) * 2, jnp.nan)
        return Information(unknown.at[:P, :P].set(estimate.hyper["covariance"]))


class _Refined(eqx.Module):
    """θ, G and σ after the refit, with the path."""

    theta: Theta
    covariance: Float[Array, "params params"]
    scales: Theta
    G: Float[Array, "state state"]
    noise: Float[Array, "state"]
    mean: Float[Array, "series times state"]
    std: Float[Array, "series times state"]
    converged: Bool[Array, ""]


def _refine(
    model: SDE,
    pool: Pool,
    evidence: gp.Evidence,
    u: Float[Array, "coordinates"],
    path: Float[Array, "series rows state"],
    theta: Theta,
    scales: Theta,
    passes: int,
) -> _Refined:
    """Weak-form refits, the first along `path` (with midpoints), the others along that of the one before.

    1. `passes` for θ, G and σ, and up to `_MORE` times as many until θ rests. Of each step of θ and of the path the
       share is taken at which the step before would have ended (Aitken's): steps may go to and fro, each past the end.
       Near the end G and σ are judged at the moved θ, as far as that move is taken for sure, and the prior on θ is
       as wide as θ is large where that was told.
    2. Where that did not settle, the same from the beginning with care: no step far out may make the fit worse.
    3. `passes` for the path, begun anew: the very path that `Matching.smooth` finds when asked for other times.
    """
    rows, K = data_with_midpoints(pool), evidence.states

    def one(here: _Here) -> _Here:
        problem = _Refit(model, pool, evidence, rows, *expected(model, here.scales))
        at = jnp.where(here.rests & (here.after == 0), path, here.path)
        v, converged = problem.noise(here.theta, at, here.v, here.judged, ~here.rests)
        fit, theta, moved = problem.solve(here.theta, at, v)
        theta = jnp.where(here.rests, here.theta, theta)
        step, along = theta - here.theta, fit.path_at(theta) - at
        far, share = _aitken(here, step, fit.covariance)
        fine = jnp.isfinite(far) & jnp.all(jnp.isfinite(along))
        doubtful = here.careful & ~here.rests & fine & (far > 1)
        share = problem.no_worse(here.theta, step, share, at, v, moved, doubtful)
        near = ~here.rests & fine & (far < _NEAR)
        judged = jnp.where(near | (here.judged > 0), jnp.maximum(4 * moved - 3, 0.0), 0.0)
        judged = jnp.where(here.rests | ~fine, here.judged, judged)
        wider = means.widened_scales(theta, jnp.sqrt(diagonal(fit.covariance)), model.bounds, here.scales)
        wider = jnp.where(near, wider, here.scales)
        changed = jnp.any(wider > 1.01 * here.scales) | (judged > here.judged + 0.01)
        passed = here.passed + ~here.rests
        settled, last = fine & (far < 1), passed >= _MORE * passes
        again = ~here.rests & last & ~settled & ~here.careful
        there = _Here(
            theta=jnp.where(fine, here.theta + share * step, here.theta),
            covariance=jnp.where(here.rests, here.covariance, fit.covariance),
            v=v,
            path=jnp.where(fine, at + share * along, at),
            std=fit.std,
            step=jnp.where(fine, step, here.step),
            share=jnp.where(fine, share, here.share),
            judged=judged,
            scales=wider,
            careful=here.careful,
            converged=jnp.where(here.rests, here.converged, converged & settled),
            passed=passed,
            rests=here.rests | (passed >= passes) & (fine & (far < _REST) & ~changed | last),
            after=here.after + here.rests,
        )
        return jax.tree.map(lambda anew, there: jnp.where(again, anew, there), with_care, there)

    # A matched θ far outside the prior is one the draws could not tell: linearising there would lose a pass or two.
    center, width = expected(model, scales)
    theta = jnp.clip(theta, center - width, center + width)
    begin = _Here.before(theta, u[2 * K : 3 * K + evidence.diffusion.size], path, scales)
    with_care = dataclasses.replace(begin, careful=jnp.array(True))
    last = jax.lax.while_loop(lambda here: here.after < passes, one, begin)
    G, noise = _spread(evidence, last.v)
    found = last.theta, last.covariance, last.scales, G, noise
    return _Refined(*found, last.path[:, ::2], last.std[:, ::2], last.converged)


def _spread(
    evidence: gp.Evidence, v: Float[Array, "coordinates"]
) -> tuple[Float[Array, "state state"], Float[Array, "state"]]:
    """G and σ from their coordinates."""
    return evidence.diffusion.matrix(v[evidence.states :], evidence.even), jnp.exp(v[: evidence.states])


class _Here(eqx.Module):
    """Where the refits are."""

    theta: Theta
    covariance: Float[Array, "params params"]
    v: Float[Array, "coordinates"]  # of G and σ
    path: Float[Array, "series rows state"]
    std: Float[Array, "series rows state"]
    step: Theta  # that the last pass asked for
    share: Scalar  # of it that was taken
    judged: Scalar  # share of the likelihood of G and σ that is about this θ, not about that of least squares
    scales: Theta  # of the prior on θ
    careful: Bool[Array, ""]  # whether no step far out may make the fit worse
    converged: Bool[Array, ""]
    passed: Int[Array, ""]  # passes for θ
    rests: Bool[Array, ""]  # whether θ does
    after: Int[Array, ""]  # passes since

    @classmethod
    def before(cls, theta: Theta, v: Float[Array, "coordinates"], path, scales: Theta) -> "_Here":
        """Before the first pass."""
        none, no, zero = jnp.array(0, jnp.int32), jnp.array(False), jnp.zeros_like(theta[0])
        still = jnp.zeros_like(theta), zero + 1, zero, scales
        return cls(theta, jnp.zeros((theta.size,) * 2), v, path, jnp.zeros_like(path), *still, no, no, none, no, none)


def _aitken(here: _Here, step: Theta, covariance: Float[Array, "params params"]) -> tuple[Scalar, Scalar]:
    """The length of a step of θ in standard errors, and the share of it at which the step before would have ended."""
    turn = step - here.step
    weighed = solve(covariance, jnp.stack([step, turn], axis=1))
    far = jnp.sqrt(step @ weighed[:, 0] / step.size)
    share = -here.share * (here.step @ weighed[:, 1]) / (turn @ weighed[:, 1] + 1e-300)
    return far, jnp.where(here.rests | (here.passed == 0), 1.0, jnp.clip(share, _LEAST, 1.0))


def _unrefined(
    evidence: gp.Evidence, u, pool: Pool, theta: Theta, scales: Theta, converged: Bool[Array, ""]
) -> _Refined:
    """θ as it was matched, with the evidence's own G, σ and path."""
    hyper, path = evidence.hyper(u), _latent_path(evidence, u, data_of(pool))
    unknown = jnp.full((theta.size, theta.size), jnp.nan)
    return _Refined(theta, unknown, scales, hyper.G, hyper.noise, path.x, path.std, converged)


def _latent_path(evidence: gp.Evidence, u: Float[Array, "coordinates"], rows: gp.Data) -> gp.Posterior:
    """What the Gaussian process alone says of the path at these rows."""
    return over_series(evidence.solver.posterior, (None, 0))(evidence.hyper(u), rows)


class _Refit(eqx.Module):
    """One weak-form problem: how to find G and σ, then θ, along a given path."""

    model: SDE = eqx.field(static=True)
    pool: Pool
    evidence: gp.Evidence
    rows: gp.Data
    center: Theta
    width: Theta

    def noise(self, theta: Theta, path, v, judged: Scalar, search) -> tuple[Array, Array]:
        """The coordinates of G and σ of highest likelihood, θ integrated out; those at hand unless `search`.

        The share `judged` of that likelihood is about `theta`.
        """
        link = weak.without_midpoints(self._chain(theta, path))
        levels, tau = gp.noise_levels(data_of(self.pool)), (theta - self.center) / self.width

        def loss(v):
            G, noise = _spread(self.evidence, v)
            prior = noise_prior(jnp.log(noise), G, levels, self.evidence.width_G, self.evidence.width_noise)
            return prior - weak.log_likelihood(link, G, self._variance(noise), tau, judged)

        found = minimise(loss, v, iterations=100, tolerance=1e-7, search=search)
        return found.x, found.converged

    def solve(self, theta: Theta, path, v) -> tuple[weak.Refit, Theta, Scalar]:
        """The refit at these G and σ, its θ moved by a share of the divergence term, and that share."""
        fit = self.given(theta, path, *_spread(self.evidence, v))
        move = weak.divergence_move(lambda theta: self._slope(path, theta), self.rows, theta, fit)
        share = weak.divergence_share(move, fit.covariance, self.rows)
        return fit, self._inside(fit.theta + share * move, theta), share

    def no_worse(self, theta: Theta, step: Theta, share: Scalar, path, v, moved: Scalar, doubtful) -> Scalar:
        """The share to take of a step to where `solve` leads: halved, if `doubtful`, until θ is no worse off there.

        θ is judged by what `solve` would make highest if it did not linearise in θ; `moved` is its share of the
        divergence term. That term is how the likelihood changes with θ in the answer of the drift to x − x̂.
        """
        G, noise = _spread(self.evidence, v)
        drift = path_drift(self.model, self.pool, self.rows.times)

        def likelihood(theta: Theta, answering: Theta) -> Scalar:
            link = weak.chain(drift, self.rows, path, theta, theta, self.width, self._slope(path, answering))
            return weak.log_likelihood_at_center(weak.without_midpoints(link), G, self._variance(noise))

        def prior(theta: Theta) -> Scalar:
            return 0.5 * jnp.sum(((theta - self.center) / self.width) ** 2)

        def halve(now):
            share, _, halvings = now
            there = theta + share * step
            whole, none, here = jax.vmap(likelihood)(jnp.stack([there, there, theta]), jnp.stack([there, theta, theta]))
            worse = ~(moved * whole + (1 - moved) * none - prior(there) >= here - prior(theta))
            return jnp.where(worse, 0.5 * share, share), worse, halvings + 1

        begin = share, doubtful, jnp.array(0, jnp.int32)
        return jax.lax.while_loop(lambda now: now[1] & (now[2] < _HALVINGS), halve, begin)[0]

    def given(self, theta: Theta, path, G, noise) -> weak.Refit:
        """The refit at known G and σ."""
        return weak.solve(self._chain(theta, path), G, self._variance(noise), self.center, self.width)

    def settle(self, theta: Theta, path, G, noise, passes: int) -> tuple[Array, Array]:
        """The path without its midpoints, and its spread, after solving along it again and again."""

        def one(path, _):
            fit = self.given(theta, path, G, noise)
            return fit.path_at(theta), fit.std

        path, std = jax.lax.scan(one, path, None, length=passes)
        return path[:, ::2], std[-1][:, ::2]

    def _variance(self, noise):
        return noise**2 + 0.01 * self.evidence.solver.jitter

    def _chain(self, theta: Theta, path) -> weak.Chain:
        drift = path_drift(self.model, self.pool, self.rows.times)
        return weak.chain(drift, self.rows, path, theta, self.center, self.width, self._slope(path, theta))

    def _slope(self, path, theta: Theta) -> Float[Array, "series times state state"]:
        """∂f/∂x along the path."""
        one = self.pool.drift(lambda t, state: self.model.f(t, state, theta))
        along = jax.vmap(jax.jacfwd(one, argnums=1), in_axes=(0, 0, None))
        return over_series(along)(self.rows.times, path, self.pool.origins)

    def _inside(self, theta: Theta, before: Theta) -> Theta:
        """θ kept inside its bounds: at most nine tenths of the way from where it was to a bound."""
        lower, upper = jnp.array(self.model.bounds.lower), jnp.array(self.model.bounds.upper)
        theta = jnp.where(jnp.isfinite(lower), jnp.maximum(theta, lower + 0.1 * (before - lower)), theta)
        return jnp.where(jnp.isfinite(upper), jnp.minimum(theta, upper - 0.1 * (upper - before)), theta)


def _figure_samples(
    pool: Pool, few: Float[Array, "kept series times state"]
) -> Float[Array, "kept series times state"]:
    """Derivative samples in the user's units, for figures."""
    return few * (pool.scale / pool.time_scale)[None, None, None, :]
