"""The problems: a set-up of the paper with what its table shows, what methods are given, and the data.

Data come from a seed, the same for every plan that names it, or from a folder of frozen files NAME.npz.
"""

import dataclasses
import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sdefit import metrics
from sdefit.bench import references
from sdefit.data import Series
from sdefit.dynamics import systems
from sdefit.dynamics.systems import SetUp
from sdefit.errors import DataError, ModelError, SimulationError
from sdefit.store import Record

CHUNK = 25  # realizations simulated together, so that the first ones do not depend on how many are asked for


@dataclasses.dataclass(frozen=True)
class Problem:
    """A set-up, and how the paper studied it.

    - `table`: its table in the paper. `matrix`: the entries of G, H or GGᵀ which that table shows.
    - `told`: what the set-up lets a method know, for every method that has a setting of that name.
    - `recipe`: what the paper gave a rival here, for methods asked for as NAME:paper without a recipe of their own.
    """

    setup: SetUp
    title: str
    table: str
    matrix: tuple[str, ...]
    told: Mapping[str, Any]
    recipe: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.setup.name

    @property
    def size(self) -> int:
        """Observed values of one realization."""
        return self.setup.times.size * self.setup.x0.size

    @property
    def block(self) -> int:
        """Realizations in one program: as many as fit a small machine's memory with room to spare."""
        return 50 if self.size <= 200 else 25

    def truth(self) -> dict[str, float]:
        """The true value of every quantity that a row holds."""
        return dict(self.setup.params) | matrices(self.setup.G)


def matrices(G: np.ndarray) -> dict[str, float]:
    """The entries of G (lower triangle), GGᵀ and H = GᵀG (upper triangles) by name: G21, GGt12, H12."""
    found = {}
    for name, matrix in (("G", np.asarray(G)), ("GGt", metrics.ggt(G)), ("H", metrics.h(G))):
        rows, columns = np.tril_indices(len(G)) if name == "G" else np.triu_indices(len(G))
        found |= {f"{name}{i + 1}{j + 1}": float(matrix[i, j]) for i, j in zip(rows, columns, strict=True)}
    return found


_H = ("H11", "H12", "H22", "GGt11", "GGt12", "GGt22")
# Of each system: title, table of the paper, entries of matrices, what methods are given.
_FACTS: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    "ou": ("Ornstein-Uhlenbeck", "1a", ("H11",), {"noise": "none"}),
    "dw": ("Double well", "1c", ("H11",), {}),
    "lv": ("Lotka-Volterra", "1b", _H, {"noise": "same"}),
    "l63": ("Lorenz 63", "A1", ("G11",), {"noise": "same"}),
}


def get(name: str) -> Problem:
    """The problem of a set-up, by its short name or the full name of its system."""
    try:
        setup = systems.get(name)
    except ModelError:
        raise ModelError(f"--systems must be among {', '.join(systems.setups())}, not {name!r}") from None
    title, table, matrix, told = _FACTS[setup.name.split("_")[0]]
    if setup.noise == 0:
        told = told | {"noise": "none"}
    title = title if setup.name in _FACTS else f"{title} ({setup.name})"
    given = {"known_diffusion": setup.G.tolist()}  # the paper gave VGPA the true G
    return Problem(setup, title, table, matrix, told, given)


def key_of(seed: int, *words: str) -> Any:
    """The random key of something: its words distinguish it from all others of the seed."""
    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(" ".join(words).encode()))


def record(problem: Problem, count: int, seed: int, folder: str) -> Record:
    """The data of a problem with all that is known about it, as a report needs it."""
    several = frozen(problem, count, folder) if folder else simulated(problem.setup, count, seed)
    shape = (count, problem.setup.times.size, problem.setup.x0.size)
    values, path = np.full(shape, np.nan), np.full(shape, np.nan)
    for i, one in enumerate(several):
        if one is not None:
            values[i] = one.values
            path[i] = np.nan if one.path is None else one.path
    rows = ("realization", "time", "state")
    arrays = {"times": (("time",), problem.setup.times), "values": (rows, values), "path": (rows, path)}
    return Record(arrays, _facts(problem, values, folder, seed), {"state": problem.setup.model.states})


