"""What a bundle scores with: by its direction and outputs, never by its family.

| direction | output | method |
|---|---|---|
| two stacks | causal | from left to right, given a source (`seq2seq`) |
| causal | causal | from left to right, or from right to left where it reads from the end (`causal`) |
| two-way | two-way | in either direction, or both (`causal`) |
| any-order | permuted | under any order, with a query stream (`any_order`) |
| both | masked | from both sides, pieces hidden (`pseudo_likelihood`) |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from polyseme.bundle import Bundle
from polyseme.embedding.decoder_stack import decoder_of
from polyseme.encoders.encoder import Encoder
from polyseme.encoders.inference import InferenceEncoder, Precision, build_inference_encoder
from polyseme.errors import ModelError, OptionError
from polyseme.generating.language_model import has_words
from polyseme.outputs.output import Output
from polyseme.outputs.softmaxes import TwoWayOutput
from polyseme.packaged_models import where_output
from polyseme.scoring.any_order import BACK, BOTH, ONWARD, AnyOrderScoring, parse_order
from polyseme.scoring.causal import CausalScoring, TwoWayScoring, causal_reading, half_reading
from polyseme.scoring.neural_cache import NeuralCache
from polyseme.scoring.pseudo_likelihood import Hide, PseudoLikelihood, check_hide
from polyseme.scoring.scorer import Scorer
from polyseme.scoring.seq2seq import SourceScoring
from polyseme.scoring.target_rows import PiecePredictor, ScoringMethod
from polyseme.scoring.word_bounds import WordEnds, WordProbability, check_word_probability
from polyseme.text.character_tokenizer import CharacterTokenizer, WordTable
from polyseme.text.piece_texts import piece_texts
from polyseme.types import Tokenizer


def scorer_of(
    bundle: Bundle,
    *,
    hide: Hide | None = None,
    default_hide: Hide = "word",
    order: str | Sequence[int] | None = None,
    stride: int | None = None,
    neural_cache: NeuralCache | None = None,
    word_probability: WordProbability = "pieces",
    batch_pieces: int | None = None,
    precision: Precision = "own",
    inference: InferenceEncoder | None = None,
) -> Scorer:
    """What scores with a bundle; refused where it has nothing to score with, or where an option means nothing.

    A masked model hides what `default_hide` says where `hide` leaves it open.
    """
    tokenizer = bundle.text_tokenizer
    if batch_pieces is not None and batch_pieces < 1:
        raise OptionError(f"A batch must have room for at least 1 piece. Got {batch_pieces} instead.")
    check_hide(hide)
    check_word_probability(word_probability)
    chosen_order = None if order is None else parse_order(order)
    name = _scoring_method(bundle)
    if name is None:
        raise _cannot_score(bundle)
    backwards = bundle.config.reads_backwards
    _refuse_useless(name, hide=hide, order=chosen_order, stride=stride, neural_cache=neural_cache, backwards=backwards)
    if precision != "own" and name in ("two stacks", "any-order"):
        raise OptionError(f"On a CPU, this model cannot score in {precision}. Load it in fp32.")
    making = _Making(bundle, tokenizer, batch_pieces, precision, inference)
    method: ScoringMethod
    if name == "causal":
        reading = causal_reading(bundle, tokenizer)
        predictor = making.predictor("causal", bundle.encoder)
        method = CausalScoring(bundle.encoder, predictor, reading, stride=stride, neural_cache=neural_cache)
    elif name == "two stacks":
        predictor = making.predictor("causal", bundle.encoder)
        method = SourceScoring(bundle, decoder_of(bundle), tokenizer, predictor)
    elif name == "two-way":
        method = making.two_way(chosen_order, neural_cache)
    elif name == "any-order":
        predictor = making.predictor("permuted", bundle.encoder)
        method = AnyOrderScoring(
            bundle, predictor, order=ONWARD if chosen_order is None else chosen_order, stride=stride
        )
    else:
        method = PseudoLikelihood(
            bundle, tokenizer, making.predictor("masked", bundle.encoder), hide=hide or default_hide
        )
    word_ends = None
    if word_probability == "corrected":
        _refuse_correction("backwards" if backwards else name, neural_cache)
        if name == "two-way" and not isinstance(tokenizer, CharacterTokenizer):
            raise OptionError(
                "Corrected word probabilities are not built for a model that predicts characters in two directions. "
                "Leave the option out."
            )
        if name != "two-way":  # whole words are predicted there, which need no correction
            word_ends = WordEnds(piece_texts(tokenizer), bundle.config.n_pieces)
    return Scorer(tokenizer, method, bundle.device, word_ends=word_ends)


def _refuse_correction(name: str, neural_cache: NeuralCache | None) -> None:
    """Word probabilities are corrected where a text is predicted from left to right, by the model alone."""
    sides = {"both": "from both sides", "any-order": "in any order", "backwards": "from right to left"}.get(name)
    if sides is not None:
        raise OptionError(
            f"Corrected word probabilities are for models that predict from left to right; this one predicts {sides}. "
            "Leave the option out."
        )
    if neural_cache is not None:
        raise OptionError("With a neural cache, word probabilities are not corrected. Leave one of both out.")


@dataclass
class _Making:
    """What the ways to score are made of."""

    bundle: Bundle
    tokenizer: Tokenizer
    batch_pieces: int | None
    precision: Precision
    inference: InferenceEncoder | None

    def predictor(self, output: str, encoder: Encoder, half: int = 0) -> PiecePredictor:
        chosen = cast(Output, self.bundle.outputs[output])
        own = encoder is self.bundle.encoder and self.inference is not None
        return PiecePredictor(
            cast(InferenceEncoder, self.inference) if own else build_inference_encoder(encoder, self.precision),
            chosen.halves[half] if isinstance(chosen, TwoWayOutput) else chosen,
            device=self.bundle.device,
            batch_pieces=self.batch_pieces,
            threads=self.precision != "int8",
        )

    def two_way(self, order: str | tuple[int, ...] | None, neural_cache: NeuralCache | None) -> ScoringMethod:
        words = WordTable(self.tokenizer) if isinstance(self.tokenizer, CharacterTokenizer) else None
        halves = {
            name: CausalScoring(
                half,
                self.predictor("two-way", half, number),
                half_reading(words, self.tokenizer, backwards=name == BACK),
                neural_cache=neural_cache,
            )
            for number, (name, half) in enumerate(zip((ONWARD, BACK), self.bundle.encoder.halves(), strict=True))
            if order in (name, BOTH) or (order is None and name == ONWARD)
        }
        return TwoWayScoring(halves) if order == BOTH else next(iter(halves.values()))


def can_score(bundle: Bundle) -> bool:
    """Whether a bundle has what scoring takes."""
    return _scoring_method(bundle) is not None


def _scoring_method(bundle: Bundle) -> str | None:
    """How a bundle predicts pieces: by what it sees, if it has the output for it."""
    name = "two stacks" if bundle.decoder is not None else bundle.config.direction
    if name == "two-way" and not has_words(bundle.tokenizer):
        return None
    if OUTPUTS.get(name, "") in bundle.outputs:
        return name
    has_mask = bundle.tokenizer is not None and "mask" in bundle.tokenizer.specials
    return "both" if "masked" in bundle.outputs and has_mask else None


OUTPUTS = {"causal": "causal", "two stacks": "causal", "two-way": "two-way", "any-order": "permuted"}
"""By what a model sees: the output that it takes to score. One that sees both sides takes a masked one and a mask."""


NO_CACHE = {"two stacks": "reads a source beside the text", "any-order": "predicts in any order, from a second stream"}
"""By what a model sees: why there is no neural cache for it."""


def _refuse_useless(
    name: str,
    *,
    hide: Hide | None,
    order: object,
    stride: int | None,
    neural_cache: NeuralCache | None,
    backwards: bool,
) -> None:
    """Options that mean nothing for models of this direction."""
    if name == "both":
        if stride is not None:
            raise OptionError("A stride is for causal models; this one predicts from both sides. Leave it out.")
        if neural_cache is not None:
            raise OptionError(
                "A neural cache recalls what came before, and is for causal models; this one predicts from both "
                "sides. Leave it out."
            )
    elif hide not in (None, "word"):
        raise OptionError(
            f"Hiding pieces ({hide!r}) is for masked models; this one predicts from left to right. Leave the option "
            "out."
        )
    if stride is not None and name in ("two-way", "two stacks"):
        raise OptionError("This model reads each text at once, and has no use for a stride. Leave it out.")
    if neural_cache is not None and name in NO_CACHE:
        raise OptionError(
            "A neural cache keeps the states of one stream that reads on, each with the piece that came next. It is "
            f"not built for a model that {NO_CACHE[name]}. Leave it out."
        )
    one_way = (BACK,) if backwards else (ONWARD,)
    known = {"two-way": (ONWARD, BACK, BOTH), "any-order": None, "both": ()}.get(name, one_way)
    if order is not None and known is not None and order not in known:
        takes = f"It knows: {', '.join(known)}." if known else "It has none: leave the option out."
        raise OptionError(f"This model cannot score in the order {order!r}. {takes}")
    if order == BOTH and name == "any-order":
        raise OptionError("This model scores in one order at a time: left-to-right, right-to-left, or one of places.")


def _cannot_score(bundle: Bundle) -> ModelError:
    has = ", ".join(bundle.outputs) or "none"
    if bundle.config.direction == "two-way":
        return ModelError(
            "The model cannot score texts: it has no softmax and no words for one, which the published files of ELMo "
            "leave out. Take one that was trained with polyseme pretrain, which keeps both."
        )
    return ModelError(
        "The model cannot score texts: it has neither a 'causal' output over an encoder that reads from left to right, "
        f"nor a 'masked' output and a mask piece (it has: {has}; direction: {bundle.config.direction}). "
        f"{where_output('causal')}"
    )
