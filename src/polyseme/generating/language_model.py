"""A bundle as decoding sees it (`LanguageModel`): directions and outputs decide, never families.

| direction | output | |
|---|---|---|
| two stacks | causal | a source is read, and a text of its own is written |
| causal | causal | piece by piece, with the encoder's memory |
| two-way | two-way | the forward half, word by word |
| any-order | permuted | from left to right, with a query stream |
| both | masked | a mask at the end is filled again and again |

How prompts are read is in `prompts`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch

from polyseme.bundle import Bundle
from polyseme.encoders.batch_runner import padded
from polyseme.encoders.encoder import Encoder
from polyseme.encoders.inference import Precision
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.generating.decoding_options import MAX_FROM_SOURCE, MAX_NEW
from polyseme.generating.model_defaults import decoding_defaults, ids_named
from polyseme.generating.next_piece import CharacterSteps, QuerySteps, RereadingSteps, StepByStep, in_precision
from polyseme.generating.prompts import Prompts, SourcePrompts, TextPrompts, WordPrompts
from polyseme.outputs.output import Output
from polyseme.outputs.softmaxes import TwoWayOutput
from polyseme.packaged_models import where_output
from polyseme.text.character_tokenizer import CharacterTokenizer, WordTable
from polyseme.types import NextPiece, States, Tokenizer

ROUND_SOURCE = 64
"""On a GPU, sources are this many pieces or a multiple, so that few shapes serve all."""


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A bundle as decoding sees it."""

    next_piece: NextPiece
    n_pieces: int
    device: torch.device
    prompts: Prompts | None = None
    """Texts to pieces and back; None: there are only pieces."""
    source: Encoder | None = None
    """What reads a source before anything is written; None: there is none."""
    before: tuple[int, ...] = ()
    """Pieces of the frame, put before whatever is read."""
    room: int | None = None
    """How many pieces can be read at once, those of the frame left out; None: any number."""
    first: int | None = None
    """A piece that every text must begin with."""
    last: int | None = None
    """A piece that a text must end with that has its maximum length."""
    end: int | None = None
    """The piece that ends a text."""
    other_ends: tuple[int, ...] = ()
    """More pieces that end one."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Options that the model brings, by name; those of the caller precede them."""
    forbidden: tuple[int, ...] = ()
    """Pieces that are never written: those of no text, such as padding and masks, and rows without a piece."""

    @property
    def ends(self) -> tuple[int, ...]:
        """All pieces that end a text."""
        return self.other_ends if self.end is None else (self.end, *self.other_ends)

    def prepare(self, *, kernels: bool | None = None) -> None:
        """Prepare for much work, where that means anything (`FastSteps.prepare`)."""
        if isinstance(self.next_piece, StepByStep):
            self.next_piece.prepare(kernels=kernels)

    @property
    def usual_length(self) -> int:
        """Pieces that are written at most, unless set: from a source, as many as a text may need."""
        if self.source is None:
            return MAX_NEW
        return MAX_FROM_SOURCE if self.room is None else min(MAX_FROM_SOURCE, self.room + 1)

    @torch.no_grad()
    def read_source(self, rows: Sequence[Sequence[int]]) -> States:
        """The states of some sources, specials included."""
        if self.source is None:
            raise ModelError("The model reads no source.")
        multiple = ROUND_SOURCE if self.device.type == "cuda" else 1
        batch = padded(rows, self.device, multiple, window=self.source.config.window)
        states: States = self.source(batch, layers=[-1])
        return states


Builder = Callable[[Bundle, Tokenizer, Any], LanguageModel]


