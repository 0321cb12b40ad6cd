from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from polyseme.errors import ModelError
from polyseme.text.framing import FRAMES, Frame, get_frame
from polyseme.text.tokenizer import PieceTokenizer


def tokenizer_with(frame: Frame) -> PieceTokenizer:
    names = dict.fromkeys(["x", "y", *frame.specials.values()])
    return PieceTokenizer(Tokenizer(WordLevel({name: id for id, name in enumerate(names)}, unk_token="x")), frame)


@pytest.mark.parametrize(
    ("name", "single", "segments", "pair", "pair_segments"),
    [
        ("bert", "[CLS] x x [SEP]", [0, 0, 0, 0], "[CLS] x x [SEP] y [SEP]", [0, 0, 0, 0, 1, 1]),
        ("albert", "[CLS] x x [SEP]", [0, 0, 0, 0], "[CLS] x x [SEP] y [SEP]", [0, 0, 0, 0, 1, 1]),
        ("roberta", "<s> x x </s>", [0, 0, 0, 0], "<s> x x </s> </s> y </s>", [0] * 7),
        ("bart", "<s> x x </s>", [0, 0, 0, 0], "<s> x x </s> </s> y </s>", [0] * 7),
        ("xlnet", "x x <sep> <cls>", [0, 0, 0, 2], "x x <sep> y <sep> <cls>", [0, 0, 0, 1, 1, 2]),
        ("t5", "x x </s>", [0, 0, 0], "x x </s> y </s>", [0] * 5),
        ("transformer", "x x </s>", [0, 0, 0], "x x </s> y </s>", [0] * 5),
        ("flair", "<s> x x </s>", [0] * 4, "<s> x x </s> y </s>", [0] * 6),
        ("gpt", "x x", [0, 0], "x x y", [0] * 3),
        ("gpt2", "x x", [0, 0], "x x y", [0] * 3),
        ("none", "x x", [0, 0], "x x y", [0] * 3),
    ],
)
def test_frames(name: str, single: str, segments: list[int], pair: str, pair_segments: list[int]) -> None:
    tokenizer = tokenizer_with(get_frame(name))
    a, b = np.array([0, 0]), np.array([1])
    one = tokenizer.frame(a)
    assert tokenizer.pieces(one.ids) == single.split()
    assert one.segments.tolist() == segments
    assert one.ids[one.offset : one.offset + 2].tolist() == [0, 0]
    assert one.pair_offset is None
    assert tokenizer.n_specials == len(one.ids) - 2
    two = tokenizer.frame(a, b)
    assert tokenizer.pieces(two.ids) == pair.split()
    assert two.segments.tolist() == pair_segments
    assert two.ids[two.offset] == 0
    assert two.ids[two.pair_offset] == 1


def test_every_frame_is_tested() -> None:
    with_specials = {"bert", "albert", "roberta", "bart", "xlnet", "t5", "transformer", "flair"}
    assert set(FRAMES) == {*with_specials, "gpt", "gpt2", "lm", "elmo", "none"}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_go_to_json_and_back(name: str) -> None:
    frame = FRAMES[name]
    assert Frame.from_json(json.loads(json.dumps(frame.to_json()))) == frame


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"single": "start end"}, "must name a, once"),
        ({"pair": "b a"}, "a and then b"),
        ({"single": "begin a"}, "'begin'"),
        ({"specials": {"starts": "x"}}, "Did you mean 'start'"),
    ],
)
def test_impossible_frames_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Frame.from_json(settings)


def test_a_frame_needs_its_specials() -> None:
    with pytest.raises(ModelError, match="no special piece for end and start"):
        tokenizer_with(Frame(single="start a end", pair="start a end b end"))
    with pytest.raises(ModelError, match="Did you mean 'bert'"):
        get_frame("brt")
