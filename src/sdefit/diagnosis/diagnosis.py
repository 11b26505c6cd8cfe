"""`Diagnosis`: what in the data a fit does not explain, each finding with a hint in words."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sdefit.data import Pool
from sdefit.diagnosis import checks
from sdefit.diagnosis.residuals import residuals
from sdefit.display.notebook import as_html
from sdefit.dynamics.sde import SDE
from sdefit.inference.residuals import Residuals
from sdefit.methods.interface import Method
from sdefit.result import Estimate
from sdefit.store import read_finding

ALARM = 0.01  # family-wise level: of a hundred fits of a right model one has any check that speaks up by chance
_STEEP = 1.0  # ‖∂f/∂x‖ times a gap above which a straight drift across the gap is a poor picture
_FEWEST = 8  # residuals of a state below which nothing is tested

HINTS = {
    "mean": "Predictions of `{state}` are off on average: the drift lacks a constant or a slow trend.",
    "spread": "Residuals of `{state}` are {wide} than predicted: G or the noise is too {small}, or not constant.",
    "normality": "Residuals of `{state}` are not normal: look for outliers, jumps, or noise that grows with the state.",
    "autocorrelation": "Residuals of `{state}` are autocorrelated: the drift lacks dynamics, or a state is missing.",
    "coverage": "Bands of `{state}` contain too {few} observations: do not trust the width of forecasts.",
    "drift": "The data imply another drift of `{state}` near {where:.3g}: its formula may have the wrong shape.",
    "sampling": "Gaps are long for this drift (‖∂f/∂x‖ times the gap is {steep:.2g} at the median): sample more often, "
    "and trust intervals less.",
}


@dataclasses.dataclass(frozen=True)
class Check:
    """One check of one state: its number, its p-value where it has one, whether it passes, and a hint if not.

    `adjusted` is the p-value by Holm's method over all checks of the fit: a check passes where that is at least 0.01.
    """

    name: str
    state: str
    value: float
    p: float
    adjusted: float
    ok: bool
    hint: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Diagnosis:
    """All checks of a fit, with the numbers behind its figures.

    - `checks`: one `Check` for each state and kind; `hints`: what to think about, empty where all is well.
    - `residuals`: standardised one-step residuals, an (N, K) array for each series, NaN where there is none.
    - `quantiles`: for each state the normal quantiles and the sorted residuals (a QQ plot).
    - `autocorrelation`: for each state its first lags. `drift`: for each state the fitted drift and the one that
      the data imply, in bins of that state, with its standard error.

    >>> found = fit.diagnose()
    >>> found.ok, found.hints
    (True, ())
    """

    checks: tuple[Check, ...]
    residuals: tuple[np.ndarray, ...]
    quantiles: Mapping[str, tuple[np.ndarray, np.ndarray]]
    autocorrelation: Mapping[str, np.ndarray]
    drift: Mapping[str, Mapping[str, np.ndarray]]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Diagnosis":
        """The diagnosis that `fit.save(path, diagnosis=...)` stored."""
        return read_finding(path, cls, "diagnosis")

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def hints(self) -> tuple[str, ...]:
        return tuple(check.hint for check in self.checks if not check.ok)

    def table(self) -> list[dict[str, Any]]:
        """The checks as plain mappings."""
        return [dataclasses.asdict(check) for check in self.checks]

    def frame(self) -> Any:
        """The checks as a pandas data frame."""
        import pandas as pd  # here, not above: half a second that most uses do not need

        return pd.DataFrame(self.table())

    def plot(self, ax: Any = None) -> Any:
        """Residuals against normal quantiles: a matplotlib figure, or on the axes `ax`, one for each state.

        `fit.plot("residuals")` has them over time, `fit.plot("drift")` the drift that they ask for.
        """
        from sdefit.display.plot import on_axes  # here, not above: matplotlib takes half a second
        from sdefit.report.diagnosis import quantile_charts, quantile_columns

        return on_axes(quantile_charts(quantile_columns(self.quantiles)), ax)

    def _repr_html_(self) -> str:
        rows = [{**row, "ok": "yes" if row["ok"] else "no"} for row in self.table()]
        return as_html("One-step residuals", [{k: v for k, v in r.items() if k != "hint"} for r in rows], self.hints)

    def __str__(self) -> str:
        rows = [
            f"  {c.name:<16} {c.state:<10} {c.value:>9.3g}  p {c.p:<8.2g} adjusted {c.adjusted:<8.2g}"
            f" {'ok' if c.ok else '!'}"
            for c in self.checks
        ]
        return "\n".join(["One-step residuals:", *rows, *(self.hints or ("No check is rejected.",))])


def diagnose(model: SDE, method: Method, pool: Pool, estimate: Estimate, lengths: Sequence[int]) -> Diagnosis:
    """The checks of one fit; `lengths` are the rows of each series."""
    found = residuals(model, method, pool, estimate)
    usable = _usable(model, found)
    return Diagnosis(
        checks=check_residuals(model, found),
        residuals=tuple(np.asarray(z)[:n] for z, n in zip(found.standard, lengths, strict=True)),
        quantiles={state: checks.quantiles(rows["z"]) for state, rows in usable.items()},
        autocorrelation={state: checks.autocorrelation(rows["z"], _lags(rows["z"])) for state, rows in usable.items()},
        drift={state: _binned(rows) for state, rows in usable.items()},
    )


def check_residuals(model: SDE, found: Residuals) -> tuple[Check, ...]:
    """All checks of residuals; those with a p-value fail where Holm's method rejects them together."""
    made = [check for state, rows in _usable(model, found).items() for check in _checks(state, rows)]
    adjusted = checks.holm(np.array([p for _, _, _, p, _ in made]))
    tested = [
        Check(name, state, value, p, float(q), bool(q >= ALARM), "" if q >= ALARM else HINTS[name].format(**words))
        for (name, state, value, p, words), q in zip(made, adjusted, strict=True)
    ]
    return (*tested, _sampling(found))


