"""Gaussian-process atoms: kernels, the latent model y = z + o + e, its evidence and its draws.

`solver_for` picks the way to do the algebra; `fit_evidence` finds φ, σ and G.
"""

from sdefit.gp.dense import Dense as Dense
from sdefit.gp.evidence import Evidence as Evidence
from sdefit.gp.evidence import fit_evidence as fit_evidence
from sdefit.gp.kernels import KERNELS as KERNELS
from sdefit.gp.kernels import get_kernel as get_kernel
from sdefit.gp.latent import AncestralSampler as AncestralSampler
from sdefit.gp.latent import Conditional as Conditional
from sdefit.gp.latent import Draws as Draws
from sdefit.gp.latent import LatentParams as LatentParams
from sdefit.gp.latent import Posterior as Posterior
from sdefit.gp.latent import Solver as Solver
from sdefit.gp.statespace import ORDER, StateSpace


def solver_for(kernel: str, jitter: float = 1e-6) -> Solver:
    """The cheapest solver that takes this kernel: O(N) state space where there is one, else dense."""
    return StateSpace(jitter, kernel=kernel) if kernel in ORDER else Dense(jitter, kernel=get_kernel(kernel))
