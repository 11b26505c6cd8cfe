"""`SetUp`: a system with all that is needed to simulate it as in a published experiment."""

import dataclasses
from collections.abc import Mapping
from typing import overload

import jax
import numpy as np

from sdefit.data import Series
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.simulate import simulate


@dataclasses.dataclass(frozen=True, eq=False)
class SetUp:
    """A model with its true parameters, start, observation times and noise, under a short name.

    `params` are in the order of the paper's θ; `note` says where the variant comes from, for reports.
    """

    name: str
    model: SDE
    params: Mapping[str, float]
    G: np.ndarray
    x0: np.ndarray
    times: np.ndarray
    noise: float
    note: str

    def __post_init__(self) -> None:
        for field in ("G", "x0", "times"):
            array = np.array(getattr(self, field), dtype=float)
            array.flags.writeable = False
            object.__setattr__(self, field, array)

    @overload
    def simulate(
        self, *, key: int | jax.Array = ..., paths: None = ..., step: float | None = ..., scheme: str = ...
    ) -> Series: ...

    @overload
    def simulate(
        self, *, key: int | jax.Array = ..., paths: int, step: float | None = ..., scheme: str = ...
    ) -> list[Series]: ...

    def simulate(
        self, *, key: int | jax.Array = 0, paths: int | None = None, step: float | None = None, scheme: str = "euler"
    ) -> Series | list[Series]:
        """Observations of one path, or of `paths` independent ones, as `sdefit.dynamics.simulate` gives them."""
        return simulate(
            self.model, self.params, self.x0, self.times, noise=self.noise, G=self.G,
            key=key, step=step, paths=paths, scheme=scheme,
        )  # fmt: skip


def evenly(end: float, gaps: int) -> np.ndarray:
    """The times 0, ..., end with that many equal gaps between them."""
    return np.linspace(0.0, end, gaps + 1)
