"""Whether the data identify each quantity, weakly identify it or do not, and a sentence for each that they do not.

A quantity is identified when its interval is narrow beside its own size. The size of a parameter is its value, or what
it must change by to change the drift by as much as the drift is, if that is more (a level of zero has a size too). The
size of a variance is itself. Beside a parameter of the same state's drift that is not identified, one is weakly
identified at best, as is everything with two degrees of freedom or fewer; with none, nothing is identified. A noise
is judged with the other one of its state, or must be known twice as well alone.
"""

import dataclasses
from statistics import NormalDist

import numpy as np

from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.inference.drift_facts import drift_facts
from sdefit.methods.interface import Method
from sdefit.programs import PROGRAMS
from sdefit.result import Estimate
from sdefit.uncertainty.quantities import Quantities

WORDS = ("identified", "weakly identified", "not identified")
# Standard errors as shares of a size, above which a quantity is weakly identified, and not identified.
_WEAK, _NOT = 0.35, 0.8
_ALONE = _WEAK / 2  # the same as _WEAK for a noise whose state's other noise has a share above that
_CONFUSED = -0.5  # correlation of two variances below which the data see their sum rather than each
_TOGETHER = 0.98  # correlation of two parameters above which the data see a combination of them


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What a verdict is made from.

    Estimates with their intervals, the sizes of θ, whether the drift moves with each parameter apart from the others,
    which parameters stand in the drift of one state, the degrees of freedom, and a covariance where there is one.
    """

    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    level: float
    sizes: np.ndarray
    separable: np.ndarray
    together: np.ndarray
    freedom: float
    covariance: np.ndarray | None

    @property
    def std(self) -> np.ndarray:
        """Standard errors that the intervals are as wide as."""
        return (self.upper - self.lower) / (2 * NormalDist().inv_cdf(0.5 + self.level / 2))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One word for each quantity, and the sentences a scientist needs."""

    words: tuple[str, ...]
    sentences: tuple[str, ...]


def judge(quantities: Quantities, evidence: Evidence) -> Verdict:
    """Which quantities the data identify, and in sentences which they do not."""
    grades = _grades(quantities, evidence)
    words = tuple("unknown" if np.isnan(g) else WORDS[int(g)] for g in grades)
    named = dict(zip(quantities.names, words, strict=True))
    sentences = [
        *(["The data have too few observations to identify anything."] if evidence.freedom < 1 else []),
        *_noise_sentences(quantities, named, evidence),
        *_parameter_sentences(quantities.model, named, evidence),
    ]
    return Verdict(words, tuple(sentences))


def _grades(quantities: Quantities, evidence: Evidence) -> np.ndarray:
    """0 identified, 1 weakly identified, 2 not identified; NaN without an interval."""
    P, n = len(quantities.model.free), len(quantities.entries)
    size = np.abs(evidence.values)
    size[:P] = np.maximum(size[:P], evidence.sizes)
    # An entry beside the diagonal is as large as it could be.
    variance = dict(zip(quantities.entries, evidence.values[P + n : P + 2 * n], strict=True))
    for at, (i, j) in enumerate(quantities.entries):
        if i != j:
            size[P + n + at] = np.sqrt(variance[i, i] * variance[j, j])
            size[P + at] = np.sqrt(variance[i, i])
    # Shares are those of variances: a standard deviation's is half of its variance's.
    single = np.array(
        [False] * P + [i == j for i, j in quantities.entries] + [False] * n + [True] * len(quantities.model.states)
    )
    fraction = evidence.std / np.where(size > 0, size, 1.0) * np.where(single, 2.0, 1.0)
    fraction = np.where((size > 0) | (fraction == 0), fraction, np.inf)
    grades = np.where(fraction > _NOT, 2.0, np.where(fraction > _limits(quantities, fraction), 1.0, 0.0))
    # What may as well be zero is weakly identified at best; what can be nothing else was given, not estimated.
    doubtful = quantities.scales & (evidence.lower <= 0.0) & (evidence.upper > 0.0)
    grades = np.where(doubtful, np.maximum(grades, 1.0), grades)
    grades = np.where(np.isnan(evidence.std), np.nan, grades)
    grades[:P] = np.where(evidence.separable, grades[:P], 2.0)
    # A noise that was given (an interval of no width) is not in doubt; all else needs data.
    given = evidence.std == 0
    given[:P] = False
    # Student's distribution has no variance with two degrees of freedom, and no mean without one.
    least = 2.0 if evidence.freedom < 1 else 1.0 if evidence.freedom <= 2 else 0.0
    grades = np.where(given | np.isnan(grades) & (least < 2), grades, np.fmax(grades, least))
    # A parameter looks well known beside one that is not, at the values that one happens to have.
    vague = np.any(evidence.together & (grades[None, :P] == 2), axis=1)
    grades[:P] = np.where(vague, np.maximum(grades[:P], 1.0), grades[:P])
    for first in (P, P + n):  # nor is an entry of G or G Gᵀ beside the diagonal identified better than those on it
        for at, (i, j) in enumerate(quantities.entries):
            own = [first + at, *(first + quantities.entries.index((k, k)) for k in (i, j))]
            grades[first + at] = np.max(grades[own])
    return grades


