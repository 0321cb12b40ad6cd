"""Files of vectors among a verb's inputs: what `embed` wrote is read back instead of being embedded again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from polyseme.errors import InputError
from polyseme.files.source import STANDARD_INPUT
from polyseme.files.vector_files import FORMATS, is_shard, read_provenance

ALSO_TEXTS = (".parquet", ".jsonl")
"""Endings of files of vectors that files of texts have, too."""


def vector_files(sources: Any) -> list[str]:
    """The files of vectors, or folders of their shards, that are named; none if texts are. A mix of both is refused.

    `.npz`, `.safetensors` and `.h5` are always vectors; `.parquet` and `.jsonl` are where `embed` wrote them.
    """
    each_source = [sources] if isinstance(sources, str | os.PathLike) else sources
    if not isinstance(each_source, Iterable):
        return []
    names = [os.fspath(each) for each in each_source if isinstance(each, str | os.PathLike)]
    vectors = [name for name in names if _has_vectors(name)]
    texts = [name for name in names if name not in vectors]
    if vectors and texts:
        raise InputError(
            f"{vectors[0]} has vectors in it, and {texts[0]} texts. Give files of one kind: embed the texts, or leave "
            "the vectors out."
        )
    return vectors


def _has_vectors(name: str) -> bool:
    path = Path(name)
    if name == STANDARD_INPUT or not path.exists():
        return False
    if path.is_dir():
        shards = (each for each in sorted(path.glob("part-*")) if each.suffix in FORMATS)
        first = next(shards, None)
        return first is not None and is_shard(first)
    ending = path.suffix.lower()
    if ending not in ALSO_TEXTS:
        return ending in FORMATS
    try:
        read_provenance(path)
    except InputError:
        return False
    return True
