"""The weak-form refit: the drift enters through its integral, as the mean of the process.

Given a path x̂ near the truth, dx = f(x, θ) dt + G dw is read as the linear model

    x(t) = x(t_1) + ∫ f(x̂, θ) ds + G w(t),    y = x + e,

with f linearised in θ (and, with `feedback`, in x about x̂), under a wide Gaussian prior on θ. One Kalman filter of
x − x̂ given θ, with a column of means for each parameter, tells how every innovation depends on θ: θ is then integrated
out in closed form. That gives the marginal likelihood of (G, σ) with θ and x(t_1) integrated out (REML), the
generalised least-squares θ with its covariance, and a better path. A gap of more than ten typical spacings, too long
to follow a path through, divides a series into two.

x̂ was smoothed, hence knows the noise to come, and f linearised at x̂ misses how x − x̂ and that noise go together: rates
come out too small. `divergence_move` is the remedy, the divergence term of the Onsager-Machlup functional as far as
later observations tell of x. Added whole, it gives maximum likelihood, whose rates are too large in short series; see
`divergence_share`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Scalar, Theta
from sdefit.data import LONG_GAP, over_series
from sdefit.gp.latent import Data
from sdefit.linalg import dot, product, solve_and_log_det
from sdefit.linalg import solve as solve_small

_ANYWHERE = 10.0  # how far x(t_1) may be from the path, in spreads of the data, where it was not observed

DriftOnPath = Callable[[Float[Array, "series times state"], Theta], Float[Array, "series times state"]]


class Chain(eqx.Module):
    """How the deviation of x from the path goes on from row to row, but for G and σ.

    d_n = carried d_{n−1} + push · (1, τ) + Σ_j kicks_j G w_j with standard normal w_j; τ is θ's deviation from the
    center of its prior in widths. The first row starts anew, and so does one after a gap too long to follow the path
    through: from the observation there give or take 1, and where there is none from the path give or take 10.
    """

    begins: Bool[Array, "*rows"]

    carried: Float[Array, "*rows state state"]
    push: Float[Array, "*rows state columns"]
    kicks: Float[Array, "*rows kicks state state"]
    values: Float[Array, "*rows state"]  # observations less the path
    observed: Bool[Array, "*rows state"]
    path: Float[Array, "*rows state"]


class Refit(eqx.Module):
    """θ by least squares with its covariance, the path there with its standard deviation, and how it moves with θ.

    `resolved` is N P at both ends of each gap: just after the row before it and just before the row behind. P is the
    covariance of x given all rows up to there, N the information that all later rows have of it. It is 0 for a state
    that was not observed yet: how much there is to tell would depend on how wide x(t_1) was said to be.
    """

    theta: Theta
    covariance: Float[Array, "params params"]
    path: Float[Array, "series times state"]
    slope: Float[Array, "series times state params"]
    std: Float[Array, "series times state"]
    resolved: Float[Array, "series gaps ends state state"]

    def path_at(self, theta: Theta) -> Float[Array, "series times state"]:
        """The path if this is θ."""
        return self.path + self.slope @ (theta - self.theta)


def chain(
    drift: DriftOnPath,
    rows: Data,
    path: Float[Array, "series times state"],
    theta: Theta,
    center: Theta,
    width: Theta,
    feedback: Float[Array, "series times state state"],
) -> Chain:
    """The linear model around `path` and `theta`, with the prior N(center, width²) on θ.

    `rows` has a leading axis of series; rows at which nothing is observed are there to follow the path. `feedback`
    is ∂f/∂x along the path, or 0 to leave f(x̂) as it is.
    """
    gaps, eye = jnp.diff(rows.times, axis=1), jnp.eye(path.shape[-1], dtype=path.dtype)
    value, slope = drift(path, theta), jax.jacfwd(drift, argnums=1)(path, theta)
    carried, h = _carried(gaps, feedback), 0.5 * gaps[:, :, None, None]
    # Each end of a gap is as far on the way as the other: what happens at the first is carried to the second.
    left_out = h * (value[:, :-1] + value[:, 1:])[..., None] - jnp.diff(path, axis=1)[..., None]
    moved = h * (dot(carried, slope[:, :-1]) + slope[:, 1:])
    begun = 0.5 * (left_out + dot(carried, left_out)) + moved @ (center - theta)[:, None]
    push = jnp.concatenate([begun, moved * width[None, None, None, :]], axis=-1)
    root = jnp.sqrt(0.5 * gaps)[:, :, None, None]
    kicks = jnp.stack([root * eye[None, None], root * carried], axis=2)
    first = jnp.where(rows.observed, rows.values - path, 0.0)[..., None]
    begin = jnp.pad(first, ((0, 0), (0, 0), (0, 0), (0, theta.size)))
    begins = jnp.pad(_broken(gaps), ((0, 0), (1, 0)), constant_values=True)

    def unless_begun(a, otherwise):
        """Numbers of each gap at the row behind it, but for rows that begin."""
        behind = jnp.pad(a, ((0, 0), (1, 0)) + ((0, 0),) * (a.ndim - 2))
        return jnp.where(begins.reshape(*begins.shape, *(1,) * (a.ndim - 2)), otherwise, behind)

    return Chain(
        begins,
        unless_begun(carried, 0.0),
        unless_begun(push, begin),
        unless_begun(kicks, 0.0),
        rows.values - path,
        rows.observed,
        path,
    )


def _broken(gaps: Float[Array, "series gaps"]) -> Bool[Array, "series gaps"]:
    """Gaps too long to follow a path through: a midpoint makes two of each."""
    return gaps > LONG_GAP / 2


def without_midpoints(link: Chain) -> Chain:
    """The same chain from every second row to the next: half as long, for what needs no path in between."""
    first, second = (jax.tree.map(lambda a, i=i: a[:, i::2], link) for i in (1, 2))
    turn = second.carried
    push = dot(turn, first.push) + second.push
    kicks = jnp.concatenate([dot(turn[:, :, None], first.kicks), second.kicks], axis=2)
    begin = jax.tree.map(lambda a: a[:, :1], link)
    none = jnp.zeros_like(kicks[:, :1])
    every = jax.tree.map(lambda a: a[:, ::2], link)
    return Chain(
        every.begins,
        jnp.concatenate([begin.carried, dot(turn, first.carried)], axis=1),
        jnp.concatenate([begin.push, push], axis=1),
        jnp.concatenate([none, kicks], axis=1),
        every.values,
        every.observed,
        every.path,
    )


def _carried(gaps: Float[Array, "series gaps"], feedback) -> Float[Array, "series gaps state state"]:
    """exp(h ∂f/∂x) over each gap by Padé's (2, 2) formula, which never grows a decaying mode.

    Nor has it a pole where a mode grows, however fast.
    """
    half = 0.25 * gaps[:, :, None, None] * (feedback[:, 1:] + feedback[:, :-1])
    even = jnp.eye(feedback.shape[-1], dtype=feedback.dtype)[None, None] + dot(half, half) / 3
    return over_series(jax.vmap(solve_small))(even - half, even + half)


class _Forward(eqx.Module):
    """One series filtered, every mean and innovation as columns (for τ = 0, then what each τ_p adds)."""

    predicted: Float[Array, "*rows state state"]
    updated: Float[Array, "*rows state state"]
    means: Float[Array, "*rows state columns"]
    gains: Float[Array, "*rows state state"]  # 0 where not observed
    precisions: Float[Array, "*rows state"]  # 1/innovation variance, 0 where not observed
    innovations: Float[Array, "*rows state columns"]


class _Later(eqx.Module):
    """What later observations say of each predicted deviation and of the noise of each observation."""

    pull: Float[Array, "*rows state columns"]
    information: Float[Array, "*rows state state"]
    noise_pull: Float[Array, "*rows state columns"]
    noise_information: Float[Array, "*rows state"]


class _Told(eqx.Module):
    """What all innovations together say of τ: its mean and covariance, and the log-likelihood without it."""

    tau: Theta
    covariance: Float[Array, "params params"]
    log_likelihood: Scalar

    @property
    def weights(self) -> Float[Array, "columns"]:
        return jnp.concatenate([jnp.ones_like(self.tau, shape=1), self.tau])

    def judged(self, tau: Theta, share: Scalar) -> tuple[Scalar, Float[Array, "columns columns"]]:
        """The log-likelihood, a `share` of it about `tau` instead of the best τ, and E[w wᵀ] of w = (1, τ) likewise."""
        off, best = tau - self.tau, self.weights
        other = best + jnp.pad(off, (1, 0))
        products = (1 - share) * best[:, None] * best[None, :] + share * other[:, None] * other[None, :]
        worse = 0.5 * off @ solve_small(self.covariance, off[:, None])[:, 0]
        return self.log_likelihood - share * worse, products + jnp.pad(self.covariance, ((1, 0), (1, 0)))


def _forward(link: Chain, spread: Float[Array, "times state state"], variance: Float[Array, "state"]) -> _Forward:
    """The filter of one series."""

    first = jnp.arange(link.push.shape[-1]) == 0

    def step(carry, now):
        means, cov = carry
        carried, push, spread, values, observed = now
        means = dot(carried, means) + push
        cov = dot(dot(carried, cov), carried.T) + spread
        predicted, gains, precisions, innovations = (means, cov), [], [], []
        for k in range(variance.size):
            column = cov[:, k]
            precision = jnp.where(observed[k], 1 / (column[k] + variance[k]), 0.0)
            gains.append(precision * column)
            precisions.append(precision)
            innovations.append(jnp.where(first, values[k], 0.0) - means[k])
            means = means + gains[k][:, None] * innovations[k][None, :]
            cov = cov - gains[k][:, None] * column[None, :]
        seen = (jnp.stack(a) for a in (gains, precisions, innovations))
        return (means, cov), _Forward(predicted[1], cov, predicted[0], *seen)

    begin = jnp.zeros_like(link.push[0]), jnp.zeros_like(link.carried[0])
    return jax.lax.scan(step, begin, (link.carried, link.push, spread, link.values, link.observed))[1]


def _look_back(link: Chain, done: _Forward) -> _Later:
    """The disturbance smoother of one series."""

    def step(carry, now):
        pull, information = carry
        carried, gains, precisions, innovations = now
        pulls, informations = [], []
        for k in reversed(range(precisions.size)):
            turned = dot(gains[k][None, :], information)[0]
            pulls.insert(0, precisions[k] * innovations[k] - dot(gains[k][None, :], pull)[0])
            informations.insert(0, precisions[k] + turned @ gains[k])
            pull = pull.at[k].add(pulls[0])
            information = information.at[k].add(-turned).at[:, k].add(-turned).at[k, k].add(informations[0])
        out = _Later(pull, information, jnp.stack(pulls), jnp.stack(informations))
        return (dot(carried.T, pull), dot(dot(carried.T, information), carried)), out

    begin = jnp.zeros_like(link.push[0]), jnp.zeros_like(link.carried[0])
    rows = link.carried, done.gains, done.precisions, done.innovations
    return jax.lax.scan(step, begin, rows, reverse=True)[1]


def _told(done: _Forward) -> _Told:
    columns = done.innovations.shape[-1]
    e, precision = done.innovations.reshape(-1, columns), done.precisions.reshape(-1)
    products, eye = product(e, precision[:, None] * e), jnp.eye(columns - 1, dtype=e.dtype)
    found, log_det = solve_and_log_det(eye + products[1:, 1:], jnp.concatenate([-products[1:, :1], eye], axis=1))
    tau, covariance = found[:, 0], found[:, 1:]
    return _Told(tau, covariance, -0.5 * (_log_scatter(done) + products[0, 0] + products[0, 1:] @ tau + log_det))


def _log_scatter(done: _Forward) -> Scalar:
    """The log-determinant of 2π times the covariance of all observations given τ."""
    seen = done.precisions > 0
    return jnp.sum(jnp.where(seen, jnp.log(2 * jnp.pi / jnp.where(seen, done.precisions, 1.0)), 0.0))


def _spread(link: Chain, G: Float[Array, "state state"]) -> Float[Array, "series times state state"]:
    """The variance that each row adds; where a row begins, that of x there."""
    arms = dot(link.kicks, G[None, None, None])
    spread = jnp.sum(dot(arms, jnp.swapaxes(arms, -1, -2)), axis=2)
    begin = jnp.where(link.observed, 1.0, _ANYWHERE**2)
    return jnp.where(
        link.begins[..., None, None], begin[..., None] * jnp.eye(G.shape[0], dtype=G.dtype)[None, None], spread
    )


def log_likelihood(
    link: Chain, G: Float[Array, "state state"], variance: Float[Array, "state"], tau: Theta, share: Scalar
) -> Scalar:
    """The likelihood of G and σ² with θ and x(t_1) integrated out. The chain is taken as a constant.

    That judges the noises by what is left at the τ of least squares. A `share` of it may judge them by what is left at
    another τ, no less certain: where θ is moved from least squares, that is where the data say how large they are.
    """
    return _marginal(link, _spread(link, G), variance, tau, share)


def log_likelihood_at_center(link: Chain, G: Float[Array, "state state"], variance: Float[Array, "state"]) -> Scalar:
    """The likelihood of G, σ² and τ = 0, with x(t_1) integrated out."""
    alone = eqx.tree_at(lambda link: link.push, link, link.push[..., :1])
    done = _filter_all(alone, _spread(alone, G), variance)
    return -0.5 * (_log_scatter(done) + jnp.sum(done.precisions * done.innovations[..., 0] ** 2))


@jax.custom_vjp
def _marginal(link: Chain, spread, variance, tau, share) -> Scalar:
    return _told(_filter_all(link, spread, variance)).judged(tau, share)[0]


def _filter_all(link: Chain, spread, variance) -> _Forward:
    return over_series(_forward, (0, 0, None))(link, spread, variance)


def _marginal_forward(link: Chain, spread, variance, tau, share):
    done = _filter_all(link, spread, variance)
    value, products = _told(done).judged(tau, share)
    return value, (link, done, products)


def _marginal_back(saved, weight):
    """By Fisher's identity: the derivative given τ, as in `kalman.log_likelihood`, averaged over what is known of τ."""
    link, done, products = saved
    later = over_series(_look_back)(link, done)
    spread = dot(dot(later.pull, products[None, None]), jnp.swapaxes(later.pull, -1, -2)) - later.information
    pulls = dot(later.noise_pull, products[None, None])
    noise = jnp.sum(pulls * later.noise_pull, axis=-1) - later.noise_information
    return None, 0.5 * weight * spread, 0.5 * weight * jnp.sum(noise, axis=(0, 1)), None, None


