"""The options of uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.errors import OptionError
from polyseme.options import doc, option, output_option
from polyseme.verb_options.model_options import FILES, model_option
from polyseme.verb_options.word_options import IndexOptions

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources


@dataclass(frozen=True, kw_only=True)
class WordUsesOptions(IndexOptions):
    """What `uses` takes."""

    model: AnyPath | Model | None = model_option("uses")
    word: str = dataclasses.field(kw_only=False, metadata=doc("The word, in any case."))
    source: Sources | None = option(
        None, f"Texts with uses of the word. {FILES}", "INPUT", default="the sentences", flags="--in", parse="files"
    )
    index: AnyPath | None = option(
        None,
        "Folder of an index of all words of the texts at --layer and layer 0 (the same as that of similar --against "
        "0): built if it does not exist, and used again afterwards.",
        "FOLDER",
        default="none",
    )
    output: AnyPath | None = output_option("Output file: a page (.html), .json, or a table (.tsv, .csv).")
    sentence: str | Sequence[str] = option(
        (),
        "Sentence with the word, to include in the matrix; may be given several times.",
        "TEXT",
        parse="several",
    )
    static: AnyPath | Model | None = option(
        None,
        "Model of the context-free neighbors, such as a GloVe file.",
        "MODEL",
        default="layer 0 of the model, averaged over the uses of each word",
    )
    top: int = option(10, "Number of context-free neighbors to list.", "N")
    near: int = option(2, "Number of nearest uses to list per use.", "N")
    shown: int = option(8, "Number of uses from the texts in the matrix: those that differ most.", "N")
    max_uses: int = option(200, "Maximum number of uses from the texts to compare by layer, sampled at random.", "N")
    seed: int = option(0, "Seed of the sampling.", "N")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(
            self, "sentence", (self.sentence,) if isinstance(self.sentence, str) else tuple(self.sentence)
        )
        for name, least in (("top", 1), ("near", 1), ("shown", 2), ("max_uses", 2)):
            if getattr(self, name) < least:
                raise OptionError(f"The option {name!r} must be at least {least}. Got {getattr(self, name)} instead.")
        if self.source is None and not self.sentence:
            raise OptionError("Uses come from texts, or are sentences. Name texts with --in, or give --sentence.")
        if self.source is None and (self.index is not None or self.static is not None):
            raise OptionError("Neighbors are searched in texts. Name texts with --in, or leave out index and static.")
