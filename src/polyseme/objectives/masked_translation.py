"""Translation language modeling (XLM; Lample and Conneau 2019): masked pieces of a sentence and its translation.

Both sentences are in one row, so that a piece that is masked in one language is also predicted from the other. As in
the paper, each language has an embedding of its own (a segment), and the positions of the target begin at 0 again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import nn

from polyseme.bundle import Bundle
from polyseme.corpus.corpus import Corpus, unigram_cross_entropy
from polyseme.corpus.joined_pairs import JoinedPairs
from polyseme.corpus.shards import SIDES
from polyseme.errors import OptionError
from polyseme.objectives.masked import Masked
from polyseme.types import Needs

LANGUAGES = 2


@dataclass(frozen=True, kw_only=True)
class MaskedTranslation(Masked):
    """Masking over pairs; every setting but `next` and `layout` is as in `Masked`."""

    name: ClassVar[str] = "tlm"

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = [name for name in ("next", "layout") if getattr(self, name) is not None]
        if chosen:
            raise OptionError(
                "The objective 'tlm' reads rows of translations, which have no next sentence and no other layout. "
                f"Leave out {' and '.join(chosen)}."
            )

    @property
    def needs(self) -> Needs:
        return Needs(directions=("both",), outputs=("masked",), layout=JoinedPairs())

    def baseline(self, nets: nn.Module, corpus: Corpus, most: int) -> float | None:
        """By the pieces of both sides."""
        train, held = (
            sum(corpus.piece_counts(split, side, most=most) for side in SIDES) for split in ("train", "held")
        )
        return unigram_cross_entropy(np.asarray(train), np.asarray(held))

    def refuse(self, bundle: Bundle) -> None:
        if getattr(bundle.config, "n_segments", 0) < LANGUAGES:
            raise OptionError(
                "The objective 'tlm' tells languages by segments, and this model "
                f"({bundle.family.name}) has fewer than {LANGUAGES}. Take a family that has them, as 'bert' does "
                "(--recipe xlm-tlm-tiny)."
            )
        if not bundle.config.follows_masks:
            raise OptionError(
                "Pairs that share a row are hidden from each other by a mask, which an encoder of kind "
                f"{bundle.config.kind!r} cannot follow. Choose a Transformer."
            )
