from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.conftest import packed_rows, stream, stream_rows
from corpus.epochs import epoch_of
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.random_keys import row_keys
from polyseme.errors import OptionError

lengths = st.integers(3, 200)
seeds = st.integers(0, 2**40)


def places_of(rows: np.ndarray, whole: np.ndarray) -> list[int]:
    """Where in the ring `whole` each row stands first."""
    ring = np.concatenate([whole, whole[: rows.shape[1]]]).astype(np.int64).tobytes()
    return [place_in(ring, row.tobytes()) for row in rows]


def place_in(ring: bytes, row: bytes) -> int:
    place = ring.find(row)
    while place % 8:
        place = ring.find(row, place + 1)
    assert place >= 0
    return place // 8


@settings(max_examples=15)
@given(length=st.integers(20, 150), seed=seeds, epoch=st.integers(0, 5))
def test_every_piece_comes_once_an_epoch_but_for_less_than_a_row(corpus: Corpus, length: int, seed: int, epoch: int):
    whole = stream(corpus)
    packed = packed_rows(corpus, length=length, seed=seed)
    assert packed.n_rows == len(whole) // (length - 2)
    rows = epoch_of(packed, epoch).pieces[:, 1:-1]
    taken = np.bincount(rows.ravel(), minlength=300)
    left_out = np.bincount(whole, minlength=300) - taken
    assert left_out.min() >= 0
    assert left_out.sum() == len(whole) % (length - 2)
    begins = np.array(places_of(rows, whole))
    steps = np.unique(np.diff(np.sort(begins)))
    assert set(steps) <= {length - 2, length - 2 + len(whole) % (length - 2)}


@settings(max_examples=20)
@given(length=lengths, seed=seeds, data=st.data())
def test_a_row_is_the_same_in_any_batch(corpus: Corpus, length: int, seed: int, data: st.DataObject):
    packed = packed_rows(corpus, length=length, seed=seed, mask_documents=True, reset_positions=True)
    indices = data.draw(st.lists(st.integers(0, 3 * packed.n_rows - 1), min_size=1, max_size=8))
    together = packed.rows(np.array(indices))
    for place, index in enumerate(indices):
        alone = packed.rows(np.array([index]))
        for name in ("pieces", "starts", "special", "keys", "documents", "positions"):
            assert np.array_equal(getattr(together, name)[place], getattr(alone, name)[0]), name
    epoch, within = np.divmod(np.array(indices), packed.n_rows)
    assert np.array_equal(together.keys, row_keys(seed, epoch, within))


def test_rows_are_full_and_framed(corpus: Corpus):
    tokenizer = corpus.tokenizer
    rows = epoch_of(packed_rows(corpus, length=40))
    assert rows.pieces.dtype == np.int64
    assert rows.pieces.shape[1] == 40
    assert (rows.pieces[:, 0] == tokenizer.specials["start"]).all()
    assert (rows.pieces[:, -1] == tokenizer.specials["end"]).all()
    inside = rows.pieces[:, 1:-1]
    assert not np.isin(inside, [tokenizer.specials[role] for role in ("start", "pad", "mask")]).any()
    assert np.array_equal(rows.special[:, 1:-1], inside == tokenizer.specials["end"])
    assert rows.special[:, [0, -1]].all()
    assert rows.starts[rows.special].all()
    continued = np.array([piece.startswith("##") for piece in tokenizer.pieces(range(tokenizer.n_pieces))])
    assert not rows.starts[continued[rows.pieces]].any()


def test_epochs_have_other_cuts_and_another_order_and_held_out_rows_none(corpus: Corpus):
    packed = packed_rows(corpus, length=40)
    first, second = epoch_of(packed, 0), epoch_of(packed, 1)
    assert not np.array_equal(first.pieces, second.pieces)
    whole = stream(corpus)
    begins = [np.array(places_of(rows.pieces[:, 1:-1], whole)) for rows in (first, second)]
    assert (np.diff(begins[0]) < 0).any()
    assert set(begins[0] % 38) != set(begins[1] % 38)
    assert not np.array_equal(first.pieces, epoch_of(packed_rows(corpus, length=40, seed=1)).pieces)
    held = packed_rows(corpus, "held", length=40, seed=3)
    whole = stream(corpus, split="held")
    rows = epoch_of(held)
    assert np.array_equal(rows.pieces[:, 1:-1].ravel(), whole[: held.n_rows * 38])
    assert np.array_equal(rows.pieces, epoch_of(held, 2).pieces)
    assert np.array_equal(rows.keys, epoch_of(held, 2).keys)


