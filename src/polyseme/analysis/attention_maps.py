"""The attention of a model over a text: of every layer and head, from word to word or from piece to piece.

Attention to a word is the sum over its pieces, attention from a word the mean over its pieces (Clark et al. 2019), so
that what a word gives away adds up to 1 as it does for pieces. Of a piece that belongs to two words, each has half.

Attention rollout (Abnar and Zuidema 2020) follows attention up the layers. With A the mean over the heads of a layer,
R_0 = I and R_l = (0.5 A + 0.5 I) R_{l-1}, the rows of the first factor divided by their sum; it is computed over
pieces and then brought to words.

Shapes: T pieces of a row, S pieces of the row that is looked at, H heads, n and m the units (words) of both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.analysis.word_attention import has_attentions, head_numbers, no_attentions
from polyseme.bundle import Bundle
from polyseme.cost import Tally, decoder_flops, forward_flops
from polyseme.embedding.decoder_stack import decoder_of
from polyseme.embedding.piece_states import batch_of, decoder_row, to_numpy
from polyseme.encoders.encoder import Encoder
from polyseme.encoders.recurrent_decoder import RecurrentDecoder
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.errors import InputError, OptionError
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import generation_strategy, language_model
from polyseme.parts.attention import Attention
from polyseme.text.documents import to_document
from polyseme.text.windows import Window, cut
from polyseme.types import Document, FramedRow, Pieces, Progress, States

Floats = NDArray[Any]
Part = Literal["encoder", "decoder", "cross"]
"""Self-attention of the first stack (the only one of most models) or of the second, or the second's to its source."""
MOST_WEIGHTS = 2**27
"""Attention weights between pieces that are computed of a text; they take 512 MiB."""


class Unit(NamedTuple):
    """What attention is drawn between: a word, a piece or a special piece."""

    text: str
    special: bool


class LayerAttention(NamedTuple):
    """The attention of one layer."""

    layer: int
    heads: tuple[int, ...]
    """The numbers of its heads, from 0; those that were pruned are missing."""
    weights: Floats
    """[H, n, m]"""
    rollout: Floats | None = None
    """[n, m]: from the units of this layer to those of the input, on request."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionMap:
    """The attention of one part of a model over one window of a text."""

    part: Part
    window: int
    """Counted from 1."""
    rows: Sequence[Unit]
    """n: what looks."""
    columns: Sequence[Unit]
    """m: what is looked at."""
    layers: Sequence[LayerAttention]


@dataclass
class AttentionReading:
    """What was read of a text, and at what cost."""

    maps: list[AttentionMap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)


# --- from pieces to words ---------------------------------------------------------------------------------------------


def to_units(weights: Floats, rows: Floats, columns: Floats) -> Floats:
    """[…, T, S] → […, n, m]: the mean over the pieces of what looks, the sum over those of what is looked at.

    `rows` [T, n] and `columns` [S, m] are the shares of pieces in units, each piece's adding up to 1.
    """
    among = (rows > 0).astype(weights.dtype)
    pooled: Floats = (among / among.sum(axis=0)).T @ weights @ columns.astype(weights.dtype)
    return pooled


def rollout(layers: Sequence[Floats]) -> list[Floats]:
    """Attention rollout up to each layer, [T, T] each, from the weights [H, T, T] of all layers, the lowest first."""
    reached: list[Floats] = []
    for weights in layers:
        own = np.eye(weights.shape[-1], dtype=weights.dtype)
        mixed = 0.5 * weights.mean(axis=0) + 0.5 * own if len(weights) else own
        mixed /= mixed.sum(axis=-1, keepdims=True)
        reached.append(mixed @ reached[-1] if reached else mixed)
    return reached


@dataclass(frozen=True)
class _Row:
    """Pieces as a stack reads them, and the units that they make up."""

    framed: FramedRow
    units: list[Unit]
    shares: Floats
    """[T, n]"""


def _row(bundle: Bundle, framed: FramedRow, n_pieces: int, words: Sequence[tuple[int, int, str]]) -> _Row:
    """A row of a text's pieces in their frame; what is in none of the words is a unit of its own."""
    names = bundle.text_tokenizer.pieces(framed.ids.tolist())
    inside = range(framed.offset, framed.offset + n_pieces)
    members = [(framed.offset + first, framed.offset + last, Unit(text, special=False)) for first, last, text in words]
    covered = {piece for first, last, _ in members for piece in range(first, last + 1)}
    members += [(at, at, Unit(name, at not in inside)) for at, name in enumerate(names) if at not in covered]
    members.sort(key=lambda each: each[:2])
    shares = np.zeros((len(names), len(members)))
    for number, (first, last, _) in enumerate(members):
        shares[first : last + 1, number] = 1.0
    return _Row(framed, [unit for *_, unit in members], shares / shares.sum(axis=1, keepdims=True))


