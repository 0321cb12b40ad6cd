"""The options of lens."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.options import doc, option
from polyseme.verb_options.analysis_options import AnalysisOptions, HalfOption
from polyseme.verb_options.model_options import model_option

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath


@dataclass(frozen=True, kw_only=True)
class LensOptions(HalfOption, AnalysisOptions):
    """What `lens` takes."""

    text: str = dataclasses.field(
        kw_only=False,
        metadata=doc("A text; for a masked model with [MASK] where a piece is to be predicted."),
    )
    model: AnyPath | Model | None = model_option("lens")
    top: int = option(5, "Number of likeliest pieces to list per layer and position.", "N")
    source: str | None = option(
        None, "For translation models: what the model reads before it writes the text.", "TEXT", default="none"
    )
