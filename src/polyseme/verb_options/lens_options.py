"""The options of lens."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from polyseme.options import check_choice, doc, option
from polyseme.verb_options.analysis_options import AnalysisOptions
from polyseme.verb_options.model_options import model_option

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath


Half = Literal["forwards", "backwards"]


@dataclass(frozen=True, kw_only=True)
class LensOptions(AnalysisOptions):
    """What `lens` takes."""

    text: str = dataclasses.field(
        kw_only=False,
        metadata=doc("A text; for a masked model with [MASK] where a piece is to be predicted."),
    )
    model: AnyPath | Model | None = model_option("lens")
    top: int = option(5, "Number of likeliest pieces to list per layer and position.", "N")
    half: Half | None = option(
        None,
        "Reading direction, for two-way models (ELMo, Flair): forwards predicts the next word, backwards the previous "
        "one.",
        "DIRECTION",
        default="forwards",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.half is not None:
            check_choice("half", self.half, get_args(Half))
