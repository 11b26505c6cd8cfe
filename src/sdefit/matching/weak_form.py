"""The weak form of dx = f(x, θ) dt + G dw around a path: a linear Gaussian state-space model, regressed on θ.

Given a path x̂ near the truth, the equation is read as

    x(t) = x(t_1) + ∫ f(x̂, θ) ds + G w(t),    y = x + e,

with f linearised in θ and, through its Jacobian, in x about x̂, under a wide normal prior on θ. One Kalman filter of
x − x̂, with a column of means for each parameter, tells how every innovation depends on θ: θ is then integrated out in
closed form (Durbin and Koopman 2012, section 6.2). That gives the marginal likelihood of G and σ with θ and x(t_1)
integrated out (REML), the generalised least-squares θ with its covariance, and a better path. A gap too long to follow
a path through divides a series into two.

x̂ was smoothed, hence knows the noise to come, and f linearised at x̂ misses how x − x̂ and that noise go together: rates
come out too small. `onsager_machlup_correction` is the remedy, the divergence term of the Onsager-Machlup functional as
far as later observations resolve x. Added whole it gives maximum likelihood, whose rates are too large in short series;
see `shrinkage`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Scalar, Theta
from sdefit.data import LONG_GAP, over_series
from sdefit.linalg import dot, product, solve_and_log_det
from sdefit.linalg import solve as solve_small
from sdefit.ssm import kalman
from sdefit.ssm.kalman import Backward, Filtered, Gaussian, Observations, Sensors, Transitions

_DIFFUSE = 10.0  # standard deviation of x(t_1) about the path, in spreads of the data
_BIAS = 2.0  # c: maximum likelihood is off by c/ρ standard errors where its correction is ρ of them long
HELD_BACK = 0.25  # the share of the correction that one series does without

DriftOnPath = Callable[[Float[Array, "series times state"], Theta], Float[Array, "series times state"]]
Jacobians = Float[Array, "series times state state"]


class LinearisedSSM(eqx.Module):
    """How the deviation d = x − x̂ goes on from row to row, but for G and σ.

    d_n = F d_{n−1} + offset · (1, τ) + Σ_j Q_factors_j G w_j with standard normal w_j; τ is θ's deviation from the
    center of its prior in widths. The first row starts anew, from the path give or take 10, and so does one after a
    gap too long to follow the path through.
    """

    begins: Bool[Array, "*rows"]
    F: Float[Array, "*rows state state"]
    offset: Float[Array, "*rows state columns"]
    Q_factors: Float[Array, "*rows factors state state"]
    values: Float[Array, "*rows state"]  # observations less the path
    observed: Bool[Array, "*rows state"]
    path: Float[Array, "*rows state"]

    def Q(self, G: Float[Array, "state state"]) -> Float[Array, "series times state state"]:
        """The covariance that each row adds; where a row begins, that of x there."""
        factors = dot(self.Q_factors, G[None, None, None])
        process = jnp.sum(dot(factors, jnp.swapaxes(factors, -1, -2)), axis=2)
        anew = _DIFFUSE**2 * jnp.eye(G.shape[0], dtype=G.dtype)[None, None]
        return jnp.where(self.begins[..., None, None], anew, process)


class WeakFormFit(eqx.Module):
    """θ by generalised least squares with its covariance, the path there with its spread, and how it moves with θ.

    `NP` is N P at both ends of each gap: just after the row before it and just before the row behind. P is the
    covariance of x given all rows up to there, N the information that all later rows have of it (Durbin and Koopman's
    N). It is 0 for a state that was not observed yet: it would depend on how wide x(t_1) was said to be.
    """

    theta: Theta
    covariance: Float[Array, "params params"]
    path: Float[Array, "series times state"]
    path_slope: Float[Array, "series times state params"]
    std: Float[Array, "series times state"]
    NP: Float[Array, "series gaps ends state state"]

    def path_at(self, theta: Theta) -> Float[Array, "series times state"]:
        """The path if this is θ."""
        return self.path + self.path_slope @ (theta - self.theta)


def linearise(
    drift: DriftOnPath,
    rows: Observations,
    path: Float[Array, "series times state"],
    theta: Theta,
    center: Theta,
    width: Theta,
    jacobian: Jacobians,
) -> LinearisedSSM:
    """The linear model around `path` and `theta`, with the prior N(center, width²) on θ.

    `rows` has a leading axis of series; rows at which nothing is observed are there to follow the path. `jacobian`
    is ∂f/∂x along the path, or 0 to leave f(x̂) as it is.
    """
    gaps, eye = jnp.diff(rows.times, axis=1), jnp.eye(path.shape[-1], dtype=path.dtype)
    value, slope = drift(path, theta), jax.jacfwd(drift, argnums=1)(path, theta)
    F, h = _transition(gaps, jacobian), 0.5 * gaps[:, :, None, None]
    # Trapezoids: what happens at the first end of a gap is carried to the second.
    missing = h * (value[:, :-1] + value[:, 1:])[..., None] - jnp.diff(path, axis=1)[..., None]
    by_theta = h * (dot(F, slope[:, :-1]) + slope[:, 1:])
    constant = 0.5 * (missing + dot(F, missing)) + by_theta @ (center - theta)[:, None]
    offset = jnp.concatenate([constant, by_theta * width[None, None, None, :]], axis=-1)
    sqrt_half_gap = jnp.sqrt(0.5 * gaps)[:, :, None, None]
    Q_factors = jnp.stack([sqrt_half_gap * eye[None, None], sqrt_half_gap * F], axis=2)
    begins = jnp.pad(_too_long(gaps), ((0, 0), (1, 0)), constant_values=True)

    def unless_begun(a):
        """Numbers of each gap at the row behind it, but for rows that begin."""
        behind = jnp.pad(a, ((0, 0), (1, 0)) + ((0, 0),) * (a.ndim - 2))
        return jnp.where(begins.reshape(*begins.shape, *(1,) * (a.ndim - 2)), 0.0, behind)

    F, offset, Q_factors = unless_begun(F), unless_begun(offset), unless_begun(Q_factors)
    return LinearisedSSM(begins, F, offset, Q_factors, rows.values - path, rows.observed, path)


def _too_long(gaps: Float[Array, "series gaps"]) -> Bool[Array, "series gaps"]:
    """Gaps too long to follow a path through: a midpoint makes two of each."""
    return gaps > LONG_GAP / 2


def skip_midpoints(model: LinearisedSSM) -> LinearisedSSM:
    """The same model from every second row to the next: half as long, for what needs no path in between."""
    first, second = (jax.tree.map(lambda a, i=i: a[:, i::2], model) for i in (1, 2))
    begin, every = (jax.tree.map(lambda a, part=part: a[:, part], model) for part in (slice(1), slice(None, None, 2)))
    Q_factors = jnp.concatenate([dot(second.F[:, :, None], first.Q_factors), second.Q_factors], axis=2)
    return LinearisedSSM(
        every.begins,
        jnp.concatenate([begin.F, dot(second.F, first.F)], axis=1),
        jnp.concatenate([begin.offset, dot(second.F, first.offset) + second.offset], axis=1),
        jnp.concatenate([jnp.zeros_like(Q_factors[:, :1]), Q_factors], axis=1),
        every.values,
        every.observed,
        every.path,
    )


def _transition(gaps: Float[Array, "series gaps"], jacobian: Jacobians) -> Float[Array, "series gaps state state"]:
    """exp(h ∂f/∂x) over each gap by Padé's (2, 2) formula, which never grows a decaying mode.

    Nor has it a pole where a mode grows, however fast.
    """
    half = 0.25 * gaps[:, :, None, None] * (jacobian[:, 1:] + jacobian[:, :-1])
    even = jnp.eye(jacobian.shape[-1], dtype=jacobian.dtype)[None, None] + dot(half, half) / 3
    return over_series(jax.vmap(solve_small))(even - half, even + half)


class ParameterPosterior(eqx.Module):
    """What all innovations together say of τ: its mean and covariance, and the log-likelihood with τ integrated out."""

    tau: Theta
    covariance: Float[Array, "params params"]
    log_likelihood: Scalar

    @property
    def weights(self) -> Float[Array, "columns"]:
        """(1, τ), which the columns of means are to be added up with."""
        return jnp.concatenate([jnp.ones_like(self.tau, shape=1), self.tau])

    def profiled(self, tau: Theta, weight: Scalar) -> tuple[Scalar, Float[Array, "columns columns"]]:
        """The log-likelihood, a share `weight` of it about `tau` in place of the best τ; and E[w wᵀ] of w = (1, τ)."""
        off, best = tau - self.tau, self.weights
        other = best + jnp.pad(off, (1, 0))
        products = (1 - weight) * best[:, None] * best[None, :] + weight * other[:, None] * other[None, :]
        worse = 0.5 * off @ solve_small(self.covariance, off[:, None])[:, 0]
        return self.log_likelihood - weight * worse, products + jnp.pad(self.covariance, ((1, 0), (1, 0)))


def log_marginal_likelihood(
    model: LinearisedSSM, G: Float[Array, "state state"], variance: Float[Array, "state"], tau: Theta, weight: Scalar
) -> Scalar:
    """The likelihood of G and σ² with θ and x(t_1) integrated out. The model is taken as a constant.

    That judges the noises by what is left at the τ of least squares. A share `weight` of it may judge them by what is
    left at another τ, no less certain: where θ is moved from least squares, that is where the data say how large the
    noises are.
    """
    return _marginal(model, model.Q(G), variance, tau, weight)


def log_likelihood_at_center(
    model: LinearisedSSM, G: Float[Array, "state state"], variance: Float[Array, "state"]
) -> Scalar:
    """The likelihood of G, σ² and τ = 0, with x(t_1) integrated out."""
    alone = eqx.tree_at(lambda m: m.offset, model, model.offset[..., :1])
    return kalman.log_likelihood(_filter(alone, alone.Q(G), variance))


@jax.custom_vjp
def _marginal(model: LinearisedSSM, Q, variance, tau, weight) -> Scalar:
    return _regress(_filter(model, Q, variance)).profiled(tau, weight)[0]


def _marginal_forward(model: LinearisedSSM, Q, variance, tau, weight):
    filtered = _filter(model, Q, variance)
    value, products = _regress(filtered).profiled(tau, weight)
    return value, (model, filtered, products)


def _marginal_back(saved, cotangent):
    """By Fisher's identity: the derivative given τ (`kalman.likelihood_slopes`), averaged over what is known of τ."""
    model, filtered, products = saved
    later = _smoother(model, filtered)
    Q = dot(dot(later.r, products[None, None]), jnp.swapaxes(later.r, -1, -2)) - later.N
    variance = jnp.sum(dot(later.u, products[None, None]) * later.u, axis=-1) - later.D
    return None, 0.5 * cotangent * Q, 0.5 * cotangent * jnp.sum(variance, axis=(0, 1)), None, None


