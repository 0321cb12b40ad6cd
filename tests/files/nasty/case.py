"""A nasty input, and what becomes of it: exactly these rows, or one refusal that names the file and the line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Content = bytes | Callable[[Path], str | list[str] | None]
"""The bytes of a file; or what makes files in an empty folder and returns what to read, if that is not the one file."""

MEGABYTE = "x" * (1 << 20)
ARABIC = "السلام عليكم\u200f و\u0651"
COMBINING = "Z\u0351\u036b\u0343a\u0300\u0301l\u0327go o\u0308 \u1100\u1161\u11a8 👩\u200d👩\u200d👧"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Nothing of it is kept as a file: the bytes are made by the code that says what is wrong with them."""

    name: str
    file: str
    """What the file is called; the name that a refusal must say."""
    content: Content
    options: dict[str, Any]
    rows: Sequence[str | Sequence[str]] | None = None
    """The texts or words of the rows, all of them; or else"""
    refused: str = ""
    """words of the refusal,"""
    at: str | None = None
    """and the place that it names, if there is one: `line 3`, `row 2`."""
    warned: str | None = None
    """Words of what is said beside; nothing else is."""


@dataclass(frozen=True)
class Group:
    """Cases whose files are called alike, unless said."""

    name: str
    file: str

    def gives(
        self,
        name: str,
        content: Content,
        rows: Sequence[str | Sequence[str]],
        *,
        file: str | None = None,
        warned: str | None = None,
        **options: Any,
    ) -> Case:
        file = self.file if file is None else file
        return Case(name=f"{self.name}: {name}", file=file, content=content, options=options, rows=rows, warned=warned)

    def refuses(
        self,
        name: str,
        content: Content,
        refused: str,
        at: str | None = None,
        *,
        file: str | None = None,
        warned: str | None = None,
        **options: Any,
    ) -> Case:
        return Case(
            name=f"{self.name}: {name}",
            file=self.file if file is None else file,
            content=content,
            options=options,
            refused=refused,
            at=at,
            warned=warned,
        )
