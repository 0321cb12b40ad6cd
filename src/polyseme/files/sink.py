"""What a format of vectors is: something that documents go into, and something they come out of again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from polyseme.errors import InputError
from polyseme.types import Embedded

About = Mapping[str, Any]
"""How the vectors came about: model, layer, pooling, versions; kept in the file as JSON."""

Per = Literal["word", "text"]
"""What has a vector of its own: every word, or every text. Documents of the latter kind have one vector, [1, D], and
no words."""

Store = Literal["fp32", "fp16", "bf16"]
"""What numbers are in the file. NumPy has no bf16: a sink that can store it is given the bits as uint16."""


class Sink(Protocol):
    """A file of vectors that is being written. It may leave parts in the folder of the path it was given."""

    def write(self, documents: Sequence[Embedded]) -> None:
        """Take in one chunk of documents as `fitting.Fitter` leaves them: all of one kind, their fields strings."""

    def finish(self) -> None:
        """Complete the file; called once, after at least one document."""

    def abandon(self) -> None:
        """Let go of whatever is open; what was written is removed by others."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """How one kind of file is written, and read back."""

    sink: Callable[[Path, About, Per], Sink]
    read: Callable[[str], Iterator[Embedded]]
    read_about: Callable[[str], dict[str, Any]]
    stores: tuple[Store, ...] = ("fp32", "fp16")
    """What it can hold."""


def about_to_json(about: About) -> str:
    """The same text for the same facts."""
    return json.dumps(about, ensure_ascii=False, sort_keys=True)


def not_ours(name: str, missing: str) -> InputError:
    """What to say of a file that has the right ending and the wrong insides."""
    return InputError(f"{name} was not written by polyseme, or not as a file of vectors: it has no {missing!r} in it.")
