"""The options of sweep, beside those of the command that it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyseme.options import callback, doc, option
from polyseme.verb_options.model_options import ForceOption

if TYPE_CHECKING:
    from polyseme.files.atomic import AnyPath
    from polyseme.sweeps.run_queue import SweepProgress
    from polyseme.types import Progress


@dataclass(frozen=True, kw_only=True)
class SweepOptions(ForceOption):
    """What `sweep` takes beside the options of the command that it runs."""

    output: AnyPath = dataclasses.field(
        metadata=doc(
            "Page of the sweep: NAME.html. NAME.json, NAME.tsv and NAME.svg are written beside it, and NAME.runs/ "
            "holds the runs.",
            "OUTPUT",
            flags="-o --output",
        )
    )
    over: Mapping[str, Sequence[Any]] | None = option(
        None,
        "Setting to vary, with its values, separated by commas (or a JSON list): mask_rate=0.05,0.15,0.4. It may be "
        "an option of the command, a setting of the objective or of the encoder's config (objective.NAME or "
        "set.NAME, if both have it); several settings make a grid.",
        "NAME=VALUES",
        default="none",
        parse="grid",
    )
    rows: Mapping[str, Mapping[str, Any]] | None = option(
        None,
        "Named row of settings: 'all pieces: recipe=electra-tiny learn=all'; may be given several times.",
        "'NAME: SETTING=VALUE …'",
        default="none",
        flags="--row",
        parse="rows",
    )
    seeds: int | Sequence[int] = option(
        1, "Number of seeds (0, 1, …), or the seeds themselves, separated by commas.", "N", parse="seeds"
    )
    then: Sequence[Any] = option(
        (),
        "Command to run on the model of each run: 'evaluate blimp --data DATA', 'benchmark glue --tasks cola,rte "
        "--data DATA', 'finetune sst2 --data DATA'; may be given several times. In Python a list of pairs: "
        '("evaluate", {"name": "blimp", "data": DATA}).',
        "COMMAND",
        default="none",
        parse="several",
    )
    jobs: int | None = option(
        None,
        "Number of runs in parallel, each in its own process; 0: one after another in this process.",
        "N",
        default="on a CPU, the number of cores; on a GPU, up to 4, by its memory; 1 if the budget is a time",
    )
    stop_after: str | None = option(
        None,
        "Stop after this time (9min); the same command resumes the sweep.",
        "TIME",
        default="none",
    )
    on_report: Callable[[SweepProgress], None] | None = callback("Called with the state of the runs.")
    progress: Progress | None = callback("Called with the number of bytes already in the corpus, and the total.")
