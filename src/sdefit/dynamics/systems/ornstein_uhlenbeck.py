"""The Ornstein-Uhlenbeck process dx = θ0 (θ1 − x) dt + G dw: pulled to a level at a constant rate."""

import numpy as np

from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import positive, real
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.systems.setup import SetUp, evenly


def ornstein_uhlenbeck() -> SDE:
    """The model with θ = (rate, level) and a full G."""
    params = {"rate": positive(), "level": real()}
    return equations("dx = rate*(level - x)", params, "full", name="ornstein_uhlenbeck")


OU = SetUp(
    name="ou",
    model=ornstein_uhlenbeck(),
    params={"rate": 0.5, "level": 1.0},
    G=np.array([[0.5]]),
    x0=np.array([10.0]),
    times=evenly(20.0, 50),
    noise=0.0,
    note="as in the paper, observed without noise",
)
