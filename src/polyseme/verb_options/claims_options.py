"""The options of claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.options import callback, doc, option, output_option
from polyseme.verb_options.model_options import DeviceOption, ForceOption

if TYPE_CHECKING:
    from polyseme.files.source_paths import AnyPath
    from polyseme.sweeps.run_queue import SweepProgress
    from polyseme.types import Progress


@dataclass(frozen=True, kw_only=True)
class ClaimsOptions(DeviceOption, ForceOption):
    """What `claims` takes."""

    name: str | None = dataclasses.field(
        kw_only=False,
        default=None,
        metadata=doc("Claim to run, several with commas between them, or all. None: the list of claims.", "NAME"),
    )
    output: AnyPath | None = output_option(
        "Page of the claim: NAME.html, with NAME.json beside it and the runs in NAME.runs/; of several a folder.",
        default="CLAIM.html; of several claims: claims",
    )
    show: bool = option(False, "Show the claim, its rule and what is known of it; run nothing.")
    small: bool = option(False, "Run the small size, for minutes on a CPU, which says what it cannot show.")
    budget: str | None = option(
        None,
        "Time of computing for all runs of the claim together, 6min: the smallest honest one, or more.",
        "TIME",
        default="the smallest honest one",
    )
    data: AnyPath | None = option(
        None,
        "Folder of the data, with tasks/ and corpus/ in it.",
        "FOLDER",
        default="that of the environment variable POLYSEME_DATA",
    )
    jobs: int | None = option(None, "Runs side by side, each in a process of its own.", "N", default="as for sweep")
    stop_after: str | None = option(
        None, "Time after which unfinished work stops, to be resumed by the same command: 9min.", "TIME",
        default="at its end",
    )  # fmt: skip
    on_report: Callable[[str, SweepProgress], None] | None = callback("Called with a claim's name and how its runs go.")
    progress: Progress | None = callback("Called with the number of bytes that are in the corpus, and of all.")
