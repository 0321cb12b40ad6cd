"""Words and marks as running text: as one would write them, and the same words when the text is split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polyseme.corpus.tokenizer_training import train_tokenizer
from polyseme.text.documents import make_document
from polyseme.text.joined_words import joined_words
from polyseme.text.tokenizer import PieceTokenizer

TEXT = 'He said: "the well-known crane (a bird) cost $3.50, or 20%!" Isn\'t it flat?'
MARKS = "\"'.,;:!?()[]{}-/$%…“”–&"
WORDS = st.lists(st.sampled_from(["the", "crane", "3.50", "U.S", "isn't", *MARKS]), max_size=12)


SPLIT = train_tokenizer("words", [TEXT], vocab_size=100, frame="lm")


def read_back(tokenizer: PieceTokenizer, text: str) -> str:
    return tokenizer.decode(tokenizer.encode(make_document(text)).ids.tolist())


def test_marks_are_where_they_were() -> None:
    assert read_back(SPLIT, TEXT) == TEXT


def test_text_that_was_split_before_keeps_its_blanks() -> None:
    """WikiText has blanks around marks."""
    blanks = train_tokenizer("blanks", ["a crane , flat ."], vocab_size=100, frame="lm")
    assert read_back(blanks, "a crane , flat .") == "a crane , flat ."


@given(WORDS)
def test_the_same_words_come_out_again(words: list[str]) -> None:
    assert [word for word, _ in SPLIT.backend.pre_tokenizer.pre_tokenize_str(joined_words(words))] == words


@given(WORDS, WORDS)
def test_a_beginning_begins_the_text(first: list[str], then: list[str]) -> None:
    assert joined_words([*first, *then]).startswith(joined_words(first))