_marginal.defvjp(_marginal_forward, _marginal_back)


def solve(model: LinearisedSSM, G: Float[Array, "state state"], variance, center: Theta, width: Theta) -> WeakFormFit:
    """The fit given G and σ²."""
    filtered = _filter(model, model.Q(G), variance)
    found, later = _regress(filtered), _smoother(model, filtered)
    columns, covariance = kalman.smoothed(filtered, later)
    path = model.path + jnp.sum(columns * found.weights[None, None, None, :], axis=-1)
    own = jnp.sum(covariance * jnp.eye(covariance.shape[-1])[None, None], axis=-1)
    by_tau = jnp.sum(dot(columns[..., 1:], found.covariance[None, None]) * columns[..., 1:], axis=-1)
    F, N = model.F[:, 1:], later.N[:, 1:]
    before = dot(dot(jnp.swapaxes(F, -1, -2), N), F)
    ends = [dot(before, filtered.updated.covariance[:, :-1]), dot(N, filtered.predicted.covariance[:, 1:])]
    seen = (jnp.cumsum(model.observed, axis=1)[:, :-1] > 0) & ~model.begins[:, 1:, None]
    return WeakFormFit(
        center + width * found.tau,
        width[:, None] * found.covariance * width[None, :],
        path,
        columns[..., 1:] / width[None, None, None, :],
        jnp.sqrt(jnp.maximum(own + by_tau, 0.0)),
        jnp.where(seen[:, :, None, None, :], jnp.stack(ends, axis=2), 0.0),
    )