def _facts(problem: Problem, values: np.ndarray, folder: str, seed: int) -> dict[str, Any]:
    setup = problem.setup
    return {
        "kind": "problem",
        "name": setup.name,
        "system": setup.model.name,
        "title": problem.title,
        "table": problem.table,
        "note": setup.note,
        "equations": str(setup.model),
        "latex": setup.model.latex(),
        "states": list(setup.model.states),
        "params": list(setup.params),
        "matrix": list(problem.matrix),
        "truth": problem.truth(),
        "noise": setup.noise,
        "x0": setup.x0.tolist(),
        "told": dict(problem.told),
        "data": data_label(setup.name, folder, seed),
        "published": references.published(setup.model.name, tuple(setup.params)),
        "published_seconds": references.published_seconds(setup.model.name),
        "limits": references.limits(problem, values, bool(folder)),
    }


def simulated(setup: SetUp, count: int, seed: int) -> list[Series | None]:
    """Realizations from a seed; None for a path that left the finite numbers."""
    several: list[Series | None] = []
    for chunk in range(-(-count // CHUNK)):
        several += _chunk(setup, key_of(seed, "data", setup.name, str(chunk)))
    return several[:count]


def _chunk(setup: SetUp, key: Any) -> list[Series | None]:
    try:
        return list(setup.simulate(key=key, paths=CHUNK))
    except SimulationError:  # some of them: keep the others
        return [_one(setup, jax.random.fold_in(key, i)) for i in range(CHUNK)]


def _one(setup: SetUp, key: Any) -> Series | None:
    try:
        return setup.simulate(key=key)
    except SimulationError:
        return None


def frozen(problem: Problem, count: int, folder: str) -> list[Series | None]:
    """The first realizations of a folder's NAME.npz, which must be of this very set-up."""
    setup, path = problem.setup, Path(folder) / f"{problem.name}.npz"
    try:
        with np.load(path) as stored:
            found = {name: stored[name] for name in ("t", "y", "theta", "G", "noise")}
    except (OSError, KeyError, ValueError) as trouble:
        raise DataError(f"--data: {path} must hold arrays t, y, theta, G and noise: {trouble}") from None
    truth = np.concatenate([list(setup.params.values()), setup.G.ravel(), setup.times, [setup.noise]])
    stated = np.concatenate([np.ravel(found[name]) for name in ("theta", "G", "t", "noise")])
    if truth.shape != stated.shape or not np.allclose(truth, stated, atol=1e-9):
        raise DataError(
            f"--data: {path} was made with other parameters, G, times or noise than the set-up {setup.name}"
        )
    if len(found["y"]) < count:
        raise DataError(f"--data: {path} holds {len(found['y'])} realizations, not the {count} asked for")
    return [Series(setup.times, y, setup.model.states) for y in found["y"][:count]]


def data_label(name: str, folder: str, seed: int) -> str:
    """Where the data come from: the seed, or a fingerprint of the file."""
    if not folder:
        return f"seed {seed}"
    path = Path(folder) / f"{name}.npz"
    try:
        return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
    except OSError as trouble:
        raise DataError(f"--data: {path} cannot be read: {trouble.strerror}") from None


def series_of(stored: Record, first: int, count: int) -> list[Series | None]:
    """Some realizations of a stored problem; None for one that has no data."""
    values, path = stored["values"][first : first + count], stored["path"][first : first + count]
    return [
        None if np.isnan(y).all() else Series(stored["times"], y, stored.facts["states"], path=_known(x))
        for y, x in zip(values, path, strict=True)
    ]


def _known(path: np.ndarray) -> np.ndarray | None:
    return None if np.isnan(path).all() else path
