"""The small model beside an ELECTRA that fills its masks, and what the two share."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.bundle import Bundle, new_bundle
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import OptionError
from polyseme.objectives.step_tensors import in_full
from polyseme.parts.positions import LearnedPositions

Sharing = Literal["none", "embeddings", "all"]


def generator_for(bundle: Bundle, sharing: Sharing, share: float) -> Bundle:
    """A generator of the bundle's family, `share` as wide, on the same device and in the same precision.

    With "embeddings" it reads the bundle's own tables of pieces, positions and segments, through a map where its stack
    has another width; with "all" it is the bundle's own encoder under another output.
    """
    output = {"masked": bundle.family.outputs["masked"]}
    if sharing == "all":
        made = new_bundle(bundle.family, bundle.config, output, bundle.tokenizer, tied=bundle.tied)
        made = Bundle(
            family=bundle.family,
            encoder=bundle.encoder,
            outputs=dict(made.outputs),
            tokenizer=bundle.tokenizer,
            tied=bundle.tied,
            foreign=bundle.foreign,
        )
        made.outputs.to(bundle.device, next(bundle.parameters()).dtype)
        return made
    config = transformer_of(bundle).config
    narrow = config.narrowed(share, embedding_width=None if sharing == "none" else config.width_of_embeddings)
    made = new_bundle(bundle.family, narrow, output, bundle.tokenizer, tied=bundle.tied)
    made.foreign = dict(bundle.foreign)
    made.to(bundle.device, next(bundle.parameters()).dtype)
    if sharing == "embeddings":
        share_tables(transformer_of(bundle), transformer_of(made))
        made.tie()
    return made


def share_tables(owner: Transformer, reader: Transformer) -> None:
    """Let one encoder read the other's tables of pieces, positions and segments; norm and map stay its own."""
    reader.embeddings.pieces = owner.embeddings.pieces
    if isinstance(owner.embeddings.positions, LearnedPositions):
        reader.embeddings.positions = owner.embeddings.positions
    reader.embeddings.segments = owner.embeddings.segments


def transformer_of(bundle: Bundle) -> Transformer:
    """The bundle's encoder, which must be a Transformer to be made narrower."""
    if isinstance(bundle.encoder, Transformer) and isinstance(bundle.config, TransformerConfig):
        return bundle.encoder
    raise OptionError(
        f"The objective 'replaced' makes a narrower generator only of a Transformer, and this encoder is of kind "
        f"{bundle.config.kind!r}. Choose --sharing all, under which one encoder is both."
    )


# MERGED: Drawing pieces from a model's distribution with numbers that were drawn before: one uniform number a


BLOCK = 256
"""Pieces are summed in blocks first, so that only one block of the vocabulary is ever cumulated piece by piece."""


def sample(logits: Tensor, chance: Tensor, temperature: float = 1.0) -> Tensor:
    """[N, V] and [N] in [0, 1) → the pieces [N] that these numbers fall on; no gradient passes."""
    scores = in_full(logits.detach()) / temperature
    n_pieces = scores.shape[-1]
    top = scores.amax(dim=-1, keepdim=True)
    weights = F.pad((scores - top).exp(), (0, -n_pieces % BLOCK)).unflatten(-1, (-1, BLOCK))  # [N, B, BLOCK]
    upto = weights.sum(dim=-1).cumsum(dim=-1)  # [N, B]
    wanted = chance.to(upto.dtype)[:, None] * upto[:, -1:]  # [N, 1]
    block = (upto <= wanted).sum(dim=-1, keepdim=True).clamp(max=upto.shape[-1] - 1)  # [N, 1]
    before = torch.where(block > 0, upto.gather(1, (block - 1).clamp(min=0)), torch.zeros_like(wanted))

    places = block * BLOCK + torch.arange(BLOCK, device=logits.device)  # [N, BLOCK]
    within = (scores.gather(1, places.clamp(max=n_pieces - 1)) - top).exp()
    within = torch.where(places < n_pieces, within, torch.zeros_like(within)).cumsum(dim=-1)
    step: Tensor = (within <= wanted - before).sum(dim=-1).clamp(max=BLOCK - 1)
    drawn: Tensor = (block[:, 0] * BLOCK + step).clamp(max=n_pieces - 1)
    return drawn
