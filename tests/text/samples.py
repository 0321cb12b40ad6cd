"""What tokenizers are tried on: all kinds of them, and texts from ordinary ones to the nastiest Unicode allows."""

from __future__ import annotations

from hypothesis import strategies as st

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
