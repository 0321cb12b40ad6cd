"""The pieces of documents put together from types are those of reading each document as a whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from corpus.texts import made_up
from polyseme.corpus import fast_tokenization as spelling
from polyseme.corpus.fast_tokenization import Speller
from polyseme.corpus.tokenizer_training import train_tokenizer
from polyseme.text.documents import make_document
from polyseme.text.framing import FRAMES
from polyseme.text.sentences import split_sentences
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer
from text.nasty import NASTY

TRAINED = {
    "wordpiece": ("wordpiece", "bert", 300),
    "cased wordpiece": ("wordpiece", "bert", 300),
    "bpe": ("bpe", "gpt", 300),
    "byte-bpe": ("byte-bpe", "roberta", 400),
    "lower-cased byte-bpe": ("byte-bpe", "gpt2", 400),
    "unigram": ("unigram", "albert", 200),
    "cased unigram": ("unigram", "t5", 300),
}
OWN = ("prefixed byte-bpe", "stripping metaspace", "no normalizer", "split by pattern")

TEXTS = [*made_up(20, seed=4), *NASTY, "Don't “quote” (this), naïve Zoë — it's 3.5% of U.S. <s> [MASK] 日本語 ½ ﬁ."]

parts = st.one_of(
    st.sampled_from((" ", " ", " ", "\n", "  ", "\n\n", "\t", " \n", "\u3000", "\u00a0")),
    st.sampled_from(
        (
            "a",
            "The",
            "kalomi",
            "ren,",
            "(tas)",
            "shi.",
            "'s",
            "lo's,",
            "mi-po--",
            "9's",
            "don't",
            "3.5",
            "“nor”",
            "Zoë",
            "É",
            "日本。語",
        )
    ),
    st.sampled_from(NASTY).filter(lambda one: "\0" not in one),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=3),
)
documents = st.lists(st.lists(parts, max_size=14).map("".join), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def speller_of() -> Callable[[str], tuple[Speller, PieceTokenizer]]:
    made: dict[str, tuple[Speller, PieceTokenizer]] = {}

    def get(name: str) -> tuple[Speller, PieceTokenizer]:
        if name not in made:
            tokenizer = own_tokenizer(name) if name in OWN else trained(name)
            made[name] = Speller(tokenizer), tokenizer
        return made[name]

    return get


def trained(name: str) -> PieceTokenizer:
    kind, frame, vocab_size = TRAINED[name]
    lowercase = {"cased": False, "lower-cased": True}.get(name.split(maxsplit=1)[0])
    return train_tokenizer(kind, TEXTS, vocab_size=vocab_size, frame=frame, lowercase=lowercase)


def own_tokenizer(name: str) -> PieceTokenizer:
    """Tokenizers of other people's making, about which less can be shown."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    alphabet: Sequence[str] = []
    if name == "prefixed byte-bpe":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        backend.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    elif name == "stripping metaspace":
        backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    elif name == "no normalizer":
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    else:
        backend.pre_tokenizer = pre_tokenizers.Split(" ?[a-z]+", "isolated")
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>"], initial_alphabet=list(alphabet), show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    return PieceTokenizer(backend, FRAMES["gpt"])


@settings(max_examples=60)
@example(texts=["a\nb", "", " \n ", "x  y", "'tis 's", "The\n'tis", "[SEP] </s> <unk>", "a ▁b", "e\u0301 \u0301x"])
@given(texts=documents)
def test_pieces_are_those_of_the_whole(speller_of: Callable[[str], tuple[Speller, PieceTokenizer]], texts: list[str]):
    raw = [text.encode() for text in texts]
    for name in (*TRAINED, *OWN):
        speller, _ = speller_of(name)
        spelled = speller.spell(raw)
        whole = [speller.spell_whole(one) for one in raw]
        assert spelled.counts.tolist() == [int(one.counts[0]) for one in whole], name
        assert spelled.pieces.tolist() == [piece for one in whole for piece in one.pieces.tolist()], name
        assert spelled.starts.tolist() == [start for one in whole for start in one.starts.tolist()], name


