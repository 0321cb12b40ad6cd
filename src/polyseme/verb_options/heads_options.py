"""The options of heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from polyseme.errors import OptionError
from polyseme.options import doc, option
from polyseme.verb_options.analysis_options import AnalysisOptions, SampleOption
from polyseme.verb_options.model_options import model_option

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources


@dataclass(frozen=True, kw_only=True)
class TreebankParts(SampleOption):
    """Where a treebank is, and how much of it is read."""

    section: ClassVar[str] = "Data"

    data: AnyPath | None = option(None, "Folder with the data of a named treebank.", "FOLDER", default="none")
    train: AnyPath | None = option(
        None,
        "CoNLL-U file with the sentences on which heads and offsets are selected.",
        "FILE",
        default="the treebank's training part; for a single file, every second sentence",
    )


@dataclass(frozen=True, kw_only=True)
class HeadsOptions(TreebankParts, AnalysisOptions):
    """What `heads` takes."""

    treebank: AnyPath = dataclasses.field(
        kw_only=False,
        metadata=doc("Treebank on which heads are read: a named one (ud-ewt), or a CoNLL-U file.", "TREEBANK"),
    )
    model: AnyPath | Model | None = model_option("heads")
    relations: Sequence[str] = option(
        (),
        "Relations, separated by commas (obj,det,nsubj:pass); a relation without a colon includes its subtypes.",
        "NAMES",
        parse="names",
        default="all frequent ones",
    )
    min_count: int = option(50, "Minimum number of words of a relation in each part, if --relations is not set.", "N")
    importance: Sources | None = option(
        None,
        "Held-out texts on which to measure the importance of each head for predicting pieces (Michel et al. 2019).",
        "INPUT",
        default="not measured",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_count < 1:
            raise OptionError(f"The option 'min_count' must be at least 1. Got {self.min_count} instead.")
        if isinstance(self.relations, str):
            raise OptionError(f"relations must be a list of names. Got {self.relations!r} instead: write it in [ ].")
