"""The flow, for every family: it equals its definition, and a word's vector is its own, whatever runs beside it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from conformance.cases import REFERENCED
from embedding.by_definition import window_of, windows_of, word_vectors
from polyseme.api import Model
from polyseme.convert.families import FAMILIES
from polyseme.embedding.flow import Embedder
from polyseme.embedding.text_pooling import TextSums
from polyseme.errors import ModelError, OptionError, PolysemeWarning
from polyseme.text.documents import make_document
from polyseme.types import Document, EmbeddedDocument, Pieces, Word
from text.samples import texts, words
from tiny_models import TEXT, tiny_model

Array = NDArray[Any]
TOLERANCE = 1e-5
"""Of the largest value of the layer compared (rule 2)."""
WINDOW = 16

vanishing = pytest.mark.filterwarnings("ignore:The model's tokenizer makes nothing:polyseme.PolysemeWarning")


@cache
def model_of(name: str) -> Model:
    """A family's small model with a small window; `causal` is a Transformer that only looks back."""
    if name == "causal":
        return tiny_model("bert", max_positions=WINDOW, masks=("causal",))
    return tiny_model(name, max_positions=WINDOW)


def random_text(n_words: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(TEXT.split(), k=n_words))


LONG_WORD = "so-" * 150
DOCUMENTS: dict[str, Document] = {
    "one window": make_document("Dawn broke."),
    "one word": make_document("crane"),
    "many windows": make_document(random_text(90, seed=1)),
    "words across windows": make_document("unbelievability misunderestimation " * 12),
    "a word longer than a window": make_document(["The", LONG_WORD, "broke"]),
    "nothing but a long word": make_document([LONG_WORD[:150]]),
    "vanished words": make_document(["\u200b", "Dawn", "\u00ad", "\u200d", "broke", "\x00"]),
    "no words": make_document(" \n\t "),
    "empty": make_document(""),
    "given words": make_document(["well-known", "New York", "naïve,", "didn't", "n't", "日本"] * 5),
    "words that leave gaps and overlap": Document(
        text="The well-known burglar broke even.",
        words=[Word("The", 0, 3), Word("well-known", 4, 14), Word("known", 9, 14), Word("known burglar", 9, 22)],
    ),
    "unknown characters": make_document("日本 ☃ broke 👩‍👩‍👧 ǆ"),
}

LAYERS: dict[str, Callable[[Array], Array]] = {
    "-1": lambda states: states[-1],
    "all": lambda states: states.transpose(1, 0, 2),
    "concat:0:1": lambda states: np.concatenate([states[0], states[1]], axis=-1),
}
POOLS: dict[str, Callable[[Array], Array]] = {
    "mean": lambda pieces: pieces.mean(axis=0),
    "first": lambda pieces: pieces[0],
    "last": lambda pieces: pieces[-1],
    "max": lambda pieces: pieces.max(axis=0),
}


def encode(model: Model, one: Document) -> Pieces:
    assert model.bundle.tokenizer is not None
    return model.bundle.tokenizer.encode(one)


def assert_same_vectors(found: Array, expected: Array) -> None:
    """Equal to 1e-5 of the largest value, layer by layer where there are several."""
    assert found.shape == expected.shape
    if found.ndim == 2:
        found, expected = found[:, None], expected[:, None]
    for layer in range(found.shape[1]):
        largest = np.abs(expected[:, layer]).max(initial=0)
        np.testing.assert_allclose(found[:, layer], expected[:, layer], rtol=0, atol=TOLERANCE * largest)


def flat(documents: list[EmbeddedDocument]) -> Array:
    return np.concatenate([each.vectors for each in documents])


# --- the definition ---------------------------------------------------------------------------------------------------

