"""What MaRS and AReS begin with: the latent Gaussian process, the two roads to ż, and a warm start for θ."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Bool, Float, Key, Scalar, Theta
from sdefit.data import Pool, over_series
from sdefit.dynamics.diffusion import DiffusionShape, even_scale
from sdefit.dynamics.parameters import Bounds
from sdefit.dynamics.sde import SDE
from sdefit.errors import ModelError
from sdefit.linalg import cholesky, diagonal, solve
from sdefit.matching import means
from sdefit.methods._base import Staged
from sdefit.methods._settings import check_above_zero, check_choice, check_whole

PathDrift = Callable[[Float[Array, "series times state"], Theta], Float[Array, "series times state"]]

_KEPT = 16  # derivative samples kept for figures
_WIDE = 3.0  # width of the weak prior on θ, in natural scales


class LatentSettings(Staged):
    """The settings every matching method has."""

    kernel: eqx.AbstractVar[str]
    samples: eqx.AbstractVar[int]
    starts: eqx.AbstractVar[int]
    rate: eqx.AbstractVar[float | None]
    passes: eqx.AbstractVar[int]
    evidence_starts: eqx.AbstractVar[int]
    iterations: eqx.AbstractVar[int]
    jitter: eqx.AbstractVar[float]


def check_settings(settings: LatentSettings, least: dict[str, int], *above: str) -> None:
    """Refuse, in one line, settings that are no whole number of at least so much, or no number above 0."""
    check_choice(settings, kernel=tuple(gp.KERNELS))
    check_whole(settings, **least)
    if settings.samples % 2:
        name = type(settings).__name__
        raise ModelError(f"{name}: samples must be even (half mirror the other half), not {settings.samples}")
    check_above_zero(settings, "jitter", *above, *(() if settings.rate is None else ("rate",)))


def check_free(name: str, model: SDE) -> None:
    """Refuse a model in which every parameter is fixed: matching would have nothing to match with."""
    if not model.free:
        raise ModelError(f"{name} needs one or more free parameters, but all are fixed; give one a range: sf.real()")


class Roads(eqx.Module):
    """Joint draws of x, ż and o given the data: `dz` is the data's road to ż, `model` the drift's."""

    dz: Float[Array, "samples series times state"]
    x: Float[Array, "samples series times state"]
    o: Float[Array, "samples series times state"]
    times: Float[Array, "series times"]
    weight: Bool[Array, "series times"]  # rows at which something was observed
    rate: Scalar

    def every(self, step: int) -> "Roads":
        """Both roads at every `step`-th time alone."""
        dz, x, o = (a[:, :, ::step] for a in (self.dz, self.x, self.o))
        return Roads(dz, x, o, self.times[:, ::step], self.weight[:, ::step], self.rate)

    def few(self) -> "Roads":
        """The draws kept for figures: some of each antithetic half."""
        half = self.dz.shape[0] // 2
        keep = jnp.concatenate([jnp.arange(_KEPT // 2), half + _KEPT // 2 + jnp.arange(_KEPT // 2)])
        dz, x, o = (a[keep % a.shape[0]] for a in (self.dz, self.x, self.o))
        return Roads(dz, x, o, self.times, self.weight, self.rate)

    def model(self, drift: PathDrift, theta: Theta) -> Float[Array, "samples series times state"]:
        """ż = f(z + o, θ) + γ o for every draw."""
        return jax.vmap(drift, in_axes=(0, None))(self.x, theta) + self.rate * self.o

    def slopes(self) -> Float[Array, "series times state"]:
        """The mean of ż where something was observed."""
        return jnp.where(self.weight[..., None], jnp.mean(self.dz, axis=0), 0.0)

    def steps(self) -> Float[Array, "series times state"]:
        """The mean step of x from each row to the next, per time; 0 where either was not observed."""
        x, pairs = jnp.mean(self.x, axis=0), self._pairs
        gap = jnp.roll(self.times, -1, axis=1) - self.times
        return jnp.where(pairs, jnp.roll(x, -1, axis=1) - x, 0.0) / jnp.where(pairs, gap[..., None], 1.0)

    def misses(self, drift: PathDrift, theta: Theta) -> Float[Array, "2 series times state"]:
        """By how much the mean drift misses the slopes, less what pulls o back, and the steps."""
        pulled = jnp.mean(jax.vmap(drift, in_axes=(0, None))(self.x, theta), axis=0)
        back = self.rate * jnp.mean(self.o, axis=0)
        between = jnp.where(self._pairs, 0.5 * (pulled + jnp.roll(pulled, -1, axis=1)), 0.0)
        at = jnp.where(self.weight[..., None], pulled + back, 0.0)
        return jnp.stack([at - self.slopes(), between - self.steps()])

    @property
    def _pairs(self) -> Bool[Array, "series times 1"]:
        """Rows that were observed and so was the next one."""
        return (self.weight & jnp.roll(self.weight, -1, axis=1)).at[:, -1].set(False)[..., None]

    def vectors(self, dz: Float[Array, "samples series times state"]) -> Float[Array, "samples dim"]:
        """Each draw as one vector, rows at which nothing was observed left at 0."""
        return jnp.where(self.weight[None, :, :, None], dz, 0.0).reshape(dz.shape[0], -1)


def path_drift(model: SDE, pool: Pool, times: Float[Array, "series times"]) -> PathDrift:
    """The standardised drift along whole paths at these times."""

    def drift(x, theta):
        one = pool.drift(lambda t, state: model.f(t, state, theta))
        return over_series(jax.vmap(one, in_axes=(0, 0, None)))(times, x, pool.origins)

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


class Latent(eqx.Module):
    """The latent process, prepared for drawing, and the first draws of both roads.

    `rows` has midpoints where a refit is to follow: it follows the path between observations too. The roads keep every
    `step`-th row, the observations alone.
    """

    prepared: gp.Conditional | None
    rows: gp.Data
    path: Float[Array, "series rows state"]
    roads: Roads
    speed: Scalar  # of x along its path, but for noise: what the drift must be able to do
    step: int = eqx.field(static=True)

    def drawn(self) -> "Latent":
        """The same without what new draws would need."""
        return Latent(None, self.rows, self.path, self.roads, self.speed, self.step)

    def draw(self, samples: int, key: Key) -> Roads:
        """New draws of both roads."""
        assert self.prepared is not None
        return draw_roads(self.prepared, self.roads.rate, self.rows, samples, key).every(self.step)


class Told(eqx.Module):
    """φ, σ and G of maximum evidence: their coordinates, the evidence there, and whether the search converged."""

    u: Float[Array, "coordinates"]
    evidence: Scalar
    converged: Bool[Array, ""]


def fit_latent(settings: LatentSettings, model: SDE, pool: Pool) -> Told:
    """φ, σ and G by maximum evidence."""
    data = data_of(pool)
    levels, evidence = gp.noise_levels(data), evidence_of(settings, model, pool)
    found = gp.fit_evidence(evidence, data, levels, settings.evidence_starts, settings.iterations)
    return Told(found.x, -found.value, found.converged)


def latent_at(settings: LatentSettings, model: SDE, pool: Pool, u: Float[Array, "coordinates"], key: Key) -> Latent:
    """The latent process at these coordinates of its evidence, and draws from it."""
    evidence, data = evidence_of(settings, model, pool), data_of(pool)
    hyper = evidence.hyper(u)
    rows, step = (data_with_midpoints(pool), 2) if settings.passes else (data, 1)
    prepared = over_series(evidence.solver.condition, (None, 0))(hyper, rows)
    fine = draw_roads(prepared, hyper.rate, rows, settings.samples, key)
    path = jnp.mean(fine.x, axis=0)  # the posterior mean: half of the draws mirror the other half
    roads = fine.every(step)
    # What noise G drives, and yet stays within a spread of 1, is pulled back at a speed of about G²/2. That counts
    # where the evidence gives all to o: z then hardly moves. Rows without observations count as 0 in all such means.
    pull = 0.5 * jnp.sum(hyper.G**2, axis=1)
    speed = jnp.hypot(rms(roads.slopes()), rms(jnp.where(roads.weight[..., None], pull[None, None, :], 0.0)))
    return Latent(prepared, rows, path, roads, speed, step)


def draw_roads(prepared: gp.Conditional, rate: Scalar, data: gp.Data, samples: int, key: Key) -> Roads:
    """Joint draws of both roads for every series, at every time of `data`."""
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(data.times.shape[0]))
    draws = over_series(lambda one, k: one.draw(samples, k), out_axes=1)(prepared, keys)
    return Roads(draws.dz, draws.z + draws.o, draws.o, data.times, jnp.any(data.observed, axis=-1), rate)


def scales_of(drift: PathDrift, x: Float[Array, "series times state"], speed: Scalar, weight, params: int) -> Theta:
    """The natural scale of each parameter along a path of this speed."""

    def slopes(theta):
        return jnp.where(weight[..., None, None], jax.jacfwd(drift, argnums=1)(x, theta), 0.0).reshape(-1, params)

    return means.natural_scales(slopes, speed, params)


def local_scales(drift: PathDrift, x: Float[Array, "series times state"], speed: Scalar, weight, theta: Theta) -> Theta:
    """What each parameter must change by, at θ, to change the drift by as much as the speed."""
    slope = jnp.where(weight[..., None, None], jax.jacfwd(drift, argnums=1)(x, theta), 0.0)
    return speed / jnp.sqrt(jnp.mean(slope**2, axis=(0, 1, 2)))


def expected(model: SDE, scales: Theta) -> tuple[Theta, Theta]:
    """Center and width of the weak prior on θ: the bound or 0, and a few natural scales, or the whole interval."""
    lower, upper = jnp.array(model.bounds.lower), jnp.array(model.bounds.upper)
    inside = jnp.isfinite(lower) & jnp.isfinite(upper)
    middle = 0.5 * (jnp.where(inside, lower, 0.0) + jnp.where(inside, upper, 0.0))
    width = jnp.where(inside, upper - lower, _WIDE * scales)
    return jnp.where(inside, middle, model.bounds.edges), width


def rms(a: Array) -> Scalar:
    """The root mean square of all entries."""
    return jnp.sqrt(jnp.mean(a**2))


class Warm(eqx.Module):
    """Where a search for θ begins, and coordinates v about there.

    As a rule it is where the means of both roads agree, and no unit is left in v.
    """

    begin: Theta  # the first of the starts
    u: Theta
    turn: Float[Array, "params params"]
    scales: Theta
    by_steps: Theta  # where the steps of x are matched instead
    bounds: Bounds = eqx.field(static=True)

    def theta(self, v: Theta) -> Theta:
        """θ at v: the mean square residual grows by its own size from v = 0 to |v| = 1."""
        return self.bounds.constrain(self.u + self.turn @ v)


def warm_start(model: SDE, roads: Roads, speed: Scalar, drift: PathDrift, start: Theta, starts: int, key: Key) -> Warm:
    """θ at which the means of both roads agree best, from several starts, and the natural scales of θ there."""
    weight, bounds, x = roads.weight, model.bounds, jnp.mean(roads.x, axis=0)
    scales = scales_of(drift, x, speed, weight, len(model.free))
    begin = means.spread_starts(bounds, scales, start, starts, key)

    def match(which):
        return means.match_means(lambda u: roads.misses(drift, bounds.constrain(u))[which].ravel(), begin)

    both = jax.vmap(match)(jnp.arange(2))
    near = jax.tree.map(lambda a: a[0], both)
    local = local_scales(drift, x, speed, weight, bounds.constrain(near.u))
    rows = jnp.sum(weight) * float(x.shape[-1])  # of residuals: rows of padding are none
    # Residuals hang together over about ten.
    std = means.standard_errors(near.curvature) * jnp.sqrt(near.mean_square * 10 / rows)
    scales = means.informed_scales(near.u, std, bounds, scales, local)
    # Coordinates in which the mean square residual is round: the search then needs no units.
    curvature = near.curvature / (near.mean_square + 1e-300)
    eye = jnp.eye(near.u.size)
    root = cholesky(curvature + 1e-9 * jnp.diag(diagonal(curvature)) + 1e-300 * eye)
    return Warm(bounds.constrain(begin[0]), near.u, solve(root.T, eye), scales, bounds.constrain(both.u[1]), bounds)


def cold_start(model: SDE, latent: Latent, drift: PathDrift, start: Theta, key: Key) -> Warm:
    """The published code's start, |N(0, 1)| where the user gave none, in unconstrained coordinates."""
    roads = latent.roads
    scales = scales_of(drift, jnp.mean(roads.x, axis=0), latent.speed, roads.weight, len(model.free))
    begin = jnp.where(jnp.isfinite(start), start, jnp.abs(jax.random.normal(key, start.shape)))
    u = model.bounds.unconstrain(begin)
    return Warm(begin, u, jnp.eye(start.size), scales, begin, model.bounds)


def believed(roads: Roads, drift: PathDrift, matched: Theta, by_steps: Theta) -> Theta:
    """Where the refit begins: at the matched θ, if it explains half of what θ can explain of the steps of x.

    With much data and much process noise, the evidence gives all to o and leaves nothing in ż to match.
    """

    def missed(theta):
        return jnp.mean(roads.misses(drift, theta)[1] ** 2)

    nothing, least = jnp.mean(roads.steps() ** 2), missed(by_steps)
    return jnp.where(missed(matched) <= 0.5 * (nothing + least), matched, by_steps)
