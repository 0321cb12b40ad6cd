"""The options of attribute."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from polyseme.errors import OptionError
from polyseme.options import check_choice, doc, option
from polyseme.verb_options.analysis_options import AnalysisOptions
from polyseme.verb_options.model_options import IN_MEMORY, SOURCES

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources

Baseline = Literal["pad", "mask", "zero"]
Method = Literal["integrated-gradients", "gradient-x-input"]


@dataclass(frozen=True, kw_only=True)
class AttributeOptions(AnalysisOptions):
    """What `attribute` takes."""

    texts: str | Sequence[str] = dataclasses.field(
        default=(), kw_only=False, metadata=doc("A text, or several; for a model of pairs, the two texts.", "TEXT...")
    )
    model: AnyPath | Model = dataclasses.field(
        metadata=doc("Task model written by finetune: classify, pair or tag.", "MODEL", flags="-m --model")
    )
    source: Sources | None = option(
        None, f"Texts instead of TEXT. {SOURCES}{IN_MEMORY}", "INPUT", default="none", flags="--in", parse="files"
    )
    label: str | None = option(None, "Label whose score to attribute.", "LABEL", default="the predicted one")
    word: str | None = option(None, "For taggers: the word whose tag to attribute.", "WORD", default="none")
    occurrence: int = option(1, "Which occurrence of --word in the text, counted from 1.", "N")
    method: Method = option(
        "integrated-gradients", "Attribution method: integrated-gradients or gradient-x-input.", "METHOD"
    )
    steps: int = option(50, "Number of points of the integral (Gauss–Legendre).", "N")
    baseline: Baseline | None = option(
        None,
        "Baseline vector of every piece: that of the padding piece (pad), of the mask piece (mask), or zero.",
        "VECTOR",
        default="pad; zero if the model has no padding piece",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("method", self.method, get_args(Method))
        if self.baseline is not None:
            check_choice("baseline", self.baseline, get_args(Baseline))
        if self.steps < 1:
            raise OptionError(f"The number of steps must be at least 1. Got {self.steps} instead.")
        if self.occurrence < 1:
            raise OptionError(f"Occurrences of a word are counted from 1. Got {self.occurrence} instead.")
        if self.occurrence > 1 and self.word is None:
            raise OptionError("The option 'occurrence' is for a word. Name it with --word (word=…), or leave both out.")
        if bool(self.texts) == (self.source is not None):
            raise OptionError(
                "Name one text or several, or a file of them: attribute TEXT, or --in FILE (source=…), and not both."
            )
