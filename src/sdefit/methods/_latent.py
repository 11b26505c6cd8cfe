"""What MaRS and AReS share: the latent Gaussian process, the two roads to ż, and the weak-form refit."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Bool, Float, Key, Scalar, Theta
from sdefit.data import Pool
from sdefit.dynamics.diffusion import DiffusionShape, even_scale
from sdefit.dynamics.parameters import Bounds
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.gp import weak
from sdefit.gp.evidence import noise_prior
from sdefit.matching import means
from sdefit.methods._base import Information
from sdefit.optimise import minimise
from sdefit.result import Code, Estimate

PathDrift = Callable[[Float[Array, "series times state"], Theta], Float[Array, "series times state"]]

_WIDE = 3.0  # width of the weak prior on θ in the refit, in natural scales
_KEPT = 16  # derivative samples kept for figures


@runtime_checkable
class LatentSettings(Protocol):
    """The settings every matching method has."""

    kernel: str
    samples: int
    rate: float | None
    passes: int
    evidence_starts: int
    iterations: int
    jitter: float


def check_settings(name: str, settings: LatentSettings, least: dict[str, int], above: tuple[str, ...] = ()) -> None:
    """Refuse, in one line, settings that are no whole number of at least so much, or no number above 0."""
    gp.get_kernel(settings.kernel)
    for word, lowest in least.items():
        number = getattr(settings, word)
        if not (isinstance(number, int) and not isinstance(number, bool) and number >= lowest):
            raise ModelError(f"{name}: {word} must be a whole number of at least {lowest}, not {number!r}")
    if settings.samples % 2:
        raise ModelError(f"{name}: samples must be even (half mirror the other half), not {settings.samples}")
    for word in ("rate", "jitter", *above):
        number = getattr(settings, word)
        usable = isinstance(number, int | float) and 0 < number < math.inf
        if not usable and not (number is None and word in ("rate", "clip")):
            raise ModelError(f"{name}: {word} must be a number above 0, not {number!r}")


def check_free(name: str, model: SDE) -> None:
    """Refuse a model in which every parameter is fixed: matching would have nothing to match with."""
    if not model.free:
        raise ModelError(f"{name} needs one or more free parameters, but all are fixed; give one a range: sf.real()")


class Roads(eqx.Module):
    """Joint draws of x, ż and o given the data: `dz` is the data's road to ż, `model` the drift's."""

    dz: Float[Array, "samples series times state"]
    x: Float[Array, "samples series times state"]
    o: Float[Array, "samples series times state"]
    rate: Scalar
    weight: Bool[Array, "series times"]  # rows at which something was observed

    def every(self, step: int) -> "Roads":
        """Both roads at every `step`-th time alone."""
        dz, x, o = (a[:, :, ::step] for a in (self.dz, self.x, self.o))
        return Roads(dz, x, o, self.rate, self.weight[:, ::step])

    def few(self) -> "Roads":
        """The draws kept for figures: some of each antithetic half."""
        half = self.dz.shape[0] // 2
        keep = jnp.concatenate([jnp.arange(_KEPT // 2), half + _KEPT // 2 + jnp.arange(_KEPT // 2)])
        dz, x, o = (a[keep % a.shape[0]] for a in (self.dz, self.x, self.o))
        return Roads(dz, x, o, self.rate, self.weight)

    def model(self, drift: PathDrift, theta: Theta) -> Float[Array, "samples series times state"]:
        """ż = f(z + o, θ) + γ o for every draw."""
        return jax.vmap(drift, in_axes=(0, None))(self.x, theta) + self.rate * self.o

    def vectors(self, dz: Float[Array, "samples series times state"]) -> Float[Array, "samples dim"]:
        """Each draw as one vector, rows at which nothing was observed left at 0."""
        return jnp.where(self.weight[None, :, :, None], dz, 0.0).reshape(dz.shape[0], -1)


class Begun(eqx.Module):
    """A matching method between its two halves: θ is matched, the refit is to come."""

    latent: Float[Array, "coordinates"]
    evidence: Scalar
    path: Float[Array, "series rows state"]
    begin: Theta
    theta: Theta
    scales: Theta
    few: Roads
    matched: Bool[Array, ""]  # whether the search for θ converged
    converged: Bool[Array, ""]  # whether all that counts has so far
    alive: Bool[Array, ""]
    trace: dict[str, Array]

    def plain(self) -> dict[str, Any]:
        """The same in dicts alone."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"few": {field.name: getattr(self.few, field.name) for field in dataclasses.fields(self.few)}}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Begun":
        fields: dict[str, Any] = plain | {"few": Roads(**plain["few"])}
        return cls(**fields)


