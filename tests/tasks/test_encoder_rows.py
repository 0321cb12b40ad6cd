"""Items to rows: what the encoder reads, where words stand, what is cut, and the order of batches."""

from __future__ import annotations

import numpy as np
import pytest

from polyseme.tasks.encoder_rows import RowMaker, shares
from polyseme.tasks.items import Answer, Item
from polyseme.tasks.kinds import KINDS
from polyseme.text.words import split_words
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.task_model import TaskConfig
from polyseme.transfer.unit_batches import order
from tiny_models import tiny_model

LONG = "The burglar broke into the house and the newscaster broke into the movie broadcast . " * 6


def maker(family: str, max_pieces: int = 40) -> RowMaker:
    bundle = tiny_model(family).bundle
    assert bundle.tokenizer is not None
    return RowMaker(bundle.tokenizer, bundle.config, max_pieces)


def pieces_of(rows: RowMaker, ids: np.ndarray) -> list[str]:
    return rows.tokenizer.pieces(ids.tolist())


def test_a_pair_in_one_frame() -> None:
    rows = maker("bert")
    [[row]] = KINDS["pair"].rows(rows, [Item(text="the crane", second="a fish")])
    assert pieces_of(rows, row.text.ids) == ["[CLS]", "the", "crane", "[SEP]", "a", *_fish(rows), "[SEP]"]
    assert row.text.segments[0] == 0
    assert row.text.segments[-1] == 1
    assert row.text.whole == 0
    assert [pieces_of(rows, row.text.ids[first : last + 1]) for first, last in row.text.words][:3] == [
        ["the"],
        ["crane"],
        ["a"],
    ]


def _fish(rows: RowMaker) -> list[str]:
    [[row]] = KINDS["classify"].rows(rows, [Item(text="fish")])
    return pieces_of(rows, row.text.ids)[1:-1]


@pytest.mark.parametrize(
    ("family", "end", "between"),
    [("gpt2", "<|endoftext|>", "<|endoftext|>"), ("transfo-xl", "</s>", "</s>"), ("openai-gpt", None, None)],
)
def test_causal_rows_end_with_the_end_and_stand_for_it(family: str, end: str | None, between: str | None) -> None:
    rows = maker(family)
    [[single]] = KINDS["classify"].rows(rows, [Item(text="the crane broke")])
    [[two]] = KINDS["pair"].rows(rows, [Item(text="the crane", second="broke")])
    assert single.text.whole == len(single.text) - 1
    assert (pieces_of(rows, single.text.ids)[-1] == end) == (end is not None)
    if between is not None:
        assert pieces_of(rows, two.text.ids).count(between) == 2
    assert len(two.text) > len(single.text) - 1


def test_the_start_stands_last_in_xlnet() -> None:
    rows = maker("xlnet")
    [[row]] = KINDS["classify"].rows(rows, [Item(text="the crane broke")])
    assert row.text.whole == len(row.text) - 1
    assert pieces_of(rows, row.text.ids)[row.text.whole] == "<cls>"


def test_encoders_without_a_pair_frame_read_apart() -> None:
    rows = maker("elmo")
    [[row]] = KINDS["pair"].rows(rows, [Item(text="the crane", second="a fish swims")])
    assert row.second is not None
    assert (len(row.text.words), len(row.second.words)) == (2, 3)


def test_long_texts_are_cut_and_counted() -> None:
    rows = maker("bert", 20)
    made = KINDS["classify"].rows(rows, [Item(text=LONG), Item(text="the crane")])
    assert [len(row.text) for [row] in made] == [20, 4]
    KINDS["pair"].rows(rows, [Item(text=LONG, second="the crane")])
    assert rows.tally.texts == 2
    assert "2 texts were cut to 20 pieces" in rows.tally.notes(20)[0]


def test_the_longer_of_two_is_cut_first() -> None:
    assert shares(100, 4, 20) == (16, 4)
    assert shares(4, 100, 20) == (4, 16)
    assert sum(shares(100, 100, 21)) == 21


@pytest.mark.parametrize("family", ["bert", "gpt2", "elmo"])
def test_every_word_of_a_long_sentence_is_tagged_once(family: str) -> None:
    rows = maker(family, 20)
    words = LONG.split()
    [its] = KINDS["tag"].rows(rows, [Item.of_words(words)])
    assert sum(row.n_words for row in its) == len(words)
    assert [row.first_word for row in its] == list(np.cumsum([0, *(row.n_words for row in its)])[:-1])
    if family != "elmo":
        assert len(its) > 1
        assert max(map(len, its)) <= 20


def test_windows_of_a_passage_overlap_and_hold_the_answer() -> None:
    rows = maker("bert", 30)
    rows.stride = 6
    at = LONG.index("newscaster", 150)
    item = Item(text=LONG, second="who broke in ?", gold=(Answer(at, "newscaster"),))
    [its] = KINDS["span"].rows(rows, [item])
    words = split_words(LONG)
    held = {row.first_word + number for row in its for number in range(row.n_words)}
    assert held == set(range(len(words)))
    config = build_task_model(
        tiny_model("bert").bundle, TaskConfig(kind="span", readout="first", max_pieces=30), "linear"
    ).head.config
    golds = [KINDS["span"].gold(config, item, row) for row in its]
    found = [row.first_word + int(gold[0]) for row, gold in zip(its, golds, strict=True) if gold[0] >= 0]
    assert found
    assert {str(words[number]) for number in found} == {"newscaster"}
    assert all(tuple(gold) == (-1, -1) for gold in golds if gold[0] < 0)


def test_empty_texts_have_rows() -> None:
    for family in ("bert", "gpt2", "openai-gpt", "elmo"):
        rows = maker(family)
        [[row]] = KINDS["classify"].rows(rows, [Item(text="")])
        assert len(row.text) >= 1
        assert rows.tally.empty == 1


# --- the order of batches ---------------------------------------------------------------------------------------------


def test_an_epoch_has_every_unit_once_in_an_order_of_its_own() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, 1003)
    batches = order(lengths, 16, seed=1, epoch=0)
    assert len(batches) == 63
    assert sorted(np.concatenate(batches).tolist()) == list(range(1003))
    assert sum(len(batch) == 16 for batch in batches) == 62
    again = order(lengths, 16, seed=1, epoch=0)
    assert all((one == other).all() for one, other in zip(batches, again, strict=True))
    others = [order(lengths, 16, seed=1, epoch=1), order(lengths, 16, seed=2, epoch=0)]
    assert all(any(len(a) != len(b) or (a != b).any() for a, b in zip(batches, each, strict=True)) for each in others)


def test_little_is_padded() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, 5000)
    padded = sum(len(batch) * lengths[batch].max() for batch in order(lengths, 32, seed=0, epoch=0))
    assert padded < 1.06 * lengths.sum()
