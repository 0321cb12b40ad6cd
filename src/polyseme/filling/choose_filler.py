"""What a bundle fills masks with: by its direction and outputs, never by its family.

| direction | output | method |
|---|---|---|
| both | masked | whole words at masks, from both sides (`masked_words`) |
"""

from __future__ import annotations

from typing import cast

from polyseme.bundle import Bundle
from polyseme.encoders.inference import InferenceEncoder, Precision, build_inference_encoder
from polyseme.errors import ModelError
from polyseme.filling.filled import Filler
from polyseme.filling.masked_words import MaskedFiller, WordHide, check_word_hide
from polyseme.outputs.output import Output
from polyseme.scoring.target_rows import PiecePredictor
from polyseme.text.piece_texts import piece_texts


def can_fill(bundle: Bundle) -> bool:
    """Whether a bundle has what filling takes."""
    return bundle.tokenizer is not None and "masked" in bundle.outputs and "mask" in bundle.tokenizer.specials


def filler_of(
    bundle: Bundle,
    *,
    hide: WordHide | None = None,
    precision: Precision = "own",
    inference: InferenceEncoder | None = None,
) -> Filler:
    """What fills masks with whole words."""
    if bundle.tokenizer is None:
        raise ModelError("The model has no tokenizer, so it cannot read text.")
    check_word_hide(hide)
    predictor = PiecePredictor(
        build_inference_encoder(bundle.encoder, precision) if inference is None else inference,
        cast(Output, bundle.outputs["masked"]),
        device=bundle.device,
        batch_pieces=None,
        threads=precision != "int8",
    )
    return MaskedFiller(
        bundle.tokenizer,
        predictor,
        piece_texts(bundle.tokenizer),
        window=bundle.config.window,
        hide=hide or "left-to-right",
    )
