"""The options of patch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.options import doc, option
from polyseme.verb_options.analysis_options import AnalysisOptions, HalfOption
from polyseme.verb_options.model_options import model_option

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.embedding.decoder_stack import Stack
    from polyseme.files.atomic import AnyPath


@dataclass(frozen=True, kw_only=True)
class PatchOptions(HalfOption, AnalysisOptions):
    """What `patch` takes."""

    clean: str = dataclasses.field(
        kw_only=False,
        metadata=doc("The clean sentence, with the answer in brackets, with [MASK], or up to the answer."),
    )
    corrupted: str = dataclasses.field(
        kw_only=False, metadata=doc("The corrupted sentence, with as many words, and its answer likewise.")
    )
    model: AnyPath | Model | None = model_option("patch")
    answer: str | None = option(
        None, "Answer of the clean sentence.", "WORD", default="the marked one, else what the model predicts"
    )
    against: str | None = option(
        None, "Answer of the corrupted one.", "WORD", default="the marked one, else what the model predicts"
    )
    stack: Stack = option(
        "encoder", "Stack of a sequence-to-sequence model whose states are replaced: encoder or decoder.", "STACK"
    )
    prefix: str | None = option(
        None,
        "For translation models: what the decoder has written before the answer, in both runs.",
        "TEXT",
        default="nothing",
    )
