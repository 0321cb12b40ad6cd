"""One text as a row from which pieces are predicted: which stack runs, and the places at which its output is read.

| the model has | the row | places |
|---|---|---|
| a masked output and a mask piece | the text in its frame | the masks |
| a causal output, one stack | the text behind the piece that begins texts | every piece: what comes next |
| a two-way output | the same, read by one of its halves | every piece: what comes next, or what comes before |
| a causal output, two stacks and a mask or sentinels | what the decoder has read when it comes to the mask | the last |
| a causal output and two stacks | the text behind the piece that a decoder begins with, given a source | every piece |

Shapes: P places, T pieces of the row, V pieces in the vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.cost import Tally, decoder_flops, forward_flops
from polyseme.embedding.decoder_stack import decoder_of
from polyseme.embedding.piece_states import batch_of
from polyseme.encoders.encoder import Encoder, Layers
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.filling.choose_filler import filling_method, sentinels_of
from polyseme.filling.filled_masks import MaskedText
from polyseme.generating.language_model import has_words
from polyseme.outputs.output import Output
from polyseme.outputs.softmaxes import TwoWayOutput
from polyseme.packaged_models import where_output
from polyseme.scoring.causal import TextReading, causal_reading, half_reading
from polyseme.scoring.target_rows import in_single_precision
from polyseme.text.character_tokenizer import CharacterTokenizer, WordTable
from polyseme.text.documents import make_document
from polyseme.text.piece_texts import find_masks, piece_texts
from polyseme.types import Batch, FramedRow, States, Tokenizer

Ints = NDArray[np.int64]


class Place(NamedTuple):
    """A place of a row at which a piece is predicted."""

    at: int
    """In the row, counted from 0."""
    name: str
    """The piece that is read there, or `mask 1`."""
    target: int | None = None
    """The piece that the text itself has where one is predicted, if any."""


@dataclass(frozen=True)
class SourceRow:
    """What the first stack of a sequence-to-sequence model reads."""

    encoder: Encoder
    batch: Batch
    spans: Ints
    """[S, 2]: the offsets of its pieces in the source; specials are empty."""

    def states(self, n: int = 1) -> States:
        """The top layer, which the decoder reads, of the source `n` times."""
        states: States = self.encoder(_repeated(self.batch, n), layers=[-1])
        return states


@dataclass(frozen=True)
class PredictionRow:
    """A row, the stack that reads it, the output over that stack's states, and the places where it predicts."""

    stack: Encoder
    output: Output
    tokenizer: Tokenizer
    batch: Batch
    places: Sequence[Place]
    spans: Ints
    """[T, 2]: the offsets of the row's pieces in the text; specials are empty."""
    carries: bool = False
    """Whether texts begin with an empty memory."""
    backwards: bool = False
    """Whether the text is read from its end."""
    words: WordTable | None = None
    """The words that are predicted, where those that are read are spelled in characters."""
    source: SourceRow | None = None
    """What the stack reads beside, where it is a decoder."""

    @property
    def answer_place(self) -> int:
        """Where a single answer is read: at the first mask, behind the text, or before it if it is read backwards."""
        first = self.backwards or self.places[0].name.startswith("mask ")
        return self.places[0 if first else -1].at

    @property
    def n_pieces(self) -> int:
        return int(self.batch.pieces.shape[1])

    def states(self, n: int = 1, layers: Layers = "all") -> States:
        """Layers of the row, read `n` times side by side; a decoder reads its source first."""
        batch = _repeated(self.batch, n)
        batch.source = None if self.source is None else self.source.states(n)
        memory = self.stack.new_memory(n) if self.carries else None
        states: States = self.stack(batch, layers=layers, memory=memory)
        return states

    def log_probs(self, states: Tensor) -> Tensor:
        """[1, T, D] of the top, or of a layer to which the final norm was applied → [P, V]."""
        here = torch.tensor([place.at for place in self.places], device=states.device)
        dtype = next(self.output.parameters()).dtype
        return self.output.log_probs(states[0, here].to(dtype))

    def spelled(self, ids: Sequence[int]) -> list[str]:
        """Predicted pieces as the vocabulary writes them."""
        return self.tokenizer.pieces(ids) if self.words is None else [self.words[number] for number in ids]

    def tally(self) -> Tally:
        """One reading of the row."""
        if self.source is None:
            return Tally(documents=1, pieces=self.n_pieces, flops=forward_flops(self.stack.config, [self.n_pieces]))
        n_source = int(self.source.batch.pieces.shape[1])
        flops = forward_flops(self.source.encoder.config, [n_source])
        flops += decoder_flops(self.stack.config, n_source, self.n_pieces)
        return Tally(documents=1, pieces=n_source + self.n_pieces, flops=flops)


