"""Results on disk: a `Record` of plain arrays and facts, written as NetCDF that xarray and ArviZ read.

A file is an HDF5/NetCDF-4 file followed by one line with the SHA-256 of every byte before it, which
HDF5 readers ignore: a file that was cut short or changed is refused before any of it is parsed.
Nothing is ever pickled. Files are written under another name and then renamed, so a reader never
sees half of one.
"""

import dataclasses
import hashlib
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sdefit.errors import FileError
from sdefit.files import contents, put
from sdefit.store.hdf5 import check_storage
from sdefit.store.schema import check_record

FORMAT_VERSION = 2
_MARK = b"\nsdefit-sha256 "
_TRAILER = len(_MARK) + 64 + 1


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known about one result: `arrays` with named axes, and `facts` that JSON can hold.

    The record of a fit holds

    - arrays on the data's axes, shorter series filled up with NaN: `times` (series, time), `values`,
      `observed`, `mean`, `std` (series, time, state), `path` (the true path, where it is known),
      `length` (series);
    - estimates in the user's units: `params` (param), `G`, `GGt`, `H` (state, state_2), `noise` (state),
      what the method maximised or minimised under its own name (`log_likelihood`, `log_evidence`, `bound` or
      `loss`), and one `trace_…` for each thing the method kept of its way;
    - what a fit needs to go on: `key`, and one `estimate_…` for each array of the method's own answer;
    - facts: `kind`, `name`, `model`, `equations`, `latex`, `states`, `params`, `parameters`, `diffusion`,
      `time_unit`, `method`, `status`, `seconds`, `compile_seconds`, `notes`, `assumed`, `truth`,
      `provenance`.

    """

    arrays: Mapping[str, tuple[tuple[str, ...], np.ndarray]]
    facts: Mapping[str, Any]
    coordinates: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name][1]

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def starting(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays whose names begin with `prefix`, under the rest of their names."""
        return {name.removeprefix(prefix): self[name] for name in self.arrays if name.startswith(prefix)}

    def dataset(self) -> Any:
        """The record as an `xarray.Dataset`, its facts as attributes."""
        import xarray as xr  # here, not above: it costs a second that most uses do not need

        labels = {name: list(one) for name, one in self.coordinates.items()}
        return xr.Dataset(dict(self.arrays), coords=labels, attrs=dict(self.facts))


