"""Writing on from prompts: equal to the reference, cached as uncached, together as one at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from generating.writing import before, for_the_reference, gpt2, language, prompts, rereading, step_by_step
from polyseme.errors import OptionError
from polyseme.generating import decoding_loop
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.sequences import Lines

END = 36

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 1.0, "seed": 5},
    "drawn among few": {"temperature": 1.3, "top_k": 9, "top_p": 0.9, "n": 3},
    "without repeats": {"repetition_penalty": 1.4, "no_repeat_ngram": 2},
    "beam": {"beam": 3, "n": 2, "length_penalty": 0.7},
    "moving on": {"temperature": 0.9, "max_new": 30, "stride": 5},
    "beam moving on": {"beam": 2, "max_new": 20, "stride": 7, "early_stopping": "never"},
}
every_way = pytest.mark.parametrize("way", WAYS)


def room_of(decoding: Decoding) -> int:
    """Too little for some rows, where what is read can move on."""
    return 40 if decoding.stride is None else 22


def pieces_of(model: Any, rows: list[list[int]], decoding: Decoding, **more: Any) -> list[list[list[int]]]:
    return [[text.pieces for text in texts] for texts in write_on(model, rows, decoding, **more)]


def test_the_greedy_path_equals_the_reference() -> None:
    rows = prompts((5, 3, 7, 1, 2))
    inputs = for_the_reference(rows)
    for dtype in (torch.float64, torch.float32):
        pair = gpt2(dtype)
        for end in (None, END):
            theirs = pair.reference.generate(
                **inputs, max_new_tokens=25, do_sample=False, eos_token_id=end, pad_token_id=0
            )
            expected = theirs[:, inputs["input_ids"].shape[1] :].tolist()
            if end is not None:
                expected = [before(row, end) for row in expected]
            model = language(step_by_step(pair.ours), end=end)
            assert pieces_of(model, rows, Decoding(max_new=25, temperature=0)) == [[row] for row in expected]


@every_way
def test_cached_equals_uncached(way: str) -> None:
    decoding = Decoding(**{"max_new": 15, **WAYS[way]})
    cached = language(step_by_step(gpt2().ours), end=END, room=room_of(decoding))
    uncached = language(rereading(gpt2().ours), end=END, room=room_of(decoding))
    found = pieces_of(cached, prompts(), decoding)
    assert found == pieces_of(uncached, prompts(), decoding)
    assert any(len(text) > 3 for texts in found for text in texts)


@every_way
def test_together_equals_one_at_a_time(way: str) -> None:
    """Piece for piece, in any company and order, by the prompt's number."""
    decoding = Decoding(**{"max_new": 15, **WAYS[way]})
    model = language(step_by_step(gpt2().ours), end=END, room=room_of(decoding))
    rows = prompts((4, 9, 1, 2, 6, 6))
    together = pieces_of(model, rows, decoding)
    alone = [pieces_of(model, [row], decoding, numbers=[number])[0] for number, row in enumerate(rows)]
    assert together == alone
    some = [5, 1, 2]
    assert pieces_of(model, [rows[row] for row in some], decoding, numbers=some) == [together[row] for row in some]


@pytest.mark.parametrize("way", ["greedy", "drawn", "drawn among few"])
def test_single_precision_equals_double_but_for_ties(way: str) -> None:
    decoding = Decoding(**{"max_new": 15, **WAYS[way]})
    found = []
    for dtype in (torch.float64, torch.float32):
        model = language(step_by_step(gpt2(dtype).ours), end=END)
        model.prepare()
        found.append(pieces_of(model, prompts(), decoding))
        assert pieces_of(model, prompts()[:1], decoding) == found[-1][:1]
    assert found[0] == found[1]


def test_draws_differ_by_prompt_number_draw_and_seed() -> None:
    model = language(step_by_step(gpt2().ours))
    decoding = Decoding(max_new=12, temperature=1.0, n=3)
    same = pieces_of(model, [prompts()[0]] * 2, decoding)
    texts = [tuple(text) for each in same for text in each]
    assert len(set(texts)) == 6
    assert pieces_of(model, [prompts()[0]] * 2, decoding) == same
    assert pieces_of(model, [prompts()[0]] * 2, Decoding(max_new=12, temperature=1.0, n=3, seed=1)) != same