@pytest.mark.parametrize("name", ["corpus", "unframed"])
def test_documents_and_positions(name: str, request: pytest.FixtureRequest):
    corpus: Corpus = request.getfixturevalue(name)
    ends = set(corpus.shards("train")[0].ends.tolist())
    whole = stream(corpus)
    before = corpus.tokenizer.frame(np.zeros(0, np.int64)).offset
    packed = packed_rows(corpus, length=70, mask_documents=True, reset_positions=True)
    rows = epoch_of(packed)
    n = 70 - corpus.tokenizer.n_specials
    assert rows.documents is not None
    assert rows.positions is not None
    for row, place in enumerate(places_of(rows.pieces[:, before : before + n], whole)):
        number, position, expected, positions = 0, before, [0] * before, list(range(before))
        for step in range(n):
            if step and (place + step) % len(whole) in ends | {0}:
                number, position = number + 1, 0
            expected.append(number)
            positions.append(position)
            position += 1
        left = 70 - before - n
        assert rows.documents[row].tolist() == expected + [number] * left
        assert rows.positions[row].tolist() == positions + list(range(position, position + left))
    plain = packed_rows(corpus, length=70).rows(np.arange(3))
    assert plain.documents is None
    assert plain.positions is None
    apart = packed_rows(corpus, length=70, mask_documents=True).rows(np.arange(3))
    assert apart.documents is not None
    assert apart.positions is None


def test_a_tokenizer_without_an_end_has_no_separators(unframed: Corpus):
    assert unframed.separator is None
    rows = epoch_of(packed_rows(unframed, length=30))
    assert not rows.special.any()
    assert rows.starts.any()
    assert not rows.starts.all()


