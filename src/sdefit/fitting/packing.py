"""A `Fit` as a `store.Record` and back: which array and which fact goes where."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sdefit import methods
from sdefit.data import Series
from sdefit.diagnosis import Diagnosis
from sdefit.dynamics import model_file
from sdefit.dynamics.sde import SDE
from sdefit.errors import FileError, InputError, ModelError
from sdefit.methods.interface import Method
from sdefit.result import Estimate, Status
from sdefit.store import Record, axes, padded, plain
from sdefit.store.facts import need
from sdefit.uncertainty import Intervals, Profile

_ROWS = ("series", "time", "state")
_DRAWS = ("chain", "draw")
Named = dict[str, tuple[tuple[str, ...], np.ndarray]]  # arrays with the names of their axes
_OWN = ("theta", "G", "noise", "mean", "std", "criterion", "code")


def pack(
    fit: Any,
    truth: Mapping[str, Any] | None,
    intervals: Intervals | None,
    diagnosis: Diagnosis | None,
    profiles: Sequence[Profile],
) -> Record:
    """Everything about a fit, and what was found when it was asked, as plain arrays and facts."""
    model: SDE = fit.model
    names = tuple(one.name or str(i + 1) for i, one in enumerate(fit.series))
    facts = {
        "kind": "fit",
        "name": model.name,
        "model": model_file.to_dict(model),
        "equations": str(model),
        "latex": model.latex(),
        "states": model.states,
        "params": list(fit.params),
        "parameters": {name: _parameter(p) for name, p in model.parameters},
        "diffusion": model.diffusion,
        "time_unit": fit.series[0].time_unit,
        "series": [_series_facts(one) for one in fit.series],
        "method": {"name": fit.method.name, "title": fit.method.title, "settings": _settings(fit.method)},
        "objective": fit.method.objective_name,
        "key_kind": str(jax.random.key_impl(fit.key)),
        "status": dataclasses.asdict(fit.status),
        "checks": [dataclasses.asdict(check) for check in fit.checks],
        "seconds": fit.seconds,
        "compile_seconds": fit.compile_seconds,
        "summary": fit.table(intervals),
        "notes": fit.notes,
        "assumed": fit.assumed(),
        "truth": truth,
        "provenance": fit.provenance,
    }
    if intervals is not None:
        facts["intervals"] = dataclasses.asdict(intervals) | {"notes": intervals.notes()}
    if diagnosis is not None:
        facts["diagnosis"] = dataclasses.asdict(diagnosis) | {"hints": diagnosis.hints}
    if profiles:
        facts["profiles"] = {one.name: dataclasses.asdict(one) for one in profiles}
    coordinates = {"series": names, "state": model.states, "state_2": model.states, "param": tuple(fit.params)}
    arrays = _data_arrays(fit) | _estimate_arrays(fit)
    return Record(arrays, plain(facts), {name: labels for name, labels in coordinates.items() if labels})


def _data_arrays(fit: Any) -> dict[str, Any]:
    series: tuple[Series, ...] = fit.series
    arrays = {
        "length": (("series",), np.array([len(one) for one in series])),
        "times": (("series", "time"), padded([one.times for one in series])),
        "values": (_ROWS, padded([one.values for one in series])),
        "observed": (_ROWS, padded([one.observed for one in series], fill=False)),
        "mean": (_ROWS, padded(fit.mean)),
        "std": (_ROWS, padded(fit.std)),
    }
    if any(one.path is not None for one in series):
        paths = [np.full_like(one.values, np.nan) if one.path is None else one.path for one in series]
        arrays["path"] = (_ROWS, padded(paths))
    for i, one in enumerate(series):
        arrays |= {f"input_{i}_{j}": axes(f"input_{i}_{j}", u) for j, u in enumerate(one.inputs.values())}
    return arrays


def _estimate_arrays(fit: Any) -> dict[str, Any]:
    square = ("state", "state_2")
    arrays = {
        "params": (("param",), np.array(list(fit.params.values()), dtype=np.float64)),
        "G": (square, fit.G),
        "GGt": (square, fit.GGt),
        "H": (square, fit.H),
        "noise": (("state",), fit.noise),
        fit.method.objective_name: ((), np.asarray(getattr(fit, fit.method.objective_name))),
        "key": axes("key", np.asarray(jax.random.key_data(fit.key))),
    }
    own = {f"estimate_{name}": getattr(fit.estimate, name) for name in _OWN}
    state = {field.name: getattr(fit.estimate.state, field.name) for field in dataclasses.fields(fit.estimate.state)}
    own |= {f"state_{name}": array for name, array in state.items() if array is not None}
    own |= {f"trace_{name}": array for name, array in fit.trace.items()}
    return arrays | {name: axes(name, np.asarray(array)) for name, array in own.items()}


def point_estimate(fit: Any) -> Named:
    """The estimates with the names of their axes, under names that ArviZ and NetCDF accept."""
    params = {name: np.asarray(value) for name, value in fit.params.items()}
    return _named(params, fit.G, fit.noise)


def posterior_draws(params: Mapping[str, np.ndarray], G: np.ndarray, noise: np.ndarray) -> Named:
    """Draws (chains, draws, …) with the names of their axes, under names that ArviZ and NetCDF accept."""
    return {name: ((*_DRAWS, *dims), array) for name, (dims, array) in _named(params, G, noise).items()}


def _named(params: Mapping[str, np.ndarray], G: np.ndarray, noise: np.ndarray) -> Named:
    named: Named = {_arviz_name(name): ((), values) for name, values in params.items()}
    return named | {"G": (("state", "state_2"), G), "noise": (("state",), noise)}


def to_arviz(fit: Any, group: str, arrays: Named, diverging: np.ndarray | None = None) -> Any:
    """A group of arrays, "posterior" or "point_estimate", beside the observations, as ArviZ data."""
    import arviz_base  # here, not above: slow to import

    sample_dims = list(_DRAWS) if group == "posterior" else []
    dims = {name: list(axes[len(sample_dims) :]) for name, (axes, _) in arrays.items()}
    dims |= {"values": ["series", "time", "state"]}
    observed = {"values": padded([one.values for one in fit.series])}
    coords = {"state": list(fit.model.states), "state_2": list(fit.model.states)}
    groups = {group: {name: array for name, (_, array) in arrays.items()}, "observed_data": observed}
    if diverging is not None:
        groups["sample_stats"] = {"diverging": diverging}
    return arviz_base.from_dict(groups, sample_dims=sample_dims, dims=dims, coords=coords)


def _arviz_name(name: str) -> str:
    taken = {"chain", "draw", "state", "state_2", "series", "param", "G", "noise"}
    name = name.replace("/", "_")
    return f"{name}_" if name in taken else name


def matrix_entries(model: SDE, G: np.ndarray) -> list[tuple[str, float]]:
    """The entries of G that the model's structure leaves free, by name; one for all states is called G."""
    if model.diffusion == "scalar":
        return [("G", float(G[0, 0]))]
    lower = [(i, j) for i in range(len(G)) for j in range(i + 1)]
    entries = {"full": lower, "diagonal": [(i, j) for i, j in lower if i == j], "none": []}[model.diffusion]
    return [(f"G[{model.states[i]},{model.states[j]}]", float(G[i, j])) for i, j in entries]


