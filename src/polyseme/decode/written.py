"""What comes of writing on: the pieces of a text, how likely they are, and why it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Ending = Literal["end", "stop", "length", "forbidden"]
"""The model ended the text; a stop string did; it has all the pieces it may have; every further piece was forbidden."""

TextOf = Callable[[int, Sequence[int]], str]
"""The text that some pieces add to a prompt, which is known by its number."""
Told = Callable[[int, int, "Written"], None]
"""Told after every piece: prompt, number of the text, and the text as far as it is written."""


@dataclass
class Written:
    """One text, without its prompt."""

    pieces: list[int] = field(default_factory=list)
    """As they were written, the end piece left out."""
    log_probability: float = 0.0
    """Of the pieces, the end piece included, by the model itself; in a beam, as repetition control has changed it."""
    score: float = 0.0
    """In a beam, the log-probability by length; elsewhere the log-probability."""
    ending: Ending | None = None
    """Why the text ended; None while it is being written."""
    text: str | None = None
    """Where a stop string has ended it: the text before that."""
