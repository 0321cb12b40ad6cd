"""`fill`: what may stand at each mask of a text."""

from __future__ import annotations

from polyseme.api import AnyPath, Filled, load


def fill(text: str, *, model: AnyPath | None = None, top: int = 5, device: str = "auto") -> list[Filled]:
    """What may stand at each `[MASK]` of a text."""
    return load(model, device=device).fill(text, top=top)
