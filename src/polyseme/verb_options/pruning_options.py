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
    from polyseme.files.source_paths import AnyPath, Sources
    from polyseme.types import Progress

PruningMethod = Literal["gradient", "gates"]


@dataclass(frozen=True, kw_only=True)
class PruneOptions(TaskColumns, DeviceOption, ForceOption):
    """What `prune` takes."""

    model: AnyPath | Model = dataclasses.field(
        metadata=doc(
            "Model to prune: a Transformer that finetune has written, or a pretrained one.", "MODEL", flags="-m --model"
        )
    )
    heads: str | float = option("50%", "Attention heads to remove: a share (50%) or a number (36).", "SHARE")
    dev: Sources | None = option(
        None,
        "Held-out data by which heads are judged: labeled items of the model's task (a file, or a benchmark's name), "
        "or for a pretrained model texts.",
        "INPUT",
        default="none: it must be named",
    )
    test: Sources | None = option(
        None, "Other data of this kind, which the figures are of.", "INPUT", default="that of --dev"
    )
    train: Sources | None = option(
        None, "For --method gates: other data of this kind, on which gates are trained.", "INPUT", default="none"
    )
    data: AnyPath | None = option(
        None, "Folder with the data of a benchmark that --dev, --test or --train names.", "FOLDER", default="none"
    )
    output: AnyPath | None = output_option(
        "Folder of the pruned model, with pruning.json and pruning.html.", default="only reported"
    )
    method: PruningMethod = option(
        "gradient",
        "How heads are judged: gradient (by the gradient of the loss by a gate on the head, Michel et al. 2019), or "
        "gates (trained to close, Voita et al. 2019).",
        "METHOD",
    )
    at_least: int = option(1, "Heads that every layer keeps. With 0, states may pass a layer's attention by.", "N")
    reestimate: bool = option(False, "Judge heads again at each point of the curve, without those removed so far.")
    points: int = option(9, "Points of the curve of figures by heads removed: with 9, at 10%, 20% … 90%.", "N")
    each_head: bool = option(
        False,
        "Also measure the model without each single head, and with each as the only one of its layer: two evaluations "
        "per head.",
    )
    max_items: int | None = option(None, "Most items (of texts: rows) that are read of each input.", "N", default="all")
    gate_steps: int = option(200, "For --method gates: steps of training.", "N")
    seed: int = option(0, "Random seed of masks and gates.", "N")
    progress: Progress | None = callback("Called with the number of batches or evaluations done, and of all.")

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
