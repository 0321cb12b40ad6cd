"""Scores of a benchmark's items: minimal pairs, and last words. Each text is put into pieces once and scored once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyseme.datasets.lambada import LastWord
from polyseme.datasets.minimal_pairs import MinimalPair, PairSet
from polyseme.datasets.wikitext import WordStream
from polyseme.errors import InputError, OptionError
from polyseme.scoring.scorer import PieceScores, Scorer
from polyseme.scoring.text_scores import Floats, pieces_of_word
from polyseme.text.alignment import count_unknown
from polyseme.text.documents import make_document
from polyseme.types import Document, OnBatch, Pieces, Tokenizer

PairScores = list[tuple[float, ...]]
"""For each pair the good side's log-probability, then those of the bad ones."""


def score_pairs(scorer: Scorer, sets: Sequence[PairSet], on_batch: OnBatch | None = None) -> list[PairScores]:
    """Log-probabilities of both sides of every pair: of the word in focus, of the last words, or of the whole text."""
    texts: dict[tuple[object, int | None, int | None], int] = {}
    requests: list[tuple[Document, MinimalPair]] = []
    places: list[list[list[int]]] = []
    for each in sets:
        places.append([])
        for pair in each.pairs:
            numbers: list[int] = []
            for text in (pair.good, *pair.bad):
                key = (text, pair.focus, pair.last_words)
                if key not in texts:
                    texts[key] = len(requests)
                    requests.append((_document(text, pair), pair))
                numbers.append(texts[key])
            places[-1].append(numbers)
    scores = _scores(scorer, requests, on_batch)
    return [[tuple(scores[number] for number in numbers) for numbers in each] for each in places]


def _scores(scorer: Scorer, requests: Sequence[tuple[Document, MinimalPair]], on_batch: OnBatch | None) -> list[float]:
    encoded = scorer.tokenizer.encode_many([document for document, _ in requests])
    runs: list[tuple[int, int]] = []
    for (_, pair), each in zip(requests, encoded, strict=True):
        if not len(each):
            raise InputError(f"{pair.place}: the model's tokenizer makes nothing of a side of this pair.")
        runs.append(_run(each, pair))
    scorer.tally.words += sum(len(document.words) for document, _ in requests)
    scorer.tally.vanished += sum(each.n_unknown for each in encoded)
    piece_scores = scorer.pieces(encoded, only=runs, on_batch=on_batch)
    return [_sum(scores, run) for scores, run in zip(piece_scores, runs, strict=True)]


def _run(pieces: Pieces, pair: MinimalPair) -> tuple[int, int]:
    """The pieces that are compared."""
    if pair.focus is not None:
        return pieces_of_word(pieces, pair.focus)
    return (0 if pair.last_words is None else pieces_of_word(pieces, -pair.last_words)[0], len(pieces))


def _sum(scores: PieceScores, run: tuple[int, int]) -> float:
    log_probs = scores.log_probs[run[0] : run[1]]
    return math.fsum(log_probs[~np.isnan(log_probs)])


def _document(text: object, pair: MinimalPair) -> Document:
    try:
        return make_document(text if isinstance(text, str) else list(text))  # type: ignore[call-overload]
    except InputError as error:
        raise InputError(f"{pair.place}: {error}") from None


def score_last_words(
    scorer: Scorer, items: Sequence[LastWord], on_batch: OnBatch | None = None
) -> tuple[Floats, NDArray[np.bool_]]:
    """The log-probability of each passage's last word, and whether each of its pieces was the likeliest.

    A word that is read or predicted as the unknown one is never right: the likeliest piece is then not that word.
    """
    encoded = scorer.tokenizer.encode_many([item.document for item in items])
    runs = [pieces_of_word(each, -1) for each in encoded]
    scorer.tally.words += sum(len(item.document.words) for item in items)
    scorer.tally.vanished += sum(each.n_unknown for each in encoded)
    piece_scores = scorer.pieces(encoded, only=runs, best=True, on_batch=on_batch)
    log_probs = np.array([_sum(scores, run) for scores, run in zip(piece_scores, runs, strict=True)])
    right = [
        bool(scores.best[run[0] : run[1]].all()) and not _has_unknown(scorer, each, run)
        for scores, each, run in zip(piece_scores, encoded, runs, strict=True)
    ]
    return log_probs, np.array(right, dtype=np.bool_)


def score_streams(
    scorer: Scorer, streams: Sequence[WordStream], on_batch: OnBatch | None = None
) -> list[tuple[float, int]]:
    """The log-probability of each stream, and the number of pieces that it is of.

    A stream is read as one text, and each of its lines ends with the piece that ends texts, if the model has one.
    """
    if scorer.from_both_sides:
        raise OptionError(
            "The perplexity of a stream is that of a model that predicts each word from those before it; this one "
            "predicts from both sides. Take another model."
        )
    encoded = [stream_pieces(stream, scorer.tokenizer) for stream in streams]
    scorer.tally.words += sum(stream.n_words for stream in streams)
    scorer.tally.vanished += sum(each.n_unknown for each in encoded)
    scored = [each.log_probs[~np.isnan(each.log_probs)] for each in scorer.pieces(encoded, on_batch=on_batch)]
    return [(math.fsum(each), len(each)) for each in scored]


def stream_pieces(stream: WordStream, tokenizer: Tokenizer) -> Pieces:
    """A stream as one document, without a text of its own."""
    lines, end = tokenizer.encode_many(stream.documents), tokenizer.specials.get("end")
    ends = np.zeros(0, np.int64) if end is None else np.array([end])
    ids = np.concatenate([part for each in lines for part in (each.ids, ends)])
    starts = np.cumsum([0, *(len(each) + len(ends) for each in lines)])[:-1]
    words = np.concatenate([each.words + start for each, start in zip(lines, starts, strict=True)])
    return Pieces(ids, np.zeros((len(ids), 2), np.int64), words, sum(each.n_unknown for each in lines))


def _has_unknown(scorer: Scorer, pieces: Pieces, run: tuple[int, int]) -> bool:
    """Whether there is the unknown piece in a run of pieces, or one that is predicted as the unknown word."""
    start, end = run
    alone = Pieces(pieces.ids[start:end], pieces.spans[start:end], np.array([[0, end - start - 1]]))
    return count_unknown([alone], scorer.tokenizer) > 0 or scorer.method.unknown(alone) > 0
