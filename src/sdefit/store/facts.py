"""What the facts of a stored plan, fit or problem are: their types, and `check`, which holds a value against one."""

import types
from typing import Any, Literal, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

Scalar = str | float | bool | None
Flat = Scalar | list[Scalar | list[Scalar]]  # settings and provenance: no deeper than a matrix


class PlanFacts(TypedDict):
    """`plan.json`."""

    kind: str
    format: int
    systems: list[str]
    methods: list[str]
    realizations: int
    seed: int
    data: str
    block: int
    settings: dict[str, dict[str, str]]
    sources: dict[str, str]
    about: dict[str, dict[str, str]]
    cells: list[str]
    counts: NotRequired[dict[str, dict[str, int]]]


class ComparisonFacts(TypedDict):
    """`comparison.json`."""

    methods: dict[str, str]
    refused: dict[str, str]


class Range(TypedDict):
    """What a parameter was allowed to be."""

    lower: float | None
    upper: float | None
    start: float | None
    value: float | None


class SeriesFacts(TypedDict):
    """What a series is besides its numbers."""

    name: str | None
    time_unit: str | None
    origin: str | None
    notes: list[str]
    path: bool
    inputs: list[str]


class MethodFacts(TypedDict):
    """A method and its settings."""

    name: str
    title: str
    settings: dict[str, Flat]


class StatusFacts(TypedDict):
    """How a fit went."""

    name: str
    message: str
    remedy: str
    severity: Literal["ok", "warning", "failure"]


class SummaryRow(TypedDict):
    """A row of `Fit.table`."""

    quantity: str
    estimate: float
    lower: float
    upper: float


class Truth(TypedDict, total=False):
    """The true values of simulated data."""

    params: dict[str, float]
    G: list[list[float]]
    GGt: list[list[float]]
    H: list[list[float]]
    noise: float | list[float]


class IntervalFacts(TypedDict):
    """`Intervals`."""

    names: list[str]
    estimate: list[float]
    lower: list[float]
    upper: list[float]
    std: list[float]
    identifiability: list[str]
    sentences: list[str]
    notes: list[str]
    kind: str
    level: float
    draws: int
    failed: int
    seconds: float
    compile_seconds: float
    std_seconds: float


class ProfileFacts(TypedDict):
    """`Profile`."""

    name: str
    values: list[float]
    log_likelihood: list[float]
    estimate: float
    level: float
    lower: float
    upper: float
    seconds: float


class CheckFacts(TypedDict):
    """`Check`."""

    name: str
    state: str
    value: float
    p: float
    adjusted: float
    ok: bool
    hint: str


class DiagnosisFacts(TypedDict):
    """`Diagnosis`."""

    checks: list[CheckFacts]
    hints: list[str]
    residuals: list[list[list[float]]]
    quantiles: dict[str, list[list[float]]]
    autocorrelation: dict[str, list[float]]
    drift: dict[str, dict[str, list[float]]]


class FitFacts(TypedDict):
    """The facts of a fit."""

    kind: Literal["fit"]
    name: str
    model: dict[str, Any]
    equations: str
    latex: str
    states: list[str]
    params: list[str]
    parameters: dict[str, Range]
    diffusion: Literal["full", "diagonal", "scalar", "none"]
    time_unit: str | None
    series: list[SeriesFacts]
    method: MethodFacts
    key_kind: str
    status: StatusFacts
    checks: list[StatusFacts]
    seconds: float
    compile_seconds: float
    summary: list[SummaryRow]
    notes: list[str]
    assumed: list[str]
    truth: Truth | None
    provenance: dict[str, Flat]
    intervals: NotRequired[IntervalFacts]
    profiles: NotRequired[dict[str, ProfileFacts]]
    diagnosis: NotRequired[DiagnosisFacts]


class Published(TypedDict):
    """A number of the paper."""

    method: str
    quantity: str
    median: float
    std: float
    note: str


class PublishedSeconds(TypedDict):
    """A training time of the paper."""

    method: str
    mean: float
    std: float


class Limit(TypedDict):
    """The RMSE of maximum likelihood."""

    rmse: float
    count: int
    source: str


class ProblemFacts(TypedDict):
    """The facts of a problem."""

    kind: Literal["problem"]
    name: str
    system: str
    title: str
    table: str
    note: str
    equations: str
    latex: str
    states: list[str]
    params: list[str]
    matrix: list[str]
    truth: dict[str, float]
    noise: float
    x0: list[float]
    told: dict[str, Flat]
    data: str
    published: list[Published]
    published_seconds: list[PublishedSeconds]
    limits: dict[str, Limit]


def check(value: Any, kind: Any, place: str) -> None:
    """Raise `ValueError`, in words, unless a value read from JSON is of a type; a table may hold more than is asked."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        need(isinstance(value, dict), f"{place} must be a table")
        for name, one in get_type_hints(kind).items():
            need(name in value or name in kind.__optional_keys__, f"{place}: {name} is missing")
            if name in value:
                check(value[name], one, f"{place}: {name}")
    elif origin in (Union, types.UnionType):
        need(any(_is(value, one) for one in inner), f"{place} must be {_said(kind)}, not {str(value)[:40]!r}")
    elif origin in (list, dict):
        need(isinstance(value, origin), f"{place} must be a {'list' if origin is list else 'table'}")
        for name, one in enumerate(value, start=1) if origin is list else value.items():
            check(one, inner[-1], f"{place}: {name}")
    else:
        fits = value in inner if origin is Literal else _is_scalar(value, kind)
        need(fits, f"{place} must be {_said(kind)}, not {str(value)[:40]!r}")


def need(holds: Any, words: str) -> None:
    """Raise `ValueError` with these words unless it holds."""
    if not holds:
        raise ValueError(words)


def _is(value: Any, kind: Any) -> bool:
    try:
        check(value, kind, "")
    except ValueError:
        return False
    return True


def _is_scalar(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**1023  # what no float can hold is no number here
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def _said(kind: Any) -> str:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "nothing"}
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return words.get(kind) or " or ".join(_said(one) for one in get_args(kind)) or "a table"
