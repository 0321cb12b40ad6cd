"""The generator that replaces pieces (ELECTRA, Clark et al. 2020): what it shares with the model, and what it draws.

Shapes: R rows, T pieces of a row, K targets of a row, N targets, V pieces of the vocabulary, B blocks of these.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.bundle import Bundle, new_bundle
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import OptionError
from polyseme.objectives.objective import with_outputs
from polyseme.parts.positions import LearnedPositions
from polyseme.parts.precision import single_precision

Sharing = Literal["none", "embeddings", "all"]

BLOCK = 256
"""Pieces are summed in blocks first, so that only one block of the vocabulary is ever cumulated piece by piece."""


def generator_for(bundle: Bundle, sharing: Sharing, share: float, depth: float = 1.0) -> Bundle:
    """A generator of the bundle's family, `share` as wide and `depth` as deep, where the bundle is and as precise.

    With "embeddings" it reads the bundle's own tables of pieces, positions and segments, through a map where its stack
    has another width; with "all" it is the bundle's own encoder under another output.
    """
    output = {"masked": bundle.family.outputs["masked"]}
    if sharing == "all":
        new = new_bundle(bundle.family, bundle.config, output, bundle.tokenizer, tied=bundle.tied)
        generator = with_outputs(bundle, dict(new.outputs))
        generator.outputs.to(bundle.device, next(bundle.parameters()).dtype)
        return generator
    config = transformer_of(bundle).config
    embedding_width = None if sharing == "none" else config.width_of_embeddings
    narrow = config.narrowed(share, depth=depth, embedding_width=embedding_width)
    generator = new_bundle(bundle.family, narrow, output, bundle.tokenizer, tied=bundle.tied)
    generator.foreign = dict(bundle.foreign)
    generator.to(bundle.device, next(bundle.parameters()).dtype)
    if sharing == "embeddings":
        share_tables(transformer_of(bundle), transformer_of(generator))
        generator.tie()
    return generator


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
        f"{bundle.config.kind!r}. Choose --objective sharing=all, under which one encoder is both."
    )


def sample(logits: Tensor, random_numbers: Tensor, temperature: float = 1.0) -> Tensor:
    """[N, V] and [N] in [0, 1) → the pieces [N] that these numbers fall on; no gradient passes."""
    scores = single_precision(logits.detach()) / temperature
    n_pieces = scores.shape[-1]
    top = scores.amax(dim=-1, keepdim=True)
    weights = F.pad((scores - top).exp(), (0, -n_pieces % BLOCK)).unflatten(-1, (-1, BLOCK))  # [N, B, BLOCK]
    upto = weights.sum(dim=-1).cumsum(dim=-1)  # [N, B]
    threshold = random_numbers.to(upto.dtype)[:, None] * upto[:, -1:]  # [N, 1]
    block = (upto <= threshold).sum(dim=-1, keepdim=True).clamp(max=upto.shape[-1] - 1)  # [N, 1]
    before = torch.where(block > 0, upto.gather(1, (block - 1).clamp(min=0)), torch.zeros_like(threshold))

    places = block * BLOCK + torch.arange(BLOCK, device=logits.device)  # [N, BLOCK]
    within = (scores.gather(1, places.clamp(max=n_pieces - 1)) - top).exp()
    within = torch.where(places < n_pieces, within, torch.zeros_like(within)).cumsum(dim=-1)
    step: Tensor = (within <= threshold - before).sum(dim=-1).clamp(max=BLOCK - 1)
    drawn: Tensor = (block[:, 0] * BLOCK + step).clamp(max=n_pieces - 1)
    return drawn


def put(rows: Tensor, places: Tensor, pieces: Tensor, weights: Tensor) -> Tensor:
    """The rows [R, T] with `pieces` at `places` [R, K], where these have weight."""
    beyond = torch.full_like(places, rows.shape[1])
    return F.pad(rows, (0, 1)).scatter(1, torch.where(weights > 0, places, beyond), pieces)[:, :-1]
