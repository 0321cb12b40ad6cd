"""Where the files of a benchmark lie below the folder that a user names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from polyseme.errors import InputError
from polyseme.files.source import COMPRESSIONS

AnyPath = str | os.PathLike[str]


def find_data(data: AnyPath | None, name: str, patterns: Sequence[str]) -> list[Path]:
    """The files of the benchmark `name`: `data` itself, if it is a file, or what lies in it under one of the patterns.

    A folder may be the benchmark's own, the one that holds it, or the one above `tasks`. Files may be compressed.
    """
    if data is None:
        raise InputError(f"{name} needs its data: name the file, or the folder that holds it, with --data (data=…).")
    place = Path(data)
    if not place.exists():
        raise InputError(f"There is no file or folder {place} with the data of {name} (looked for it in {Path.cwd()}).")
    if not place.is_dir():
        return [place]
    folders = [place / "tasks" / name, place / name, place]
    for folder in folders:
        found: dict[str, Path] = {}  # by name without compression: a file that is also there unpacked is read once
        for pattern in patterns:
            for ending in ("", *COMPRESSIONS):
                for file in sorted(folder.glob(pattern + ending)):
                    if file.is_file():
                        found.setdefault(file.name.removesuffix(ending), file)
        if found:
            return list(found.values())
    looked = ", ".join(str(folder / pattern) for folder in folders for pattern in patterns)
    raise InputError(f"{place} does not hold the data of {name}. Looked for {looked}, plain or compressed.")
