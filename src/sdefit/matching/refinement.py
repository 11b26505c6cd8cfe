"""The refinement with which MaRS and AReS end: the weak form solved repeatedly, until θ converges.

1. `fixed_point`: along the path found so far, G and σ by marginal likelihood, then θ by least squares with its
   correction, then the path of that θ; again until a pass moves θ by next to nothing.
2. Where that did not settle, the same from the beginning with `backtracking`: no long step may make the fit worse.
3. The path of the final θ, G and σ, begun anew: the very path that is found when it is asked for at other times.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit import gp
from sdefit._types import Array, Bool, Float, Int, Scalar, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.linalg import diagonal, solve
from sdefit.matching import weak_form
from sdefit.matching.parameter_scales import widened_scales
from sdefit.matching.weak_form_problem import RowPath, WeakFormProblem

_STILL = 1e-6  # θ has converged when a pass moves it by less, in standard errors: its start is then forgotten
_MOST = 6  # times as many passes as were asked for are the most
_LEAST = 0.1  # fraction of a step that is taken at least
_NEAR = 0.1  # standard errors a pass moves θ by, below which G and σ may be judged at the corrected θ


class Refinement(eqx.Module):
    """θ with its covariance, G, σ and the path after the refinement; the scales of θ's prior at its end."""

    theta: Theta
    covariance: Float[Array, "params params"]
    scales: Theta
    G: Float[Array, "state state"]
    noise: Float[Array, "state"]
    mean: Float[Array, "series times state"]
    std: Float[Array, "series times state"]
    converged: Bool[Array, ""]


class RefinementState(eqx.Module):
    """Where the fixed point iteration is."""

    theta: Theta
    covariance: Float[Array, "params params"]
    v: Float[Array, "coordinates"]  # of G and σ
    path: RowPath
    step: Theta  # that the last pass asked for
    fraction: Scalar  # of it that was taken
    profile_weight: Scalar  # share of the likelihood of G and σ that is about this θ, not about that of least squares
    scales: Theta  # of the prior on θ
    passes: Int[Array, ""]
    noise_converged: Bool[Array, ""]
    settled: Bool[Array, ""]  # the last step was shorter than a standard error
    theta_converged: Bool[Array, ""]

    @classmethod
    def begin(cls, theta: Theta, v: Float[Array, "coordinates"], path: RowPath, scales: Theta) -> "RefinementState":
        """Before the first pass."""
        P, zero, no = theta.size, jnp.zeros((), theta.dtype), jnp.array(False)
        unknown, still = jnp.zeros((P, P)), jnp.zeros_like(theta)
        return cls(theta, unknown, v, path, still, zero + 1, zero, scales, jnp.array(0, jnp.int32), no, no, no)


def refine(
    model: SDE,
    pool: Pool,
    evidence: gp.Evidence,
    u: Float[Array, "coordinates"],
    path: RowPath,
    theta: Theta,
    scales: Theta,
    passes: int,
) -> Refinement:
    """θ, G, σ and the path, from a θ, from the coordinates u of the evidence and along its path.

    **Arguments**
    - `path`: at the rows of the data and midway between them.
    - `scales`: natural scales of θ, of which its weak prior is made.
    - `passes`: the least passes; `_MOST` times as many are made until θ has converged.
    """
    K = evidence.states
    begin = RefinementState.begin(theta, u[2 * K : 3 * K + evidence.diffusion.size], path, scales)

    def attempt(tried: tuple[Int[Array, ""], RefinementState]):
        count, _ = tried
        return count + 1, fixed_point(model, pool, evidence, begin, passes, backtracking=count > 0)

    def unsettled(tried: tuple[Int[Array, ""], RefinementState]):
        count, last = tried
        return (count == 0) | ((count == 1) & ~last.settled)

    _, last = jax.lax.while_loop(unsettled, attempt, (jnp.array(0, jnp.int32), begin))
    problem = WeakFormProblem.of(model, pool, evidence, last.scales)
    G, noise = problem.matrices(last.v)
    mean, std = problem.follow_path(last.theta, path, G, noise, passes)
    converged = last.settled & last.noise_converged
    return Refinement(last.theta, last.covariance, last.scales, G, noise, mean, std, converged)