AS_ANOTHER = ("xlm-roberta", "electra", "distilbert")
"""Families whose encoder and tokenizer are of the kinds that others have."""


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces:polyseme.errors.PolysemeWarning")
@vanishing
@pytest.mark.filterwarnings("ignore:Of words longer than 48 bytes:polyseme.PolysemeWarning")
@pytest.mark.parametrize(
    "family",
    [
        *(pytest.param(family, marks=pytest.mark.slow if family in AS_ANOTHER else ()) for family in FAMILIES),
        "causal",
    ],
)
def test_the_flow_equals_its_definition(family: str) -> None:
    """All kinds of documents in one call, each against itself alone, window by window."""
    model = model_of(family)
    found = model.embed(list(DOCUMENTS.values()), layer="all", pool="mean")
    assert len(found) == len(DOCUMENTS)
    for embedded, to_document in zip(found, DOCUMENTS.values(), strict=True):
        expected = word_vectors(model, encode(model, to_document), LAYERS["all"], POOLS["mean"])
        assert len(embedded.vectors) == len(expected) == len(to_document.words)
        if expected:
            assert_same_vectors(embedded.vectors, np.stack(expected))


@vanishing
@pytest.mark.parametrize(
    ("layer", "pool"), [*(("-1", pool) for pool in POOLS), ("all", "first"), ("concat:0:1", "max")]
)
def test_layers_are_combined_and_pieces_pooled_as_defined(layer: str, pool: str) -> None:
    model = model_of("bert")
    chosen = ["many windows", "words across windows", "nothing but a long word", "vanished words"]
    found = model.embed([DOCUMENTS[name] for name in chosen], layer=layer, pool=pool)
    for embedded, name in zip(found, chosen, strict=True):
        expected = word_vectors(model, encode(model, DOCUMENTS[name]), LAYERS[layer], POOLS[pool])
        assert_same_vectors(embedded.vectors, np.stack(expected))


@pytest.mark.parametrize("family", REFERENCED)
def test_the_documents_are_what_their_names_say(family: str) -> None:
    """The definition above is only worth something if windows are many and words lie across them."""
    tokenizer = model_of(family).bundle.tokenizer
    assert tokenizer is not None
    encoded = {name: tokenizer.encode(each) for name, each in DOCUMENTS.items()}
    windows = {name: windows_of(len(each), WINDOW - tokenizer.n_specials) for name, each in encoded.items()}

    def n_windows_of_words(name: str) -> list[int]:
        taken = [window_of(piece, windows[name], "both") for piece in range(len(encoded[name]))]
        return [len(set(taken[first : last + 1])) for first, last in encoded[name].words.tolist()]

    assert len(windows["one window"]) == 1
    assert len(windows["many windows"]) > 10
    assert 2 in n_windows_of_words("words across windows")
    assert n_windows_of_words("a word longer than a window")[1] > 20
    in_bytes = family in ("roberta", "modernbert", "gpt2", "bart")  # which do not vanish
    assert encoded["vanished words"].n_unknown or in_bytes
    assert not len(encoded["no words"].words)
    assert not len(encoded["empty"])
    _, compound, known, burglar = encoded["words that leave gaps and overlap"].words.tolist()
    assert compound[1] >= known[0] == burglar[0] > compound[0]
    assert burglar[1] < len(encoded["words that leave gaps and overlap"]) - 1


