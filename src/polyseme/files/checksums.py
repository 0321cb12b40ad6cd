"""Checksums of files that stay on the disk between runs, so that noise in one is noticed and not used.

A checksum is a string. New ones are CRC-32 (`crc32:9f3a01bc`), which costs about as much as reading the file; corpora
and checkpoints have SHA-256 (64 hexadecimal digits), which their fingerprints are made of. A process reads a file for
its checksum once, on first use, and again only if the file has changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from polyseme.errors import PolysemeWarning

_CRC = "crc32:"
_BLOCK = 1 << 22
"""Bytes read together."""
_verified: dict[tuple[str, str], tuple[int, ...]] = {}
"""What this process has read: path and checksum, and the file's state then."""
_stated: set[str] = set()


def digest_of(path: Path) -> str:
    """The SHA-256 of a file of any size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def crc_of(path: Path, n_bytes: int | None = None) -> int | None:
    """The CRC-32 of a file, or of its first bytes; None if it has fewer."""
    crc = 0
    with path.open("rb") as file:
        while n_bytes is None or n_bytes:
            block = file.read(_BLOCK if n_bytes is None else min(n_bytes, _BLOCK))
            if not block:
                return crc if n_bytes is None else None
            crc = zlib.crc32(block, crc)
            n_bytes = None if n_bytes is None else n_bytes - len(block)
    return crc


def checksum_of(path: Path) -> str:
    """The checksum that new files are stored with."""
    return f"{_CRC}{crc_of(path):08x}"


def checksums_in(folder: Path) -> dict[str, str]:
    """The checksums of the files in a folder."""
    return {each.name: checksum_of(each) for each in sorted(folder.iterdir()) if each.is_file()}


def record_checksum(record: Mapping[str, Any]) -> str:
    """The checksum of a record that JSON can hold, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def is_intact(path: Path, checksum: str) -> bool:
    """Whether a file is as it was when its checksum was taken; it is read once per process."""
    status = path.stat()
    state = (status.st_ino, status.st_size, status.st_mtime_ns)
    key = (os.path.realpath(path), checksum)
    if _verified.get(key) != state:
        if checksum != (checksum_of(path) if checksum.startswith(_CRC) else digest_of(path)):
            return False
        _verified[key] = state
    return True


def first_damaged(folder: Path, checksums: Mapping[str, str] | None, names: Iterable[str] | None = None) -> str | None:
    """The first file of a folder that is missing, or not as it was; None if there is none.

    Of folders that an older version has written there are no checksums: a warning says so once, and they are used.
    """
    if checksums is None:
        state_unchecked(folder)
        return None
    for name in checksums if names is None else names:
        path = folder / name
        if name not in checksums or not path.is_file() or not is_intact(path, str(checksums[name])):
            return name
    return None


def state_unchecked(folder: Path) -> None:
    """Warn, once per folder, that nothing can tell whether its files are damaged."""
    place = os.path.realpath(folder)
    if place not in _stated:
        _stated.add(place)
        warnings.warn(
            f"{folder} was written without checksums, by an older version of polyseme: damaged files in it would not "
            "be noticed. Build it again to have them.",
            PolysemeWarning,
            stacklevel=3,
        )
