"""What a look at a finished fit finds: each check that objects, worst first."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sdefit import diagnosis
from sdefit.data import Series
from sdefit.dynamics.sde import SDE
from sdefit.inference.likelihood import AGREE
from sdefit.methods.execution import Answer
from sdefit.methods.interface import Method
from sdefit.result import AT_BOUND, LONG_GAPS, RESIDUALS, STARTS_DISAGREE, STATUS, TOO_FEW, Code, Status, worst_first
from sdefit.uncertainty import degrees_of_freedom


def status_checks(model: SDE, series: Sequence[Series], method: Method, answer: Answer) -> tuple[Status, ...]:
    """The checks that object to a fit, worst first; all follow from what its program returned."""
    code = Code(int(answer.estimate.code))
    found = [] if code == Code.OK else [STATUS[code]]
    found += _too_few(model, series) + _starts(method, answer) + _bounds(model, answer)
    if code not in (Code.NOT_FINITE, Code.DRIFT_NOT_FINITE):
        found += _residuals(model, answer)
    return worst_first(found)


def _too_few(model: SDE, series: Sequence[Series]) -> list[Status]:
    count = degrees_of_freedom(model, [one.observed for one in series])
    return [] if count >= 1 else [_said(TOO_FEW, count=count + len(model.free), params=len(model.free))]


def _starts(method: Method, answer: Answer) -> list[Status]:
    """Whether searches for the maximum of a likelihood from several starts ended apart."""
    found = method.search_values(answer.estimate)
    values = np.asarray([] if found is None else found, float)
    values = values[np.isfinite(values)]
    if values.size < 2 or np.sum(values > values.max() - AGREE) > 1:
        return []
    return [_said(STARTS_DISAGREE, count=values.size)]


def _bounds(model: SDE, answer: Answer) -> list[Status]:
    names = [name for name, at in zip(model.free, answer.at_bound, strict=True) if at]
    return [_said(AT_BOUND, names=", ".join(names))] if names else []


def _residuals(model: SDE, answer: Answer) -> list[Status]:
    bad = [one for one in diagnosis.check_residuals(model, answer.residuals) if not one.ok]
    names = [f"{one.name} of {one.state}" for one in bad if one.state]
    found = [_said(RESIDUALS, names=", ".join(names))] if names else []
    return found + ([LONG_GAPS] if len(names) < len(bad) else [])


def _said(status: Status, **words: object) -> Status:
    return dataclasses.replace(status, message=status.message.format(**words))