class Refined(eqx.Module):
    """θ, G and σ after the refit, with the path."""

    theta: Theta
    covariance: Float[Array, "params params"]
    G: Float[Array, "state state"]
    noise: Float[Array, "state"]
    mean: Float[Array, "series times state"]
    std: Float[Array, "series times state"]
    converged: Bool[Array, ""]


def path_drift(model: SDE, pool: Pool, times: Float[Array, "series times"]) -> PathDrift:
    """The standardised drift along whole paths at these times."""

    def drift(x, theta):
        one = pool.drift(lambda t, state: model.f(t, state, theta))
        return jax.vmap(lambda t, x, origin: jax.vmap(one, in_axes=(0, 0, None))(t, x, origin))(times, x, pool.origins)

    return drift


def evidence_of(settings: LatentSettings, model: SDE, pool: Pool) -> gp.Evidence:
    """The evidence of φ, σ and G for these data."""
    return gp.Evidence(
        gp.solver_for(settings.kernel, settings.jitter),
        DiffusionShape(model.diffusion, len(model.states)),
        gp.get_kernel(settings.kernel).shaped,
        even_scale(pool.scale),
        pool.time_scale if settings.rate is not None else jnp.ones(()),
        settings.rate,
    )


def data_of(pool: Pool) -> gp.Data:
    """The pool as the solvers take it, with a leading axis of series."""
    return gp.Data(pool.times, pool.values, pool.observed)


def data_with_midpoints(pool: Pool) -> gp.Data:
    """The pool with one more row, observed nowhere, in the middle of each gap: where the refit follows the path."""

    def between(a, middle):
        both = jnp.stack([a[:, :-1], middle], axis=2).reshape(a.shape[0], -1, *a.shape[2:])
        return jnp.concatenate([both, a[:, -1:]], axis=1)

    return gp.Data(
        between(pool.times, 0.5 * (pool.times[:, :-1] + pool.times[:, 1:])),
        between(pool.values, jnp.zeros_like(pool.values[:, 1:])),
        between(pool.observed, jnp.zeros_like(pool.observed[:, 1:])),
    )


def condition(evidence: gp.Evidence, hyper: gp.Hyper, data: gp.Data) -> gp.Conditional:
    """The paths of all series given the data, prepared for drawing (a leading axis of series)."""
    return jax.vmap(evidence.solver.condition, in_axes=(None, 0))(hyper, data)


def draw_roads(prepared: gp.Conditional, rate: Scalar, data: gp.Data, samples: int, key: Key) -> Roads:
    """Joint draws of both roads for every series, at every time of `data`."""
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(data.times.shape[0]))
    draws = jax.vmap(lambda one, k: one.draw(samples, k), out_axes=1)(prepared, keys)
    return Roads(draws.dz, draws.z + draws.o, draws.o, rate, jnp.any(data.observed, axis=-1))


def scales_of(drift: PathDrift, x: Float[Array, "series times state"], dz, weight, params: int) -> Theta:
    """The natural scale of each parameter along a path with derivative `dz`."""

    def slopes(theta):
        return jnp.where(weight[..., None, None], jax.jacfwd(drift, argnums=1)(x, theta), 0.0).reshape(-1, params)

    return means.natural_scales(slopes, _size(dz, weight), params)


def local_scales(drift: PathDrift, x: Float[Array, "series times state"], dz, weight, theta: Theta) -> Theta:
    """What each parameter must change by, at θ, to change the drift by as much as the derivative is."""
    slope = jnp.where(weight[..., None, None], jax.jacfwd(drift, argnums=1)(x, theta), 0.0)
    return _size(dz, weight) / jnp.sqrt(jnp.mean(slope**2, axis=(0, 1, 2)))


def _size(dz, weight) -> Scalar:
    return jnp.sqrt(jnp.mean(jnp.where(weight[..., None], dz, 0.0) ** 2))


