"""A model as sentence-transformers opens it: its encoder alone, and how a text's vector is pooled."""

from __future__ import annotations

from collections.abc import Mapping

from polyseme.bundle import Bundle
from polyseme.convert.sentence_transformers import MODEL_CARD, MODULES, files_for, modules_of
from polyseme.embedding.text_pooling import LEGACY, PIECES, text_pooling_of
from polyseme.errors import ModelError, OptionError
from polyseme.model_card import card_for_sentences
from polyseme.options import check_choice
from polyseme.text.tokenizer import PieceTokenizer

KEPT_OUTPUTS = ("pooled",)
"""Outputs that the reference's class of the encoder alone has."""


def sentence_bundle(bundle: Bundle, text_pool: str | None) -> Bundle:
    """The model's encoder with the files that sentence-transformers reads; refused where that cannot open it."""
    check_fits(bundle)
    sentences = Bundle(
        family=bundle.family,
        encoder=bundle.encoder,
        decoder=bundle.decoder,
        outputs={name: output for name, output in bundle.outputs.items() if name in KEPT_OUTPUTS},
        tokenizer=_padded(bundle),
        tied=bundle.tied,
        foreign=bundle.foreign,
    )
    others = {
        name: content for name, content in bundle.extra_files.items() if not _is_module_file(name, bundle.extra_files)
    }
    if text_pool is None and MODULES in bundle.extra_files:
        sentences.extra_files = bundle.extra_files
        return sentences
    name = "mean" if text_pool is None else text_pool
    if name == "words":
        raise OptionError(
            "sentence-transformers has no mean over words: a text's vector there is pooled over all pieces. Choose a "
            f"text_pool (--text-pool) of {', '.join(PIECES)}."
        )
    check_choice("text_pool", name, PIECES)
    pooling = {key: mode == PIECES[name] for key, mode in LEGACY.items()}
    if MODEL_CARD in others:
        others[MODEL_CARD] = card_for_sentences(others[MODEL_CARD].decode(errors="replace")).encode()
    sentences.extra_files = {**others, **files_for(pooling, bundle.config.widths[-1], bundle.config.window)}
    text_pooling_of(sentences, "model", at_top=True)  # can be read as it was written
    return sentences


def check_fits(bundle: Bundle) -> None:
    """Refuse a model that sentence-transformers, which opens models by way of transformers, could not run."""
    family = bundle.family
    if family.reference is None:
        raise ModelError(
            f"A model of the family {family.name} is none that sentence-transformers can open: transformers has no "
            "class for it. Use polyseme's own `embed --per text`, or convert it --to word2vec."
        )
    if bundle.decoder is not None and family.encoder_class is None:
        raise ModelError(
            f"A model of the family {family.name} has two stacks, and sentence-transformers would take the vectors of "
            "its decoder, not the encoder's: it knows no class for its encoder alone. Use polyseme's own "
            "`embed --per text`, or another model."
        )
    if not isinstance(bundle.tokenizer, PieceTokenizer):
        raise ModelError("The model has no tokenizer that sentence-transformers could read.")


def _padded(bundle: Bundle) -> PieceTokenizer:
    """The tokenizer with a piece to pad batches with; it may be any, since padding is masked."""
    tokenizer = bundle.tokenizer
    assert isinstance(tokenizer, PieceTokenizer)
    if "pad" in tokenizer.specials:
        return tokenizer
    specials = tokenizer.framing.specials
    piece = specials.get("end") or specials.get("unknown") or tokenizer.pieces([0])[0]
    return tokenizer.with_special("pad", piece)


def _is_module_file(name: str, files: Mapping[str, bytes]) -> bool:
    """Whether a kept file belongs to the modules, and not to the model whatever they are: its card, its prompts."""
    if name == MODULES or (name.startswith("sentence_") and name.endswith("_config.json")):
        return True
    entries = modules_of(files[MODULES], MODULES) if MODULES in files else []
    return any(entry["path"] and name.startswith(f"{entry['path']}/") for entry in entries)
