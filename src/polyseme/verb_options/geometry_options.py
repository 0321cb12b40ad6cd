"""The options of geometry."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.errors import OptionError
from polyseme.files.reading_options import TextOptions
from polyseme.options import doc, option, same
from polyseme.verb_options.analysis_options import AnalysisOptions
from polyseme.verb_options.model_options import FILES, IN_MEMORY, BatchOption, LayerOptions, model_option

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.source_paths import AnyPath, Sources


@dataclass(frozen=True, kw_only=True)
class GeometryOptions(AnalysisOptions, TextOptions, BatchOption):
    """What `geometry` takes."""

    model: AnyPath | Model | None = model_option("geometry")
    source: Sources = dataclasses.field(
        metadata=doc(f"Texts whose words are compared. {FILES}{IN_MEMORY}", "INPUT", flags="--in", parse="files")
    )
    against: AnyPath | Model | None = option(
        None,
        "Another model, whose layers are compared with the model's word by word. Of one architecture, as before and "
        "after fine-tuning, also how far each layer has moved.",
        "MODEL",
        default="none",
    )
    remove_components: int = option(
        2, "First principal components that are removed, with the mean, for the second set of figures.", "K"
    )
    max_words: int = option(100_000, "Words that are read, up to the end of the text that reaches them.", "N")
    max_types: int = option(500, "Word types whose uses are compared, drawn at random.", "N")
    min_uses: int = option(5, "Uses from which on a word type may be drawn.", "N")
    max_uses: int = option(20, "Uses of a word type that are drawn.", "N")
    seed: int = option(0, "Seed of these draws.", "N")
    pool: str | None = same(LayerOptions, "pool")

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {"remove_components": 0, "max_words": 2, "max_types": 1, "min_uses": 2, "max_uses": 2}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise OptionError(f"The option {name!r} must be at least {bound}. Got {getattr(self, name)} instead.")
