"""The options that all analyses share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.options import callback, output_option
from polyseme.verb_options.model_options import DeviceOptions, ForceOption

if TYPE_CHECKING:
    from polyseme.files.atomic import AnyPath
    from polyseme.types import Progress


@dataclass(frozen=True, kw_only=True)
class AnalysisOptions(DeviceOptions, ForceOption):
    """Which model is looked into, and where the findings go. A verb overrides `model` with its own default."""

    output: AnyPath | None = output_option("Output file: a page (.html), .json, or a table (.tsv, .csv).")
    progress: Progress | None = callback("Called with the number of finished units of work, and the total.")
