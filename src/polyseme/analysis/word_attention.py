"""Attention between words: the weights of an encoder's heads over sentences, pooled from pieces to words.

As Clark et al. (2019) do it: attention *to* a word is the sum over its pieces, attention *from* a word the mean over
its pieces, so that what a word gives to all words and special pieces still sums to 1.

Shapes: R sentences of a batch, H heads, T pieces, W words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import Tally, forward_flops
from polyseme.encoders.batch_runner import BATCH_PIECES, padded
from polyseme.encoders.recurrent import Recurrent, TwoWay
from polyseme.encoders.transformer import Transformer
from polyseme.errors import InputError, ModelError
from polyseme.parts.attention import Attention
from polyseme.types import Document, FramedRow, Pieces, Progress

WEIGHTS_AT_ONCE = {"cuda": 1 << 29}
"""Attention weights of all heads that are held at a time."""
FEWER_WEIGHTS = 1 << 25
"""The same on a CPU."""


def has_attentions(bundle: Bundle) -> bool:
    """Whether the encoder has attention heads."""
    return isinstance(bundle.encoder, Transformer) and len(bundle.encoder.layers) > 0


def check_attentions(bundle: Bundle) -> None:
    """Refuse an encoder without attention, and say what it has instead."""
    if not has_attentions(bundle):
        raise no_attentions(bundle)


def no_attentions(bundle: Bundle) -> ModelError:
    """Why the attention of a model cannot be looked at, and what it has instead."""
    if isinstance(bundle.encoder, Recurrent | TwoWay):
        instead = "It reads word by word and has recurrent cells instead: polyseme cells shows what single cells track."
    elif bundle.config.direction == "none":
        instead = (
            "Its words do not see each other. It has one vector for each word instead: polyseme similar shows the "
            "neighbors of a word."
        )
    else:
        instead = "It has vectors of words instead: polyseme embed writes them."
    return ModelError(
        f"A model of the family {bundle.family.name} has no attention heads in its encoder. {instead} For attention, "
        "use a Transformer."
    )


def head_numbers(bundle: Bundle) -> list[tuple[int, int]]:
    """Layer and number of every head of the encoder; layers count from 1, heads from 0 and as before any was pruned."""
    encoder = bundle.encoder
    assert isinstance(encoder, Transformer)
    numbers: list[tuple[int, int]] = []
    for layer, weight_set in enumerate(encoder.config.weight_sets, start=1):
        attention = encoder.layers[weight_set].attention
        assert isinstance(attention, Attention)
        numbers += [(layer, head) for head in attention.head_numbers]
    return numbers


def to_words(weights: Tensor, spans: Tensor) -> Tensor:
    """[R, H, T, T] between pieces → [R, H, W, W] between words: sums over keys, means over queries.

    Args:
        weights: the attention of each piece (third) to each piece (last).
        spans: [R, W, 2], first and last piece of each word; -1 where a sentence has no more words.
    """
    inside = piece_membership(spans, weights.shape[-1]).to(weights.dtype)
    return from_words(weights @ inside[:, None].transpose(-1, -2), spans)


def from_words(weights: Tensor, spans: Tensor) -> Tensor:
    """[R, H, T, …] from pieces → [R, H, W, …] from words: means over each word's pieces."""
    inside = piece_membership(spans, weights.shape[2]).to(weights.dtype)
    means = inside / inside.sum(-1, keepdim=True).clamp(min=1.0)
    return means[:, None] @ weights


def piece_membership(spans: Tensor, n_pieces: int) -> Tensor:
    """[R, W, T]: whether a piece is one of a word's."""
    places = torch.arange(n_pieces, device=spans.device)
    return (places >= spans[..., :1]) & (places <= spans[..., 1:])


@dataclass(frozen=True)
class AttentionBatch:
    """The attention of some sentences, by layer."""

    numbers: Sequence[int]
    """Which sentences these are."""
    weights: Sequence[Tensor]
    """[R, H, T, T] of each layer, between pieces, specials included."""
    spans: Tensor
    """[R, W, 2]: first and last piece of each word in its row; -1 where there is no word."""
    specials: Tensor
    """[R, T]: the id of a special piece, -1 of all others and of padding."""


