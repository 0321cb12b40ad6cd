"""What a recipe is: config + objective + training settings under a name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from polyseme.bundle import Bundle, new_bundle
from polyseme.config import EncoderConfig
from polyseme.convert.families import FAMILIES
from polyseme.errors import OptionError, nearest
from polyseme.objectives.objective import BaseObjective, Vocabulary
from polyseme.objectives.objective_table import objective_from
from polyseme.options import wrong_type
from polyseme.parts.initialization import skip_initialization
from polyseme.recipes.budget_fit import Scaling
from polyseme.training.training_settings import TrainingSettings

SPECIALS = {"start": 0, "end": 1, "pad": 2, "unknown": 3, "mask": 4}
"""Placeholders for a tokenizer's special pieces where only counts matter."""
OWN_SIZE = "a size of our own, for small budgets"
ROUND_TO = 64
"""Rows that a table of pieces is rounded up to a multiple of, since products are faster so."""


def size(n_layers: int, width: int, n_heads: int) -> dict[str, int]:
    """The shape of a Transformer whose feed-forward layers are four times as wide as its states."""
    return {"n_layers": n_layers, "width": width, "n_heads": n_heads, "inner_width": 4 * width}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a published system is pretrained; `but` gives one that differs a little."""

    name: str
    system: str
    paper: str
    family: str
    shape: Mapping[str, Any]
    """What differs from the family's own config."""
    objective: str
    objective_settings: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: str
    """What is trained on the corpus: wordpiece, bpe, byte-bpe, unigram, words, blanks or characters."""
    frame: str | None = None
    """Which specials it has; None: what is usual for the family."""
    vocabulary: int
    min_count: int = 1
    """How often a word must occur to be a piece, where pieces are whole words."""
    lowercase: bool = False
    tied: bool = True
    """Whether the output shares the table of pieces."""
    training: TrainingSettings
    """As published."""
    budget: str = "20min"
    """How much is trained unless the user says otherwise."""
    scaling: Scaling | None = None
    """How training is fitted to a budget; None: the settings of `training` serve every budget."""
    compiled: bool = True
    """Whether torch compiles the networks on a GPU, unless the user says otherwise."""
    published_steps: int | None = None
    """Steps of the published run, with the phases of this recipe; None: none was published."""
    only_further: bool = False
    """Whether it trains a model further that is there, and no new one."""
    note: str = ""
    """What is not as published, or not known."""

    def but(
        self,
        name: str,
        *,
        shape: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> Recipe:
        """The same recipe under another name, with these differences, also of `training` and its `optimizer`."""
        settings = dict(training or {})
        if isinstance(settings.get("optimizer"), Mapping):
            settings["optimizer"] = self.training.optimizer.replace(**settings["optimizer"])
        changes = {"shape": {**self.shape, **(shape or {})}, "training": self.training.replace(**settings), **changes}
        return dataclasses.replace(self, name=name, **changes)

    def config(self, n_pieces: int, shape: Mapping[str, Any] | None = None) -> EncoderConfig:
        """The encoder for a vocabulary of so many pieces; `shape` differs from the recipe's.

        Where words are spelled, what the vocabulary bounds is the softmax: it has no more words than there are. A table
        of words has one row for each, then those of n-grams, and the unknown piece last.
        """
        own = FAMILIES[self.family].base()
        changes = {**self.shape, **self.shaped(shape or {})}
        if getattr(own, "spelled", False):
            changes["n_outputs"] = min(changes.get("n_outputs") or n_pieces, n_pieces)
        elif hasattr(own, "n_words"):
            n_rows = n_pieces + int(changes.get("n_buckets", 0)) + 1
            changes = {"n_pieces": n_rows, "n_words": n_pieces, "lowercase": False, **changes}
        elif getattr(own, "edges", None) is not None:  # the last two are markers
            changes = {"n_pieces": n_pieces, **changes}
        else:
            changes = {"n_pieces": -(-n_pieces // ROUND_TO) * ROUND_TO, **changes}
        if changes.get("cutoffs"):
            changes["cutoffs"] = tuple(each for each in changes["cutoffs"] if each < changes["n_pieces"])
        return own.replace(**{**_by_size(own, changes), **changes})

    def shaped(self, shape: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the encoder as its config takes them; one that it does not have is refused."""
        own = FAMILIES[self.family].base()
        kinds = {each.name: str(each.type) for each in dataclasses.fields(own)}
        for name in shape:
            if name not in kinds:
                raise OptionError(f"The encoder has no setting {name!r}. {nearest(name, list(kinds))}")
            if (wrong := wrong_type(shape[name], kinds[name])) is not None:
                raise OptionError(f"The encoder's setting {name!r} {wrong}")
        return {name: _to_list(name, value, kinds[name]) for name, value in shape.items()}

    def trains(self, family: str) -> bool:
        """Whether models of a family come out of it, by whatever settings of their shape."""
        return family in (self.family, FAMILIES[self.family].beyond)

    def frame_of_rows(self) -> str:
        """The specials of a tokenizer that is trained for it, by name."""
        return self.frame or FAMILIES[self.family].frame

    @property
    def n_parameters(self) -> int:
        """Of the model that comes out, outputs included, with the recipe's vocabulary."""
        return self._bundle.n_parameters()

    @cached_property
    def published_flops(self) -> float | None:
        """Floating-point operations of the published run, by analysis."""
        if self.published_steps is None:
            return None
        objective = objective_from(self.objective, self.objective_settings)
        with skip_initialization():
            of_phases = [
                flops_of_rows(objective, self._bundle, self.vocabulary, phase.batch_size, phase.length)
                for phase in self.training.phases
            ]
        return self.published_steps * self.training.mean_over_phases(of_phases)

    @cached_property
    def _bundle(self) -> Bundle:
        """Its networks without weights, which say how large they are."""
        needed = objective_from(self.objective, self.objective_settings).needs.outputs
        with skip_initialization():
            return new_bundle(FAMILIES[self.family], self.config(self.vocabulary), needed, tied=self.tied)

    @property
    def published_pieces(self) -> float | None:
        """Pieces that the published run read."""
        if self.published_steps is None:
            return None
        phases = self.training.phases
        return self.published_steps * self.training.mean_over_phases([float(phase.pieces) for phase in phases])


def flops_of_rows(objective: BaseObjective, bundle: Bundle, n_pieces: int, n_rows: int, length: int) -> float:
    """Floating-point operations of a step; needs neither a tokenizer, but for its size, nor weights."""
    known = objective.replace(known_vocabulary=Vocabulary(n_pieces=n_pieces, specials=SPECIALS))
    return float(known.flops(known.nets(bundle), n_rows, length))


def _to_list(name: str, value: Any, kind: str) -> Any:
    """A setting that is a list, however it is written: a list itself, one value alone, or several with commas.

    >>> _to_list("cutoffs", "50,200", "tuple[int, ...]"), _to_list("cutoffs", 50, "tuple[int, ...]")
    ((50, 200), (50,))
    """
    if not kind.startswith("tuple[") or (value is None and kind.endswith("None")):
        return value
    each = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    if not kind.startswith("tuple[int"):
        return tuple(each)
    try:
        return tuple(int(one) if isinstance(one, str) else one for one in each)
    except ValueError:
        raise OptionError(
            f"The encoder's setting {name!r} is a list of whole numbers, as in {name}=50,200. Got {value!r} instead."
        ) from None


def _by_size(own: EncoderConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What a family has follow from its size: factors that are the width's root or one over it, and shared layers."""
    before, after = own.widths[-1], changes.get("width", own.widths[-1])
    scales: dict[str, Any] = {}
    sets = getattr(own, "layer_map", None)
    if sets is not None and len(set(sets)) == 1:
        scales["layer_map"] = sets[:1] * changes.get("n_layers", own.depth)
    for name in ("embedding_scale", "output_scale"):
        for power in (0.5, -0.5):
            if getattr(own, name, None) == before**power:
                scales[name] = after**power
    return scales
