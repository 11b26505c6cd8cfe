"""The set-ups of the paper, system by system: what `MaRS.paper` and `AReS.paper` take.

The text of the paper (section 4.1, Algorithms 2 and 3) fixes the kernels, a critic of 256 and 128 nodes, batches of
256, Adam, MMD², a Gaussian process for each state and γ = 1. Start values are |N(0, 1)| as in the published code,
github.com/gabb7/AReS-MaRS. Learning rates, steps and the size at which weights are clipped are open, and those of the
examples of that code, but for two things. A positive θ is stepped in log θ, where the 0.1 of Lorenz 63 would be a
tenth of θ a step: MaRS has 0.01 there too. And of ten fits each, four on the double well and one on Lotka-Volterra
still moved after the published steps of MaRS, which has three times and twice as many.

The code differs from the text: it steps θ itself and keeps it in a range, MaRS descends MMD, AReS has a smaller
critic, RMSProp and samples in normalised time, batches are of 128, and all states of Lorenz 63 share one set of
hyper-parameters. Normalised time changes nothing else: γ is 1 per unit of the user's time there too, the evidence has
its maximum at the same process, and a common unit of ż leaves MMD² as it is. A test holds this table against the facts
of the examples, `published_setups.csv`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from sdefit.dynamics import systems
from sdefit.errors import ModelError

CLIP = 0.01  # of the critic's numbers
BATCH, CODE_BATCH = 256, 128
MOST = 100.0  # of θ in the published code, which steps θ itself


class Descent(NamedTuple):
    """A learning rate and a number of steps."""

    rate: float
    steps: int


@dataclasses.dataclass(frozen=True)
class Published:
    """The set-up of one system; what begins with `code_`, and `shared_gp`, are the code's own.

    `code_least` is the least value of any parameter there, `MOST` the most. `cpu_seconds` are ours, of one fit by MaRS
    and by AReS on one core.
    """

    kernel: str
    mars: Descent
    code_mars: Descent
    ares: Descent
    critic_steps: int
    code_critic: tuple[int, int]
    code_least: float
    cpu_seconds: Mapping[str, int]
    shared_gp: bool = False

    def latent(self, code: bool) -> dict[str, Any]:
        """The settings that MaRS and AReS share."""
        return {
            "kernel": self.kernel, "refinements": 0, "ou_rate": 1.0, "evidence_starts": 3,
            "shared_gp": code and self.shared_gp, "theta_range": (self.code_least, MOST) if code else None,
        }  # fmt: skip


PUBLISHED = {
    "ornstein_uhlenbeck": Published(
        kernel="sigmoid",
        mars=Descent(0.01, 2000),
        code_mars=Descent(0.01, 2000),
        ares=Descent(0.001, 10000),
        critic_steps=10,
        code_critic=(64, 64),
        code_least=0.001,
        cpu_seconds={"mars": 2, "ares": 140},
    ),
    "double_well": Published(
        kernel="sigmoid",
        mars=Descent(0.01, 6000),
        code_mars=Descent(0.01, 2000),
        ares=Descent(0.001, 10000),
        critic_steps=10,
        code_critic=(64, 64),
        code_least=0.001,
        cpu_seconds={"mars": 5, "ares": 140},
    ),
    "lotka_volterra": Published(
        kernel="rbf",
        mars=Descent(0.01, 2000),
        code_mars=Descent(0.01, 1000),
        ares=Descent(0.01, 5000),
        critic_steps=8,
        code_critic=(128, 128),
        code_least=0.0,
        cpu_seconds={"mars": 3, "ares": 65},
    ),
    "lorenz63": Published(
        kernel="rbf",
        mars=Descent(0.01, 2000),
        code_mars=Descent(0.1, 2000),
        ares=Descent(0.01, 10000),
        critic_steps=8,
        code_critic=(128, 128),
        code_least=0.0,
        cpu_seconds={"mars": 25, "ares": 640},
        shared_gp=True,
    ),
}


def published(system: str) -> Published:
    """The set-up of a system, by its full name or that of one of its set-ups."""
    try:
        return PUBLISHED[systems.get(system).model.name]
    except ModelError:
        known = ", ".join(systems.setups())
        raise ModelError(f"the paper's recipe is for one of {known}, not {system!r}") from None