def _repeated(batch: Batch, n: int) -> Batch:
    """A row `n` times."""
    pieces, segments = batch.pieces, batch.segments
    return Batch(
        pieces.expand(n, *pieces.shape[1:]), segments=None if segments is None else segments.expand(n, -1)
    )  # fmt: skip


RowKind = Literal["masked", "causal", "two-way", "denoising", "sentinels", "translation"]
Half = Literal["forwards", "backwards"]
"""The direction in which a half of a two-way model reads."""


def row_kind(bundle: Bundle) -> RowKind | None:
    """How a bundle predicts single pieces of a text; None: it has no output for that."""
    method = filling_method(bundle)
    if bundle.config.direction == "two-way" and "two-way" in bundle.outputs and has_words(bundle.tokenizer):
        return "two-way"
    of_encoder = "causal" in bundle.outputs and bundle.config.direction == "causal" and bundle.decoder is None
    if method != "masked" and of_encoder:
        return "causal"
    if method is None and "causal" in bundle.outputs and bundle.decoder is not None:
        return "translation"
    return method


def prediction_row(
    bundle: Bundle, text: str, *, verb: str, half: Half | None = None, source: str | None = None
) -> PredictionRow:
    """A text as the model predicts its pieces, or those at its masks; refused where it has no output for that.

    Of a two-way model it is the row of the forward half, unless `half` names the other; of a model that translates the
    text is what its decoder writes, given the `source`.
    """
    kind = row_kind(bundle)
    if source is not None and kind is not None and kind != "translation":
        raise OptionError(
            "A source is what a translation model reads before it writes the text, and this model reads the text "
            "itself. Leave --source out (source=…)."
        )
    if half is not None and kind is not None and kind != "two-way":
        raise OptionError(
            "A half is one of the two directions in which ELMo and Flair read, and this model has one direction. Leave "
            "--half out (half=…)."
        )
    if kind == "masked":
        return _masked(bundle, text)
    if kind == "causal":
        output = in_single_precision(cast(Output, bundle.outputs["causal"]))
        return _next_pieces(bundle, text, bundle.encoder, output, causal_reading(bundle, bundle.text_tokenizer))
    if kind == "two-way":
        return _half(bundle, text, backwards=half == "backwards")
    if kind == "translation":
        if source is None:
            raise OptionError(
                f"This model writes another text from the one that it reads. For {verb!r} name both: the text that it "
                "writes, and what it reads with --source (source=…)."
            )
        return _given_source(bundle, source, text)
    if kind is None:
        raise _no_output(bundle, verb)
    return _decoder(bundle, text, sentinels=kind == "sentinels")


def _no_output(bundle: Bundle, verb: str) -> ModelError:
    has = ", ".join(bundle.outputs) or "none"
    if "permuted" in bundle.outputs:
        return ModelError(
            f"{verb!r} needs a model that predicts at masks or in one direction, and this one predicts in any order "
            f"(its outputs: {has}). To see how likely the words of a text are, use score."
        )
    if "two-way" in bundle.outputs:
        return ModelError(
            f"{verb!r} shows predicted words, and the model's folder does not have the words of its softmax "
            "(vocabulary.txt). Add that file, or use a model that has it."
        )
    return ModelError(
        f"{verb!r} shows predictions, and this model has neither a 'masked' output with a mask piece nor a 'causal' "
        f"one (its outputs: {has}). {where_output('masked')}"
    )