class SentenceAttention:
    """Sentences through an encoder, batch by batch, with the weights of every head."""

    def __init__(self, bundle: Bundle) -> None:
        check_attentions(bundle)
        self.bundle = bundle
        self.heads = head_numbers(bundle)
        self.tally = Tally()
        self.n_too_long = 0
        """Sentences with more pieces than the model reads at once, which are left out."""

    @property
    def special_pieces(self) -> dict[str, int]:
        """The special pieces that stand around a sentence, by name, in their order."""
        framed = self.bundle.text_tokenizer.frame(np.zeros(0, np.int64))
        ids = list(dict.fromkeys(framed.ids.tolist()))
        return dict(zip(self.bundle.text_tokenizer.pieces(ids), ids, strict=True))

    @torch.inference_mode()
    def __call__(self, documents: Sequence[Document], progress: Progress | None = None) -> Iterator[AttentionBatch]:
        """Batches of sentences of similar length."""
        tokenizer, config = self.bundle.text_tokenizer, self.bundle.config
        encoded = tokenizer.encode_many(documents)
        framed = [tokenizer.frame(pieces.ids) for pieces in encoded]
        window = config.window
        fitting = [
            number
            for number, row in enumerate(framed)
            if len(encoded[number].words) and (window is None or len(row.ids) <= window)
        ]
        self.n_too_long += len(documents) - len(fitting)
        if not fitting:
            raise InputError(
                f"All {len(documents):,} sentences are longer than the {window:,} pieces that the model reads at once, "
                "special pieces included. Use shorter sentences, or a model with a longer window."
            )
        fitting.sort(key=lambda number: len(framed[number].ids))
        done = 0
        for numbers in self._batches(fitting, framed):
            yield self._run(numbers, [framed[number] for number in numbers], [encoded[number] for number in numbers])
            done += len(numbers)
            if progress is not None:
                progress(done, len(fitting))

    def _batches(self, order: Sequence[int], framed: Sequence[FramedRow]) -> Iterator[list[int]]:
        """Sentences in order of length, so many that the weights of all their heads can be held."""
        kind = self.bundle.device.type
        room = WEIGHTS_AT_ONCE.get(kind, FEWER_WEIGHTS) // max(len(self.heads), 1)
        batch: list[int] = []
        for number in order:
            n_pieces = (len(batch) + 1) * len(framed[number].ids)
            if batch and (n_pieces > BATCH_PIECES[kind] or n_pieces * len(framed[number].ids) > room):
                yield batch
                batch = []
            batch.append(number)
        yield batch

    def _run(self, numbers: Sequence[int], framed: Sequence[FramedRow], encoded: Sequence[Pieces]) -> AttentionBatch:
        device = self.bundle.device
        batch = padded([row.ids for row in framed], device)
        batch.segments = padded([row.segments for row in framed], device).pieces
        spans = np.full((len(framed), max(len(pieces.words) for pieces in encoded), 2), -1, np.int64)
        specials = np.full(tuple(batch.pieces.shape[:2]), -1, np.int64)
        for at, (row, pieces) in enumerate(zip(framed, encoded, strict=True)):
            spans[at, : len(pieces.words)] = pieces.words + row.offset
            outside = np.ones(len(row.ids), np.bool_)
            outside[row.offset : row.offset + len(pieces)] = False
            specials[at, : len(row.ids)][outside] = row.ids[outside]
        states = self.bundle.encoder(batch, layers=[], attentions=True)
        lengths = [len(row.ids) for row in framed]
        self.tally.documents += len(numbers)
        self.tally.words += sum(len(pieces.words) for pieces in encoded)
        self.tally.pieces += sum(lengths)
        self.tally.flops += forward_flops(self.bundle.config, lengths)
        return AttentionBatch(
            numbers,
            states.attentions["self"],
            torch.from_numpy(spans).to(device),
            torch.from_numpy(specials).to(device),
        )