def fixed_point(
    model: SDE,
    pool: Pool,
    evidence: gp.Evidence,
    begin: RefinementState,
    passes: int,
    backtracking: Bool[Array, ""],
) -> RefinementState:
    """Passes for θ, G, σ and the path, at least `passes`, until θ has converged."""

    def one(state: RefinementState) -> RefinementState:
        problem = WeakFormProblem.of(model, pool, evidence, state.scales)
        return improve(problem, state, passes, backtracking)

    def going(state: RefinementState):
        return ~state.theta_converged & (state.passes < _MOST * passes)

    return jax.lax.while_loop(going, one, begin)


def improve(
    problem: WeakFormProblem, state: RefinementState, passes: int, backtracking: Bool[Array, ""]
) -> RefinementState:
    """One pass: G and σ, then θ, then the path; of each step of θ and of the path the fraction that `aitken` gives.

    Near the end G and σ are judged at the corrected θ, as far as the correction is taken for sure, and the prior on θ
    becomes as wide as θ is large where θ is well off its bound or 0 in spite of it.
    """
    v, noise_converged = problem.fit_noise(state.theta, state.path, state.v, state.profile_weight)
    fit, theta, shrinkage = problem.fit_theta(state.theta, state.path, v)
    step, along = theta - state.theta, fit.path_at(theta) - state.path
    length, fraction = aitken(state, step, fit.covariance)
    finite = jnp.isfinite(length) & jnp.all(jnp.isfinite(along))
    doubtful = backtracking & finite & (length > 1)
    fraction = problem.backtrack(state.theta, step, fraction, state.path, v, shrinkage, doubtful)
    nearly_there = finite & (length < _NEAR)
    weight = jnp.where(nearly_there | (state.profile_weight > 0), profile_weight(shrinkage), 0.0)
    wider = widened_scales(theta, jnp.sqrt(diagonal(fit.covariance)), problem.model.bounds, state.scales)
    scales = jnp.where(nearly_there, wider, state.scales)
    changed = jnp.any(scales > 1.01 * state.scales) | (weight > state.profile_weight + 0.01)
    taken = RefinementState(
        theta=state.theta + fraction * step,
        covariance=fit.covariance,
        v=v,
        path=state.path + fraction * along,
        step=step,
        fraction=fraction,
        profile_weight=weight,
        scales=scales,
        passes=state.passes + 1,
        noise_converged=noise_converged,
        settled=finite & (length < 1),
        theta_converged=(state.passes + 1 >= passes) & finite & (length < _STILL) & ~changed,
    )
    # A step that is no number is not taken: the next pass has other G and σ.
    unmoved = eqx.tree_at(
        lambda s: (s.covariance, s.v, s.passes, s.noise_converged, s.settled),
        state,
        (taken.covariance, v, taken.passes, noise_converged, taken.settled),
    )
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), taken, unmoved)


def profile_weight(shrinkage: Scalar) -> Scalar:
    """The share of the likelihood of G and σ that is about the corrected θ.

    0 where no more of the correction is taken than for one short series, 1 where all of it is.
    """
    return jnp.maximum(1 - (1 - shrinkage) / weak_form.HELD_BACK, 0.0)


def aitken(state: RefinementState, step: Theta, covariance: Float[Array, "params params"]) -> tuple[Scalar, Scalar]:
    """The length of a step of θ in standard errors, and the fraction of it to take.

    Steps may go to and fro, each past the end: this is the fraction at which the step before would have ended
    (Aitken's extrapolation in the metric of the covariance); the whole of the first step.
    """
    change = step - state.step
    weighed: Array = solve(covariance, jnp.stack([step, change], axis=1))
    length = jnp.sqrt(step @ weighed[:, 0] / step.size)
    fraction = -state.fraction * (state.step @ weighed[:, 1]) / (change @ weighed[:, 1] + 1e-300)
    return length, jnp.where(state.passes == 0, 1.0, jnp.clip(fraction, _LEAST, 1.0))
