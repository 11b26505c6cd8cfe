"""What a method returns: an `Estimate` of arrays, and a `Status` that says how it went."""

import dataclasses
import enum

import equinox as eqx

from sdefit._types import Array, Float, Int, Scalar, Theta


@dataclasses.dataclass(frozen=True)
class Status:
    """How a fit went: `ok`, a short name, one sentence, and what to do about it."""

    name: str
    message: str
    remedy: str = ""

    @property
    def ok(self) -> bool:
        return self.name == "ok"

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" + (f" {self.remedy}" if self.remedy else "")


class Code(enum.IntEnum):
    """The numbers that stand for a `Status` inside compiled programs."""

    OK = 0
    NOT_CONVERGED = 1
    DRIFT_NOT_FINITE = 2
    UNIDENTIFIABLE = 3
    NOT_FINITE = 4
    DEAD_CRITIC = 5


STATUS = {
    Code.OK: Status("ok", "The fit converged."),
    Code.NOT_CONVERGED: Status(
        "not_converged",
        "The optimiser stopped before it converged.",
        "Give start values near the answer, narrow the bounds, or raise the method's iteration limit.",
    ),
    Code.DRIFT_NOT_FINITE: Status(
        "drift_not_finite",
        "The drift is not a finite number along the smoothed path.",
        "Check the formula for logarithms, roots or divisions that fail at the observed values, and the bounds.",
    ),
    Code.UNIDENTIFIABLE: Status(
        "unidentifiable",
        "The drift does not change with some parameter, or only with a combination of parameters.",
        "Fix one of them with sf.fixed(value), or remove it from the model.",
    ),
    Code.NOT_FINITE: Status(
        "not_finite",
        "The estimate is not a finite number.",
        "Rescale the data, give bounds and start values, or try another method.",
    ),
    Code.DEAD_CRITIC: Status(
        "dead_critic",
        "The critic died or exploded, and so did those that took its place.",
        "Use sf.MaRS(), which needs no critic, or try another key, a smaller critic_rate or a larger clip.",
    ),
}


class Estimate(eqx.Module):
    """The answer of a method, as arrays.

    θ is in the user's units (the drift is always evaluated there). Everything else is in standardised
    units until `sdefit.data` takes it back.
    """

    theta: Theta
    G: Float[Array, "state state"]
    noise: Float[Array, "state"]
    mean: Float[Array, "series times state"]
    std: Float[Array, "series times state"]
    objective: Scalar
    code: Int[Array, ""]
    # Numbers a method needs again after the fit (hyper-parameters), and what plots show of the way there.
    hyper: dict[str, Array]
    trace: dict[str, Array]
