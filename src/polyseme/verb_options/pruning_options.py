"""The options of prune."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from polyseme.errors import OptionError
from polyseme.options import callback, check_choice, doc, option, output_option
from polyseme.verb_options.model_options import DeviceOption, ForceOption
from polyseme.verb_options.task_options import TaskColumns

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources
    from polyseme.types import Progress

PruningMethod = Literal["gradient", "gates"]


@dataclass(frozen=True, kw_only=True)
class PruneOptions(TaskColumns, DeviceOption, ForceOption):
    """What `prune` takes."""

    model: AnyPath | Model = dataclasses.field(
        metadata=doc(
            "Model to prune: a pretrained Transformer, or a task model written by finetune.",
            "MODEL",
            flags="-m --model",
        )
    )
    heads: str | float = option("50%", "Attention heads to remove: a share (50%) or a number (36).", "SHARE")
    dev: Sources | None = option(
        None,
        "Held-out data to measure the importance of heads on: labeled items of the model's task (a file, or the name "
        "of a benchmark); for a pretrained model, texts.",
        "INPUT",
        default="none (required)",
    )
    test: Sources | None = option(None, "Data for the reported figures, of the same kind.", "INPUT", default="as --dev")
    train: Sources | None = option(None, "For --method gates: training data of the same kind.", "INPUT", default="none")
    data: AnyPath | None = option(
        None, "Folder with the data of a benchmark that --dev, --test or --train names.", "FOLDER", default="none"
    )
    output: AnyPath | None = output_option(
        "Folder for the pruned model, pruning.json and pruning.html.", default="report only"
    )
    method: PruningMethod = option(
        "gradient",
        "Importance of a head: gradient (of the loss with respect to a gate on the head; Michel et al. 2019), or "
        "gates (trained with a sparsity penalty; Voita et al. 2019).",
        "METHOD",
    )
    at_least: int = option(
        1, "Minimum number of heads left in every layer. With 0, a layer may lose its attention altogether.", "N"
    )
    reestimate: bool = option(
        False, "Estimate importance again at each point of the curve, without the heads removed so far."
    )
    points: int = option(9, "Number of points of the curve: with 9, at 10%, 20% … 90% of the heads removed.", "N")
    each_head: bool = option(
        False,
        "Also evaluate the model without each single head, and with each head as the only one of its layer: two "
        "evaluations per head.",
    )
    max_items: int | None = option(
        None,
        "Maximum number of items of each input, evenly spaced; for texts rows of pieces, from the first on.",
        "N",
        default="all",
    )
    gate_steps: int = option(200, "For --method gates: training steps.", "N")
    seed: int = option(0, "Seed of masks and gates.", "N")
    progress: Progress | None = callback("Called with the number of finished batches or evaluations, and the total.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("method", self.method, get_args(PruningMethod))
        for name, least in (("at_least", 0), ("points", 0), ("gate_steps", 1), ("max_items", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"The option {name!r} must be at least {least}. Got {value} instead.")
        if self.dev is None:
            raise OptionError(
                "Heads are judged by data that the model was not trained on. Name it: --dev FILE (dev=…), labeled "
                "items for a task model, texts for a pretrained one."
            )
        if self.method == "gates" and self.train is None:
            raise OptionError("Gates are trained. Name the data for it, other than --dev: --train FILE (train=…).")
        if self.method != "gates" and self.train is not None:
            raise OptionError("The option 'train' is for --method gates. Leave it out: nothing else is trained here.")
