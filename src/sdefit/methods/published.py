"""The set-ups of the paper, system by system: what `MaRS.paper` and `AReS.paper` take.

The text of the paper (section 4.1, Algorithms 2 and 3) fixes the kernels, a critic of 256 and 128 nodes, batches of
256, Adam, a Gaussian process for each state and γ = 1. It leaves open learning rates, steps and the size at which
weights are clipped; these are those of the examples in the published code, github.com/gabb7/AReS-MaRS. That differs
from the text in the critic, the batch, AReS's optimiser and the Gaussian process of Lorenz 63. A test holds this
table against the facts of those examples, `published_setups.csv`.
"""

import dataclasses
from typing import Any

from sdefit.dynamics import systems
from sdefit.errors import ModelError

CLIP = 0.01  # of the critic's numbers
BATCH, CODE_BATCH = 256, 128
THETA_RANGE = (0.001, 100.0)  # of the published code, which steps θ itself from |N(0, 1)|


@dataclasses.dataclass(frozen=True)
class Published:
    """The set-up of one system; `shared_gp` and `code_critic` are the code's own."""

    kernel: str
    mars_rate: float
    mars_steps: int
    ares_rate: float
    ares_steps: int
    critic_steps: int
    code_critic: tuple[int, int]
    shared_gp: bool = False

    def latent(self, code: bool) -> dict[str, Any]:
        """The settings that MaRS and AReS share."""
        return {
            "kernel": self.kernel, "refinements": 0, "ou_rate": 1.0, "evidence_starts": 3,
            "shared_gp": code and self.shared_gp, "theta_range": THETA_RANGE,
        }  # fmt: skip


PUBLISHED = {
    "ornstein_uhlenbeck": Published("sigmoid", 0.01, 2000, 0.001, 10000, 10, (64, 64)),
    "double_well": Published("sigmoid", 0.01, 2000, 0.001, 10000, 10, (64, 64)),
    "lotka_volterra": Published("rbf", 0.01, 1000, 0.01, 5000, 8, (128, 128)),
    "lorenz63": Published("rbf", 0.1, 2000, 0.01, 10000, 8, (128, 128), True),
}


def published(system: str) -> Published:
    """The set-up of a system, by its full name or that of one of its set-ups."""
    try:
        return PUBLISHED[systems.get(system).model.name]
    except ModelError:
        known = ", ".join(systems.setups())
        raise ModelError(f"the paper's recipe is for one of {known}, not {system!r}") from None
