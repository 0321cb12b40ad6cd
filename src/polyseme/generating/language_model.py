"""What a bundle has to write on with: directions and outputs decide, never families.

| direction | output | |
|---|---|---|
| two stacks | causal | a source is read, and a text of its own is written |
| causal | causal | piece by piece, with the encoder's memory |
| two-way | two-way | the forward half, word by word |
| any-order | permuted | from left to right, with a query stream |
| both | masked | a mask at the end is filled again and again |
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from polyseme.bundle import Bundle
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.generating.next_piece import LanguageModel, Querying, Rereading, SpelledSteps, StepByStep
from polyseme.generating.prompts import Continued, Sources, Spelled
from polyseme.outputs.output import Output
from polyseme.outputs.softmaxes import TwoWayOutput
from polyseme.text.character_tokenizer import CharacterTokenizer, WordTable
from polyseme.types import NextPiece, Tokenizer

Builder = Callable[[Bundle, Tokenizer, Any], LanguageModel]


def language_model(bundle: Bundle) -> LanguageModel:
    """A bundle as decoding sees it; refused where it has nothing to write on with."""
    if bundle.tokenizer is None:
        raise ModelError("The model has no tokenizer, so it cannot read a prompt.")
    name = way_to_write(bundle)
    if name is None:
        has = ", ".join(bundle.outputs) or "none"
        raise ModelError(
            f"The model cannot generate: it sees {bundle.config.direction!r} and has the outputs: {has}. That takes a "
            "'causal' output over what stands before a piece, or a 'masked' one and a mask piece; a two-way model "
            "needs its softmax and the words of it (published ELMo files hold neither). Take a checkpoint that was "
            "saved with it."
        )
    output, build = WAYS[name]
    return build(bundle, bundle.tokenizer, bundle.outputs[output])


def way_to_write(bundle: Bundle) -> str | None:
    """The row of `WAYS` that fits a bundle, if any does."""
    name = "two stacks" if bundle.decoder is not None else bundle.config.direction
    if name not in WAYS or not isinstance(dict(bundle.outputs.items()).get(WAYS[name][0]), Output):
        return None
    if name == "both" and (bundle.tokenizer is None or "mask" not in bundle.tokenizer.specials):
        return None
    if name == "two-way" and not has_words(bundle.tokenizer):
        return None
    return name


def has_words(tokenizer: Tokenizer | None) -> bool:
    """Whether it knows the words that a softmax chooses from."""
    return isinstance(tokenizer, CharacterTokenizer) and tokenizer.vocabulary is not None


def _causal(bundle: Bundle, tokenizer: Tokenizer, output: Output) -> LanguageModel:
    encoder, config = bundle.encoder, bundle.config
    before, _ = _frame(tokenizer)
    next_piece: NextPiece = Rereading(encoder, output) if config.memory == "none" else StepByStep(encoder, output)
    bound = None if config.memory in ("state", "segment") else config.max_positions
    return LanguageModel(
        next_piece=next_piece,
        n_pieces=config.n_pieces,
        device=bundle.device,
        prompts=Continued(tokenizer, start=tokenizer.specials.get("start"), framed=bool(before)),
        before=before,
        room=None if bound is None else bound - len(before),
        end=tokenizer.specials.get("end"),
        forbidden=_forbidden(bundle, tokenizer),
    )


def _masked(bundle: Bundle, tokenizer: Tokenizer, output: Output) -> LanguageModel:
    before, framed = _frame(tokenizer)
    after = [tokenizer.specials["mask"], *framed.ids[framed.offset :].tolist()]
    segments = [0, *framed.segments[framed.offset :].tolist()]
    warnings.warn(
        "The model has learned to fill masks, not to write on. A mask at the end of the text is filled again and "
        "again, and the whole text is read for each: expect little of it, and no speed.",
        PolysemeWarning,
        stacklevel=4,
    )
    bound = bundle.config.max_positions
    return LanguageModel(
        next_piece=Rereading(bundle.encoder, output, after=after, segments=segments),
        n_pieces=bundle.config.n_pieces,
        device=bundle.device,
        prompts=Continued(tokenizer, start=tokenizer.specials.get("start"), framed=bool(before)),
        before=before,
        room=None if bound is None else bound - len(before) - len(after),
        end=tokenizer.specials.get("end"),
        forbidden=_forbidden(bundle, tokenizer),
    )


def _with_source(bundle: Bundle, tokenizer: Tokenizer, output: Output) -> LanguageModel:
    """The decoder starts by itself, so that nothing is gone on from. It may write the piece that starts texts."""
    if bundle.decoder is None:
        raise ModelError("The model has no decoder.")
    bound = bundle.decoder.config.max_positions
    return LanguageModel(
        next_piece=StepByStep(bundle.decoder, output),
        n_pieces=bundle.decoder.config.n_pieces,
        device=bundle.device,
        prompts=Sources(tokenizer, bundle.config.window),
        source=bundle.encoder,
        before=(bundle.first_written,),
        room=None if bound is None else bound - 1,
        first=_piece_named(bundle, "forced_bos_token_id"),
        last=_piece_named(bundle, "forced_eos_token_id"),
        end=tokenizer.specials.get("end"),
        forbidden=_forbidden(bundle, tokenizer, but="start"),
    )


def _two_way(bundle: Bundle, tokenizer: CharacterTokenizer, output: TwoWayOutput) -> LanguageModel:
    """Words that the softmax lacks are never written: nobody knows how they are spelled."""
    words = WordTable(tokenizer)
    return LanguageModel(
        next_piece=SpelledSteps(bundle.encoder.halves()[0], output.softmax, words),
        n_pieces=words.n_words,
        device=bundle.device,
        prompts=Spelled(words),
        before=(words.begin,),
        end=words.end,
        forbidden=tuple(sorted((words.begin, words.unknown))),
    )


def _any_order(bundle: Bundle, tokenizer: Tokenizer, output: Output) -> LanguageModel:
    """A text has no frame: what ends it is not known before it is written."""
    next_piece = Querying(bundle.encoder, output)
    bound = None if next_piece.remembers else bundle.config.max_positions
    return LanguageModel(
        next_piece=next_piece,
        n_pieces=bundle.config.n_pieces,
        device=bundle.device,
        prompts=Continued(tokenizer, start=None, framed=False),
        room=None if bound is None else bound - 1,
        end=tokenizer.specials.get("end"),
        forbidden=_forbidden(bundle, tokenizer),
    )


WAYS: Mapping[str, tuple[str, Builder]] = {
    "two stacks": ("causal", _with_source),
    "causal": ("causal", _causal),
    "two-way": ("two-way", _two_way),  # type: ignore[dict-item]
    "any-order": ("permuted", _any_order),
    "both": ("masked", _masked),
}
"""By what a model sees: the output that it takes to write, and how."""


def _frame(tokenizer: Tokenizer) -> tuple[tuple[int, ...], Any]:
    """The pieces before a text, and the whole frame of an empty one."""
    framed = tokenizer.frame(np.zeros(0, dtype=np.int64))
    return tuple(framed.ids[: framed.offset].tolist()), framed


def _piece_named(bundle: Bundle, setting: str) -> int | None:
    named = bundle.foreign.get(setting)
    return named if isinstance(named, int) and not isinstance(named, bool) else None


def _forbidden(bundle: Bundle, tokenizer: Tokenizer, but: str = "") -> tuple[int, ...]:
    """What is never written: specials, and among whole words or characters the unknown one, which has no spelling."""
    specials = tokenizer.specials
    never_text = ("start", "pad", "mask") if tokenizer.unit == "piece" else ("start", "pad", "mask", "unknown")
    roles = [role for role in never_text if role in specials and role != but]
    never = {specials[role] for role in roles} - {specials.get("end")}
    return (*sorted(never), *range(tokenizer.n_pieces, bundle.config.n_pieces))
