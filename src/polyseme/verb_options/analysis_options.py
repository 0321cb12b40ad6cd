"""The options that all analyses share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from polyseme.errors import OptionError
from polyseme.options import Options, callback, check_choice, option, output_option
from polyseme.verb_options.model_options import DeviceOptions, ForceOption

if TYPE_CHECKING:
    from polyseme.files.atomic import AnyPath
    from polyseme.types import Progress


@dataclass(frozen=True, kw_only=True)
class AnalysisOptions(DeviceOptions, ForceOption):
    """Which model is looked into, and where the findings go. A verb overrides `model` with its own default."""

    output: AnyPath | None = output_option("Output file: a page (.html), .json, or a table (.tsv, .csv).")
    progress: Progress | None = callback("Called with the number of finished units of work, and the total.")


@dataclass(frozen=True, kw_only=True)
class SampleOption(Options):
    """How much of a benchmark, a treebank or other items is read."""

    section: ClassVar[str] = "Data"
    fewest: ClassVar[int] = 1
    """Items that the verb needs at least."""

    max_items: int | None = option(
        None, "Maximum number of items (sentences) per split, evenly spaced.", "N", default="all"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_items is not None and self.max_items < self.fewest:
            raise OptionError(f"The option 'max_items' must be at least {self.fewest}. Got {self.max_items} instead.")


Half = Literal["forwards", "backwards"]


@dataclass(frozen=True, kw_only=True)
class HalfOption(Options):
    """Which half of a two-way model is read."""

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
