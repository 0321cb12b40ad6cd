"""What tokenizers are tried on: all kinds of them, and texts from ordinary ones to the nastiest Unicode allows."""

from __future__ import annotations

from hypothesis import strategies as st

KINDS = ("bert-base-cased", "bert-base-uncased", "gpt2", "roberta", "openai-gpt", "albert")
"""WordPiece with and without case, byte-level BPE without and with specials, BPE with ends of words, unigram."""

NASTY = (
    "e\u0301", "ﬁ", "½", "①", "\u00ad", "\u200b", "\u200c", "\u200d", "\ufeff", "\u200f", "\x00", "\x7f", "\x85",
    "\u2028",
    "\u0301", "\u0327\u0301", "İ", "ß", "ſ", "Å", "ｶﾞ", "가", "각", "नि", "ไทย", "日本", "ひら", "👩‍👩‍👧", "🇩🇪", "👍🏽",
    "\U000e0001", "\ufffd", "\ufffe", "\U0010ffff", "▁", "Ġ", "##", "[MASK]", "[CLS]", "<s>", "</s>", "<unk>", "<pad>",
    "``", "''", "…", "--", "don't", "U.S.", "3.14", "1,000", "x_y", "  ", "\t", "\n", "\u00a0", "\u3000", "ͺ", "\u0600",
)  # fmt: skip

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
