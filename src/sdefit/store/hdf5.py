"""Whether an HDF5 file is plain: everything in the file itself, and no larger in memory than there."""

from collections.abc import Iterator
from typing import Any

import numpy as np

_GROUPS = ("point_estimate", "posterior")  # beside the root; fits are read without them
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


def check_storage(file: Any, size: int) -> None:
    """Raise `ValueError`, in words, unless an open `h5py.File` of `size` bytes may be read whole.

    Refused are links to other files, data kept in other files, compressed data, and arrays or texts that would take
    more memory than the file holds. Nothing is read before that is known.
    """
    found = list(_datasets(file))
    total = sum(_bytes(name, one) for name, one in found)
    texts = (one[place] for _, one in found if one.dtype.kind == "O" for place in np.ndindex(one.shape))
    while total <= size and (text := next(texts, None)) is not None:
        total += len(text)  # many texts may be one and the same place in the file
    if total > size:
        raise ValueError(f"it asks for more memory than its {size:,} bytes")


def _datasets(file: Any) -> Iterator[tuple[str, Any]]:
    """Every dataset of the file by its name; links that lead elsewhere are refused before they are followed."""
    import h5py

    for place in (file, *(one for name, one in _members(file) if isinstance(one, h5py.Group) and name in _GROUPS)):
        for name, one in _members(place):
            if isinstance(one, h5py.Dataset):
                yield name, one
            elif not (isinstance(one, h5py.Group) and name in _GROUPS and place is file):
                raise ValueError(f"{name!r} is no array")


def _members(group: Any) -> Iterator[tuple[str, Any]]:
    import h5py

    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name!r} is a link to elsewhere")
        yield name, group[name]


def _bytes(name: str, one: Any) -> int:
    """The bytes of a dataset in memory, if as many are stored for it in the file."""
    if one.is_virtual or one.external:
        raise ValueError(f"{name!r} is kept in another file")
    if one.shape is None or one.dtype.kind not in "iufSO" or (one.dtype.kind == "O" and not _is_text(one.dtype)):
        raise ValueError(f"{name!r} holds neither numbers nor text")
    if one.attrs.get("NAME", b"").startswith(_NO_VARIABLE):
        return 0  # a dimension without labels is stored as an array that nobody reads
    size = one.size * one.dtype.itemsize
    if size and (one.chunks is not None or one.id.get_storage_size() < size):
        raise ValueError(f"{name!r} asks for {size:,} bytes of memory, which the file does not hold")
    return size


def _is_text(dtype: Any) -> bool:
    import h5py

    return h5py.check_string_dtype(dtype) is not None
