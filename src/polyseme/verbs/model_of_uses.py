"""Which model `similar` and `senses` run: the one that is named, else that of the vectors, else the packaged one."""

from __future__ import annotations

from pathlib import Path

from polyseme.api import Model, load
from polyseme.files.vector_inputs import vector_files
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.word_options import IndexOptions
from polyseme.word_senses.gather_uses import model_of_file
from polyseme.word_senses.index import CARD, model_of_index


def model_for_uses(verb: str, options: IndexOptions) -> Model:
    """The model for uses in texts, in files of vectors or in an index."""
    named = options.model if options.model is not None else _model_of_vectors(options)
    return load(model_or_default(verb, named), device=options.device, dtype=options.dtype)


def has_own_vectors(options: IndexOptions) -> bool:
    """Whether the uses have vectors already: in files of vectors, or in an index that exists."""
    if options.index is not None and (Path(options.index) / CARD).is_file():
        return True
    return bool(_vector_files(options))


def _model_of_vectors(options: IndexOptions) -> str | None:
    """The model that made the vectors, if it is still there."""
    if options.index is not None and (named := model_of_index(options.index)) is not None:
        return named
    files = _vector_files(options)
    return model_of_file(files[0]) if files else None


def _vector_files(options: IndexOptions) -> list[str]:
    return [] if options.source is None or options.format is not None else vector_files(options.source)
