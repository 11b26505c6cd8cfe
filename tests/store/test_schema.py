"""Files that were made to do harm: each is refused in one line, or gives a fit that works."""

import collections
import copy
import hashlib
import io
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
import pytest

from contract import KEY, ou_series, two_state_series
from sdefit import store
from sdefit.data import Series
from sdefit.diagnosis import Diagnosis
from sdefit.dynamics.equations import equations
from sdefit.dynamics.parameters import fixed, positive
from sdefit.errors import FileError
from sdefit.files import csv_bytes
from sdefit.fitting import Fit, fit, load
from sdefit.fitting.packing import unpack
from sdefit.methods.moments import Moments
from sdefit.report.fit import fit_page
from sdefit.report.html import numbers
from sdefit.store import Record, record
from sdefit.store.findings import from_facts
from sdefit.uncertainty import Intervals, Profile

DEEP: list = []
for _ in range(60):
    DEEP = [DEEP]
ODD = [None, True, -1, 0, 2**70, 1e308, math.nan, math.inf, "", "x", "../../x", [], ["x"], [[1.0]], {}, {"x": 1}, DEEP]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The record of a fit that has everything a record can hold."""
    model = equations(
        "dx = -a*(x - c) + b*u\ndy = -y", params={"a": positive(), "c": fixed(1.0)}, diffusion="full", inputs=["u"]
    )
    one, two = two_state_series(1), two_state_series(2)
    series = [
        Series(s.times[:n], s.values[:n], s.states, name=name, path=np.ones((n, 2)), inputs={"u": np.arange(n) % 3.0})
        for s, name, n in ((one, "north", 20), (two, "south", 15))
    ]
    found = fit(model, series, Moments(starts=4, iterations=40), key=KEY)
    profile = Profile("a", np.array([0.5, 1.0, 2.0]), np.array([-1.0, 0.0, -2.0]), 1.0, 0.9, 0.4, 1.8, 0.1)
    asked = {"intervals": found.intervals(draws=0), "diagnosis": found.diagnose(), "profiles": [profile]}
    return found.record({"params": {"a": 1.0, "b": 0.0}, "G": np.eye(2).tolist(), "noise": 0.1}, **asked)


PATH = Path("fit.nc")


def use(made: Record) -> Fit:
    """All that is done with a record that was read, without fitting again."""
    record._check(PATH, "fit", made)
    found = Fit(**unpack(PATH, made, None))
    str(found)
    found.states()
    kinds = {"intervals": Intervals, "diagnosis": Diagnosis, "profiles": Mapping[str, Profile]}
    asked = {name: from_facts(kind, made.facts[name]) for name, kind in kinds.items() if name in made.facts}
    again = found.record(**asked | {"profiles": list(asked.get("profiles", {}).values())})
    record._check(Path("again.nc"), "fit", Record(again.arrays, as_read(again.facts), again.coordinates))
    for columns in numbers(fit_page(made)).values():
        csv_bytes(columns, zip(*columns.values(), strict=True))
    return found


def as_read(facts):
    return json.loads(json.dumps(store.plain(facts)))


def refused_or_works(made: Record) -> bool:
    """Whether the record was refused in one line; what is not refused must work, and be a whole record again."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is drawn of numbers that are not finite
            use(Record(made.arrays, as_read(made.facts), made.coordinates))
    except FileError as refusal:
        said = str(refusal)
    else:
        return False
    assert "\n" not in said and said.startswith("fit.nc is a sdefit file, but not a whole fit: "), said
    return True


def places(value, where=()):
    """The place of everything in nested facts; of lists the first and the last."""
    yield where
    inside = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}
    for name in inside if isinstance(value, dict) else {*list(inside)[:1], *list(inside)[-1:]}:
        yield from places(inside[name], (*where, name))


def changed(facts, where, value):
    """A copy of the facts with another value, or none, at a place."""
    made = copy.deepcopy(facts)
    inner = made
    for name in where[:-1]:
        inner = inner[name]
    if value is KeyError:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value
    return made


def test_a_whole_record_is_not_refused(whole):
    assert not refused_or_works(whole)


@pytest.mark.slow
def test_no_fact_of_another_kind_is_a_traceback(whole):
    plain = store.plain(whole.facts)
    everywhere = [where for where in places(plain) if where]
    assert len(everywhere) > 150
    rng, refused = np.random.default_rng(0), 0
    for where in everywhere:
        # Every place loses its value and gets three of the odd ones; the top level gets them all.
        odd = ODD if len(where) == 1 else [ODD[i] for i in rng.choice(len(ODD), 3, replace=False)]
        for value in [KeyError, *odd]:
            made = Record(whole.arrays, changed(plain, where, value), whole.coordinates)
            refused += refused_or_works(made)
    assert refused > len(everywhere)


def array_changes(array):
    """The array in other shapes and types, and with other numbers."""
    yield np.zeros((0,) * max(array.ndim, 1), array.dtype)
    yield array[..., None]
    yield np.asarray(array.ravel()[:1].squeeze())
    yield np.concatenate([array.ravel()] * 2)
    yield array.astype(str)
    for dtype in (np.int64, np.float64, np.float32, np.uint32, bool):
        with np.errstate(invalid="ignore"):
            yield np.nan_to_num(array).astype(dtype)
    if array.ndim:
        yield array[1:]
        yield np.concatenate([array, array[-1:]])
        yield np.flip(array)
        yield array.T
    for value in (np.nan, np.inf, -1.0, 1e300, -1e300):
        if array.dtype.kind == "f":
            yield np.full_like(array, value)
            one = array.copy()
            one.flat[: min(1, one.size)] = value
            yield one
    if array.dtype.kind in "iu":
        yield np.full_like(array, 2**31 - 1)
        yield -array


