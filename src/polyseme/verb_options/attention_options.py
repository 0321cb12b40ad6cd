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
    from polyseme.files.source_paths import AnyPath


@dataclass(frozen=True, kw_only=True)
class AttentionUnits(Options):
    """What attention is read between."""

    target: str | Sequence[str] | None = option(
        None,
        "For a model with a decoder: the text that it writes while it reads TEXT.",
        "TEXT",
        default="what the model itself writes, the likeliest piece each time",
    )
    pieces: bool = option(
        False,
        "Show pieces. By default pieces are brought together to words: attention to a word is the sum over its "
        "pieces, attention from it the mean.",
    )
    rollout: bool = option(
        False,
        "Also follow attention from layer to layer down to the input (attention rollout, Abnar and Zuidema 2020).",
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
        kw_only=False, metadata=doc("A text, its words, or what `attention` has returned.")
    )
    model: AnyPath | Model | None = model_option("attention")
    height: int | None = option(None, "Height of the page in pixels.", "PIXELS", default="by what is in it")
