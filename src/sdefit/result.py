"""What a method returns: an `Estimate` of arrays, and a `Status` that says how it went."""

import dataclasses
import enum
from collections.abc import Iterable

import equinox as eqx

from sdefit._types import Array, Float, Int, Scalar, Theta


@dataclasses.dataclass(frozen=True)
class Status:
    """How a fit went, or one check of it: a short name, one sentence, and what to do about it.

    `severity` is "ok", "warning" or "failure". `ok` is False for a failure alone: the numbers should not be trusted as
    they stand. After a warning they are the optimum that was asked for, and the message says what to mind.

    >>> print(fit.status)
    ok: The fit converged, and no check objects.
    """

    name: str
    message: str
    remedy: str = ""
    severity: str = "failure"

    @property
    def ok(self) -> bool:
        return self.severity != "failure"

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
    Code.OK: Status("ok", "The fit converged, and no check objects.", severity="ok"),
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
        "The critic failed (no slope, or a very steep one), and so did its replacements.",
        "Use sf.MaRS(), which needs no critic, or try another key, a smaller critic_rate or a larger clip.",
    ),
}

TOO_FEW = Status(
    "too_few_observations",
    "There are {count} observations after the first of each series, for {params} parameters and the noises.",
    "Nothing can be estimated from these: add observations or series, or fix parameters with sf.fixed(value).",
)
STARTS_DISAGREE = Status(
    "starts_disagree",
    "Only one of {count} searches reached the best fit.",
    "A better one may exist: give start values, or raise the method's starts.",
    "warning",
)
NOT_IDENTIFIED = Status(
    "not_identified",
    "The data do not identify {names}.",
    "Observe for longer, add series, or fix what is known with sf.fixed(value).",
    "warning",
)
AT_BOUND = Status(
    "at_bound",
    "The estimate of {names} is at a bound.",
    "Widen the bound if it is not known to hold; at 0, consider a model without that term.",
    "warning",
)
LONG_GAPS = Status(
    "long_gaps",
    "Gaps between observations are long for this drift: it turns within one gap.",
    "Sample more often, and trust intervals less.",
    "warning",
)
RESIDUALS = Status(
    "residuals_rejected",
    "One-step residuals are not those of the model ({names}).",
    "See fit.diagnose(): its hints say what the model may lack. Intervals are valid only if the model is.",
    "warning",
)
# Worst first: the status of a fit is the first of these that it has.
SEVERITY = (
    *(STATUS[code].name for code in (Code.DRIFT_NOT_FINITE, Code.NOT_FINITE, Code.DEAD_CRITIC)),
    TOO_FEW.name,
    *(STATUS[code].name for code in (Code.UNIDENTIFIABLE, Code.NOT_CONVERGED)),
    *(one.name for one in (STARTS_DISAGREE, NOT_IDENTIFIED, AT_BOUND, RESIDUALS, LONG_GAPS)),
    STATUS[Code.OK].name,
)


def worst_first(checks: Iterable[Status]) -> tuple[Status, ...]:
    """Checks in the order of their severity."""
    return tuple(sorted(checks, key=lambda one: SEVERITY.index(one.name)))


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
    criterion: Scalar
    code: Int[Array, ""]
    state: eqx.Module  # what the method needs again after the fit: its `State`
    trace: dict[str, Array]  # what plots show of the way there
