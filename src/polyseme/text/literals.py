"""What to do where a user's text spells out a special piece.

The library does not look for special pieces in text (`encode_special_tokens`), and most models cannot come upon one by
themselves, since their pre-tokenizer takes `[MASK]` apart. A unigram model can: its special pieces stand in its
vocabulary with the best of all scores. Such text is read again by a twin of the tokenizer in which they have names
that no text can spell.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import Tokenizer


def literal_twin(backend: Tokenizer, special_ids: Iterable[int]) -> Tokenizer:
    """A tokenizer that gives the same pieces, but never a special one; the unknown piece only for what is unknown."""
    settings = json.loads(backend.to_str())
    model = settings["model"]
    if model["type"] == "Unigram":
        settings["added_tokens"] = []
        for id in {*special_ids, model["unk_id"]}:
            if id is not None and id < len(model["vocab"]):
                model["vocab"][id][0] = f"special {id}"  # models are given text without blanks
    twin = Tokenizer.from_str(json.dumps(settings))
    twin.encode_special_tokens = True
    return twin


def is_unigram(backend: Tokenizer) -> bool:
    """Whether the tokenizer's model is one that may come upon special pieces in text."""
    return type(backend.model).__name__ == "Unigram"