def _limits(quantities: Quantities, fraction: np.ndarray) -> np.ndarray:
    """The share up to which each quantity is identified.

    Process and observation noise of a state take up each other's errors: one that was found too large looks well known
    beside its size, and leaves the other small and hardly known. By chance either is, but not both: both are
    identified, or one that is known twice as well. A G that the states share is judged with the noise of any of them.
    """
    model, P, n = quantities.model, len(quantities.model.free), len(quantities.entries)
    states = range(len(model.states))
    pairs = [
        (P + n + at, P + 2 * n + k)
        for at, (i, j) in enumerate(quantities.entries)
        for k in states
        if i == j and (k == i or model.diffusion == "scalar")
    ]
    limits = np.full(len(fraction), _WEAK)
    limits[[at for pair in pairs for at in pair]] = _ALONE
    limits[[at for pair in pairs if np.max(fraction[list(pair)]) <= _WEAK for at in pair]] = _WEAK
    limits[P : P + n] = limits[P + n : P + 2 * n]
    return limits


def _noise_sentences(quantities: Quantities, words: dict[str, str], evidence: Evidence) -> list[str]:
    model = quantities.model
    sentences, P, K = [], len(model.free), len(model.states)
    for k, state in enumerate(model.states):
        process = words.get("GGt" if model.diffusion == "scalar" else f"GGt[{state},{state}]", "identified")
        observation = words[f"noise[{state}]"]
        confused = evidence.covariance is not None and _noise_correlation(evidence.covariance, P, K, k) < _CONFUSED
        if process in WORDS[1:] and (observation in WORDS[1:] or confused):
            sentences.append(f"The data cannot separate process noise from observation noise in `{state}`.")
        elif process in WORDS[1:]:
            sentences.append(f"The process noise of `{state}` is {process} by these data.")
        elif observation in WORDS[1:]:
            none = evidence.lower[P + 2 * len(quantities.entries) + k] <= 0
            rest = "; it may be none." if none else "."
            sentences.append(f"The observation noise of `{state}` is {observation} by these data{rest}")
    return sentences


def _noise_correlation(covariance: np.ndarray, params: int, states: int, k: int) -> float:
    """The correlation of the variances of process and observation noise of one state."""
    pair = [params + k * (states + 1), params + states * states + k]
    part = covariance[np.ix_(pair, pair)]
    return float(_correlations(part)[0, 1])


def _correlations(covariance: np.ndarray) -> np.ndarray:
    """The correlations of a covariance; 0 with what does not vary."""
    spread = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    spread = np.where(spread > 0, spread, np.inf)
    return covariance / spread[:, None] / spread[None, :]


def _parameter_sentences(model: SDE, words: dict[str, str], evidence: Evidence) -> list[str]:
    sentences = [f"`{name}` is {words[name]} by these data." for name in model.free if words[name] in WORDS[1:]]
    if evidence.covariance is None or len(model.free) < 2:
        return sentences
    part = evidence.covariance[: len(model.free), : len(model.free)]
    alike = np.abs(_correlations(part))
    pairs = [(a, b) for a in range(len(part)) for b in range(a) if alike[a, b] > _TOGETHER]
    names = model.free
    return sentences + [
        f"The data determine a combination of `{names[b]}` and `{names[a]}` better than either alone." for a, b in pairs
    ]


def sizes_of(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What each parameter must change by to change the drift, along the path, by as much as the drift is.

    Then whether the drift changes with it in a way that the others cannot make up for, and which parameters stand in
    the drift of one state.
    """
    run = PROGRAMS.run(_scales, model, method, pool, estimate.theta, estimate.mean)
    sizes, separable, together = run.value
    return np.asarray(sizes), np.asarray(separable), np.asarray(together)


def precompile(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> None:
    """Have the program of `sizes_of` compiled before there is an estimate, from the shapes of one."""
    PROGRAMS.start(_scales, model, method, pool, estimate.theta, estimate.mean)


def _scales(model: SDE, method: Method, pool: Pool, theta, mean):
    del method
    along = drift_facts(model, pool, theta, mean)
    return along.natural_scales, along.separable, along.together