def axes(name: str, array: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """An array of any shape with axes that are named after itself."""
    return tuple(f"{name}_{i}" for i in range(array.ndim)), array


def plain(value: Any) -> Any:
    """The value as JSON can hold it: NumPy numbers become numbers, tuples lists, anything else its text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def write(record: Record, path: str | os.PathLike[str], groups: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Write a record to `path`, whole or not at all.

    `groups` are further arrays with the names of their axes, by the name of their group in the file.
    """
    body = _encode(record, groups or {})
    put(Path(path), body + _MARK + hashlib.sha256(body).hexdigest().encode() + b"\n")


def read(path: str | os.PathLike[str], kind: str | None = None) -> Record:
    """The record stored at `path`; a file that is foreign, cut short, changed, too new or not whole is refused.

    `kind` is "fit" or "problem" for one of which all is checked that readers rely on; see `schema`.
    """
    path = Path(path)
    try:
        content = contents(path)
    except (OSError, ValueError) as problem:
        reason = (isinstance(problem, OSError) and problem.strerror) or problem
        raise FileError(f"{path} cannot be read: {reason}") from None
    body = _checked(path, content)
    try:
        return _decode(path, body, kind)
    except FileError:
        raise
    except Exception as problem:  # whatever an HDF5 reader raises, it is the same news to the user
        raise FileError(f"{path} is not a result this version of sdefit can read: {_one_line(problem)}") from None


def _checked(path: Path, content: bytes) -> bytes:
    """The bytes before the checksum line, if they are the ones it was computed from."""
    if not content.startswith(b"\x89HDF\r\n\x1a\n"):
        raise FileError(f"{path} must be a NetCDF file written by fit.save, but it is not NetCDF-4 (HDF5) at all")
    body, trailer = content[:-_TRAILER], content[-_TRAILER:]
    if not trailer.startswith(_MARK):
        ours = b"sdefit_format" in content
        raise FileError(
            f"{path} was cut short or changed after sdefit wrote it; write it again with fit.save"
            if ours
            else f"{path} is a NetCDF file, but not one that fit.save wrote"
        )
    if trailer[len(_MARK) : -1] != hashlib.sha256(body).hexdigest().encode() or trailer[-1:] != b"\n":
        raise FileError(f"{path} is damaged: its content and its checksum disagree; write it again with fit.save")
    return body


def _encode(record: Record, groups: Mapping[str, Mapping[str, Any]]) -> bytes:
    import h5netcdf

    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        file.attrs["sdefit_format"] = FORMAT_VERSION
        file.attrs["inference_library"] = "sdefit"
        for name, labels in record.coordinates.items():
            file.dimensions[name] = len(labels)
            _put_text(file, name, (name,), list(labels))
        for name, (dims, array) in record.arrays.items():
            _put(file, name, dims, array)
        _put_text(file, "facts", (), json.dumps(plain(record.facts)))
        for name, arrays in groups.items():
            group = file.create_group(name)
            for one, (dims, array) in arrays.items():
                _put(group, one, dims, np.asarray(array))
    return buffer.getvalue()


def _put(group: Any, name: str, dims: Sequence[str], array: np.ndarray) -> None:
    for dim, size in zip(dims, array.shape, strict=True):
        if dim not in group.dimensions:
            group.dimensions[dim] = size
    truth = array.dtype == bool
    variable = group.create_variable(name, tuple(dims), data=array.astype(np.int8) if truth else array)
    if truth:
        variable.attrs["dtype"] = "bool"  # the mark by which xarray gives truth values back


def _put_text(group: Any, name: str, dims: Sequence[str], text: Any) -> None:
    import h5py

    group.create_variable(name, tuple(dims), dtype=h5py.string_dtype())[...] = text


def _decode(path: Path, body: bytes, kind: str | None) -> Record:
    import h5netcdf
    import h5py

    with h5py.File(io.BytesIO(body), "r") as file:
        check_storage(file, len(body))
    with h5netcdf.File(io.BytesIO(body), "r") as file:
        version = int(str(file.attrs["sdefit_format"]))
        if version > FORMAT_VERSION:
            raise FileError(
                f"{path} has format {version}, newer than the {FORMAT_VERSION} this sdefit reads; upgrade sdefit"
            )
        if kind == "fit" and version < FORMAT_VERSION:
            raise FileError(f"{path} has format {version}, from before sdefit 0.2; fit the data again")
        facts = json.loads(_text(file.variables["facts"][...]))
        arrays, coordinates = {}, {}
        for name, variable in file.variables.items():
            if variable.dimensions == (name,):
                coordinates[name] = tuple(_text(label) for label in variable[...])
            elif name != "facts":
                arrays[name] = (tuple(variable.dimensions), _array(variable))
    if kind is not None:
        _check(path, kind, Record(arrays, facts, coordinates))
    return Record(arrays, facts, coordinates)


def _check(path: Path, kind: str, record: Record) -> None:
    found = record.facts.get("kind") if isinstance(record.facts, dict) else None
    if found != kind:
        raise FileError(f"{path} is a sdefit file, but not a whole {kind}: its kind is {str(found)[:40]!r}")
    try:
        check_record(kind, record.arrays, record.facts, record.coordinates)
    except ValueError as problem:
        raise FileError(f"{path} is a sdefit file, but not a whole {kind}: {_one_line(problem)}") from None


def _array(variable: Any) -> np.ndarray:
    array = np.asarray(variable[...])
    return array.astype(bool) if "dtype" in variable.attrs else array


def _text(value: Any) -> str:
    value = value.item() if isinstance(value, np.ndarray) else value
    return value.decode() if isinstance(value, bytes) else str(value)


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split()) or type(problem).__name__


def padded(rows: Sequence[np.ndarray], fill: float = math.nan) -> np.ndarray:
    """Arrays of unequal lengths as one, the shorter ones filled up at the end."""
    length = max(len(row) for row in rows)
    result = np.full((len(rows), length, *rows[0].shape[1:]), fill, dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        result[i, : len(row)] = row
    return result