def _filter(model: LinearisedSSM, Q, variance) -> Filtered:
    """The forward pass of every series, each mean and innovation in columns (τ = 0, then what each τ_p adds)."""
    K, columns = model.F.shape[-1], model.offset.shape[-1]
    sensors, first = Sensors(jnp.eye(K, dtype=Q.dtype), variance), jnp.arange(columns) == 0

    def one(F, Q, offset, values, observed):
        nothing = Gaussian(jnp.zeros((K, columns), Q.dtype), jnp.zeros((K, K), Q.dtype))
        values = jnp.where(first[None, None, :], values[..., None], 0.0)
        return kalman.run_filter(nothing, Transitions(F, Q, offset), sensors, values, observed)[1]

    return over_series(one)(model.F, Q, model.offset, model.values, model.observed)


def _smoother(model: LinearisedSSM, filtered: Filtered) -> Backward:
    sensors = Sensors(jnp.eye(model.F.shape[-1], dtype=model.F.dtype), jnp.zeros(model.F.shape[-1], model.F.dtype))
    return over_series(lambda F, filtered: kalman.run_smoother(F, filtered, sensors)[1])(model.F, filtered)


def _regress(filtered: Filtered) -> ParameterPosterior:
    columns = filtered.innovations.shape[-1]
    e, precision = filtered.innovations.reshape(-1, columns), filtered.gains.precision.reshape(-1)
    products, eye = product(e, precision[:, None] * e), jnp.eye(columns - 1, dtype=e.dtype)
    found, log_det = solve_and_log_det(eye + products[1:, 1:], jnp.concatenate([-products[1:, :1], eye], axis=1))
    tau = found[:, 0]
    at_center = kalman.log_likelihood(filtered)
    return ParameterPosterior(tau, found[:, 1:], at_center - 0.5 * (products[0, 1:] @ tau + log_det))


