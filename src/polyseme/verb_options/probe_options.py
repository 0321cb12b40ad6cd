"""The options of probe."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from polyseme.errors import OptionError
from polyseme.options import Options, callback, check_choice, column_option, doc, option
from polyseme.verb_options.analysis_options import AnalysisOptions, SampleOption
from polyseme.verb_options.model_options import StackOption, model_option
from polyseme.verb_options.task_options import Column

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources
    from polyseme.types import Progress

Unit = Literal["words", "spans", "arcs"]
ProbeKind = Literal["linear", "mlp"]
StructuralKind = Literal["distance", "depth"]
OF_LABELS = (
    "label", "unit", "dev", "split", "probe", "hidden", "l2", "control", "code_length", "pool", "stack", "cache",
)  # fmt: skip
"""Options that have no use where trees are probed for."""


@dataclass(frozen=True, kw_only=True)
class ProbedData(SampleOption):
    """What `probe` trains and evaluates on."""

    section: ClassVar[str] = "Data"
    fewest: ClassVar[int] = 2

    label: Column | None = column_option(
        "Label to probe for: a column of a treebank (upos, xpos, deprel …), a morphological feature (Number, Tense "
        "…), or the number of a CoNLL column.",
        default="the benchmark's",
    )
    unit: Unit | None = option(
        None,
        "Unit with a label: words, spans (marked by tags such as B-PER), or arcs (a word and its head, in a treebank).",
        "UNIT",
        default="words; spans if tags mark spans",
    )
    data: AnyPath | None = option(None, "Folder with the data of a benchmark.", "FOLDER", default="none")
    train: Sources | None = option(None, "Training file, for data of your own.", "FILE", default="the benchmark's")
    dev: Sources | None = option(None, "Development file.", "FILE", default="a tenth of train")
    test: Sources | None = option(None, "Test file.", "FILE", default="none")
    split: str | None = option(None, "Split to report: dev or test.", "SPLIT", default="test if there is one, else dev")


@dataclass(frozen=True, kw_only=True)
class ProbeControls(Options):
    """What shows whether a probe's accuracy is the model's."""

    section: ClassVar[str] = "Controls"

    control: bool = option(False, "Also run a control task (random labels per word type), and report the selectivity.")
    code_length: bool = option(False, "Also measure the online code length of the training labels (--probe linear).")
    random: bool = option(False, "Also probe the same architecture with random weights.")
    seeds: int | Sequence[int] = option(
        1, "Number of seeds, for control labels, code orders, random weights, mix and mlp.", "N", parse="seeds"
    )


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(ProbedData, ProbeControls, StackOption, AnalysisOptions):
    """What `probe` takes."""

    name: str = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "What to probe for: a benchmark (ud-ewt, ud-ewt-xpos, wnut17, wikigold, conll, srl, gap, wsc, wic, "
            "coarsewsd20), or a kind of data of your own: tag (CoNLL, CoNLL-U, JSON lines), edges (JSON lines with "
            "labeled spans and pairs of spans), edge or edge-pair (tables).",
            "NAME",
        ),
    )
    model: AnyPath | Model | None = model_option("probe")
    layers: str | int = option(
        "all",
        "Layers to probe: all, numbers (0,3,6; -1 is the top), mix (a learned mix of all layers), or both (all,mix).",
        "LAYERS",
        parse="column",
    )
    probe: ProbeKind = option(
        "linear", "Kind of probe: linear (logistic regression at its optimum), or mlp (with a hidden layer).", "KIND"
    )
    hidden: int = option(256, "For --probe mlp: width of the hidden layer.", "N")
    l2: float = option(10.0, "L2 penalty, relative to the loss summed over examples.", "NUMBER")
    structural: StructuralKind | None = option(
        None,
        "Structural probe for the dependency trees of a treebank, instead of labels (Hewitt and Manning 2019): "
        "distance (arcs between two words) or depth (arcs between a word and the root).",
        "KIND",
        default="labels",
    )
    rank: int = option(64, "For --structural: rank of the probe, at most the width of the vectors.", "N")
    pool: str | None = option(
        None, "How the pieces of a word become one vector: first, last, mean, max.", "POOLING", default="mean"
    )
    cache: AnyPath | None = option(None, "Folder that caches vectors for other runs.", "FOLDER", default="none")
    progress: Progress | None = callback("Called with the number of finished units of work, and the total.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("kind of probe", self.probe, get_args(ProbeKind))
        if self.unit is not None:
            check_choice("unit", self.unit, get_args(Unit))
        if self.split not in (None, "dev", "test"):
            raise OptionError(f"The split to report must be dev or test. Got {self.split!r} instead.")
        if self.structural is not None:
            check_choice("structural probe", self.structural, get_args(StructuralKind))
            unused = next((name for name in OF_LABELS if name in self.changed()), None)
            if unused is not None:
                raise OptionError(f"The option {unused!r} is for probes of labels. Leave it out, or structural.")
        elif "rank" in self.changed():
            raise OptionError("The option 'rank' is for structural probes. Leave it out, or add structural.")
        for name, least in (("hidden", 1), ("rank", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"The option {name!r} must be at least {least}. Got {value} instead.")
        if not 0 < self.l2 < float("inf"):
            raise OptionError(
                f"The penalty l2 must be above 0, so that a probe has one optimum. Got {self.l2} instead."
            )
        if self.code_length and self.probe != "linear":
            raise OptionError("The code length is measured with linear probes. Leave code_length out, or probe='mlp'.")

    def seed_numbers(self) -> tuple[int, ...]:
        """The seeds: from 0 on, or as they were given."""
        seeds = range(self.seeds) if isinstance(self.seeds, int) else self.seeds
        if not len(seeds):
            raise OptionError(f"There must be at least one seed. Got {self.seeds!r} instead.")
        return tuple(int(seed) for seed in seeds)