@st.composite
def overlapping_words(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Words over up to a dozen windows, in order; pieces may belong to several of them, or to none."""
    n_pieces = draw(st.integers(1, 90))
    n_words = draw(st.integers(1, 20))
    firsts, lasts = (
        sorted(draw(st.lists(st.integers(0, n_pieces - 1), min_size=n_words, max_size=n_words))) for _ in "ab"
    )
    return n_pieces, [(min(first, last), max(first, last)) for first, last in zip(firsts, lasts, strict=True)]


@settings(max_examples=40)
@given(overlapping_words(), st.sampled_from(["first", "last", "mean", "max"]), st.sampled_from(["bert", "causal"]))
def test_words_may_share_pieces_and_leave_gaps(
    over_pieces: tuple[int, list[tuple[int, int]]], pool: str, name: str
) -> None:
    n_pieces, spans = over_pieces
    model = model_of(name)
    ids = np.random.default_rng(n_pieces).integers(5, model.bundle.config.n_pieces, n_pieces)
    pieces = Pieces(ids, np.zeros((n_pieces, 2), dtype=np.int64), np.array(spans, dtype=np.int64))
    one = make_document(["word"] * len(spans))
    [found] = Embedder(model.bundle, pool=pool, batch_pieces=50).embed([one], [pieces])
    assert_same_vectors(found.vectors, np.stack(word_vectors(model, pieces, LAYERS["-1"], POOLS[pool])))


def test_vanished_words_are_counted_and_said() -> None:
    model = model_of("bert")
    with pytest.warns(PolysemeWarning, match="makes nothing of 4 words"):
        [found] = model.embed([DOCUMENTS["vanished words"]])
    assert np.isfinite(found.vectors).all()
    with pytest.warns(PolysemeWarning, match="makes nothing of 1 word "):
        model.embed([["\u200b", "broke"]])


@pytest.mark.parametrize("family", ["bert", "lstm"])
def test_unknown_words_are_counted_and_said(family: str) -> None:
    """Beside those that came out as nothing, which are said for themselves; each call says it for its own texts."""
    model = tiny_model(family)
    with pytest.warns(
        PolysemeWarning, match=r"has no pieces for 2 words \(50\.0% of 4\), whole or in part; what it lacks was read"
    ):
        one, other = model.embed([["the", "東", "broke"], ["京"]], layer=0)
    assert one.vectors.shape[0] == 3
    assert other.vectors.shape[0] == 1
    model.embed([["the", "broke"]])


# --- rule 2: same word, same context, same vector ---------------------------------------------------------------------

MIXED = [random_text(n_words, seed) for seed, n_words in enumerate([3, 30, 1, 0, 7, 50, 3, 12, 2])]


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces:polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in AS_ANOTHER])
def test_neighbors_change_nothing(family: str) -> None:
    """Alone or together, in any order, whatever fits into a batch."""
    model = model_of(family)
    together = model.embed(MIXED, layer="all")
    expected = flat(together)
    assert_same_vectors(flat([model.embed(text, layer="all")[0] for text in MIXED]), expected)
    order = random.Random(5).sample(range(len(MIXED)), len(MIXED))
    shuffled = model.embed([MIXED[place] for place in order], layer="all")
    assert_same_vectors(flat([shuffled[order.index(place)] for place in range(len(MIXED))]), expected)
    for batch_pieces in (1, 64, 10**9):
        assert_same_vectors(flat(model.embed(MIXED, layer="all", batch_pieces=batch_pieces)), expected)


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces:polyseme.errors.PolysemeWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_little_and_much_work_give_the_same(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are laid out anew for much work; vectors stay."""
    for place in ("polyseme.embedding.flow", "polyseme.encoders.batch_runner"):
        monkeypatch.setattr(f"{place}.MUCH_WORK", 400)
    model = tiny_model(family, max_positions=WINDOW)
    before = model.embed(MIXED[:3])
    much = model.embed([*MIXED[:3], *(random_text(80, seed) for seed in range(6))])
    after = model.embed(MIXED[:3])
    assert_same_vectors(flat(much[:3]), flat(before))
    assert_same_vectors(flat(after), flat(before))


@pytest.mark.parametrize("options", [{"layer": "all"}, {"per": "text", "text_pool": "mean"}], ids=["words", "texts"])
def test_vectors_stay_where_memory_runs_out(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """While vectors are pooled, as on a GPU: nothing of the attempt is left behind."""
    model = tiny_model("bert", max_positions=WINDOW)
    texts = [*(random_text(n_words, n_words) for n_words in (2, 3, 5, 80)), "unbelievability misunderestimation " * 12]
    expected = flat(model.embed(texts, **options))
    take_words, take_text = Embedder._pool_words, TextSums.take
    n_failed = 0

    def fail_if_large(n_rows: int) -> None:
        nonlocal n_failed
        if n_rows > 2:
            n_failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory.")

    def pool_words(self: Any, vectors: Any, spans: Any, places: Any, word_vectors: Any) -> None:
        take_words(self, vectors, spans, places, word_vectors)
        fail_if_large(len(places))

    def take(self: Any, rows: Any, vectors: Any) -> None:
        fail_if_large(len(rows))
        take_text(self, rows, vectors)

    monkeypatch.setattr(Embedder, "_pool_words", pool_words)
    monkeypatch.setattr(TextSums, "take", take)
    with pytest.warns(PolysemeWarning, match="does not fit into the memory"):
        found = flat(model.embed(texts, **options))
    assert n_failed
    assert_same_vectors(found, expected)


def test_a_text_that_comes_again_is_read_once() -> None:
    """Its vectors are its own; the same pieces under other words are another text."""
    model = tiny_model("bert", max_positions=WINDOW)
    texts: list[Any] = ["the river bank", "a bank", "the river bank", ["the", "river", "bank"], ["the", "river bank"]]
    embedder = model.embedder()
    found = embedder([make_document(text) for text in texts])
    once = model.embedder()
    alone = [once([make_document(text)])[0] for text in texts]
    assert_same_vectors(flat(found), flat(alone))
    assert embedder.tally.pieces == once.tally.pieces
    assert embedder.tally.flops < once.tally.flops
    found[0].vectors[:] = 0
    assert_same_vectors(found[2].vectors, alone[2].vectors)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_vectors_that_are_no_numbers_are_refused(value: float) -> None:
    model = tiny_model("bert")
    broken = model.bundle.encoder.get_parameter("layers.0.feed_forward.up.bias")
    with torch.no_grad():
        broken[0] = value
    with pytest.raises(ModelError, match=r"vectors of text '2' are no numbers"):
        model.embed([make_document(TEXT, id="2")])
    assert np.isfinite(model.embed([TEXT], layer=0)[0].vectors).all()


def test_only_the_layers_that_are_run_are_counted() -> None:
    flops = []
    for layer in (0, 1, -1):
        embedder = Embedder(tiny_model("bert").bundle, layer=layer)
        embedder([make_document(TEXT)])
        flops.append(embedder.tally.flops)
    depth = tiny_model("bert").bundle.config.depth
    assert flops == [0.0, pytest.approx(flops[2] / depth), flops[2]]


@pytest.mark.parametrize("batch_pieces", [0, -1])
def test_a_batch_without_room_is_refused(batch_pieces: int) -> None:
    with pytest.raises(OptionError, match=f"at least 1 piece. Got {batch_pieces} instead"):
        model_of("bert").embed("Dawn broke.", batch_pieces=batch_pieces)


# --- rule 1: any text -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces:polyseme.errors.PolysemeWarning")
@vanishing
@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
@settings(max_examples=40)
@given(st.lists(st.one_of(texts, st.lists(words, max_size=6)), max_size=5))
def test_every_word_of_any_text_gets_one_vector_in_order(family: str, anything: list[str | list[str]]) -> None:
    found = model_of(family).embed(anything, layer=1)
    assert len(found) == len(anything)
    for embedded, one in zip(found, anything, strict=True):
        expected = make_document(one)
        assert embedded.text == expected.text
        assert list(embedded.words) == list(expected.words)
        assert embedded.vectors.shape == (len(expected.words), 32)
        assert np.isfinite(embedded.vectors).all()
        assert [embedded.text[start:end] for start, end in embedded.offsets] == list(embedded.words)


@pytest.mark.parametrize(("family", "pool"), [("elmo", "ends"), ("flair", "outer-ends")])
def test_layers_side_by_side_are_pooled_each_by_itself(family: str, pool: str) -> None:
    model = tiny_model(family)
    depth = model.bundle.config.depth
    [together] = model.embed("unbelievable misunderstandings broke", layer=f"concat:0:{depth}", pool=pool)
    each = [
        model.embed("unbelievable misunderstandings broke", layer=layer, pool=pool)[0] for layer in range(depth + 1)
    ]
    np.testing.assert_allclose(together.vectors, np.concatenate([one.vectors for one in each], axis=1), rtol=1e-5)
