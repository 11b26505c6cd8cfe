"""`Auto`, the default: penalised maximum likelihood by a Gaussian filter, started by gradient matching and reviewed."""

import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._jax import settings
from sdefit._types import Array, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.inference.likelihood import AGREE, FilterState, Likelihood, filter_state
from sdefit.inference.parameterisation import Parameterisation
from sdefit.inference.prior import Prior
from sdefit.inference.residuals import excess_kurtosis
from sdefit.methods._settings import check_choice, check_whole
from sdefit.methods.esgf import ESGF, NOISE
from sdefit.methods.interface import LikelihoodMethod, ParameterCovariance, Review, Stage
from sdefit.methods.mars import MaRS
from sdefit.result import Code, Estimate

_COARSE = 0.5  # change of the log-likelihood by halving the filter's steps that makes it untrustworthy
_HEAVY = 3.0  # excess kurtosis of the prediction errors that a Gaussian state distribution does not produce
_SIGMAS = 6.0  # and by how many standard errors it must differ from 0


class Auto(LikelihoodMethod):
    """Penalised maximum likelihood by a Gaussian filter, started by gradient matching.

    1. Start: θ at which the integral of the drift matches the increments of the data, over three different spans; the
       user's start values are one start more. Matching depends little on where it begins.
    2. Search: maximum likelihood by the Gaussian filter (`ESGF`) from all starts in one batch, with weak priors on G
       and σ, since the likelihood of a short series often has its maximum at a singular G, where θ is less accurate;
       and on θ, since along a direction that the data do not determine the search would diverge.
    3. Review: did the search converge, are the filter's steps short enough, do its prediction errors look Gaussian? If
       not, the answer is that of gradient matching (`MaRS`), which assumes none of this. If the drift is linear the
       state distribution is Gaussian: heavy tails then belong to the data, and the answer of step 2 stands.
       `Fit.notes` says in one sentence what was done and why.

    **Arguments**
    - `noise`: observation noise of "each" state its own, the "same" for all in the user's units, or "none".
    - `starts`: searches in one batch.

    >>> sf.fit(model, series, sf.Auto()).notes[-1]
    "...4 of 4 starts agree, ..."
    """

    noise: str = "each"
    starts: int = 4

    name: ClassVar[str] = "auto"
    title: ClassVar[str] = "Penalised maximum likelihood (Gaussian filter), started by gradient matching"
    objective_name: ClassVar[str] = "log_likelihood"
    State: ClassVar = FilterState
    knows_covariance: ClassVar[bool] = True
    reference: ClassVar[str] = f"Likelihood: {ESGF.reference} Gradient matching: {MaRS.reference}"

    def __post_init__(self) -> None:
        check_choice(self, noise=NOISE)
        check_whole(self, starts=1)

    def check(self, model: SDE, pool: Pool) -> None:
        """Refuse what the filter refuses."""
        self._finish().check(model, pool)

    def stages(self) -> tuple[Stage, ...]:
        return self._finish().stages()

    def smooth(self, model: SDE, pool: Pool, estimate: Estimate) -> tuple[Array, Array]:
        return self._finish().smooth(model, pool, estimate)

    def refit(self, model: SDE, pool: Pool, init: Estimate, key: Key) -> Estimate:
        return self._finish().refit(model, pool, init, key)

    def covariance(self, model: SDE, pool: Pool, estimate: Estimate) -> ParameterCovariance:
        return self._finish().covariance(model, pool, estimate)

    def search_values(self, estimate: Estimate) -> Any:
        return self._finish().search_values(estimate)

    def prior(self, parameterisation: Parameterisation, scales: Theta | None) -> Prior:
        return self._finish().prior(parameterisation, scales)

    def likelihood(self, model: SDE, pool: Pool, estimate: Estimate) -> Likelihood:
        return self._finish().likelihood(model, pool, estimate)

    def review(
        self, model: SDE, estimate: Estimate, residuals: np.ndarray, times: np.ndarray, path: np.ndarray
    ) -> Review:
        """Whether the maximum of the likelihood is reliable, in a sentence; MaRS in its place if not."""
        doubt, tails = _doubt(estimate), _tails(residuals)
        if tails and not doubt and _straight(model, estimate, times, path):
            return Review(f"Penalised maximum likelihood: {_agreement(estimate)}; but {tails}.")
        doubt = doubt or tails
        if not doubt:
            return Review(f"Penalised maximum likelihood: {_agreement(estimate)}.")
        if not model.free:
            return Review(f"Penalised maximum likelihood, which is not reliable here: {doubt}.")
        return Review(
            f"Gradient matching (MaRS), since penalised maximum likelihood is not reliable here: {doubt}.", MaRS()
        )

    def _finish(self) -> ESGF:
        return _finish(self.noise, self.starts)


@functools.cache
def _finish(noise: str, starts: int) -> ESGF:
    return ESGF(noise=noise, starts=starts, weak=True)


def _doubt(estimate: Estimate) -> str:
    """Why the maximum is not reliable; empty if it is."""
    step_error = float(filter_state(estimate).step_error)
    if int(estimate.code) != Code.OK or not math.isfinite(float(estimate.criterion)):
        return "its search did not converge"
    if not abs(step_error) <= _COARSE:
        return f"halving the filter's steps changes the log-likelihood by {step_error:.2g}"
    return ""


def _tails(residuals: np.ndarray) -> str:
    """What the prediction errors look like if their tails are too heavy for a Gaussian filter; empty otherwise."""
    excess = excess_kurtosis(residuals)
    heavy = excess > max(_HEAVY, _SIGMAS * math.sqrt(24 / max(residuals.size, 1)))
    return f"the prediction errors are far from Gaussian (excess kurtosis {excess:.2g})" if heavy else ""


def _straight(model: SDE, estimate: Estimate, times: np.ndarray, path: np.ndarray) -> bool:
    """Whether the slope of the drift is the same all along the path: a linear equation."""
    if model.inputs:
        return False  # their values are not at hand here
    subset = np.linspace(0, len(times) - 1, min(len(times), 20)).astype(int)
    with settings():
        theta = jnp.asarray(estimate.theta)
        slope = jax.vmap(lambda x: jax.jacfwd(lambda x: model.f(times[0], x, theta))(x))(jnp.asarray(path[subset]))
    return bool(np.all(np.ptp(slope, axis=0) <= 1e-9 * (1e-300 + np.max(np.abs(slope)))))


def _agreement(estimate: Estimate) -> str:
    values = np.asarray(filter_state(estimate).values)
    climbs = np.asarray(estimate.trace["log_likelihood"])
    agree = int(np.sum(values > values.max() - AGREE))
    return (
        f"{agree} of {values.size} starts agree, with a log-likelihood {climbs[-1] - climbs[0]:.1f} above the start's"
    )
