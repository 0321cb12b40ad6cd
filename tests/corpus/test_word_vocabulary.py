"""Word-level and character-level tokenizers: the table by frequency, what a word is, corpora of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from corpus.texts import made_up
from polyseme.corpus.fast_tokenization import Speller
from polyseme.corpus.tokenizer_training import train_tokenizer
from polyseme.errors import InputError, OptionError
from polyseme.text.documents import make_document
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.text.words import split_words
from polyseme.verbs.corpus import build_corpus

KINDS = ("words", "blanks", "characters")
TEXTS = [
    *made_up(30, seed=2),
    "Don't stop at 3.5 or 1,000: it's the dog's, she said. “Não!” (Well…)",
    "a b b <unk> c c c",
]
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_the_table_is_by_frequency_and_then_by_characters(kind: str) -> None:
    tokenizer = train_tokenizer(kind, TEXTS, vocab_size=10_000)
    pieces = tokenizer.pieces(range(tokenizer.n_pieces))
    assert pieces[:2] == ["<unk>", "</s>"]
    assert tokenizer.unit == ("character" if kind == "characters" else "word")
    counts = Counter(piece for text in TEXTS for piece, _ in tokenizer.backend.pre_tokenizer.pre_tokenize_str(text))
    del counts["<unk>"]
    assert pieces[2:] == sorted(counts, key=lambda piece: (-counts[piece], piece))
    assert train_tokenizer(kind, TEXTS, vocab_size=12).pieces(range(12)) == pieces[:12]


def test_rare_words_are_unknown() -> None:
    texts = ["a b b c c c", "c d"]
    assert train_tokenizer("words", texts, vocab_size=100, min_count=2).pieces(range(4)) == ["<unk>", "</s>", "c", "b"]
    with pytest.raises(InputError, match="No word occurs 5 times in this text"):
        train_tokenizer("words", texts, vocab_size=100, min_count=5)
    with pytest.raises(OptionError, match="bpe has parts of words"):
        train_tokenizer("bpe", texts, vocab_size=100, min_count=2)


def test_words_are_those_that_are_embedded() -> None:
    tokenizer = train_tokenizer("words", TEXTS, vocab_size=10_000)
    for text in TEXTS[:-1]:
        words = [str(word) for word in split_words(text)]
        assert tokenizer.pieces(tokenizer.encode(make_document(text)).ids.tolist()) == words


def test_what_stands_between_blanks_is_a_word_and_an_unknown_one_may_be_written_out() -> None:
    tokenizer = train_tokenizer("blanks", TEXTS, vocab_size=10_000)
    text = "a b <unk> dog's, </s> never-met"
    ids = tokenizer.encode(make_document(text)).ids.tolist()
    assert tokenizer.pieces(ids) == ["a", "b", "<unk>", "dog's,", "<unk>", "<unk>"]


def test_characters_are_all_there_and_come_back() -> None:
    tokenizer = train_tokenizer("characters", ["one two\nthree  four"], vocab_size=100)
    ids = tokenizer.encode(make_document("tow\n  one")).ids.tolist()
    assert len(ids) == 9
    assert tokenizer.decode(ids) == "tow\n  one"
    assert tokenizer.pieces(tokenizer.encode(make_document("toy")).ids.tolist()) == ["t", "o", "<unk>"]


@every_kind
def test_lower_casing_is_a_choice(kind: str) -> None:
    for lowercase in (True, False):
        tokenizer = train_tokenizer(kind, [*TEXTS, "ren REN"], vocab_size=10_000, lowercase=lowercase)
        small, large = (tokenizer.encode(make_document(text)).ids.tolist() for text in ("ren", "REN"))
        assert (small == large) == lowercase


@every_kind
def test_documents_are_spelled_as_they_are_read(kind: str) -> None:
    tokenizer = train_tokenizer(kind, TEXTS, vocab_size=200)
    speller = Speller(tokenizer)
    together = speller.spell([text.encode() for text in TEXTS])
    alone = [speller.spell_whole(text.encode()) for text in TEXTS]
    assert np.array_equal(together.pieces, np.concatenate([each.pieces for each in alone]))
    assert np.array_equal(together.starts, np.concatenate([each.starts for each in alone]))
    for text, each in zip(TEXTS, alone, strict=True):
        assert np.array_equal(each.pieces, tokenizer.encode(make_document(text)).ids)


@every_kind
def test_a_corpus_keeps_every_type_and_its_tokenizer(kind: str, tmp_path: Path) -> None:
    """All of the text is counted, however small the sample for other kinds; nothing in it is unknown."""
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS[:-1]))
    corpus = build_corpus(tmp_path / "text.txt", output=tmp_path / "corpus", tokenizer=kind, vocab_size=100_000,
                          sample=10, held_out=0.0)  # fmt: skip
    unknown = corpus.tokenizer.specials["unknown"]
    assert not (np.asarray(corpus.shards("train")[0].pieces) == unknown).any()
    assert "all of the text" in corpus.notes[0]
    loaded = load_tokenizer(corpus.folder / "tokenizer", frame=corpus.tokenizer.framing)
    assert loaded.fingerprint == corpus.tokenizer.fingerprint
    assert loaded.unit == corpus.tokenizer.unit