def _usable(model: SDE, found: Residuals) -> dict[str, dict[str, np.ndarray]]:
    """The residuals of each state that has enough of them, and does not have all of one value."""
    per_state = {state: _one_state(found, k) for k, state in enumerate(model.states)}
    return {state: rows for state, rows in per_state.items() if len(rows["z"]) >= _FEWEST and np.ptp(rows["z"]) > 0}


def _binned(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return checks.binned_drift(*(rows[w] for w in ("state", "drift", "error", "spread", "gap")))


def _one_state(found: Residuals, k: int) -> dict[str, np.ndarray]:
    """The residuals of one state in the order of time, series after series, with what belongs to each."""
    seen = np.isfinite(found.standard[..., k])
    columns = {
        "z": found.standard,
        "error": found.error,
        "spread": found.spread,
        "state": found.state,
        "drift": found.drift,
    }
    rows = {name: np.asarray(array)[..., k][seen] for name, array in columns.items()}
    gap = np.asarray(found.gap)[seen]
    return rows | {"gap": np.where(gap > 0, gap, np.inf)}  # the first row of an ODE has no gap before it


def _lags(z: np.ndarray) -> int:
    return max(1, min(10, len(z) // 5))


def _checks(state: str, rows: dict[str, np.ndarray]) -> list[tuple[str, str, float, float, dict[str, Any]]]:
    """Name, state, number and p-value of each test of one state, and the words of its hint."""
    z, drift = rows["z"], _binned(rows)
    variance, p_variance = checks.variance_test(z)
    inside, p_inside = checks.coverage(z, 0.9)
    words = {"wide": "wider", "small": "small"} if variance > 1 else {"wide": "narrower", "small": "large"}
    facts = [
        ("mean", *checks.mean_test(z), {}),
        ("spread", math.sqrt(variance), p_variance, words),
        ("normality", *checks.jarque_bera(z), {}),
        ("autocorrelation", *checks.ljung_box(z, _lags(z)), {}),
        ("coverage", inside, p_inside, {"few": "few" if inside < 0.9 else "many"}),
    ]
    if drift["z"].size:
        worst = int(np.argmax(np.abs(drift["z"])))
        p = min(1.0, drift["z"].size * 2 * checks.normal_tail(abs(drift["z"][worst])))  # Bonferroni over the bins
        facts.append(("drift", float(drift["z"][worst]), p, {"where": drift["state"][worst]}))
    return [(name, state, value, p, {"state": state} | words) for name, value, p, words in facts]


def _sampling(found: Residuals) -> Check:
    """Whether gaps are short beside the time in which the drift changes."""
    steep = np.asarray(found.stiffness)
    steep = steep[(np.asarray(found.gap) > 0) & np.isfinite(steep)]
    middle = float(np.median(steep)) if steep.size else 0.0
    ok = middle <= _STEEP
    return Check("sampling", "", middle, math.nan, math.nan, ok, "" if ok else HINTS["sampling"].format(steep=middle))