def unpack(path: str | os.PathLike[str], record: Record, model: SDE | None) -> dict[str, Any]:
    """The fields of the `Fit` that a record was packed from."""
    try:
        stored = model_file.from_dict(record.facts["model"])
        _check_model(stored, record.facts)
        fields = _fields(record, stored)
    except (InputError, KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        raise FileError(f"{path} is a sdefit file, but not a whole fit: {' '.join(str(problem).split())}") from None
    return fields if model is None else fields | {"model": _same_model(stored, model)}


def _check_model(model: SDE, facts: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless the facts that say what the model is say what the model says."""
    said = {"states": model.states, "params": list(model.params), "diffusion": model.diffusion}
    said |= {"parameters": {name: _parameter(p) for name, p in model.parameters}}
    for name, one in plain(said).items():
        need(facts[name] == one, f"{name} must be those of the model")
    for one in facts["series"]:
        need(set(model.inputs) <= set(one["inputs"]), "series must have the inputs of the model")


def _fields(record: Record, model: SDE) -> dict[str, Any]:
    facts = record.facts
    series = tuple(_series(record, i) for i in range(len(record["length"])))
    rows, method = [len(one) for one in series], _method(facts["method"])
    with jax.enable_x64(True):
        own = {name: jnp.asarray(record[f"estimate_{name}"]) for name in _OWN}
        state = _state(method, {name: jnp.asarray(array) for name, array in record.starting("state_").items()})
        trace = {name: jnp.asarray(array) for name, array in record.starting("trace_").items()}
        estimate = jax.device_get(Estimate(**own, state=state, trace=trace))
    return {
        "model": model,
        "series": series,
        "method": method,
        "key": jax.random.wrap_key_data(jnp.asarray(record["key"]), impl=facts["key_kind"]),
        "status": Status(**facts["status"]),
        "checks": tuple(Status(**check) for check in facts.get("checks", ())),
        "params": dict(zip(facts["params"], record["params"].tolist(), strict=True)),
        "G": record["G"],
        "noise": record["noise"],
        "mean": tuple(mean[:n] for mean, n in zip(record["mean"], rows, strict=True)),
        "std": tuple(std[:n] for std, n in zip(record["std"], rows, strict=True)),
        "trace": record.starting("trace_"),
        "estimate": estimate,
        "seconds": facts["seconds"],
        "compile_seconds": facts["compile_seconds"],
        "notes": tuple(facts["notes"]),
        "provenance": facts["provenance"],
    }


def _state(method: Method, arrays: Mapping[str, Any]) -> Any:
    """The state of a method from the arrays of its fields; those that may be None may be missing."""
    fields = {field.name: field.type for field in dataclasses.fields(method.State)}
    for name in fields:
        need(name in arrays or "None" in str(fields[name]), f"state_{name} is missing")
    need(set(arrays) <= set(fields), "state has fields of another method")
    return method.State(**{name: arrays.get(name) for name in fields})


def _same_model(stored: SDE, given: SDE) -> SDE:
    """The given model, if it can be the one that was fitted."""
    for word in ("states", "free", "diffusion", "inputs"):
        if getattr(stored, word) != getattr(given, word):
            raise ModelError(
                f"model must be the one that was fitted, with {word} {_said(getattr(stored, word))},"
                f" not {_said(getattr(given, word))}"
            )
    return given


def _said(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"


def _parameter(p: Any) -> dict[str, Any]:
    return {"lower": p.lower, "upper": p.upper, "start": p.start, "value": p.value}


def _series_facts(one: Series) -> dict[str, Any]:
    facts = {"name": one.name, "time_unit": one.time_unit, "origin": one.origin, "notes": one.notes}
    return facts | {"path": one.path is not None, "inputs": list(one.inputs)}


def _series(record: Record, i: int) -> Series:
    facts, n = record.facts["series"][i], int(record["length"][i])
    return Series(
        record["times"][i, :n],
        record["values"][i, :n],
        record.facts["states"],
        path=record["path"][i, :n] if facts["path"] else None,
        notes=facts["notes"],
        name=facts["name"],
        time_unit=facts["time_unit"],
        origin=facts["origin"],
        inputs={name: record[f"input_{i}_{j}"] for j, name in enumerate(facts["inputs"])},
    )


def _settings(method: Method) -> dict[str, Any]:
    return {field.name: getattr(method, field.name) for field in dataclasses.fields(method) if field.init}


def _method(stored: Mapping[str, Any]) -> Method:
    """The method of that name with the stored settings; lists become the tuples they were."""
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in stored["settings"].items()}
    return methods.get(stored["name"])(**settings)
