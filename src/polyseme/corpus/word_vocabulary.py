"""Tokenizers whose pieces are whole words, or single characters, numbered by how frequent they are in the text.

The table of a word-level corpus holds every type it can, however rare: what predicts words takes only the first of
them (`n_outputs` of ELMo's config), and what reads words by their characters reads all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from polyseme.text.cut_points import CHARACTER
from polyseme.text.framing import Frame

_LETTERS = r"[\p{L}\p{M}\p{N}_]+"
WORD = rf"{_LETTERS}(?:(?:['’.]|(?<=\p{{N}}),(?=\p{{N}})){_LETTERS})*|."
"""Letters and digits with apostrophes and points inside, or a single mark: nearly as `text.words` splits."""


def words(frame: Frame, lowercase: bool) -> Tokenizer:
    """Words and marks, each by itself."""
    return _word_level(
        frame,
        lowercase,
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(WORD), "isolated")]),
    )


def blanks(frame: Frame, lowercase: bool) -> Tokenizer:
    """What stands between blanks: for text that was split into words before, as WikiText is."""
    return _word_level(frame, lowercase, pre_tokenizers.WhitespaceSplit())


def characters(frame: Frame, lowercase: bool) -> Tokenizer:
    """Every character, blanks and the ends of lines among them."""
    backend = _word_level(frame, lowercase, pre_tokenizers.Split(Regex(CHARACTER), "isolated"))
    backend.decoder = decoders.Fuse()
    return backend


def by_frequency(frame: Frame, vocab_size: int, specials: list[str], alphabet: Sequence[str]) -> Any:
    """The most frequent ones; of equally frequent ones those first in the order of their characters."""
    return trainers.WordLevelTrainer(
        vocab_size=vocab_size, min_frequency=1, special_tokens=specials, show_progress=False
    )


def numbered_anew(backend: Tokenizer, specials: Sequence[str]) -> Tokenizer:
    """The same tokenizer with the specials first, also where the text spells one out.

    WikiText does: its rare words are written `<unk>`, which training then counts as a word like any other.
    """
    settings = json.loads(backend.to_str())
    found = settings["model"]["vocab"]
    others = [piece for piece in sorted(found, key=found.__getitem__) if piece not in specials]
    settings["model"]["vocab"] = {piece: id for id, piece in enumerate([*specials, *others])}
    settings["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(settings))


def _word_level(frame: Frame, lowercase: bool, splitting: Any) -> Tokenizer:
    backend = Tokenizer(models.WordLevel({}, unk_token=frame.specials["unknown"]))
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = splitting
    return backend