def language_model(bundle: Bundle, precision: Precision = "own") -> LanguageModel:
    """A bundle as decoding sees it, with its steps in this precision; refused where it has no output to write with."""
    tokenizer = bundle.text_tokenizer
    if bundle.config.reads_backwards and bundle.decoder is None:
        raise ModelError(
            "The model reads texts from the end: it predicts the piece before each, and cannot continue a text. "
            "Take one that reads forwards; this one scores and embeds."
        )
    name = generation_strategy(bundle)
    if name is None:
        has = ", ".join(bundle.outputs) or "none"
        raise ModelError(
            f"The model cannot generate: it sees {bundle.config.direction!r} and has the outputs: {has}. That takes a "
            "'causal' output over earlier pieces, or a 'masked' one and a mask piece; a two-way model "
            f"needs its softmax and the words of it (published ELMo files hold neither). {where_output('causal')}"
        )
    output, build = STRATEGIES[name]
    model = _with_generation(build(bundle, tokenizer, bundle.outputs[output]), bundle.generation)
    return dataclasses.replace(model, next_piece=in_precision(model.next_piece, precision))


def _with_generation(model: LanguageModel, settings: Mapping[str, Any]) -> LanguageModel:
    """The model with the ends, forbidden pieces and defaults of its generation_config.json, if it has any."""
    if not settings:
        return model
    ends = ids_named(settings, "eos_token_id", model.n_pieces) or model.ends
    suppressed = ids_named(settings, "suppress_tokens", model.n_pieces)
    usual = decoding_defaults(settings, has_source=model.source is not None)
    if model.source is not None and model.room is not None and "max_new" in usual:
        usual["max_new"] = min(usual["max_new"], model.room + 1)
    return dataclasses.replace(
        model,
        end=ends[0] if ends else None,
        other_ends=ends[1:],
        forbidden=tuple(sorted({*model.forbidden, *suppressed} - {*ends})),
        defaults=usual,
    )


def generation_strategy(bundle: Bundle) -> str | None:
    """The row of `STRATEGIES` that fits a bundle, if any does."""
    name = "two stacks" if bundle.decoder is not None else bundle.config.direction
    if bundle.config.reads_backwards and bundle.decoder is None:
        return None
    if name not in STRATEGIES or not isinstance(dict(bundle.outputs.items()).get(STRATEGIES[name][0]), Output):
        return None
    if name == "both" and (bundle.tokenizer is None or "mask" not in bundle.tokenizer.specials):
        return None
    if name == "two-way" and not has_words(bundle.tokenizer):
        return None
    return name


def has_words(tokenizer: Tokenizer | None) -> bool:
    """Whether it knows what a softmax chooses from; where words are spelled, these may be missing."""
    if isinstance(tokenizer, CharacterTokenizer):
        return tokenizer.vocabulary is not None
    return tokenizer is not None


def _causal(bundle: Bundle, tokenizer: Tokenizer, output: Output) -> LanguageModel:
    memory = bundle.config.memory
    steps = RereadingSteps if memory == "none" else StepByStep
    return _continuing_language_model(
        bundle, tokenizer, steps(bundle.encoder, output), is_bounded=memory not in ("state", "segment")
    )


def _masked_language_model(bundle: Bundle, tokenizer: Tokenizer, output: Output) -> LanguageModel:
    framed = tokenizer.frame(np.zeros(0, dtype=np.int64))
    after = [tokenizer.specials["mask"], *framed.ids[framed.offset :].tolist()]
    segments = [0, *framed.segments[framed.offset :].tolist()]
    warnings.warn(
        "The model has learned to fill masks, not to write on. A mask at the end of the text is filled again and "
        "again, and the whole text is read for each: expect little of it, and no speed.",
        PolysemeWarning,
        stacklevel=4,
    )
    next_piece = RereadingSteps(bundle.encoder, output, after=after, segments=segments)
    return _continuing_language_model(bundle, tokenizer, next_piece, n_after=len(after))


def _continuing_language_model(
    bundle: Bundle,
    tokenizer: Tokenizer,
    next_piece: NextPiece,
    *,
    has_frame: bool = True,
    is_bounded: bool = True,
    n_after: int = 0,
) -> LanguageModel:
    """A model that continues a prompt, in a frame or not, with `n_after` pieces behind it."""
    framed = tokenizer.frame(np.zeros(0, dtype=np.int64))
    before = tuple(framed.ids[: framed.offset].tolist()) if has_frame else ()
    start = tokenizer.specials.get("start") if has_frame else None
    bound = bundle.config.max_positions if is_bounded else None
    return LanguageModel(
        next_piece=next_piece,
        n_pieces=bundle.config.n_pieces,
        device=bundle.device,
        prompts=TextPrompts(tokenizer, start=start, framed=bool(before)),
        before=before,
        room=None if bound is None else bound - len(before) - n_after,
        end=tokenizer.specials.get("end"),
        forbidden=never_written(tokenizer, bundle.config.n_pieces),
    )


