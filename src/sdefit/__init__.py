"""Fit stochastic differential equations to noisy, irregular observations.

    import sdefit as sf
    model = sf.equations("dx = rate*(level - x)")
    series = sf.read_csv("obs.csv", time="t", states=["x"])
    fit = sf.fit(model, series)

Names are imported when they are first used, so that `import sdefit` and `sdefit --help` cost nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sdefit.data import Series as Series
    from sdefit.data import from_frame as from_frame
    from sdefit.data import read_csv as read_csv
    from sdefit.data import write_csv as write_csv
    from sdefit.diagnosis import Diagnosis as Diagnosis
    from sdefit.dynamics import systems as systems
    from sdefit.dynamics.equations import equations as equations
    from sdefit.dynamics.model_file import read_model as read_model
    from sdefit.dynamics.model_file import write_model as write_model
    from sdefit.dynamics.parameters import Parameter as Parameter
    from sdefit.dynamics.parameters import fixed as fixed
    from sdefit.dynamics.parameters import interval as interval
    from sdefit.dynamics.parameters import positive as positive
    from sdefit.dynamics.parameters import real as real
    from sdefit.dynamics.sde import SDE as SDE
    from sdefit.dynamics.simulate import simulate as simulate
    from sdefit.errors import DataError as DataError
    from sdefit.errors import EquationError as EquationError
    from sdefit.errors import FileError as FileError
    from sdefit.errors import FitError as FitError
    from sdefit.errors import InputError as InputError
    from sdefit.errors import ModelError as ModelError
    from sdefit.errors import SdefitError as SdefitError
    from sdefit.errors import SimulationError as SimulationError
    from sdefit.fitting import Fit as Fit
    from sdefit.fitting import States as States
    from sdefit.fitting import fit as fit
    from sdefit.fitting import fit_each as fit_each
    from sdefit.fitting import load as load
    from sdefit.methods.ares import AReS as AReS
    from sdefit.methods.auto import Auto as Auto
    from sdefit.methods.esgf import ESGF as ESGF
    from sdefit.methods.mars import MaRS as MaRS
    from sdefit.methods.moments import Moments as Moments
    from sdefit.methods.npsde import NPSDE as NPSDE
    from sdefit.methods.vgpa import VGPA as VGPA
    from sdefit.result import Status as Status
    from sdefit.uncertainty import Forecast as Forecast
    from sdefit.uncertainty import Intervals as Intervals
    from sdefit.uncertainty import Profile as Profile

_HOMES = {
    "sdefit.data": ("Series", "from_frame", "read_csv", "write_csv"),
    "sdefit.diagnosis": ("Diagnosis",),
    "sdefit.dynamics.equations": ("equations",),
    "sdefit.dynamics.model_file": ("read_model", "write_model"),
    "sdefit.dynamics.parameters": ("Parameter", "fixed", "interval", "positive", "real"),
    "sdefit.dynamics.sde": ("SDE",),
    "sdefit.dynamics.simulate": ("simulate",),
    "sdefit.errors": (
        "DataError",
        "EquationError",
        "FileError",
        "FitError",
        "InputError",
        "ModelError",
        "SdefitError",
        "SimulationError",
    ),
    "sdefit.fitting": ("Fit", "States", "fit", "fit_each", "load"),
    "sdefit.methods.ares": ("AReS",),
    "sdefit.methods.auto": ("Auto",),
    "sdefit.methods.esgf": ("ESGF",),
    "sdefit.methods.mars": ("MaRS",),
    "sdefit.methods.moments": ("Moments",),
    "sdefit.methods.npsde": ("NPSDE",),
    "sdefit.methods.vgpa": ("VGPA",),
    "sdefit.result": ("Status",),
    "sdefit.uncertainty": ("Forecast", "Intervals", "Profile"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ESGF",
    "NPSDE",
    "SDE",
    "VGPA",
    "AReS",
    "Auto",
    "DataError",
    "Diagnosis",
    "EquationError",
    "FileError",
    "Fit",
    "FitError",
    "Forecast",
    "InputError",
    "Intervals",
    "MaRS",
    "ModelError",
    "Moments",
    "Parameter",
    "Profile",
    "SdefitError",
    "Series",
    "SimulationError",
    "States",
    "Status",
    "equations",
    "fit",
    "fit_each",
    "fixed",
    "from_frame",
    "interval",
    "load",
    "positive",
    "read_csv",
    "read_model",
    "real",
    "simulate",
    "systems",
    "write_csv",
    "write_model",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("sdefit")
    if name == "systems":
        return importlib.import_module("sdefit.dynamics.systems")
    if name not in _HOME:
        raise AttributeError(f"module 'sdefit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
