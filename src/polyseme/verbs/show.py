"""`show`: what a model is and what it can do."""

from __future__ import annotations

from polyseme.api import AnyPath, Card, load


def show(*, model: AnyPath | None = None) -> Card:
    """What a model is: family, sizes, parameters, tokenizer, outputs, what it can do."""
    return load(model, device="cpu").show()
