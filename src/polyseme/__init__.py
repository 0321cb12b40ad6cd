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
    from polyseme.corpus.build import build_corpus
    from polyseme.errors import PolysemeError, PolysemeWarning
    from polyseme.evaluating import evaluate
    from polyseme.files import read_vectors
    from polyseme.generating import generate
    from polyseme.gluing import glue
    from polyseme.predicting import predict
    from polyseme.runs import list_recipes, pretrain
    from polyseme.scoring import score
    from polyseme.transfer.folder import load_task_model
    from polyseme.transferring import finetune
    from polyseme.types import Document, Embedded, Word
    from polyseme.uses import senses, similar
    from polyseme.vectors.view import view
    from polyseme.verbs import convert_model, embed, fill, next, pieces, show
    from polyseme.word_encoder import WordEncoder

__version__ = "0.1.0"

_HOMES = {
    "Model": "api",
    "build_corpus": "corpus.build",
    "convert_model": "verbs",
    "embed": "verbs",
    "evaluate": "evaluating",
    "fill": "verbs",
    "finetune": "transferring",
    "generate": "generating",
    "glue": "gluing",
    "list_recipes": "runs",
    "load": "api",
    "load_task_model": "transfer.folder",
    "next": "verbs",
    "pieces": "verbs",
    "predict": "predicting",
    "pretrain": "runs",
    "score": "scoring",
    "senses": "uses",
    "show": "verbs",
    "similar": "uses",
    "PolysemeError": "errors",
    "PolysemeWarning": "errors",
    "read_vectors": "files",
    "Document": "types",
    "Embedded": "types",
    "Word": "types",
    "WordEncoder": "word_encoder",
    "view": "vectors.view",
}

__all__ = [
    "Document",
    "Embedded",
    "Model",
    "PolysemeError",
    "PolysemeWarning",
    "Word",
    "WordEncoder",
    "build_corpus",
    "convert_model",
    "embed",
    "evaluate",
    "fill",
    "finetune",
    "generate",
    "glue",
    "list_recipes",
    "load",
    "load_task_model",
    "next",
    "pieces",
    "predict",
    "pretrain",
    "read_vectors",
    "score",
    "senses",
    "show",
    "similar",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(later(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
