"""HDF5 of others, read so that a file gives what is in it and nothing else.

HDF5 can name places outside: datasets whose bytes are in another file, links to other files, datasets put together from
several. It can also name sizes that the file does not have, and which are filled up in memory. Such files are refused.
"""

from __future__ import annotations

from typing import Any

import h5py

MOST_RATIO = 50
"""How many times the bytes of a dataset in the file it may have in memory, where it is compressed."""


def read_dataset(file: Any, name: str) -> Any:
    """The dataset of a name, of which every number is in the file; a `ValueError` says why it is refused."""
    place = file
    for part in name.strip("/").split("/"):
        if not isinstance(place, h5py.Group) or part not in place:
            link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
            raise ValueError(f"it has no {name!r}" if link is None else _outside(name))
        if not isinstance(place.get(part, getlink=True), h5py.HardLink):
            raise ValueError(_outside(name))
        place = place[part]
    check_dataset(place, name)
    return place


def check_dataset(item: Any, name: str) -> None:
    """Refuse what is no dataset, or one whose numbers are not all in the file."""
    if not isinstance(item, h5py.Dataset):
        raise ValueError(f"{name!r} is no dataset")
    if item.external or item.is_virtual:
        raise ValueError(_outside(name))
    stored = item.id.get_storage_size()
    if item.nbytes > MOST_RATIO * stored:
        raise ValueError(f"{name!r} should have {item.nbytes:,} bytes, and the file has {stored:,} of it")


def _outside(name: str) -> str:
    return f"{name!r} is a link, or has its numbers in another file, and only this file is read"
