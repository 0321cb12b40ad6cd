"""The objectives by name, and what is checked before any of them starts work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.bundle import Bundle
from polyseme.config import EncoderConfig
from polyseme.convert.family import Family
from polyseme.errors import OptionError, nearest
from polyseme.objectives.bilm import BiLM
from polyseme.objectives.causal import Causal
from polyseme.objectives.cbow import Cbow
from polyseme.objectives.denoising import Denoising
from polyseme.objectives.distilled import Distilled, DistilledCausal
from polyseme.objectives.glove import Glove
from polyseme.objectives.masked import Masked
from polyseme.objectives.masked_translation import MaskedTranslation
from polyseme.objectives.objective import BaseObjective
from polyseme.objectives.permuted import Permuted
from polyseme.objectives.replaced import Replaced
from polyseme.objectives.skip_gram import SkipGram
from polyseme.objectives.spans import Spans
from polyseme.objectives.streams import Streamed
from polyseme.objectives.translation import Translation
from polyseme.objectives.two_way_streams import TwoWayStreamed
from polyseme.types import Needs, Tokenizer

OBJECTIVES: Mapping[str, type[BaseObjective]] = {
    each.name: each
    for each in (
        *(Causal, Masked, Replaced, Streamed, BiLM, TwoWayStreamed, Permuted, Denoising, Spans, Translation),
        *(MaskedTranslation, SkipGram, Cbow, Glove, Distilled, DistilledCausal),
    )
}

CARRIED = ("state", "segment")
"""The kinds of memory that are carried from row to row."""

SIDES = {
    "both": "both sides of a piece",
    "causal": "only the pieces before it",
    "two-way": "each side of a piece by itself",
    "any-order": "the pieces before it in any order",
    "none": "the piece alone",
}
"""What an encoder of each direction sees."""


def objective_from(name: str, settings: Mapping[str, Any] | None = None) -> BaseObjective:
    """The objective of this name with these settings, as its `to_json` gives them."""
    if name not in OBJECTIVES:
        raise OptionError(f"There is no objective {name!r}. {nearest(name, OBJECTIVES)}")
    objective: BaseObjective = OBJECTIVES[name].from_json(settings or {})
    return objective


def check_encoder(objective: BaseObjective, family: Family, config: EncoderConfig) -> None:
    """Refuse an encoder that the objective cannot train: the wrong direction, no decoder, memory or output."""
    needs, name = objective.needs, objective.name
    if config.direction not in needs.directions:
        sides = " or ".join(SIDES[each] for each in needs.directions)
        fitting = [each.name for each in OBJECTIVES.values() if not each.needs_teacher and _fits(each().needs, config)]
        advice = f"For this encoder there is: {', '.join(fitting)}." if fitting else "No objective trains this encoder."
        raise OptionError(
            f"The objective {name!r} needs an encoder that sees {sides}, and this one ({family.name}) sees "
            f"{SIDES[config.direction]}. {advice}"
        )
    if needs.two_stacks and config.decoder is None:
        raise OptionError(
            f"The objective {name!r} needs a decoder that reads what the encoder says, and this model ({family.name}) "
            "has only an encoder. Take a model of two stacks: transformer, seq2seq, bart or t5."
        )
    if needs.layout.carries_memory and config.memory not in CARRIED:
        raise OptionError(
            f"The objective {name!r} carries an encoder's memory from row to row, and this one ({family.name}) has "
            f"memory {config.memory!r}. Take a recurrent encoder, or one with a memory of segments ('memory_length')."
        )
    unknown = [each for each in needs.outputs if each not in family.outputs]
    if unknown:
        raise OptionError(
            f"The objective {name!r} needs the output {unknown[0]!r}, which the model lacks. The family "
            f"{family.name!r} has: {', '.join(family.outputs)}. Choose another family or objective."
        )


def check_needs(objective: BaseObjective, bundle: Bundle, tokenizer: Tokenizer) -> None:
    """Refuse what cannot work, before any work: an encoder that does not fit, a missing output, mask or piece."""
    needs, name, family = objective.needs, objective.name, bundle.family
    check_encoder(objective, family, bundle.config)
    missing = [each for each in needs.outputs if each not in bundle.outputs]
    if missing:
        raise OptionError(
            f"The objective {name!r} needs the output {missing[0]!r}, which the model lacks. Build the model with it."
        )
    if tokenizer.unit not in needs.units:
        raise OptionError(
            f"The objective {name!r} works on rows of a {' or '.join(needs.units)} each, and this tokenizer's unit is "
            f"the {tokenizer.unit}."
        )
    if "mask" not in tokenizer.specials and ("masked" in needs.outputs or "replaced" in needs.outputs):
        raise OptionError(
            f"The objective {name!r} needs a mask piece, and the tokenizer has none. It has: "
            f"{', '.join(tokenizer.specials) or 'no special pieces'}. Take a tokenizer with one, as BERT's kinds have."
        )
    room = objective.n_read(bundle)
    if room is not None and tokenizer.n_pieces > room:
        raise OptionError(
            f"The tokenizer has {tokenizer.n_pieces:,} pieces, and the model's table has room for "
            f"{room:,}. Make the model's vocabulary as large, or train a smaller tokenizer."
        )
    objective.refuse(bundle)


def _fits(needs: Needs, config: EncoderConfig) -> bool:
    """Whether an encoder sees what is needed, and carries what is."""
    carries = not needs.layout.carries_memory or config.memory in CARRIED
    stacks = not needs.two_stacks or config.decoder is not None
    return config.direction in needs.directions and carries and stacks