_marginal.defvjp(_marginal_forward, _marginal_back)


def solve(link: Chain, G: Float[Array, "state state"], variance: Float[Array, "state"], center: Theta, width: Theta):
    """The `Refit` given G and σ²."""
    done = _filter_all(link, _spread(link, G), variance)
    told, later = _told(done), over_series(_look_back)(link, done)
    columns = done.means + dot(done.predicted, later.pull)
    path = link.path + jnp.sum(columns * told.weights[None, None, None, :], axis=-1)
    taken = jnp.sum(dot(done.predicted, later.information) * done.predicted, axis=-1)
    own = jnp.sum(done.predicted * jnp.eye(taken.shape[-1])[None, None], axis=-1) - taken
    shared = jnp.sum(dot(columns[..., 1:], told.covariance[None, None]) * columns[..., 1:], axis=-1)
    carried, behind = link.carried[:, 1:], later.information[:, 1:]
    before = dot(dot(jnp.swapaxes(carried, -1, -2), behind), carried)
    resolved = jnp.stack([dot(before, done.updated[:, :-1]), dot(behind, done.predicted[:, 1:])], axis=2)
    seen = (jnp.cumsum(link.observed, axis=1)[:, :-1] > 0) & ~link.begins[:, 1:, None]
    return Refit(
        center + width * told.tau,
        width[:, None] * told.covariance * width[None, :],
        path,
        columns[..., 1:] / width[None, None, None, :],
        jnp.sqrt(jnp.maximum(own + shared, 0.0)),
        jnp.where(seen[:, :, None, None, :], resolved, 0.0),
    )


