"""Intervals, profiles and diagnosis of a fit as facts that JSON can hold, and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import numpy as np

from sdefit.diagnosis import Check, Diagnosis
from sdefit.store.facts import check
from sdefit.uncertainty import Intervals, Profile


def cached_facts(cache: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked of a fit, as facts; empty where nothing was."""
    facts: dict[str, Any] = {}
    if "intervals" in cache:
        found: Intervals = cache["intervals"]
        facts |= {"intervals": _fields(found) | {"notes": found.notes()}, "interval_level": found.level}
    if "profiles" in cache:
        facts["profiles"] = {name: _fields(one) for name, one in cache["profiles"].items()}
    if "diagnosis" in cache:
        known: Diagnosis = cache["diagnosis"]
        facts["diagnosis"] = _fields(known) | {"checks": known.table(), "hints": known.hints}
    return facts


def cached_fields(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked of a fit before it was stored."""
    cache: dict[str, Any] = {}
    if "intervals" in facts:
        cache["intervals"] = _read(Intervals, facts["intervals"])
    if "profiles" in facts:
        cache["profiles"] = {name: _read(Profile, one) for name, one in facts["profiles"].items()}
    if "diagnosis" in facts:
        cache["diagnosis"] = _diagnosis(facts["diagnosis"])
    return cache


def _fields(found: Any) -> dict[str, Any]:
    return {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}


# The type of a field of a flat dataclass, what JSON has in its place, and how to make one of it.
_STORED: dict[Any, tuple[Any, Any]] = {
    np.ndarray: (list[float], lambda value: np.array(value, float)),
    tuple[str, ...]: (list[str], tuple),
}


def _read(kind: Any, facts: Mapping[str, Any]) -> Any:
    """A flat dataclass from its facts; raises `ValueError` for one of another type."""
    fields = {}
    for name, one in get_type_hints(kind).items():
        stored, make = _STORED.get(one, (one, lambda value: value))
        check(facts[name], stored, name)
        fields[name] = make(facts[name])
    return kind(**fields)


def _diagnosis(facts: Mapping[str, Any]) -> Diagnosis:
    return Diagnosis(
        checks=tuple(Check(**one) for one in facts["checks"]),
        residuals=tuple(np.array(one, float) for one in facts["residuals"]),
        quantiles={state: (np.array(a), np.array(b)) for state, (a, b) in facts["quantiles"].items()},
        autocorrelation={state: np.array(one) for state, one in facts["autocorrelation"].items()},
        drift={state: {name: np.array(c) for name, c in one.items()} for state, one in facts["drift"].items()},
    )