@pytest.mark.slow
def test_no_array_of_another_kind_is_a_traceback(whole):
    rng, outcomes = np.random.default_rng(1), collections.Counter()
    for name, (dims, array) in whole.arrays.items():
        rest = {n: one for n, one in whole.arrays.items() if n != name}
        outcomes[refused_or_works(Record(rest, whole.facts, whole.coordinates))] += 1
        for i, other in enumerate(array_changes(np.asarray(array))):
            axes = tuple(f"other_{name}_{i}_{k}" for k in range(other.ndim))
            for named in {dims if other.shape == array.shape else axes, axes}:
                made = rest | {name: (named, other)}
                if rng.uniform() < 0.7:
                    outcomes[refused_or_works(Record(made, whole.facts, whole.coordinates))] += 1
    assert outcomes[True] > 5 * len(whole.arrays) and outcomes[False] > 0


def test_another_fits_parts_are_refused(whole, tmp_path):
    facts = store.plain(whole.facts)
    for part, value, words in [
        ("states", ["x"], "state"), ("params", ["a"], "param"), ("diffusion", "round", "one of full"),
        ("kind", "problem", "not a whole fit: its kind is 'problem'"), ("series", facts["series"][:1], "series"),
        ("status", {"name": "ok"}, "status: message is missing"), ("truth", {"G": [[1.0]]}, "truth.G must be 2 by 2"),
        ("model", {"equations": "dz = __import__('os')"}, "not a whole fit"),
        ("method", facts["method"] | {"name": "magic"}, "magic"),
    ]:  # fmt: skip
        store.write(Record(whole.arrays, facts | {part: value}, whole.coordinates), tmp_path / "fit.nc")
        with pytest.raises(FileError, match=words):
            load(tmp_path / "fit.nc")


# What lies below the record


def sealed(path, build) -> None:
    """An HDF5 file with a valid checksum that `build` put together, as anyone can."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["sdefit_format"] = 1
        file.create_dataset("facts", data=json.dumps({"kind": "fit"}), dtype=h5py.string_dtype())
        build(file)
    body = buffer.getvalue()
    path.write_bytes(body + record._MARK + hashlib.sha256(body).hexdigest().encode() + b"\n")


def external(file):
    file.create_dataset("times", (4,), "f8", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])


def virtual(file):
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource("/etc/secret.h5", "data", shape=(4,))
    file.create_virtual_dataset("times", layout)


def link_out(file):
    file["times"] = h5py.ExternalLink("/etc/secret.h5", "/data")


def soft(file):
    file["times"] = h5py.SoftLink("/facts")


def cycle(file):
    file.create_group("point_estimate")["point_estimate"] = file["/"]


def strange_group(file):
    file.create_group("a/b/c")


def huge(file):
    file.create_dataset("times", (2**40, 2**10), "f8")


def bomb(file):
    file.create_dataset("times", (2**27,), "f8", compression="gzip", chunks=(2**20,), fillvalue=0.0)


def compressed(file):
    file.create_dataset("times", data=np.zeros(2**20), compression="gzip", chunks=(2**16,))


def same_place(file):
    """A thousand names of one array: small in the file, a thousand times as large in memory."""
    one = file.create_dataset("times", data=np.zeros(10_000))
    for i in range(1000):
        file[f"trace_{i}"] = one


def many_texts(file):
    one = file.create_dataset("labels", data=["x" * 50_000], dtype=h5py.string_dtype())
    for i in range(1000):
        file[f"label_{i}"] = one


def pointers(file):
    file.create_dataset("times", data=np.array([file.ref], dtype=h5py.ref_dtype), dtype=h5py.ref_dtype)


TRICKS = [
    external,
    virtual,
    link_out,
    soft,
    cycle,
    strange_group,
    huge,
    bomb,
    compressed,
    same_place,
    many_texts,
    pointers,
]


@pytest.mark.parametrize("build", TRICKS)
def test_a_file_that_leads_elsewhere_or_grows_in_memory_is_refused(tmp_path, build):
    import tracemalloc

    sealed(tmp_path / "fit.nc", build)
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"fit\.nc is not a result this version of sdefit can read: [^\n]+$"):
            store.read(tmp_path / "fit.nc", "fit")
        assert tracemalloc.get_traced_memory()[1] < 3e7
    finally:
        tracemalloc.stop()


def test_a_device_is_no_file():
    with pytest.raises(FileError, match="/dev/zero cannot be read: it is a device"):
        load("/dev/zero")


def test_fits_of_the_version_before_are_refused(tmp_path, monkeypatch):
    """Coordinates of format 1 were in the user's units: intervals from them would be wrong without a word."""
    found = fit(equations("dx = -a*(x - b)"), ou_series(1), Moments(starts=4, iterations=40), key=KEY)
    monkeypatch.setattr(record, "FORMAT_VERSION", 1)
    found.save(tmp_path / "old.nc")
    monkeypatch.undo()
    with pytest.raises(FileError, match="has format 1, from before sdefit 0.2; fit the data again"):
        load(tmp_path / "old.nc")