class Warm(eqx.Module):
    """Where the means of both roads agree, and coordinates v about there in which no unit is left."""

    begin: Theta  # the first of the starts
    u: Theta
    root: Float[Array, "params params"]
    scales: Theta
    bounds: Bounds = eqx.field(static=True)

    def theta(self, v: Theta) -> Theta:
        """θ at v: the mean square residual grows by its own size from v = 0 to |v| = 1."""
        return self.bounds.constrain(self.u + jax.scipy.linalg.solve_triangular(self.root.T, v, lower=False))


def warm_start(model: SDE, roads: Roads, drift: PathDrift, start: Theta, starts: int, key: Key) -> Warm:
    """θ at which the means of both roads agree best, from several starts, and the natural scales of θ there."""
    weight, bounds = roads.weight, model.bounds
    x, dz = jnp.mean(roads.x, axis=0), jnp.mean(roads.dz, axis=0)
    scales = scales_of(drift, x, dz, weight, len(model.free))

    def residual(u):
        gap = jnp.mean(roads.model(drift, bounds.constrain(u)), axis=0) - dz
        return jnp.where(weight[..., None], gap, 0.0).ravel()

    begin = means.spread_starts(bounds, scales, start, starts, key)
    near = means.match_means(residual, begin)
    local = local_scales(drift, x, dz, weight, bounds.constrain(near.u))
    rows = jnp.sum(weight) * float(dz.shape[-1])  # of residuals: rows of padding are none
    scales = means.informed_scales(near, bounds, scales, local, rows)
    # Coordinates in which the mean square residual is round: the search then needs no units.
    curvature = near.curvature / (near.mean_square + 1e-300)
    ridge = 1e-9 * jnp.diag(jnp.diagonal(curvature)) + 1e-300 * jnp.eye(near.u.size)
    return Warm(bounds.constrain(begin[0]), near.u, jnp.linalg.cholesky(curvature + ridge), scales, bounds)


def refine(
    model: SDE,
    pool: Pool,
    evidence: gp.Evidence,
    u: Float[Array, "coordinates"],
    path: Float[Array, "series rows state"],
    theta: Theta,
    scales: Theta,
    passes: int,
) -> Refined:
    """`passes` weak-form refits: the first along `path` (with midpoints), the others along that of the one before."""
    problem = _Refit(model, pool, evidence, data_with_midpoints(pool), *_prior(model, scales))
    K = evidence.states

    def one(carry, now: _Pass):
        theta, path, v = carry
        path = jnp.where(now.anew, begin, path)
        v, converged = problem.noise(theta, path, v, now)
        fit, moved = problem.solve(theta, path, v, now.answer)
        return (jnp.where(now.answer, theta, moved), fit.path, v), (fit, converged)

    # A matched θ far outside the prior is one the draws could not tell: linearising there would lose a pass or two.
    theta = jnp.clip(theta, problem.center - problem.width, problem.center + problem.width)
    begin, v = path, u[2 * K : 3 * K + evidence.diffusion.size]
    (theta, _, v), (fits, converged) = jax.lax.scan(one, (theta, path, v), _passes(passes))
    G, noise = problem.spread(v)
    mean, std = fits.path[-1][:, ::2], fits.std[-1][:, ::2]
    return Refined(theta, fits.covariance[passes - 1], G, noise, mean, std, converged[passes])


def finish(settings: LatentSettings, model: SDE, pool: Pool, plain: dict[str, Any]) -> Estimate:
    """The refit, where the settings ask for one, and all that is told of the way there."""
    begun = Begun.of(plain)
    evidence, drift = evidence_of(settings, model, pool), path_drift(model, pool, pool.times)
    if settings.passes:
        where = begun.latent, begun.path, begun.theta, begun.scales
        best = refine(model, pool, evidence, *where, settings.passes)
    else:
        best = unrefined(evidence, evidence.hyper(begun.latent), pool, begun.theta, begun.matched)
    trace = begun.trace | {
        "derivatives_data": figure_samples(pool, begun.few.dz),
        "derivatives_model_before": figure_samples(pool, begun.few.model(drift, begun.begin)),
        "derivatives_model_after": figure_samples(pool, begun.few.model(drift, best.theta)),
    }
    kept = {
        "latent": begun.latent,
        "scales": begun.scales,
        "matched": begun.theta,
        "covariance": best.covariance,
    }
    code = jnp.where(begun.converged & best.converged, Code.OK, Code.NOT_CONVERGED)
    code = jnp.where(begun.alive, code, Code.DEAD_CRITIC)
    return Estimate(best.theta, best.G, best.noise, best.mean, best.std, begun.evidence, code, kept, trace)