def onsager_machlup_correction(
    jacobian: Callable[[Theta], Jacobians], rows: Observations, theta: Theta, found: WeakFormFit
) -> Theta:
    """The way from `found` to maximum likelihood: −V ∂θ ∫ tr((∂f/∂x)ᵀ N P) ds.

    x was linearised at one θ, but ∂f/∂x depends on θ too. The score of maximum likelihood has a term for that, the mean
    of (∂θ∂f/∂x (x − x̂))ᵀ Q⁻¹ (noise to come) given all observations, in which x − x̂ and Q⁻¹ (noise to come) have the
    covariance −N P per unit of time. N P is ½ where observations are dense, which leaves half the divergence of f, as
    in the Onsager-Machlup functional; it is less where the drift forgets where x was before the next observation, and
    0 where there are none.
    """
    gaps = jnp.diff(rows.times, axis=1)[:, :, None, None]

    def total(theta):
        slope = jacobian(theta)
        return 0.5 * jnp.sum(gaps * (slope[:, :-1] * found.NP[:, :, 0] + slope[:, 1:] * found.NP[:, :, 1]))

    return -found.covariance @ jax.grad(total)(theta)


def shrinkage(correction: Theta, covariance: Float[Array, "params params"], rows: Observations) -> Scalar:
    """The share of `onsager_machlup_correction` to take: ¾ of it, and nearly all where the data are long or many.

    With ρ the length of the correction in standard errors, maximum likelihood is off by about c/ρ standard errors
    (for the rate of an OU process with unknown level c = 2), so 1 − c/ρ² of the correction removes that bias to
    first order. c = 2 is `_BIAS`; the three quarters for one series come from simulation: docs/method.md.
    The correction is the same for one series as for many of its kind, and that bias falls as one over their number.
    Series of unequal lengths count as the number of equal ones that tell as much.
    """
    rho2 = correction @ solve_small(covariance, correction[:, None])[:, 0]
    gaps = jnp.diff(rows.times, axis=1)
    lengths = jnp.sum(jnp.where(_too_long(gaps), 0.0, gaps), axis=1)
    alike = jnp.sum(lengths) ** 2 / jnp.sum(lengths**2)
    return jnp.maximum(1 - HELD_BACK / alike, 1 - _BIAS / jnp.maximum(rho2, 1e-12))
