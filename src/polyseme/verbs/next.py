"""`next`: how likely one sentence follows another."""

from __future__ import annotations

from polyseme.api import AnyPath, load


def next(first: str, second: str, *, model: AnyPath | None = None, device: str = "auto") -> float:
    """The probability that `second` follows `first`."""
    return load(model, device=device).next(first, second)