class _Pass(eqx.Module):
    """What a pass does: look for G and σ or not, let the drift answer to the path, begin the path anew."""

    search: Bool[Array, "*passes"]
    answer: Bool[Array, "*passes"]
    anew: Bool[Array, "*passes"]


def _passes(passes: int) -> _Pass:
    """`passes` for θ; one more for G and σ, in which θ stays and the drift also answers to the path; then the path.

    For θ the plain integral of f(x̂) does better: what the linear answer adds in efficiency it loses in steep
    drifts. G and σ need the answer, or G takes up what f(x) − f(x̂) adds to the increments. The last `passes` find the
    very path that is found again, by `refined_path`, when it is asked for at other times.
    """
    count = jnp.arange(2 * passes + 1)
    return _Pass(count <= passes, count >= passes, count == passes + 1)


def unrefined(evidence: gp.Evidence, hyper: gp.Hyper, pool: Pool, theta: Theta, converged: Bool[Array, ""]) -> Refined:
    """θ as it was matched, with the evidence's own G, σ and path."""
    path = jax.vmap(evidence.solver.posterior, in_axes=(None, 0))(hyper, data_of(pool))
    unknown = jnp.full((theta.size, theta.size), jnp.nan)
    return Refined(theta, unknown, hyper.G, hyper.noise, path.x, path.std, converged)


def refined_path(
    model: SDE, pool: Pool, evidence: gp.Evidence, u, theta: Theta, scales: Theta, G, noise, passes: int
) -> tuple[Array, Array]:
    """The path of `refine` at the times of `pool`, for θ, G and σ that are known."""
    rows = data_with_midpoints(pool)
    problem = _Refit(model, pool, evidence, rows, *_prior(model, scales))
    begin = jax.vmap(evidence.solver.posterior, in_axes=(None, 0))(evidence.hyper(u), rows).x
    return problem.settle(theta, begin, G, noise, passes)


