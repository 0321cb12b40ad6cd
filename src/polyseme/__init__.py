"""polyseme: a word has as many vectors as it has contexts.

    >>> import polyseme                                               # doctest: +SKIP
    >>> model = polyseme.load("path/to/bert")                         # doctest: +SKIP
    >>> model.embed(["Dawn broke."])[0].vectors.shape                 # doctest: +SKIP
    (3, 768)

Importing polyseme loads neither torch nor numpy; names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyseme.extras import later

if TYPE_CHECKING:
    from polyseme.api import Model, load
    from polyseme.claims.check_claims import check_claims
    from polyseme.errors import PolysemeError, PolysemeWarning
    from polyseme.files.vector_files import read_vectors
    from polyseme.transfer.task_folder import load_task_model
    from polyseme.types import Document, EmbeddedDocument, Word
    from polyseme.verbs.attention import attention, view_attention
    from polyseme.verbs.attribute import attribute
    from polyseme.verbs.benchmark import benchmark
    from polyseme.verbs.cells import cells
    from polyseme.verbs.compare import compare
    from polyseme.verbs.concordance import concordance
    from polyseme.verbs.convert import convert_model
    from polyseme.verbs.corpus import build_corpus
    from polyseme.verbs.distill import distill
    from polyseme.verbs.embed import embed
    from polyseme.verbs.evaluate import evaluate
    from polyseme.verbs.fill import fill
    from polyseme.verbs.finetune import finetune
    from polyseme.verbs.generate import generate
    from polyseme.verbs.geometry import geometry
    from polyseme.verbs.heads import attention_heads
    from polyseme.verbs.interpolate import interpolate
    from polyseme.verbs.lens import lens
    from polyseme.verbs.models import list_models
    from polyseme.verbs.next import next
    from polyseme.verbs.patch import patch
    from polyseme.verbs.pieces import pieces
    from polyseme.verbs.predict import predict
    from polyseme.verbs.pretrain import pretrain
    from polyseme.verbs.probe import probe
    from polyseme.verbs.prune import prune
    from polyseme.verbs.published import published
    from polyseme.verbs.recipes import list_recipes
    from polyseme.verbs.score import score
    from polyseme.verbs.senses import senses
    from polyseme.verbs.show import show
    from polyseme.verbs.similar import similar
    from polyseme.verbs.sweep import sweep
    from polyseme.verbs.tradeoffs import tradeoffs
    from polyseme.verbs.uses import uses
    from polyseme.word_encoder import StackedWordEncoder, WordEncoder
    from polyseme.word_senses.similarity_view import view

__version__ = "0.1.0"

_VERBS = (
    "distill",
    "embed",
    "evaluate",
    "fill",
    "finetune",
    "generate",
    "next",
    "pieces",
    "predict",
    "pretrain",
    "score",
)
_HOMES = {
    **{
        verb: f"verbs.{verb}"
        for verb in (
            *_VERBS,
            "attention",
            "attribute",
            "benchmark",
            "cells",
            "compare",
            "concordance",
            "geometry",
            "interpolate",
            "lens",
            "probe",
            "patch",
            "prune",
            "published",
            "senses",
            "show",
            "similar",
            "tradeoffs",
            "sweep",
            "uses",
        )
    },
    **dict.fromkeys(("Model", "load"), "api"),
    **dict.fromkeys(("PolysemeError", "PolysemeWarning"), "errors"),
    **dict.fromkeys(("Document", "EmbeddedDocument", "Word"), "types"),
    **dict.fromkeys(("StackedWordEncoder", "WordEncoder"), "word_encoder"),
    "attention_heads": "verbs.heads",
    "build_corpus": "verbs.corpus",
    "check_claims": "claims.check_claims",
    "convert_model": "verbs.convert",
    "list_models": "verbs.models",
    "list_recipes": "verbs.recipes",
    "load_task_model": "transfer.task_folder",
    "read_vectors": "files.vector_files",
    "view": "word_senses.similarity_view",
    "view_attention": "verbs.attention",
}
"""Where each public name is."""

__all__ = [
    "Document",
    "EmbeddedDocument",
    "Model",
    "PolysemeError",
    "PolysemeWarning",
    "StackedWordEncoder",
    "Word",
    "WordEncoder",
    "attention",
    "attention_heads",
    "attribute",
    "benchmark",
    "build_corpus",
    "cells",
    "check_claims",
    "compare",
    "concordance",
    "convert_model",
    "distill",
    "embed",
    "evaluate",
    "fill",
    "finetune",
    "generate",
    "geometry",
    "interpolate",
    "lens",
    "list_models",
    "list_recipes",
    "load",
    "load_task_model",
    "next",
    "patch",
    "pieces",
    "predict",
    "pretrain",
    "probe",
    "prune",
    "published",
    "read_vectors",
    "score",
    "senses",
    "show",
    "similar",
    "sweep",
    "tradeoffs",
    "uses",
    "view",
    "view_attention",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(later(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
