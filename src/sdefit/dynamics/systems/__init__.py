"""The four systems of the paper, one file each, with the set-ups they were studied in.

`systems.lotka_volterra()` is a model. `systems.get("lv")` is a set-up: the model with its true parameters,
start, times and noise, ready to simulate.

>>> sf.systems.get("lv").simulate(key=1)
Series(prey, predator; 51 times from 0 to 2; no value missing; true path known)
"""

from sdefit.dynamics.systems.double_well import DW, DW_CODE
from sdefit.dynamics.systems.double_well import double_well as double_well
from sdefit.dynamics.systems.lorenz63 import L63
from sdefit.dynamics.systems.lorenz63 import lorenz63 as lorenz63
from sdefit.dynamics.systems.lotka_volterra import LV, LV_NOISELESS, LV_TEXT
from sdefit.dynamics.systems.lotka_volterra import lotka_volterra as lotka_volterra
from sdefit.dynamics.systems.ornstein_uhlenbeck import OU
from sdefit.dynamics.systems.ornstein_uhlenbeck import ornstein_uhlenbeck as ornstein_uhlenbeck
from sdefit.dynamics.systems.setup import SetUp as SetUp
from sdefit.errors import ModelError

__all__ = ["SetUp", "double_well", "get", "lorenz63", "lotka_volterra", "ornstein_uhlenbeck", "setups"]

# A full name stands for the main set-up of its system.
_MAIN = (OU, DW, LV, L63)
_VARIANTS = (DW_CODE, LV_NOISELESS, LV_TEXT)


def setups() -> dict[str, SetUp]:
    """Every set-up by its short name, the main one of each system first."""
    return {setup.name: setup for setup in _MAIN + _VARIANTS}


def get(name: str) -> SetUp:
    """The set-up of that short name, or the main one of the system of that full name."""
    known = setups() | {setup.model.name: setup for setup in _MAIN}
    if name not in known:
        raise ModelError(f"a built-in system must be one of {', '.join(known)}, not {name!r}")
    return known[name]
