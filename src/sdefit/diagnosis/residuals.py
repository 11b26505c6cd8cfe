"""One-step residuals of a finished fit."""

import equinox as eqx

from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.inference.residuals import Residuals, residuals_of
from sdefit.methods.interface import Method
from sdefit.programs import PROGRAMS
from sdefit.result import Estimate


def residuals(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> Residuals:
    """The residuals at a fit's θ, G and σ."""
    bare = eqx.tree_at(lambda e: (e.state, e.trace), estimate, (None, {}))  # what they do not depend on
    return PROGRAMS.run(_residuals, model, method, pool, bare).value


def _residuals(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> Residuals:
    del method
    return residuals_of(model, pool, estimate)