# --- one kind of row each ---------------------------------------------------------------------------------------------


def _masked(bundle: Bundle, text: str) -> PredictionRow:
    tokenizer = bundle.text_tokenizer
    encoded = tokenizer.encode_with_masks(text)
    if not len(encoded.words):
        raise InputError(
            "There is no mask in the text, and a masked model predicts only at masks. Write [MASK] in the place of the "
            "piece to predict."
        )
    framed = tokenizer.frame(encoded.ids)
    places = [
        Place(int(place) + framed.offset, f"mask {number}") for number, place in enumerate(encoded.words[:, 0], start=1)
    ]
    spans = _spans_in(framed, encoded.spans)
    return PredictionRow(bundle.encoder, _output(bundle, "masked"), tokenizer, _fitting(bundle, framed), places, spans)


def _half(bundle: Bundle, text: str, *, backwards: bool) -> PredictionRow:
    """What follows each piece by the forward half of a two-way model, or precedes it by the backward half."""
    tokenizer = bundle.text_tokenizer
    words = WordTable(tokenizer) if isinstance(tokenizer, CharacterTokenizer) else None
    output = in_single_precision(cast(TwoWayOutput, bundle.outputs["two-way"]).halves[backwards])
    reading = half_reading(words, tokenizer, backwards=backwards)
    return _next_pieces(bundle, text, bundle.encoder.halves()[backwards], output, reading)


def _next_pieces(bundle: Bundle, text: str, stack: Encoder, output: Output, reading: TextReading) -> PredictionRow:
    """What follows each piece; of a stack that reads from the end, what precedes it."""
    tokenizer = bundle.text_tokenizer
    if find_masks(text):
        raise InputError(
            "The text has a [MASK], and this model only predicts the next piece from the text before it. Write the "
            "text up to that place, or use a masked model."
        )
    encoded = tokenizer.encode(make_document(text))
    leads: list[Ints] = [] if reading.lead is None else [np.asarray(reading.lead, np.int64)[None]]
    if not len(encoded) + len(leads):
        raise InputError("The text has no pieces, so there is nothing to predict from. Write at least one word.")
    ids = np.concatenate([encoded.ids, *leads] if reading.backwards else [*leads, encoded.ids])
    framed = FramedRow(ids, np.zeros(len(ids), np.int64), 0 if reading.backwards else len(leads))
    step = -1 if reading.backwards else 1
    predicted = ids if reading.words is None else reading.words.predicted(ids)
    after = {place: int(predicted[place + step]) for place in range(len(ids)) if 0 <= place + step < len(ids)}
    names = tokenizer.pieces(ids.tolist())
    places = [Place(place, names[place], after.get(place)) for place in range(len(ids))]
    batch = _fitting(bundle, framed)
    batch.segments = None
    return PredictionRow(
        stack,
        output,
        tokenizer,
        batch,
        places,
        _spans_in(framed, encoded.spans),
        reading.carries,
        reading.backwards,
        reading.words,
    )


def _decoder(bundle: Bundle, text: str, *, sentinels: bool) -> PredictionRow:
    """What a decoder writes for the mask: behind its sentinel (T5), or behind the text before it (BART)."""
    tokenizer, texts = bundle.text_tokenizer, piece_texts(bundle.text_tokenizer)
    own_mask = None if sentinels else texts.tokenizer.framing.specials["mask"]
    masked = MaskedText.read(text, own_mask)
    if len(masked.masks) > 1:
        raise InputError(
            f"The text has {len(masked.masks)} masks. The model's decoder reads what it wrote for one mask before it "
            "writes the next, so that only one mask can be shown. Keep one."
        )
    before, behind = (part.rstrip() if texts.blanks_matter else part for part in masked.parts)
    if sentinels:
        mark = sentinels_of(tokenizer)[0]
        parts = [tokenizer.encode(make_document(part)) for part in (before, behind)]
        [at] = masked.masks
        ids = np.concatenate([parts[0].ids, [mark], parts[1].ids])
        spans = np.concatenate([parts[0].spans, [at], parts[1].spans + at[1]])
        read = _source(bundle, tokenizer.frame(ids), spans)
        return _written(bundle, read, [], [mark], np.array([at], np.int64), "mask 1")
    encoded = tokenizer.encode_with_masks(text)
    read = _source(bundle, tokenizer.frame(encoded.ids), encoded.spans)
    pieces = tokenizer.encode(make_document(before))
    return _written(bundle, read, _lead(tokenizer), pieces.ids.tolist(), pieces.spans, "mask 1")


