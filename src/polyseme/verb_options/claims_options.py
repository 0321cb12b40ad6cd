"""The options of claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyseme.options import callback, doc, option, output_option
from polyseme.verb_options.model_options import DeviceOption, ForceOption

if TYPE_CHECKING:
    from polyseme.files.atomic import AnyPath
    from polyseme.sweeps.run_queue import SweepProgress
    from polyseme.types import Progress


@dataclass(frozen=True, kw_only=True)
class ClaimsOptions(DeviceOption, ForceOption):
    """What `claims` takes."""

    name: str | None = dataclasses.field(
        kw_only=False,
        default=None,
        metadata=doc("Claim to run, several separated by commas, or all. None: list the claims.", "[NAME]"),
    )
    output: AnyPath | None = output_option(
        "Page of the claim: NAME.html; NAME.json and NAME.runs/ are written beside it. For several claims, a folder.",
        default="CLAIM.html; for several claims, claims/",
    )
    show: bool = option(False, "Show the claim, its rule and its stored result, without running anything.")
    small: bool = option(False, "Run the small size: minutes on a CPU. The result states what it cannot show.")
    budget: str | None = option(
        None,
        "Compute time for all runs of the claim together (6min); at least the claim's minimum.",
        "TIME",
        default="the claim's minimum",
    )
    data: AnyPath | None = option(
        None,
        "Data folder, with the subfolders tasks/ and corpus/.",
        "FOLDER",
        default="$POLYSEME_DATA",
    )
    jobs: int | None = option(None, "Number of runs in parallel, each in its own process.", "N", default="as for sweep")
    stop_after: str | None = option(
        None, "Stop after this time (9min); the same command resumes the work.", "TIME",
        default="none",
    )  # fmt: skip
    on_report: Callable[[str, SweepProgress], None] | None = callback(
        "Called with the name of a claim and the state of its runs."
    )
    progress: Progress | None = callback("Called with the number of bytes already in the corpus, and the total.")
