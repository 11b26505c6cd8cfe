"""Lotka-Volterra with additive noise: prey grow and are eaten, predators starve and eat.

dx1 = (θ0 x1 − θ1 x1 x2) dt + G dw, dx2 = (−θ2 x2 + θ3 x1 x2) dt + G dw, one matrix G for both.
"""

import dataclasses

import numpy as np

from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import positive
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.systems.setup import SetUp, evenly

EQUATIONS = """
dprey = a*prey - b*prey*predator
dpredator = -c*predator + d*prey*predator
"""


def lotka_volterra() -> SDE:
    """The model with θ = (a, b, c, d), all positive, and a full G."""
    params = {name: positive() for name in "abcd"}
    return equations(EQUATIONS, params, "full", name="lotka_volterra")


LV = SetUp(
    name="lv",
    model=lotka_volterra(),
    params={"a": 2.0, "b": 1.0, "c": 4.0, "d": 1.0},
    G=np.array([[0.2, 0.0], [0.1, 0.3]]),
    x0=np.array([5.0, 3.0]),
    times=evenly(2.0, 50),
    noise=0.1,
    note="as in the published code: on [0, 2] from (5, 3), noise 0.1",
)
LV_NOISELESS = dataclasses.replace(
    LV, name="lv_noiseless", noise=0.0, note="on [0, 2] from (5, 3) without noise, closest to the published table"
)
# With additive noise this one often leaves the positive quadrant and then blows up: about half of its paths do.
LV_TEXT = dataclasses.replace(
    LV,
    name="lv_text",
    x0=np.array([3.0, 5.0]),
    times=evenly(20.0, 50),
    noise=0.0,
    note="as in the paper's text: on [0, 20] from (3, 5) without noise; about half of the paths blow up",
)
