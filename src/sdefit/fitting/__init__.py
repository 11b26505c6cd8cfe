"""The public face: `fit`, `fit_each` and `load`, and the `Fit` they return."""

from sdefit.fitting.outcome import Fit as Fit
from sdefit.fitting.run import fit as fit
from sdefit.fitting.run import fit_each as fit_each
from sdefit.fitting.run import load as load
from sdefit.fitting.states import States as States
