"""The options of heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.errors import OptionError
from polyseme.options import doc, option
from polyseme.verb_options.analysis_options import AnalysisOptions
from polyseme.verb_options.model_options import model_option

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.source_paths import AnyPath, Sources


@dataclass(frozen=True, kw_only=True)
class HeadsOptions(AnalysisOptions):
    """What `heads` takes."""

    treebank: AnyPath = dataclasses.field(
        kw_only=False,
        metadata=doc("Treebank on which heads are read: a named one (ud-ewt), or a CoNLL-U file.", "TREEBANK"),
    )
    model: AnyPath | Model | None = model_option("heads")
    data: AnyPath | None = option(None, "Folder with the data of a treebank by name.", "FOLDER", default="none")
    train: AnyPath | None = option(
        None,
        "CoNLL-U file on whose sentences heads and offsets are chosen.",
        "FILE",
        default="the named treebank's own; of a single file every second sentence",
    )
    relations: Sequence[str] = option(
        (),
        "Relations to look for, with commas between them (obj,det,nsubj:pass); one without a colon stands for its "
        "subtypes, too.",
        "NAMES",
        parse="names",
        default="all that are frequent enough",
    )
    min_count: int = option(50, "Words that a relation must have in each part, where none is named.", "N")
    max_sentences: int | None = option(None, "Most sentences of each part, evenly spaced.", "N", default="all")
    importance: Sources | None = option(
        None,
        "Held-out texts on which the importance of each head is measured, too (Michel et al. 2019), by how well the "
        "model predicts their pieces.",
        "INPUT",
        default="not measured",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_count", "max_sentences"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"The option {name!r} must be at least 1. Got {value} instead.")
        if isinstance(self.relations, str):
            raise OptionError(f"relations must be a list of names. Got {self.relations!r} instead: write it in [ ].")
