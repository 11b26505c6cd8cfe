"""The Lorenz system of 1963 with additive noise: three states, chaotic at the parameters of the paper.

dx = σ(y − x) dt + g dw1, dy = (x(ρ − z) − y) dt + g dw2, dz = (xy − βz) dt + g dw3.
"""

import math

import numpy as np

from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import positive
from sdefit.dynamics.sde import SDE
from sdefit.dynamics.systems.setup import SetUp, evenly

EQUATIONS = """
dx = sigma*(y - x)
dy = x*(rho - z) - y
dz = x*y - beta*z
"""


def lorenz63() -> SDE:
    """The model with θ = (sigma, rho, beta), all positive, and a scalar G = g I."""
    params = {name: positive() for name in ("sigma", "rho", "beta")}
    return equations(EQUATIONS, params, "scalar", name="lorenz63")


L63 = SetUp(
    name="l63",
    model=lorenz63(),
    params={"sigma": 10.0, "rho": 28.0, "beta": 8.0 / 3.0},
    G=math.sqrt(10.0) * np.eye(3),
    x0=np.array([-7.0, -7.0, -7.0]),
    times=evenly(5.0, 200),
    noise=1.0,
    note="as in the paper, noise 1",
)