def _words_within(document: Document, encoded: Pieces, start: int, end: int) -> list[tuple[int, int, str]]:
    """The words in the pieces [start, end) of a document, by first and last piece; dots where a word is cut.

    A piece that is nothing but the blank before a word goes with the word.
    """
    words: list[tuple[int, int, str]] = []
    before = -1
    for word, (first, last) in zip(document.words, encoded.words.tolist(), strict=True):
        while first - 1 > before and not document.text[slice(*encoded.spans[first - 1])].strip(" "):
            first -= 1
        before = last
        if first < end and last >= start:
            text = f"{'…' if first < start else ''}{word}{'…' if last >= end else ''}"
            words.append((max(first, start) - start, min(last, end - 1) - start, text))
    return words


# --- reading ----------------------------------------------------------------------------------------------------------


def shows_attention(bundle: Bundle) -> bool:
    """Whether a model has attention in any of its stacks."""
    recurrent = isinstance(bundle.decoder, RecurrentDecoder) and bundle.decoder.attention is not None
    return recurrent or (has_attentions(bundle) and bool(head_numbers(bundle)))


def read_attention(
    bundle: Bundle,
    text: str | Sequence[str],
    *,
    target: str | Sequence[str] | None = None,
    pieces: bool = False,
    with_rollout: bool = False,
    progress: Progress | None = None,
) -> AttentionReading:
    """The attention of a model over a text (or its words), window by window.

    A model with a decoder reads the text as a source, and `target` behind it: None is what it writes itself, or where
    it has no output to write with, the text.
    """
    if not shows_attention(bundle):
        raise no_attentions(bundle)
    if target is not None and bundle.decoder is None:
        raise OptionError(
            "A target is the text that a decoder writes, and the model has one stack. Leave the target out, or use a "
            "sequence-to-sequence model such as BART or T5."
        )
    document = to_document(text, 0)
    encoded = bundle.text_tokenizer.encode(document)
    if not len(encoded):
        raise InputError("The text has no words, so there is nothing to look at. Give it some.")
    config = bundle.config
    room = None if config.window is None else config.window - bundle.text_tokenizer.n_specials
    windows = cut(len(encoded), room, config.direction)
    _check_size(bundle, windows)
    reading = AttentionReading()
    if len(windows) > 1:
        if target is not None:
            raise InputError(
                f"The text has {len(encoded):,} pieces, and the model reads at most {room:,} at once, without special "
                "pieces. A target belongs to one whole source: shorten the text, or leave the target out."
            )
        reading.notes.append(
            f"The text has {len(encoded):,} pieces, and the model reads at most {room:,} at once, without special "
            f"pieces. It was read in {len(windows)} windows, as embed reads it; each window has its own section."
        )
    reading.tally.documents, reading.tally.words = 1, len(document.words)
    reader = _Reader(bundle, reading, as_pieces=pieces, with_rollout=with_rollout)
    for number, window in enumerate(windows, start=1):
        reader.read(document, encoded, window, number, target)
        if progress is not None:
            progress(number, len(windows))
    if with_rollout and all(each.part == "cross" for each in reading.maps):
        reading.notes.append("There is no rollout, since the model has attention to the source alone.")
    return reading


def _check_size(bundle: Bundle, windows: Sequence[Window]) -> None:
    """Refuse a text of which there is too much to look at."""
    if not isinstance(bundle.config, TransformerConfig):
        return
    n_weights = bundle.config.n_layers * bundle.config.n_heads * sum((end - start) ** 2 for start, end, *_ in windows)
    if n_weights > MOST_WEIGHTS:
        raise InputError(
            f"The text has {windows[-1].end:,} pieces, and so {n_weights:,} attention weights over all layers, heads "
            f"and windows; at most {MOST_WEIGHTS:,} are shown. Shorten it."
        )


