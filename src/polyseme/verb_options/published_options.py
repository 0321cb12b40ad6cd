"""The options of published."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.options import doc, option, output_option
from polyseme.verb_options.model_options import ForceOption

if TYPE_CHECKING:
    from polyseme.files.atomic import AnyPath


@dataclass(frozen=True, kw_only=True)
class PublishedOptions(ForceOption):
    """What `published` takes: which table, of which systems, and where it goes."""

    name: str | None = dataclasses.field(
        default=None, kw_only=False, metadata=doc("Table to show; None: the list of all.", "[TABLE]")
    )
    output: AnyPath | None = output_option(
        "Output file: a page with a picture (.html), the picture (.svg), .json, .csv or .tsv with one line per "
        "figure, or .md."
    )
    systems: str | Sequence[str] = option(
        (),
        "Only systems whose names contain one of these strings, separated by commas; case is ignored.",
        "NAMES",
        default="all",
        flags="--system",
        parse="names",
    )