def test_a_text_ends_with_the_end_piece_and_not_before_its_time() -> None:
    model = language(step_by_step(gpt2().ours), end=END)
    decoding = Decoding(max_new=20, temperature=1.0, n=8)
    texts = [text for each in write_on(model, prompts(), decoding) for text in each]
    lengths = {text.ending: [] for text in texts}  # type: ignore[var-annotated]
    for text in texts:
        assert END not in text.pieces
        lengths[text.ending].append(len(text.pieces))
    assert set(lengths) == {"end", "length"}
    assert min(lengths["end"]) < 10
    assert set(lengths["length"]) == {20}
    later = Decoding(max_new=20, min_new=10, temperature=1.0, n=8)
    assert min(len(text.pieces) for each in write_on(model, prompts(), later) for text in each) >= 10


def test_log_probabilities_are_those_of_the_model() -> None:
    """Before temperature and the rest; the end piece counts."""
    pair = gpt2()
    model = language(step_by_step(pair.ours), end=END)
    rows = prompts()
    found = write_on(model, rows, Decoding(max_new=10, temperature=1.7, top_k=20, n=4))
    endings = set()
    for row, texts in zip(rows, found, strict=True):
        for text in texts:
            written = [*text.pieces, *([END] if text.ending == "end" else [])]
            with torch.no_grad():
                log_probs = pair.reference(torch.tensor([[*row, *written]])).logits.log_softmax(-1)[0]
            places = torch.arange(len(row) - 1, len(row) - 1 + len(written))
            assert text.log_probability == pytest.approx(float(log_probs[places, torch.tensor(written)].sum()))
            assert text.score == text.log_probability
            endings.add(text.ending)
    assert endings == {"end", "length"}


def test_what_is_forbidden_is_never_written() -> None:
    free = pieces_of(language(step_by_step(gpt2().ours)), prompts(), Decoding(max_new=10))
    often = {piece for texts in free for piece in texts[0]}
    model = language(step_by_step(gpt2().ours), forbidden=tuple(often))
    assert not often & {piece for texts in pieces_of(model, prompts(), Decoding(max_new=10)) for piece in texts[0]}


def test_a_text_ends_where_every_piece_is_forbidden() -> None:
    model = language(step_by_step(gpt2().ours), forbidden=tuple(range(12, 99)))
    for decoding in (
        Decoding(max_new=30, no_repeat_ngram=1),
        Decoding(max_new=30, no_repeat_ngram=1, temperature=1.0),
    ):
        [[short], [long]] = write_on(model, [[3, 4], [50]], decoding)
        assert short.ending == long.ending == "forbidden"
        assert sorted(short.pieces) == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]
        assert sorted(long.pieces) == list(range(12))


def test_nothing_to_write_on_from() -> None:
    assert write_on(language(step_by_step(gpt2().ours)), [], Decoding()) == []


# --- windows ---------------------------------------------------------------------------------------------------------


