"""What every method is: frozen settings with one verb, `estimate`, that is pure and vmappable."""

import abc
from typing import ClassVar

import equinox as eqx

from sdefit._types import Array, Float, Key, Theta
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.result import Estimate


class Method(eqx.Module):
    """The settings of one way to fit.

    Subclasses are final. `estimate` and `smooth` are pure functions of arrays: they are traced once
    per (model, settings, shape) and vmapped over many series.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]

    def check(self, model: SDE, pool: Pool) -> None:
        """Refuse, by name and before any compute, data or models this method cannot take."""

    @abc.abstractmethod
    def estimate(self, model: SDE, pool: Pool, start: Theta, key: Key) -> Estimate:
        """θ, G, σ and the smoothed path; `start` is NaN where the user gave no start value."""

    @abc.abstractmethod
    def smooth(
        self, model: SDE, pool: Pool, estimate: Estimate
    ) -> tuple[Float[Array, "series times state"], Float[Array, "series times state"]]:
        """Mean and standard deviation of x at every time of `pool`, observed there or not."""