def divergence_move(
    feedback: Callable[[Theta], Float[Array, "series times state state"]], rows: Data, theta: Theta, found: Refit
) -> Theta:
    """The way from `found` to maximum likelihood: −V ∂θ ∫ tr((∂f/∂x)ᵀ N P) ds.

    x was linearised at one θ, but ∂f/∂x depends on θ too. The score of maximum likelihood has a term for that, the mean
    of (∂θ∂f/∂x (x − x̂))ᵀ Q⁻¹ (noise to come) given all observations, in which x − x̂ and Q⁻¹ (noise to come) have the
    covariance −N P per unit of time. N P is ½ where observations are dense, which leaves half the divergence of f; it
    is less where the drift forgets where x was before they tell, and 0 where there are none.
    """
    gaps, resolved = jnp.diff(rows.times, axis=1)[:, :, None, None], found.resolved

    def total(theta):
        slope = feedback(theta)
        return 0.5 * jnp.sum(gaps * (slope[:, :-1] * resolved[:, :, 0] + slope[:, 1:] * resolved[:, :, 1]))

    return -found.covariance @ jax.grad(total)(theta)


def divergence_share(move: Theta, covariance: Float[Array, "params params"], rows: Data) -> Scalar:
    """The share of `divergence_move` to take: three quarters of it, and nearly all where the data are long or many.

    With ρ the length of the move in standard errors, maximum likelihood is off by about c/ρ standard errors
    (for the rate of an OU process with unknown level c = 2), so 1 − c/ρ² of the move removes that bias to
    first order. We take c = 2; the three quarters for one series come from simulation: docs/method.md.
    The move is the same for one series as for many of its kind, and that bias falls as one over their number. Series of
    unequal lengths count as the number of equal ones that tell as much.
    """
    rho2 = move @ solve_small(covariance, move[:, None])[:, 0]
    gaps = jnp.diff(rows.times, axis=1)
    lengths = jnp.sum(jnp.where(_broken(gaps), 0.0, gaps), axis=1)
    alike = jnp.sum(lengths) ** 2 / jnp.sum(lengths**2)
    return jnp.maximum(1 - 1 / (4 * alike), 1 - 2.0 / jnp.maximum(rho2, 1e-12))