def test_what_is_read_moves_on_by_the_stride() -> None:
    """Greedily, by the definition: of n pieces over the room, whole strides are left out at the front."""
    room, stride = 10, 4
    pair = gpt2()
    model = language(step_by_step(pair.ours), room=room, before=(7,))
    rows = prompts((3, 10, 13, 27))
    found = pieces_of(model, rows, Decoding(max_new=15, stride=stride))
    for row, [text] in zip(rows, found, strict=True):
        written: list[int] = []
        for _ in range(15):
            whole = [*row, *written]
            left_out = max(0, -(-(len(whole) - room) // stride)) * stride
            assert 0 < len(whole) - left_out <= room
            with torch.no_grad():
                logits = pair.reference(torch.tensor([[7, *whole[left_out:]]])).logits[0, -1]
            written.append(int(logits.argmax()))
        assert text == written


def test_a_row_that_is_picked_takes_its_window_along() -> None:
    model = language(step_by_step(gpt2().ours), room=8)
    lines = Lines(model, prompts((8, 3)), 6, stride=3)
    lines.start()
    lines.advance(torch.tensor([1, 2]))
    assert lines.firsts == [3, 0]
    lines.select([1, 0, 0])
    assert lines.firsts == [0, 3, 3]
    found = lines.advance(torch.tensor([4, 5, 6]))
    again = Lines(model, [lines.pieces[row, : lines.sizes[row]].tolist() for row in range(3)], 1, stride=3)
    torch.testing.assert_close(found, again.start())


# --- settings that cannot be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": 0, "top_p": 0.9}, "no use for 'top_p'"),
        ({"temperature": 0.0, "top_k": 5, "top_p": 0.9}, "no use for 'top_k' and 'top_p'"),
        ({"temperature": 0, "n": 3}, "writes the same text 3 times"),
        ({"temperature": -1}, "temperature must be at least 0. Got -1"),
        ({"temperature": "hot"}, "'temperature' must be a number. Got 'hot'"),
        ({"temperature": float("nan")}, "'temperature' must be a number"),
        ({"top_p": 0}, "over 0 and at most 1. Got 0"),
        ({"top_p": 1.2}, "over 0 and at most 1. Got 1.2"),
        ({"top_k": 0}, "'top_k' must be a whole number of at least 1. Got 0"),
        ({"beam": 4, "temperature": 0.7}, "no use for 'temperature'"),
        ({"beam": 4, "top_p": 0.7}, "no use for 'top_p'"),
        ({"beam": 2, "n": 3}, "A beam of 2 has no 3 best texts"),
        ({"beam": 0}, "'beam' must be a whole number of at least 1"),
        ({"length_penalty": 0.6}, "are about a beam"),
        ({"early_stopping": True}, "are about a beam"),
        ({"early_stopping": "sometimes", "beam": 2}, "True, False or 'never'. Got 'sometimes'"),
        ({"max_new": 0}, "'max_new' must be a whole number of at least 1. Got 0"),
        ({"max_new": 2.5}, "'max_new' must be a whole number"),
        ({"max_new": 5, "min_new": 6}, "at least 6 and at most 5 new pieces"),
        ({"n": 0}, "'n' must be a whole number of at least 1"),
        ({"repetition_penalty": 0}, "repetition penalty must be over 0"),
        ({"no_repeat_ngram": -1}, "'no_repeat_ngram' must be a whole number of at least 0"),
        ({"stop": ["", "x"]}, "A stop string is a string of at least 1 character. Got ''"),
        ({"stop": [3]}, "Got 3 instead"),
        ({"stride": 0}, "'stride' must be a whole number of at least 1"),
        ({"seed": 1.5}, "'seed' must be a whole number"),
    ],
    ids=str,
)
def test_contradictory_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Decoding(**settings)


@pytest.mark.parametrize(
    ("settings", "heat"),
    [({}, 0), ({"top_p": 0.9}, 1), ({"top_k": 5}, 1), ({"n": 3}, 1), ({"n": 3, "beam": 4}, 0), ({"temperature": 2}, 2)],
    ids=str,
)
def test_the_temperature_that_other_settings_ask_for(settings: dict[str, Any], heat: float) -> None:
    assert Decoding(**settings).heat == heat


def test_settings_go_to_json_and_come_back() -> None:
    decoding = Decoding(stop="end", beam=4, early_stopping="never")
    assert Decoding.from_json(decoding.to_json()) == decoding


@pytest.mark.parametrize("max_new", [7, 8, 9, 17, 25, 33])
def test_pieces_that_are_read_late_are_the_same(max_new: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where the next steps are started first."""
    written = []
    for n_unread in (0, 1, 2):
        monkeypatch.setitem(decoding_loop.UNREAD_COPIES, "cpu", n_unread)
        model = language(step_by_step(gpt2().ours), end=END, room=60)
        model.prepare(kernels=True)
        found = write_on(model, prompts(), Decoding(max_new=max_new, temperature=0))
        written.append([(one.pieces, one.ending, pytest.approx(one.log_probability)) for (one,) in found])
    assert written[0] == written[1] == written[2]
    assert max_new < 33 or len({ending for _, ending, _ in written[0]}) == 2