def latent_path(settings: LatentSettings, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
    """The path of a finished estimate at the times of `pool`, by the refit if it has one, else by the GP."""
    evidence, u = evidence_of(settings, model, pool), estimate.hyper["latent"]
    if settings.passes:
        scales, G, noise = estimate.hyper["scales"], estimate.G, estimate.noise
        return refined_path(model, pool, evidence, u, estimate.theta, scales, G, noise, settings.passes)
    path = jax.vmap(evidence.solver.posterior, in_axes=(None, 0))(evidence.hyper(u), data_of(pool))
    return path.x, path.std


def refit_near(settings: LatentSettings, model: SDE, pool: Pool, near: Estimate) -> Estimate:
    """The weak-form refit alone, along the path that the latent process of `near` takes through these data."""
    evidence, u, rows = evidence_of(settings, model, pool), near.hyper["latent"], data_with_midpoints(pool)
    path = jax.vmap(evidence.solver.posterior, in_axes=(None, 0))(evidence.hyper(u), rows).x
    best = refine(model, pool, evidence, u, path, near.theta, near.hyper["scales"], settings.passes)
    code = jnp.where(best.converged, Code.OK, Code.NOT_CONVERGED)
    found = dataclasses.replace(near, theta=best.theta, G=best.G, noise=best.noise, mean=best.mean, std=best.std)
    return dataclasses.replace(found, code=code, hyper=near.hyper | {"covariance": best.covariance})


def told_of_theta(model: SDE, estimate: Estimate) -> Information:
    """The covariance of θ from the refit; nothing of G and σ."""
    P, K = len(model.free), len(model.states)
    unknown = jnp.full((P + K * K + K,) * 2, jnp.nan)
    return Information(unknown.at[:P, :P].set(estimate.hyper["covariance"]))


def _prior(model: SDE, scales: Theta) -> tuple[Theta, Theta]:
    """Center and width of the weak prior on θ: the bound or 0, and a few natural scales, or the whole interval."""
    lower, upper = jnp.array(model.bounds.lower), jnp.array(model.bounds.upper)
    inside = jnp.isfinite(lower) & jnp.isfinite(upper)
    middle = 0.5 * (jnp.where(inside, lower, 0.0) + jnp.where(inside, upper, 0.0))
    width = jnp.where(inside, upper - lower, _WIDE * scales)
    return jnp.where(inside, middle, model.bounds.edges), width


class _Refit(eqx.Module):
    """One weak-form problem: how to find G and σ, then θ, along a given path."""

    model: SDE = eqx.field(static=True)
    pool: Pool
    evidence: gp.Evidence
    rows: gp.Data
    center: Theta
    width: Theta

    def spread(self, v):
        """G and σ from their coordinates."""
        K = self.evidence.states
        return self.evidence.diffusion.matrix(v[K:], self.evidence.even), jnp.exp(v[:K])

    def noise(self, theta: Theta, path, v, now: _Pass) -> tuple[Array, Array]:
        """The coordinates of G and σ of highest likelihood, θ integrated out."""
        link = weak.without_midpoints(self._chain(theta, path, now.answer))
        levels = gp.noise_levels(data_of(self.pool))

        def loss(v):
            G, noise = self.spread(v)
            prior = noise_prior(jnp.log(noise), G, levels, self.evidence.width_G, self.evidence.width_noise)
            return prior - weak.log_likelihood(link, G, self._variance(noise))

        found = minimise(loss, v, iterations=100, tolerance=1e-4, search=now.search)
        return found.x, found.converged

    def solve(self, theta: Theta, path, v, answer) -> tuple[weak.Refit, Theta]:
        """θ and the path at these G and σ, and θ moved by its share of the divergence term."""
        fit = self.given(theta, path, *self.spread(v), answer)
        move = weak.divergence_move(
            lambda th: jnp.trace(self._slope(path, th), axis1=-2, axis2=-1), self.rows, theta, fit.covariance
        )
        moved = fit.theta + weak.divergence_share(move, fit.covariance) * move
        return fit, self._inside(moved, theta)

    def given(self, theta: Theta, path, G, noise, answer) -> weak.Refit:
        """θ and the path at known G and σ."""
        return weak.solve(self._chain(theta, path, answer), G, self._variance(noise), self.center, self.width)

    def settle(self, theta: Theta, path, G, noise, passes: int) -> tuple[Array, Array]:
        """The path without its midpoints, and its spread, after solving along it again and again."""

        def one(path, _):
            fit = self.given(theta, path, G, noise, jnp.array(True))
            return fit.path, fit.std

        path, std = jax.lax.scan(one, path, None, length=passes)
        return path[:, ::2], std[-1][:, ::2]

    def _variance(self, noise):
        return noise**2 + 0.01 * self.evidence.solver.jitter

    def _chain(self, theta: Theta, path, answer) -> weak.Chain:
        drift = path_drift(self.model, self.pool, self.rows.times)
        feedback = jnp.where(answer, self._slope(path, theta), 0.0)
        return weak.chain(drift, self.rows, path, theta, self.center, self.width, feedback)

    def _slope(self, path, theta: Theta) -> Float[Array, "series times state state"]:
        """∂f/∂x along the path."""
        one = self.pool.drift(lambda t, state: self.model.f(t, state, theta))
        along = jax.vmap(jax.jacfwd(one, argnums=1), in_axes=(0, 0, None))
        return jax.vmap(along)(self.rows.times, path, self.pool.origins)

    def _inside(self, theta: Theta, before: Theta) -> Theta:
        """θ kept inside its bounds: at most nine tenths of the way from where it was to a bound."""
        lower, upper = jnp.array(self.model.bounds.lower), jnp.array(self.model.bounds.upper)
        theta = jnp.where(jnp.isfinite(lower), jnp.maximum(theta, lower + 0.1 * (before - lower)), theta)
        return jnp.where(jnp.isfinite(upper), jnp.minimum(theta, upper - 0.1 * (upper - before)), theta)


def figure_samples(pool: Pool, few: Float[Array, "kept series times state"]) -> Float[Array, "kept series times state"]:
    """Derivative samples in the user's units, for figures."""
    return few * (pool.scale / pool.time_scale)[None, None, None, :]
