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
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources


@dataclass(frozen=True, kw_only=True)
class GeometryOptions(AnalysisOptions, TextOptions, BatchOption):
    """What `geometry` takes."""

    model: AnyPath | Model | None = model_option("geometry")
    source: Sources = dataclasses.field(
        metadata=doc(f"Texts whose words to compare. {FILES}{IN_MEMORY}", "INPUT", flags="--in", parse="files")
    )
    against: AnyPath | Model | None = option(
        None,
        "Another model to compare layer by layer. If both have the same architecture, as before and after "
        "fine-tuning, also report how far each layer moved.",
        "MODEL",
        default="none",
    )
    remove_components: int = option(
        2, "Number of first principal components to remove, with the mean, for the second set of figures.", "K"
    )
    max_words: int = option(100_000, "Stop reading after the text in which this number of words is reached.", "N")
    max_types: int = option(500, "Number of word types to sample for self-similarity.", "N")
    min_uses: int = option(5, "Minimum number of uses of a sampled word type.", "N")
    max_uses: int = option(20, "Maximum number of uses to sample per word type.", "N")
    seed: int = option(0, "Seed of the sampling.", "N")
    pool: str | None = same(LayerOptions, "pool")

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {"remove_components": 0, "max_words": 2, "max_types": 1, "min_uses": 2, "max_uses": 2}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise OptionError(f"The option {name!r} must be at least {bound}. Got {getattr(self, name)} instead.")
