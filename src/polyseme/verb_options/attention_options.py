"""The options of attention, and of its view in notebooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.options import Options, doc, option
from polyseme.verb_options.analysis_options import AnalysisOptions
from polyseme.verb_options.model_options import model_option

if TYPE_CHECKING:
    from polyseme.analysis.attention_findings import AttentionFindings
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath


@dataclass(frozen=True, kw_only=True)
class AttentionUnits(Options):
    """What attention is read between."""

    target: str | Sequence[str] | None = option(
        None,
        "For sequence-to-sequence models: the target text that the decoder writes for TEXT.",
        "TEXT",
        default="what the model generates greedily",
    )
    pieces: bool = option(
        False,
        "Show pieces instead of words. For words, attention to a word is summed over its pieces, and attention from "
        "a word is averaged.",
    )
    rollout: bool = option(
        False,
        "Also compute attention rollout, which follows attention through the layers to the input (Abnar and Zuidema "
        "2020).",
    )


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(AttentionUnits, AnalysisOptions):
    """What `attention` takes."""

    text: str | Sequence[str] = dataclasses.field(kw_only=False, metadata=doc("A text, or its words."))
    model: AnyPath | Model | None = model_option("attention")


@dataclass(frozen=True, kw_only=True)
class ViewAttentionOptions(AttentionUnits):
    """What `view_attention` takes."""

    text: str | Sequence[str] | AttentionFindings = dataclasses.field(
        kw_only=False, metadata=doc("A text, its words, or the result of `attention`.")
    )
    model: AnyPath | Model | None = model_option("attention")
    height: int | None = option(None, "Height of the page in pixels.", "PIXELS", default="by its content")
