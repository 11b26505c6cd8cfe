"""Intervals, profiles and diagnosis of a fit as facts that JSON can hold, and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from sdefit.diagnosis import Check, Diagnosis
from sdefit.uncertainty import Intervals, Profile


def kept_facts(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked of a fit, as facts; empty where nothing was."""
    facts: dict[str, Any] = {}
    if "intervals" in kept:
        found: Intervals = kept["intervals"]
        facts |= {"intervals": _fields(found) | {"notes": found.notes()}, "interval_level": found.level}
    if "profiles" in kept:
        facts["profiles"] = {name: _fields(one) for name, one in kept["profiles"].items()}
    if "diagnosis" in kept:
        known: Diagnosis = kept["diagnosis"]
        facts["diagnosis"] = _fields(known) | {"checks": known.table(), "hints": known.hints}
    return facts


def kept_fields(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked of a fit before it was stored."""
    kept: dict[str, Any] = {}
    if "intervals" in facts:
        kept["intervals"] = _read(Intervals, facts["intervals"])
    if "profiles" in facts:
        kept["profiles"] = {name: _read(Profile, one) for name, one in facts["profiles"].items()}
    if "diagnosis" in facts:
        kept["diagnosis"] = _diagnosis(facts["diagnosis"])
    return kept


def _fields(found: Any) -> dict[str, Any]:
    return {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}


def _read(kind: Any, facts: Mapping[str, Any]) -> Any:
    """A flat dataclass from its facts: lists of numbers are arrays, lists of text tuples."""
    return kind(**{field.name: _array(facts[field.name]) for field in dataclasses.fields(kind)})


def _array(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return tuple(value) if any(isinstance(one, str) for one in value) or not value else np.array(value, float)


def _diagnosis(facts: Mapping[str, Any]) -> Diagnosis:
    return Diagnosis(
        checks=tuple(Check(**one) for one in facts["checks"]),
        residuals=tuple(np.array(one, float) for one in facts["residuals"]),
        quantiles={state: (np.array(a), np.array(b)) for state, (a, b) in facts["quantiles"].items()},
        autocorrelation={state: np.array(one) for state, one in facts["autocorrelation"].items()},
        drift={state: {name: np.array(c) for name, c in one.items()} for state, one in facts["drift"].items()},
    )