def test_weights_say_how_often_rows_come(weighted: Corpus):
    packed = packed_rows(weighted, length=32)
    n = [len(shard) // 30 for shard in weighted.shards("train")]
    assert packed.n_rows == round(2.5 * n[0]) + round(0.5 * n[1])
    ends = [set(map(bytes, _windows(stream(weighted, source), 30))) for source in (0, 1)]
    for epoch in (0, 1):
        rows = epoch_of(packed, epoch).pieces[:, 1:-1]
        of_source = [sum(row.tobytes() in known for row in rows) for known in ends]
        assert of_source == [round(2.5 * n[0]), round(0.5 * n[1])]
        taken = [row.tobytes() for row in rows if row.tobytes() in ends[1]]
        assert len(set(taken)) == len(taken)
    held = packed_rows(weighted, "held", length=32)
    assert held.n_rows == sum(len(shard) // 30 for shard in weighted.shards("held"))


def _windows(whole: np.ndarray, n: int) -> list[bytes]:
    ring = np.concatenate([whole, whole[:n]])
    return [ring[place : place + n].tobytes() for place in range(len(whole))]


@settings(max_examples=15)
@given(n=st.integers(1, 9), length=st.integers(1, 90), epoch=st.integers(0, 3))
def test_streams_go_on_where_they_were(corpus: Corpus, n: int, length: int, epoch: int):
    whole = stream(corpus)
    streams = stream_rows(corpus, n, length=length)
    steps = len(whole) // n // length
    assert streams.n_rows == n * steps
    rows = epoch_of(streams, epoch)
    assert np.array_equal(rows.special, rows.pieces == corpus.separator)
    for number in range(n):
        joined = rows.pieces[number::n].ravel()
        place = places_of(joined[None], whole)[0]
        assert np.array_equal(np.concatenate([whole, whole])[place : place + len(joined)], joined)
    assert np.array_equal(
        streams.rows(np.array([1 % streams.n_rows])).pieces[0], epoch_of(streams).pieces[1 % streams.n_rows]
    )


def test_backward_streams_go_from_the_end_to_the_beginning(corpus: Corpus):
    """Each row ends where the one before it in time began; its first piece is a target alone."""
    whole = stream(corpus, split="held")
    streams = stream_rows(corpus, 2, "held", length=8, ahead=1, backwards=True)
    rows = epoch_of(streams).pieces
    half = len(whole) // 2
    for number in (0, 1):
        for step, row in enumerate(rows[number::2][:3]):
            end = (number + 1) * half - 8 * step
            np.testing.assert_array_equal(row, np.take(whole, np.arange(end - 9, end), mode="wrap"))


def test_streams_run_over_sources_and_refuse_weights(weighted: Corpus):
    with pytest.raises(OptionError, match=r"weight 2\.5"):
        stream_rows(weighted, 2)
    held = stream_rows(weighted, 1, "held", length=16)
    whole = np.concatenate([stream(weighted, source, "held") for source in (0, 1)])
    assert np.array_equal(epoch_of(held).pieces.ravel(), whole[: held.n_rows * 16])


def test_what_cannot_fill_a_row_is_refused(corpus: Corpus):
    n_pieces = corpus.n_pieces("held")
    packed = packed_rows(corpus, "held", length=n_pieces + 3)
    assert packed.n_rows == 0
    with pytest.raises(OptionError, match=f"{n_pieces:,} pieces"):
        packed.rows(np.array([0]))
    assert packed_rows(corpus, "held", length=n_pieces + 2).n_rows == 1
    with pytest.raises(OptionError, match="no room"):
        packed_rows(corpus, length=2)
    streams = stream_rows(corpus, 10, "held", length=n_pieces)
    with pytest.raises(OptionError, match="10 streams"):
        streams.rows(np.array([0]))
    with pytest.raises(OptionError, match="no split 'test'"):
        packed_rows(corpus, "test")


@settings(max_examples=15)
@given(length=st.integers(20, 150), seed=seeds, epoch=st.integers(0, 3))
def test_rows_that_begin_with_sentences_do_and_lose_nothing_for_good(
    corpus: Corpus, length: int, seed: int, epoch: int
):
    shards = corpus.shards("train")
    plain = packed_rows(corpus, length=length, seed=seed)
    packed = packed_rows(corpus, length=length, seed=seed, sentence_starts=True)
    rows, before = epoch_of(packed, epoch), epoch_of(plain, epoch)
    assert np.array_equal(rows.keys, before.keys)
    indices = np.arange(packed.n_rows) + epoch * packed.n_rows
    draw = packed.draw(indices)
    begins, anywhere = packed._begins(draw), plain._begins(draw)
    at_sentence = np.array(
        [shards[source].sentences_at(np.array([place]))[0] for source, place in zip(draw.sources, begins, strict=True)]
    )
    moved = begins - anywhere
    assert (moved >= 0).all()
    assert (moved < length - 2).all()
    assert (at_sentence | (moved == 0)).all()
    assert at_sentence.mean() > 0.5
    for row, (source, place) in enumerate(zip(draw.sources, begins, strict=True)):
        ring = np.take(shards[source].pieces, np.arange(place, place + length - 2), mode="wrap")
        assert np.array_equal(rows.pieces[row, 1:-1], ring)


def test_rows_without_a_frame_that_begin_with_sentences_have_the_start_piece(bare_corpus: Corpus):
    start = bare_corpus.tokenizer.specials["start"]
    rows = epoch_of(packed_rows(bare_corpus, length=32, sentence_starts=True))
    assert rows.pieces.shape[1] == 32
    assert (rows.pieces[:, 0] == start).all()
    assert rows.special[:, 0].all()
    plain = epoch_of(packed_rows(bare_corpus, length=32))
    assert (plain.pieces[:, 0] != start).any()


def test_held_out_rows_are_cut_anywhere(corpus: Corpus):
    packed = [packed_rows(corpus, length=40, split="held", sentence_starts=starts) for starts in (False, True)]
    assert np.array_equal(epoch_of(packed[0]).pieces, epoch_of(packed[1]).pieces)
