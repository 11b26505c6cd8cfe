"""How good the estimates of a run are: beside the truth, maximum likelihood and the paper, with verdicts.

A fit that did not succeed counts as a failure, and with the numbers it gave; one that gave none is counted as missing.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from sdefit.report.page import Columns
from sdefit.report.runs import Run, column, labels

PAPER_RUNS = 100
NEAR = ("as exact as MLE", "more exact than MLE")
PAPER_WORDS = ("more exact than paper", "as exact as paper", "less exact than paper")
FEW = 10  # fits below which no verdict is passed


@dataclasses.dataclass(frozen=True)
class Score:
    """One cell of a table: a quantity of a system, as one method estimated it over all realizations."""

    system: str
    quantity: str
    method: str
    truth: float
    fits: int
    failures: int
    missing: int
    median: float
    std: float
    bias: float
    rmse: float
    mle_rmse: float
    rmse_over_mle: float
    paper_median: float
    paper_std: float
    paper_rmse: float
    gap_in_standard_errors: float
    against_mle: str
    against_paper: str

    @property
    def verdict(self) -> str:
        return " · ".join(filter(None, [self.against_mle, self.against_paper])) or "nothing to compare with"


def scores(run: Run, system: str, best: float = 1.0) -> list[Score]:
    """Every quantity and method of a system, over all realizations or the share of them that is `best`."""
    found = []
    for quantity in labels(run.problems[system]):
        for method in run.methods(system):
            rows = run.of(system, method)
            found.append(_score(run, system, quantity, method, best_rows(run, system, rows, best)))
    return found


def best_rows(run: Run, system: str, rows: Sequence[Mapping[str, str]], fraction: float) -> Sequence[Mapping[str, str]]:
    """The rows with the smallest sum of squared relative errors of θ; a fit without numbers is the worst."""
    if fraction >= 1.0:
        return rows
    facts = run.problems[system].facts
    errors = sum((column(rows, name) / facts["truth"][name] - 1.0) ** 2 for name in facts["params"])
    order = np.argsort(np.nan_to_num(errors, nan=np.inf), kind="stable")
    return [rows[i] for i in sorted(order[: max(1, round(fraction * len(rows)))])]


def _score(run: Run, system: str, quantity: str, method: str, rows: Sequence[Mapping[str, str]]) -> Score:
    facts = run.problems[system].facts
    truth, estimates = float(facts["truth"][quantity]), column(rows, quantity)
    used = estimates[np.isfinite(estimates)]
    median, std, bias, rmse = _moments(used, truth)
    mle_rmse = float((facts["limits"].get(quantity) or {}).get("rmse", math.nan))
    paper = _paper(run, system, quantity, method)
    paper_rmse = math.hypot(paper[0] - truth, paper[1])
    return Score(
        system=system,
        quantity=quantity,
        method=method,
        truth=truth,
        fits=len(rows),
        failures=sum(row["status"] != "ok" for row in rows),
        missing=len(rows) - len(used),
        median=median,
        std=std,
        bias=bias,
        rmse=rmse,
        mle_rmse=mle_rmse,
        rmse_over_mle=rmse / mle_rmse,
        paper_median=paper[0],
        paper_std=paper[1],
        paper_rmse=paper_rmse,
        gap_in_standard_errors=_gap(median, std, len(used), paper),
        against_mle=_against_mle(rmse / mle_rmse, len(used)),
        against_paper=_against_paper(rmse / paper_rmse if paper_rmse else math.nan, len(used)),
    )


def _moments(used: np.ndarray, truth: float) -> tuple[float, float, float, float]:
    """Median, standard deviation (not a number of one estimate), bias and RMSE."""
    if not used.size:
        return math.nan, math.nan, math.nan, math.nan
    errors = used - truth
    std = float(np.std(used)) if used.size > 1 else math.nan
    return float(np.median(used)), std, float(np.mean(errors)), float(np.sqrt(np.mean(errors**2)))


def _paper(run: Run, system: str, quantity: str, method: str) -> tuple[float, float]:
    for row in run.problems[system].facts["published"]:
        if (row["method"], row["quantity"]) == (method.partition(":")[0], quantity):
            return float(row["median"]), float(row["std"])
    return math.nan, math.nan


def _gap(median: float, std: float, count: int, paper: tuple[float, float]) -> float:
    """Our median minus the paper's, in standard errors: that of a median of n normal numbers is 1.2533 std/√n."""
    if count < 2:
        return math.nan
    error = 1.2533 * math.hypot(std / math.sqrt(count), paper[1] / math.sqrt(PAPER_RUNS))
    return (median - paper[0]) / error if error > 0 else math.nan


def margin(count: int) -> float:
    """The factor by which two RMSEs of one true value may differ by chance.

    The logarithm of an RMSE of n normal errors has a standard error of 1/√(2n). This is twice that of the difference
    between one over `count` fits and one over 100.
    """
    return math.exp(2.0 * math.sqrt(0.5 / count + 0.5 / PAPER_RUNS))


def _against_mle(ratio: float, count: int) -> str:
    if not math.isfinite(ratio):
        return ""
    if count < FEW:
        return "too few fits"
    if ratio > margin(count):
        return f"{ratio:.2g} × MLE"
    return NEAR[0] if ratio > 1 / margin(count) else NEAR[1]


def _against_paper(ratio: float, count: int) -> str:
    if not math.isfinite(ratio) or count < FEW:
        return ""
    if ratio > margin(count):
        return PAPER_WORDS[2]
    return PAPER_WORDS[1] if ratio > 1 / margin(count) else PAPER_WORDS[0]


def score_columns(found: Sequence[Score]) -> Columns:
    """Scores as columns, one row for each quantity and method."""
    names = [field.name for field in dataclasses.fields(Score)]
    columns = {name: [getattr(one, name) for one in found] for name in names}
    return {"quantity": columns["quantity"]} | columns


def overall(found: Sequence[Score], params: Sequence[str]) -> float:
    """The geometric mean of RMSE over that of maximum likelihood, over the parameters for which it is known."""
    ratios = [one.rmse_over_mle for one in found if one.quantity in params and math.isfinite(one.rmse_over_mle)]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