class _Reader:
    """One text, window by window."""

    def __init__(self, bundle: Bundle, reading: AttentionReading, *, as_pieces: bool, with_rollout: bool) -> None:
        self.bundle = bundle
        self.reading = reading
        self.as_pieces = as_pieces
        self.with_rollout = with_rollout

    @torch.inference_mode()
    def read(
        self, document: Document, encoded: Pieces, window: Window, number: int, target: str | Sequence[str] | None
    ) -> None:
        """The attention of all parts of the model over one window."""
        bundle, tally = self.bundle, self.reading.tally
        start, end = window.start, window.end
        framed = bundle.text_tokenizer.frame(encoded.ids[start:end])
        row = self._row(framed, document, encoded, start, end)
        states = bundle.encoder(batch_of(bundle, framed), attentions=True)
        tally.pieces += len(framed.ids)
        tally.flops += forward_flops(bundle.config, [len(framed.ids)])
        self._add("encoder", number, bundle.encoder, states, row, row)
        if bundle.decoder is None:
            return
        written = self._target(document, encoded, window, framed, target)
        behind = dataclasses.replace(batch_of(bundle, written.framed), segments=None, source=states)
        states = bundle.decoder(behind, attentions=True)
        tally.pieces += len(written.framed.ids)
        tally.flops += decoder_flops(bundle.decoder.config, len(framed.ids), len(written.framed.ids))
        self._add("decoder", number, bundle.decoder, states, written, written)
        self._add("cross", number, bundle.decoder, states, written, row)

    def _add(self, part: Part, window: int, stack: Encoder, states: States, rows: _Row, columns: _Row) -> None:
        seen = [to_numpy(each[0]) for each in states.attentions.get("cross" if part == "cross" else "self", ())]
        if not seen:
            return
        rolled: list[Floats | None] = [None] * len(seen)
        if self.with_rollout and part != "cross":
            rolled = [to_units(each, rows.shares, columns.shares) for each in rollout(seen)]
        first = states.depth - len(seen) + 1
        layers = [
            LayerAttention(
                layer=first + index,
                heads=_heads(stack, part, index),
                weights=to_units(weights, rows.shares, columns.shares),
                rollout=rolled[index],
            )
            for index, weights in enumerate(seen)
        ]
        self.reading.maps.append(
            AttentionMap(part=part, window=window, rows=rows.units, columns=columns.units, layers=layers)
        )

    # --- what a decoder reads -----------------------------------------------------------------------------------------

    def _target(
        self, document: Document, encoded: Pieces, window: Window, source: FramedRow, target: str | Sequence[str] | None
    ) -> _Row:
        """The target as the decoder reads it: behind the piece that it begins with."""
        tokenizer, notes = self.bundle.text_tokenizer, self.reading.notes
        start, end = 0, 0
        if target is None:
            target = _written_text(self.bundle, source)
            if target is not None:
                notes.append(f"The target is the text that the model generates (greedy decoding): {target!r}.")
            else:
                notes.append("The model has no output to write with, so the target is the text itself.")
                start, end = window.start, window.end
        elif not to_document(target, 0).words:
            raise InputError("The target has no words. Give it some, or leave it out.")
        if target is not None:
            document = to_document(target, 0)
            encoded = tokenizer.encode(document)
            end = len(encoded)
        framed = self._behind(encoded, start, end)
        room = decoder_of(self.bundle).config.window
        if room is not None and len(framed.ids) > room:
            end -= len(framed.ids) - room
            notes.append(f"Only the first {end - start:,} pieces of the target are shown: the decoder reads no more.")
            framed = self._behind(encoded, start, end)
        return self._row(framed, document, encoded, start, end)

    def _behind(self, encoded: Pieces, start: int, end: int) -> FramedRow:
        framed = self.bundle.text_tokenizer.frame(encoded.ids[start:end])
        return decoder_row(framed, end - start, self.bundle.first_written)

    def _row(self, framed: FramedRow, document: Document, encoded: Pieces, start: int, end: int) -> _Row:
        words = [] if self.as_pieces else _words_within(document, encoded, start, end)
        return _row(self.bundle, framed, end - start, words)


def _written_text(bundle: Bundle, framed: FramedRow) -> str | None:
    """What a model writes from a source, the likeliest piece each time; None where it has no output for that."""
    if generation_strategy(bundle) is None:
        return None
    model = language_model(bundle)
    source = framed.ids.tolist()
    decoding = Decoding(greedy=True, max_new=model.usual_length)
    [[written]] = write_on(model, [[]], decoding, sources=[source])
    return bundle.text_tokenizer.decode(written.pieces)


def _heads(stack: Encoder, part: Part, index: int) -> tuple[int, ...]:
    """The numbers of a layer's heads; a recurrent decoder has one."""
    if not isinstance(stack, Transformer):
        return (0,)
    layer = cast(TransformerLayer, stack.layers[stack.config.weight_sets[index]])
    return cast(Attention, layer.cross if part == "cross" else layer.attention).head_numbers
