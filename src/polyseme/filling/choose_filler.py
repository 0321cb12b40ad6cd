"""What a bundle fills masks with: by its direction, outputs and special pieces, never by its family.

| direction | output | special pieces | method |
|---|---|---|---|
| any | masked | a mask | whole words at masks, from both sides (`masked_words`) |
| causal | causal | | proposals, compared by the whole text (`written_words`) |
| two stacks | causal | sentinels | what the decoder writes for each sentinel (`written_words`) |
| two stacks | causal | a mask | proposals, compared by the whole text given the masked one (`written_words`) |
"""

from __future__ import annotations

import re
from typing import Literal, cast

from polyseme.bundle import Bundle
from polyseme.encoders.inference import InferenceEncoder, Precision, build_inference_encoder
from polyseme.errors import ModelError, OptionError
from polyseme.filling.filled_masks import Filler
from polyseme.filling.masked_words import MaskedFiller, WordHide, check_word_hide
from polyseme.filling.row_log_probs import RowLogProbs
from polyseme.filling.written_words import CausalFiller, DenoisingFiller, SentinelFiller
from polyseme.outputs.output import Output
from polyseme.scoring.causal import causal_reading
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.scoring.target_rows import PiecePredictor
from polyseme.text.piece_texts import piece_texts
from polyseme.text.tokenizer import PieceTokenizer

Method = Literal["masked", "causal", "sentinels", "denoising"]
_SENTINEL = re.compile(r"<extra_id_(\d+)>")


def can_fill(bundle: Bundle) -> bool:
    """Whether a bundle has what filling takes."""
    return filling_method(bundle) is not None


def filling_method(bundle: Bundle) -> Method | None:
    """How a bundle fills masks; None: it cannot."""
    tokenizer = bundle.tokenizer
    if not isinstance(tokenizer, PieceTokenizer):
        return None
    if "masked" in bundle.outputs:
        return "masked" if "mask" in tokenizer.specials else None
    if "causal" not in bundle.outputs:
        return None
    if bundle.decoder is None:
        return "causal" if bundle.config.direction == "causal" and not bundle.config.reads_backwards else None
    if len(sentinels_of(tokenizer)) > 1:
        return "sentinels"
    return "denoising" if "mask" in tokenizer.specials else None


def filler_of(
    bundle: Bundle,
    *,
    hide: WordHide | None = None,
    precision: Precision = "own",
    inference: InferenceEncoder | None = None,
) -> Filler:
    """What fills masks with whole words, given answers or spans."""
    method = filling_method(bundle)
    if method is None or bundle.tokenizer is None:
        raise ModelError(
            "The model cannot fill masks: it has neither a mask and an output for it, nor one that writes."
        )
    check_word_hide(hide)
    if hide is not None and method != "masked":
        raise OptionError(f"Hiding pieces ({hide!r}) is for masked models; this one writes. Leave the option out.")
    texts = piece_texts(bundle.tokenizer)
    if method == "sentinels":
        return SentinelFiller(texts, bundle, sentinels_of(bundle.tokenizer))
    if method == "denoising":
        return DenoisingFiller(texts, scorer_of(bundle, precision=precision), bundle)
    predictor = PiecePredictor(
        build_inference_encoder(bundle.encoder, precision) if inference is None else inference,
        cast(Output, bundle.outputs[method]),
        device=bundle.device,
        batch_pieces=None,
        threads=precision != "int8",
    )
    log_probs = RowLogProbs(predictor, bundle.config)
    if method == "causal":
        scorer = scorer_of(bundle, word_probability="corrected", precision=precision, inference=predictor.inference)
        return CausalFiller(texts, scorer, log_probs, causal_reading(bundle, bundle.tokenizer))
    return MaskedFiller(bundle.tokenizer, log_probs, texts, window=bundle.config.window, hide=hide or "left-to-right")


def sentinels_of(tokenizer: object) -> list[int]:
    """The pieces that stand for spans (T5), the first span's first."""
    if not isinstance(tokenizer, PieceTokenizer):
        return []
    pieces = enumerate(tokenizer.pieces(range(tokenizer.n_pieces)))
    numbers = {int(match[1]): id for id, piece in pieces if (match := _SENTINEL.fullmatch(piece))}
    return [numbers[number] for number in range(len(numbers)) if number in numbers]
