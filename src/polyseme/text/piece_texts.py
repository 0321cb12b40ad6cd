"""What each piece of a vocabulary adds to a text, and with it where words begin and end among pieces.

Tokenizers mark the bounds of words in three ways: on the piece that begins a word after a blank (`Ġthe`, `▁the`), on
pieces that continue one (`##ing`), or on the piece that ends one (`the</w>`). All three are read off what the decoder
writes: the text that a piece adds behind a finished word, with the blank that it brings, and whether it leaves its word
open for the next one.

Shapes: V pieces in the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import ModelError
from polyseme.text.documents import make_document
from polyseme.text.tokenizer import MASK_TEXT, PieceTokenizer
from polyseme.types import Tokenizer

Bools = NDArray[np.bool_]

_OF_WORD = re.compile(r"(?:[^\W_]|['’](?=[^\W_]))*")
"""Letters and digits, and apostrophes before them."""
_WORD_END = re.compile(r"\w+\Z")
"""A word that a text ends with, without a blank behind it."""


class PieceTexts:
    """The texts of a tokenizer's pieces."""

    def __init__(self, tokenizer: PieceTokenizer) -> None:
        self.tokenizer = tokenizer
        backend = tokenizer.backend
        self._anchor = int(tokenizer.encode(make_document("a a")).ids[-1])
        anchored = [[self._anchor, id] for id in range(tokenizer.n_pieces)]
        before = len(backend.decode([self._anchor], skip_special_tokens=False))
        self.texts = [text[before:] for text in backend.decode_batch(anchored, skip_special_tokens=False)]
        """What each piece adds behind a finished word, its blank included."""
        special = [id for id, token in backend.get_added_tokens_decoder().items() if token.special]
        self.special = np.zeros(tokenizer.n_pieces, np.bool_)
        """[V]: pieces of no text."""
        self.special[[*special, *tokenizer.specials.values()]] = True

    @cached_property
    def has_blank(self) -> Bools:
        """[V]: whether a piece brings a blank, and so begins a word."""
        return np.array([text[:1].isspace() for text in self.texts])

    @cached_property
    def of_word(self) -> Bools:
        """[V]: whether a piece is made of letters and digits, or is nothing but the blank before a word."""
        fits = [text.isspace() or (text != "" and bool(_OF_WORD.fullmatch(text.strip()))) for text in self.texts]
        return np.array(fits) & ~self.special

    @cached_property
    def leaves_open(self) -> Bools:
        """[V]: whether the next piece belongs to the same word, whatever it is (`th`, where `the</w>` ends a word)."""
        suffix = getattr(self.tokenizer.backend.model, "end_of_word_suffix", None)
        if not suffix:
            return np.zeros(len(self.texts), np.bool_)
        return np.array([not piece.endswith(suffix) for piece in self.tokenizer.pieces(range(len(self.texts)))])

    @cached_property
    def blanks_matter(self) -> bool:
        """Whether a word has other pieces after a blank than without one."""
        after_blank, bare = (self.tokenizer.encode(make_document(text)).ids.tolist() for text in ("( a", "(a"))
        return bool(after_blank != bare)

    @cached_property
    def starts_with_blank(self) -> bool:
        """Whether the first word of a text has the pieces of a word after a blank."""
        return bool(self.has_blank[int(self.tokenizer.encode(make_document("a")).ids[0])])

    def begins(self, before: str) -> Bools:
        """[V]: the pieces that may begin a word behind this text."""
        return self.of_word & self._fitting(before)

    def begins_span(self, before: str) -> Bools:
        """[V]: the pieces that may begin any text behind this one; parts of a character do not."""
        fitting: Bools = self.readable & self._fitting(before)
        return fitting

    @cached_property
    def readable(self) -> Bools:
        """[V]: pieces of text that are whole characters."""
        whole: Bools = np.array(["\ufffd" not in text and text != "" for text in self.texts])
        return whole & ~self.special

    def _fitting(self, before: str) -> Bools:
        return self.has_blank if self._needs_blank(before) else ~self.has_blank

    def _needs_blank(self, before: str) -> bool:
        """Whether what follows this text begins with a piece that brings a blank."""
        if _WORD_END.search(before):
            return False  # it continues the word that is there
        if not self.blanks_matter:
            return True
        return before[-1].isspace() if before.strip() else self.starts_with_blank

    @cached_property
    def continues(self) -> Bools:
        """[V]: the pieces that may continue a word. Where pieces mark the end of words, any may."""
        return self.of_word if self.marks_ends else self.of_word & ~self.has_blank

    def allowed(self, before: str, *, later: bool, last: bool) -> Bools:
        """[V]: the pieces that a word may begin with behind this text, or continue with (`later`), the last or not."""
        pieces = self.continues if later else self.begins(before)
        if last:
            return pieces & ~self._is_blank & ~self.leaves_open
        return pieces & self.leaves_open if self.marks_ends else pieces

    @cached_property
    def marks_ends(self) -> bool:
        """Whether pieces mark where words end."""
        return bool(self.leaves_open.any())

    @cached_property
    def _is_blank(self) -> Bools:
        return np.array([not text.strip() for text in self.texts])

    def encode_after(self, before: str, word: str) -> list[int]:
        """The pieces of a word, or of several, behind this text; none if those of the text change with it."""
        inside = _WORD_END.search(before)
        lead = inside[0] if inside else "" if not before.strip() else "a " if before[-1].isspace() else before[-1]
        whole: list[int] = self.tokenizer.encode(make_document(lead + word)).ids.tolist()
        own: list[int] = self.tokenizer.encode(make_document(lead.rstrip())).ids.tolist() if lead else []
        return whole[len(own) :] if whole[: len(own)] == own else []

    def is_as_written(self, before: str, pieces: Sequence[int]) -> bool:
        """Whether the tokenizer itself would write these pieces for their text. Inside a word that is left open."""
        if _WORD_END.search(before):
            return True
        return self.encode_after(before, self.text_of(pieces)) == list(pieces)

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of pieces behind a finished word, without the blank before it."""
        backend = self.tokenizer.backend
        before = len(backend.decode([self._anchor], skip_special_tokens=False))
        return str(backend.decode([self._anchor, *ids], skip_special_tokens=False))[before:].strip()


def piece_texts(tokenizer: Tokenizer) -> PieceTexts:
    """The texts of a tokenizer's pieces. One that spells words in characters has none."""
    if not isinstance(tokenizer, PieceTokenizer):
        raise ModelError("The model reads words by their characters, and has no pieces that words are made of.")
    return PieceTexts(tokenizer)


def over_rows(pieces: Bools, n_rows: int) -> Bools:
    """[V] over all rows of a table of pieces, which may have more than there are pieces."""
    padded = np.zeros(max(n_rows, len(pieces)), np.bool_)
    padded[: len(pieces)] = pieces
    return padded[:n_rows]


def find_masks(text: str, masks: tuple[str, ...] = (MASK_TEXT,)) -> list[tuple[int, int]]:
    """Where masks are written in a text.

    >>> find_masks("A [MASK] is a [MASK].")
    [(2, 8), (14, 20)]
    """
    pattern = "|".join(re.escape(mask) for mask in dict.fromkeys(masks))
    return [match.span() for match in re.finditer(pattern, text)]
