"""What tokenizers are tried on: all kinds of them, and texts from ordinary ones to the nastiest Unicode allows."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from polyseme.text.marked_word import MarkedText
from text.nasty import NASTY

KINDS = ("bert-base-cased", "bert-base-uncased", "gpt2", "roberta", "openai-gpt", "albert")
"""WordPiece with and without case, byte-level BPE without and with specials, BPE with ends of words, unigram."""

characters = st.characters(exclude_categories=("Cs",))

texts = st.one_of(
    st.text(characters, max_size=40),
    st.lists(st.one_of(st.sampled_from(NASTY), st.sampled_from((" ", "a", "The", "cat", ".", "naïve", "Zoë")))).map(
        "".join
    ),
)
"""Anything that is a text."""

words = texts.filter(lambda text: bool(text) and not text.isspace())
"""Anything that can be given as a word."""


def write_marks(marked: MarkedText) -> str:
    """The text with its mark, and with its own brackets escaped: what `read_marks` reads back."""
    text, start, end = marked
    return f"{_escaped(text[:start])}[{_escaped(text[start:end])}]{_escaped(text[end:], last=True)}"


def _escaped(part: str, *, last: bool = False) -> str:
    """A part of the text with its brackets escaped, and the backslashes before a bracket or a mark doubled."""
    part = re.sub(r"(\\*)([\[\]])", r"\1\1\\\2", part)
    return part if last else re.sub(r"(\\+)\Z", r"\1\1", part)
