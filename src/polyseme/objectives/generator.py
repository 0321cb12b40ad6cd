"""The small model beside an ELECTRA that fills its masks, and what the two share."""

from __future__ import annotations

from typing import Literal

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.sizes import scaled
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import OptionError
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
    narrow = scaled(config, share, embedding_width=None if sharing == "none" else config.width_of_embeddings)
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