def _with_source(bundle: Bundle, tokenizer: Tokenizer, output: Output) -> LanguageModel:
    """The decoder starts by itself, so that nothing is continued. It may write the piece that starts texts."""
    if bundle.decoder is None:
        raise ModelError("The model has no decoder.")
    bound = bundle.decoder.config.max_positions
    return LanguageModel(
        next_piece=StepByStep(bundle.decoder, output),
        n_pieces=bundle.decoder.config.n_pieces,
        device=bundle.device,
        prompts=SourcePrompts(tokenizer, bundle.config.window),
        source=bundle.encoder,
        before=(bundle.first_written,),
        room=None if bound is None else bound - 1,
        first=bundle.piece_set("forced_bos_token_id"),
        last=bundle.piece_set("forced_eos_token_id"),
        end=tokenizer.specials.get("end"),
        forbidden=never_written(tokenizer, bundle.config.n_pieces, but="start"),
    )


def _two_way(bundle: Bundle, tokenizer: Tokenizer, output: TwoWayOutput) -> LanguageModel:
    """The forward half writes: pieces, or words, of which those that the softmax lacks are never written."""
    if not isinstance(tokenizer, CharacterTokenizer):
        return _forward_half(bundle, tokenizer, output)
    words = WordTable(tokenizer)
    return LanguageModel(
        next_piece=CharacterSteps(bundle.encoder.halves()[0], output.softmax, words),
        n_pieces=words.n_words,
        device=bundle.device,
        prompts=WordPrompts(words),
        before=(words.begin,),
        end=words.end,
        forbidden=tuple(sorted((words.begin, words.unknown))),
    )


def _forward_half(bundle: Bundle, tokenizer: Tokenizer, output: TwoWayOutput) -> LanguageModel:
    """A text ends with what the next one would begin with: the end of a line."""
    edges, start = cast(Any, bundle.config).edges, tokenizer.specials["start"]
    return LanguageModel(
        next_piece=StepByStep(bundle.encoder.halves()[0], output.softmax),
        n_pieces=cast(Any, bundle.config).n_predicted,
        device=bundle.device,
        prompts=TextPrompts(tokenizer, start=start, framed=True),
        before=(start,),
        end=tokenizer.specials.get("end") if edges is None else edges[0],
        forbidden=(tokenizer.specials["unknown"],),
    )


def _any_order(bundle: Bundle, tokenizer: Tokenizer, output: Output) -> LanguageModel:
    """A text has no frame: what ends it is not known before it is written."""
    next_piece = QuerySteps(bundle.encoder, output)
    is_bounded = not next_piece.remembers
    return _continuing_language_model(bundle, tokenizer, next_piece, has_frame=False, is_bounded=is_bounded, n_after=1)


STRATEGIES: Mapping[str, tuple[str, Builder]] = {
    "two stacks": ("causal", _with_source),
    "causal": ("causal", _causal),
    "two-way": ("two-way", _two_way),
    "any-order": ("permuted", _any_order),
    "both": ("masked", _masked_language_model),
}
"""By what a model sees: the output that it takes to write, and how."""


def never_written(tokenizer: Tokenizer, n_rows: int, but: str = "") -> tuple[int, ...]:
    """What is never written: specials, rows without a piece, and among whole words or characters the unknown one, which
    has no spelling.
    """
    specials = tokenizer.specials
    never_text = ("start", "pad", "mask") if tokenizer.unit == "piece" else ("start", "pad", "mask", "unknown")
    roles = [role for role in never_text if role in specials and role != but]
    never = {specials[role] for role in roles} - {specials.get("end")}
    return (*sorted(never), *range(tokenizer.n_pieces, n_rows))
