"""Stop strings: where a text ends because of what stands in it. One may begin in one piece and end in another."""

from __future__ import annotations

from collections.abc import Sequence

UNFINISHED = "\ufffd"
"""What a character decodes to while some of its bytes are still to come."""


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the first of the stop strings begins, if there is one.

    >>> first_stop("Dawn broke. The end.", [" The", "."])
    10
    """
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return min(places, default=None)


def settled(text: str, stops: Sequence[str]) -> int:
    """How much of a text that is still being written will stay, whatever comes: its end may begin a stop string.

    >>> settled("Dawn broke. Th", [" The"])
    11
    """
    whole = len(text.rstrip(UNFINISHED))
    kept = whole
    for stop in stops:
        sizes = range(min(len(stop) - 1, whole), 0, -1)
        held = next((size for size in sizes if text.endswith(stop[:size], 0, whole)), 0)
        kept = min(kept, whole - held)
    return kept
