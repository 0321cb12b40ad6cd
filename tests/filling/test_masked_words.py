"""Whole words at masks: searched as a plain loop over all words would, and scored as `score` does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from polyseme.api import Model
from polyseme.errors import InputError, OptionError
from polyseme.filling.choose_filler import filler_of
from polyseme.filling.filled_masks import FillRequest, MaskedText
from polyseme.filling.masked_words import MaskedFiller
from polyseme.text.documents import make_document
from polyseme.types import Batch
from tiny_models import tiny_model

TEXT = "Sandy [MASK] the law."


def log_probs(model: Model, ids: Sequence[int]) -> torch.Tensor:
    """[T, V] of one row without its frame."""
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    framed = tokenizer.frame(np.array(ids))
    with torch.no_grad():
        states = model.bundle.encoder(Batch(torch.from_numpy(framed.ids)[None]), layers=[-1])[-1][0]
        found: torch.Tensor = model.bundle.outputs["masked"].log_probs(states)
    return found[framed.offset : framed.offset + len(ids)]


def all_words(model: Model, hide: str) -> dict[str, float]:
    """Every word of one or two pieces at the mask, by a plain loop; WordPiece."""
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    encoded = tokenizer.encode_with_masks(TEXT)
    place, mask = int(encoded.words[0, 0]), tokenizer.specials["mask"]
    pieces = tokenizer.pieces(range(tokenizer.n_pieces))
    begin = [id for id, piece in enumerate(pieces) if piece.isalnum()]
    follow = [id for id, piece in enumerate(pieces) if piece.startswith("##") and piece[2:].isalnum()]

    def at(fillings: list[list[int]]) -> torch.Tensor:
        rows = [
            tokenizer.frame(np.array([*encoded.ids[:place], *each, *encoded.ids[place + 1 :]])) for each in fillings
        ]
        with torch.no_grad():
            states = model.bundle.encoder(Batch(torch.from_numpy(np.stack([row.ids for row in rows]))), layers=[-1])[-1]
            return model.bundle.outputs["masked"].log_probs(states[:, rows[0].offset + place :][:, :2])  # type: ignore[no-any-return,operator]

    alone, [both] = at([[mask]])[0, 0], at([[mask, mask]])
    second = at([[first, mask] for first in begin])[:, 1]
    spelled = {(id,): (pieces[id], float(alone[id])) for id in begin}
    for first, of_it in zip(begin, second if hide == "left-to-right" else [both[1]] * len(begin), strict=True):
        for id in follow:
            spelled[first, id] = (pieces[first] + pieces[id][2:], float(both[0][first] + of_it[id]))
    written = tokenizer.encode_many([make_document(word) for word, _ in spelled.values()])
    return {
        word: value
        for (ids, (word, value)), own in zip(spelled.items(), written, strict=True)
        if own.ids.tolist() == list(ids)
    }


@pytest.mark.parametrize("hide", ["left-to-right", "word"])
def test_the_likeliest_words_are_those_of_a_loop_over_all_words(hide: str) -> None:
    model = tiny_model("bert")
    model.bundle.double()
    filler = filler_of(model.bundle, hide=hide)  # type: ignore[arg-type]
    assert isinstance(filler, MaskedFiller)
    filler.beam = 1000
    found = filler(FillRequest(text=MaskedText.read(TEXT), top=12, max_pieces=2))
    expected = sorted(all_words(model, hide).items(), key=lambda item: -item[1])[:12]
    assert {len(each.pieces[0]) for each in found} == {1, 2}
    assert [each.words[0] for each in found] == [word for word, _ in expected]
    np.testing.assert_allclose([each.log_prob for each in found], [value for _, value in expected], rtol=1e-8)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "modernbert"])
@pytest.mark.parametrize("hide", ["left-to-right", "word"])
def test_a_target_has_the_probability_that_score_gives_the_word_in_its_place(family: str, hide: str) -> None:
    model = tiny_model(family)
    model.bundle.double()
    targets = ["broke", "brokes", "cranecrane"]
    [filled] = model.fill(TEXT, targets=targets, hide=hide)  # type: ignore[arg-type]
    assert sorted(filled.words) == sorted(targets)
    assert filled.probabilities == sorted(filled.probabilities, reverse=True)
    for word, pieces, probability in zip(filled.words, filled.pieces, filled.probabilities, strict=True):
        if pieces.startswith(("Ġ ", "▁ ")):  # `score` hides such a blank by itself
            continue
        [scored] = model.score([TEXT.replace("[MASK]", word)], hide=hide)  # type: ignore[arg-type]
        assert math.log(probability) == pytest.approx(scored.word_log_probs[1], rel=1e-6)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "xlm-roberta"])
def test_words_are_whole_and_read_as_the_tokenizer_writes_them(family: str) -> None:
    model = tiny_model(family)
    [filled] = model.fill(TEXT, whole_words=True, top=40, max_pieces=4)
    assert len(set(filled.words)) == 40
    assert max(len(pieces.split()) for pieces in filled.pieces) > 1
    for word, pieces in zip(filled.words, filled.pieces, strict=True):
        assert word == word.strip() != ""
        assert " " not in word
        encoded = model.pieces(f"Sandy {word} the law.")
        at = [n for n, (start, end) in enumerate(encoded.spans.tolist()) if 5 <= start < end <= 6 + len(word)]
        if len(pieces.split()) > 1:
            assert " ".join(encoded.pieces[n] for n in at) == pieces


def test_several_masks_are_filled_together_each_given_those_before() -> None:
    model = tiny_model("bert")
    model.bundle.double()
    text = "The [MASK] broke the [MASK]."
    first, second = model.fill(text, targets=["law", "crane", "typos"], top=9)
    assert first.probabilities == second.probabilities
    assert len(set(zip(first.words, second.words, strict=True))) == 9
    chained = {}
    for one, other in itertools.product(["law", "crane", "typos"], repeat=2):
        [alone] = model.fill(text.replace("[MASK]", one, 1), targets=[other])
        [lead, _] = model.fill(text, targets=[one])
        [before] = [p for word, p in zip(lead.words, _by_first(model, text, one), strict=False) if word == one]
        chained[one, other] = before * alone.probabilities[0]
    for pair, probability in zip(zip(first.words, second.words, strict=True), first.probabilities, strict=True):
        assert probability == pytest.approx(chained[pair], rel=1e-6)


def _by_first(model: Model, text: str, word: str) -> list[float]:
    """The probability of a word at the first mask, the second one hidden: by hand."""
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    encoded = tokenizer.encode_with_masks(text)
    place, mask = int(encoded.words[0, 0]), tokenizer.specials["mask"]
    ids = model.pieces(word).ids.tolist()[1:-1]
    total = 0.0
    for n, id in enumerate(ids):
        filling = [*ids[:n], *[mask] * (len(ids) - n)]
        row = [*encoded.ids[:place], *filling, *encoded.ids[place + 1 :]]
        total += float(log_probs(model, row)[place + n][id])
    return [math.exp(total)]


def test_a_narrow_beam_finds_no_more_than_there_is() -> None:
    """Words from a beam have the probability that they have as targets."""
    model = tiny_model("bert")
    [filled] = model.fill(TEXT, whole_words=True, top=20)
    [again] = model.fill(TEXT, targets=filled.words)
    np.testing.assert_allclose(again.probabilities, filled.probabilities, rtol=1e-4)


def test_marks_are_no_words_and_a_mask_inside_a_word_continues_it() -> None:
    model = tiny_model("bert")
    [filled] = model.fill("Sandy broke the law [MASK]", whole_words=True, top=50, max_pieces=1)
    assert all(word.isalnum() for word in filled.words)
    [filled] = model.fill("The typo[MASK] broke.", whole_words=True, top=3, max_pieces=1)
    assert all(piece.startswith("##") for piece in filled.pieces)
    [filled] = model.fill("The typo[MASK] broke.", targets=["s", "ss"])
    assert sorted(filled.pieces) == ["##s", "##s ##s"]
    with pytest.raises(InputError, match="'re' at the mask: it has no pieces of its own there"):
        model.fill("They a[MASK] flat.", targets=["re"])  # "are" is one piece


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"targets": ["broke", "東京"]}, InputError, "cannot write the target '東京'.*unknown piece"),
        ({"targets": ["broke", " "]}, InputError, "Target 2 must be a word or several. Got ' '"),
        ({"targets": [3]}, InputError, "Target 1 must be a word"),
        ({"whole_words": True, "hide": "piece"}, OptionError, "no way 'piece' to hide.*There are: left-to-right, word"),
        ({"whole_words": True, "max_pieces": 0}, OptionError, "at least 1 piece, .*Got max_pieces=0"),
        ({"whole_words": True, "max_pieces": 10**20}, OptionError, "up to 100 are tried. Got max_pieces=1000"),
        ({"hide": "word"}, OptionError, "a choice for whole words"),
        ({"max_pieces": 2}, OptionError, "max_pieces=2 is about whole words"),
        ({"targets": ""}, InputError, "Target 1 must be a word"),
        ({"whole_words": True, "top": 0}, OptionError, "must be at least 1. Got 0"),
        ({"whole_words": True, "max_pieces": 60}, InputError, "reads 40 at once"),
    ],
)
def test_what_cannot_be_filled_is_refused(settings: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        tiny_model("bert").fill(TEXT, **settings)  # type: ignore[arg-type]


def test_a_text_without_a_mask_is_refused() -> None:
    with pytest.raises(InputError, match=r"Write \[MASK\]"):
        tiny_model("bert").fill("Dawn broke.", whole_words=True)
