"""The Ginzburg-Landau double well dx = θ0 x (θ1 − x²) dt + G dw: two wells at ±√θ1 with jumps between them."""

import dataclasses

import numpy as np

from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import real
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.systems.setup import SetUp, evenly


def double_well() -> SDE:
    """The model with θ = (a, b) and a full G; both are real, as data from one well may ask for b < 0."""
    return equations("dx = a*x*(b - x**2)", {"a": real(), "b": real()}, "full", name="double_well")


DW = SetUp(
    name="dw",
    model=double_well(),
    params={"a": 0.1, "b": 4.0},
    G=np.array([[0.5]]),
    x0=np.array([0.0]),
    times=evenly(20.0, 50),
    noise=0.2,
    note="as in the paper, noise 0.2",
)
DW_CODE = dataclasses.replace(DW, name="dw_code", noise=0.1, note="as in the published code, noise 0.1")
