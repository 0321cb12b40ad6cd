"""Folders of a cache: each is named after the settings that decide its content, and holds a checksum of each file.

A folder is whole or absent. One that is damaged is reported, and its content is computed again.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from polyseme.errors import PolysemeWarning
from polyseme.files.atomic import explained, whole_folder
from polyseme.files.checksums import checksums_in, first_damaged
from polyseme.json_reading import load_json

ABOUT = "about.json"
Content = TypeVar("Content")


def cached_folder(cache: Path, settings: Mapping[str, Any], prefix: str = "") -> Path:
    """The folder for content that these settings decide."""
    return cache / f"{prefix}{hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]}"


def read_cached(folder: Path, read: Callable[[Path], Content]) -> Content | None:
    """The content of a folder; None where there is none, or where `read` raises a ValueError, which is reported."""
    if not folder.is_dir():
        return None
    try:
        return read(folder)
    except ValueError as error:
        warnings.warn(
            f"The vectors kept in {folder} are damaged ({error}) and are computed again.",
            PolysemeWarning,
            stacklevel=3,
        )
        return None


@contextmanager
def new_cached(folder: Path) -> Iterator[Path]:
    """A place for the files of a folder, which takes its name at the end of the block."""
    with explained(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder, force=True) as unfinished:
        yield unfinished


def write_about(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the last file of a folder: the settings that decide its content, and the checksums of its files."""
    content = {**settings, "checksums": checksums_in(folder)}
    (folder / ABOUT).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def check_cached(folder: Path) -> dict[str, Any]:
    """The settings of a folder whose files are as they were written; otherwise a ValueError."""
    try:
        record = load_json(folder / ABOUT)
        if not isinstance(record, dict):
            raise ValueError(f"{ABOUT} holds something else")
        damaged = first_damaged(folder, record.get("checksums"))
    except (OSError, AttributeError) as error:
        raise ValueError(str(error)) from error
    if damaged is not None:
        raise ValueError(f"{damaged} is not as it was written: its checksum is another")
    return record
