"""What every method is: frozen settings with one verb, `estimate`, that is pure and vmappable."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np

from sdefit._types import Array, Float, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.result import Estimate

if TYPE_CHECKING:
    from sdefit.inference.likelihood import Likelihood
    from sdefit.inference.parameterisation import Parameterisation
    from sdefit.inference.prior import Prior


Stage = Callable[[SDE, Pool, Theta, Key, Any], Any]


class ParameterCovariance(eqx.Module):
    """The covariance of the estimates: of θ in the user's units, of the entries of G Gᵀ and σ² in standardised ones.

    Its rows are θ, then all of G Gᵀ row by row, then σ². NaN where a method knows nothing.
    """

    covariance: Float[Array, "quantities quantities"]


class Review(NamedTuple):
    """A sentence on a finished fit, and the method whose answer should stand in its place, if any."""

    sentence: str = ""
    instead: "Method | None" = None


class Method(eqx.Module):
    """The settings of one way to fit.

    Subclasses are final. Stages and `smooth` are pure functions of arrays: they are traced once per (model, settings,
    shape) and vmapped over many series. A single fit compiles its stages side by side: one is traced while the one
    before it compiles.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    objective_name: ClassVar[str]  # what `Estimate.criterion` is: log_likelihood, log_evidence, bound or loss
    State: ClassVar[type[eqx.Module]]  # of `Estimate.state`: fields of arrays, or None where there is none
    knows_covariance: ClassVar[bool] = False  # whether there is a `covariance`

    def check(self, model: SDE, pool: Pool) -> None:
        """Refuse, by name and before any compute, data or models this method cannot take."""

    @abc.abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """The functions of (model, pool, start, key, found) that are one program each.

        `start` is NaN where the user gave no start value; `found` is what the stage before returned, a pytree of
        arrays, and None for the first. The last one returns the `Estimate`.
        """

    @abc.abstractmethod
    def smooth(
        self, model: SDE, pool: Pool, estimate: Estimate
    ) -> tuple[Float[Array, "series times state"], Float[Array, "series times state"]]:
        """Mean and standard deviation of x at every time of `pool`, observed there or not."""

    def estimate(self, model: SDE, pool: Pool, start: Theta, key: Key) -> Estimate:
        """θ, G, σ and the smoothed path: all stages, one after the other."""
        found: Any = None
        for stage in self.stages():
            found = stage(model, pool, start, key, found)
        return found

    def refit(self, model: SDE, pool: Pool, init: Estimate, key: Key) -> Estimate:
        """The estimate from data much like those `init` came from; its G, σ and path are in the units of `pool`.

        A method that can begin its search at `init` does so here, without looking for other starts.
        """
        return self.estimate(model, pool, init.theta, key)

    def covariance(self, model: SDE, pool: Pool, estimate: Estimate) -> ParameterCovariance | None:
        """How far the data leave each quantity open; None unless `knows_covariance`."""
        return None

    def search_values(self, estimate: Estimate) -> Any:
        """The log-likelihood, or its like, at which each of several searches ended; None without several."""
        return None

    def review(
        self, model: SDE, estimate: Estimate, residuals: np.ndarray, times: np.ndarray, path: np.ndarray
    ) -> Review:
        """What a look at the finished estimate (numbers, not traced arrays) says of it; nothing as a rule.

        `residuals` are the standardised one-step residuals that there are, of all states and series. `times` (N,) and
        `path` (N, K) are those of the first series, in the user's units.
        """
        return Review()


class LikelihoodMethod(Method):
    """A method whose estimate maximises a likelihood, with or without priors: its posterior can be drawn from."""

    @abc.abstractmethod
    def likelihood(self, model: SDE, pool: Pool, estimate: Estimate) -> "Likelihood":
        """That likelihood as a function of coordinates."""

    @abc.abstractmethod
    def prior(self, parameterisation: "Parameterisation", scales: Theta | None) -> "Prior":
        """The prior of the estimate, given the scales of θ's weak prior if there is one."""


class NoState(eqx.Module):
    """The state of a method that needs nothing again after the fit."""