@settings(max_examples=40)
@example(texts=["\u037a a", "a \u037a", "x \u00b4 y", "\ufe70 a \ufc5e b"])
@given(texts=documents)
def test_the_whole_is_what_the_library_says(
    speller_of: Callable[[str], tuple[Speller, PieceTokenizer]], texts: list[str]
):
    for name, text in itertools.product((*TRAINED, *OWN), texts):
        speller, tokenizer = speller_of(name)
        expected = tokenizer.backend.encode(text, add_special_tokens=False).ids
        if set(expected).isdisjoint(tokenizer.specials.values()):
            assert speller.spell_whole(text.encode()).pieces.tolist() == expected, name


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_trained_here_is_read_by_types(
    name: str, speller_of: Callable[[str], tuple[Speller, PieceTokenizer]], monkeypatch: pytest.MonkeyPatch
):
    speller, tokenizer = speller_of(name)
    texts = made_up(40, seed=5)
    monkeypatch.setattr(speller, "spell_whole", None)
    spelled = speller.spell([text.encode() for text in texts])
    expected = [tokenizer.backend.encode(text, add_special_tokens=False).ids for text in texts]
    assert spelled.pieces.tolist() == [piece for ids in expected for piece in ids]


@pytest.mark.parametrize("name", ["wordpiece", "byte-bpe", "unigram"])
def test_the_pieces_of_a_word_are_from_one_start_to_the_next(
    name: str, speller_of: Callable[[str], tuple[Speller, PieceTokenizer]]
):
    speller, tokenizer = speller_of(name)
    for text in made_up(10, seed=6):
        spelled = speller.spell([text.encode()])
        aligned = tokenizer.encode(make_document(text))
        assert aligned.n_unknown == 0
        starts, pieces = spelled.starts.tolist(), tokenizer.pieces(spelled.pieces)
        for first, last in aligned.words.tolist():
            assert starts[first] or (pieces[first - 1] in ("Ġ", "▁") and starts[first - 1])
            assert not any(starts[first + 1 : last + 1])


@pytest.mark.parametrize("name", ["wordpiece", "bpe", "unigram"])
def test_sentences_are_those_of_the_splitter(name: str, speller_of: Callable[[str], tuple[Speller, PieceTokenizer]]):
    speller, tokenizer = speller_of(name)
    texts = [*made_up(10, seed=7), "Ren lo. Ka mi?\nTas po! shi. Dr. Lo vel... The lo. 2. Po lo."]
    spelled = speller.spell([text.encode() for text in texts])
    expected: list[int] = []
    place = 0
    for text in texts:
        for start, end in split_sentences(text):
            expected.append(place)
            place += len(tokenizer.backend.encode(text[start:end], add_special_tokens=False).ids)
    assert np.flatnonzero(spelled.sentences).tolist() == expected


def test_the_memory_starts_afresh_when_it_is_full(monkeypatch: pytest.MonkeyPatch):
    tokenizer = train_tokenizer("wordpiece", TEXTS, vocab_size=300)
    texts = [text.encode() for text in made_up(60, seed=8)]
    expected = Speller(tokenizer).spell(texts)
    for name, value in (("REMEMBERED", 50), ("REMEMBERED_BYTES", 200)):
        with monkeypatch.context() as patch:
            patch.setattr(spelling, name, value)
            patch.setattr(spelling, "AT_ONCE", 500)
            speller = Speller(tokenizer)
            for one, other in zip(speller.spell(texts), expected, strict=True):
                assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", ["bert-base-cased", "gpt2", "openai-gpt", "albert"])
def test_published_vocabularies(kind: str, vocabulary: Callable[[str], Path]):
    tokenizer = load_tokenizer(vocabulary(kind))
    speller = Speller(tokenizer)
    texts = [text for text in [*made_up(10, seed=9), *TEXTS] if "\0" not in text]
    spelled = speller.spell([text.encode() for text in texts])
    whole = [speller.spell_whole(text.encode()) for text in texts]
    assert spelled.pieces.tolist() == [piece for one in whole for piece in one.pieces.tolist()]