def _given_source(bundle: Bundle, source: str, text: str) -> PredictionRow:
    """What follows each piece of a text that a decoder writes from a source."""
    tokenizer = bundle.text_tokenizer
    if find_masks(source) or find_masks(text):
        raise InputError(
            "There is a [MASK], and this model only predicts the next piece of what it writes. Write the text up to "
            "that place."
        )
    encoded = tokenizer.encode(make_document(source))
    if not len(encoded):
        raise InputError("The source has no pieces, so that there is nothing to write from. Write at least one word.")
    read = _source(bundle, tokenizer.frame(encoded.ids), encoded.spans)
    written = tokenizer.encode(make_document(text))
    return _written(bundle, read, _lead(tokenizer), written.ids.tolist(), written.spans)


def _lead(tokenizer: Tokenizer) -> list[int]:
    """The special pieces that begin a text."""
    frame = tokenizer.frame(np.zeros(0, np.int64))
    lead: list[int] = frame.ids[: frame.offset].tolist()
    return lead


def _source(bundle: Bundle, framed: FramedRow, spans: Ints) -> SourceRow:
    return SourceRow(bundle.encoder, _fitting(bundle, framed), _spans_in(framed, spans))


def _written(
    bundle: Bundle, source: SourceRow, specials: list[int], ids: list[int], spans: Ints, only: str | None = None
) -> PredictionRow:  # fmt: skip
    """A decoder's row: what it begins with, and its text. Places are behind each piece, or the `only` one is last."""
    tokenizer, decoder = bundle.text_tokenizer, decoder_of(bundle)
    lead = [bundle.first_written, *specials]
    row = [*lead, *ids]
    window = decoder.config.window
    if window is not None and len(row) > window:
        raise InputError(
            f"The model's decoder would read {len(row):,} pieces, special pieces included; it reads {window:,} at "
            "once. Shorten the text."
        )
    names = tokenizer.pieces(row)
    if only is None:
        places = [Place(at, names[at], after) for at, after in enumerate([*row[1:], None])][len(lead) - 1 :]
    else:
        places = [Place(len(row) - 1, only)]
    placed = np.zeros((len(row), 2), np.int64)
    placed[len(lead) :] = spans
    return PredictionRow(
        decoder,
        _output(bundle, "causal"),
        tokenizer,
        Batch(torch.tensor([row], device=bundle.device)),
        places,
        placed,
        source=source,
    )


def _fitting(bundle: Bundle, framed: FramedRow) -> Batch:
    """A row as a batch of its own; refused where it is longer than the model's window."""
    window = bundle.config.window
    if window is not None and len(framed.ids) > window:
        raise InputError(
            f"The text has {len(framed.ids):,} pieces, special pieces included; the model reads {window:,} at once. "
            "Shorten the text."
        )
    return batch_of(bundle, framed)


def _output(bundle: Bundle, name: str) -> Output:
    return in_single_precision(cast(Output, bundle.outputs[name]))


def _spans_in(framed: FramedRow, spans: Ints) -> Ints:
    """[T, 2]: the offsets of all pieces of a row; specials are empty."""
    placed = np.zeros((len(framed.ids), 2), np.int64)
    placed[framed.offset : framed.offset + len(spans)] = spans
    return placed
