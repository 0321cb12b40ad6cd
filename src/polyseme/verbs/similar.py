"""`similar`: the nearest uses of a word in context."""

from __future__ import annotations

from pathlib import Path

from polyseme.api import Model, load
from polyseme.embedding.layer_selection import is_layer
from polyseme.embedding.side_by_side import named_models
from polyseme.errors import OptionError
from polyseme.files.result_formats import check_result_output, write_result
from polyseme.options import flat
from polyseme.verb_options.word_options import SimilarOptions
from polyseme.verbs.model_of_uses import model_for_uses
from polyseme.word_senses.result_files import SIMILAR_FORMATS
from polyseme.word_senses.similar_uses import ComparedBy, Similar, similar_uses


@flat(SimilarOptions)
def similar(options: SimilarOptions) -> Similar:
    """Find the nearest uses of the word that brackets mark in a text: uses of the same word, and of other words.

    All words of `source`, or of an `index` built from it, are compared. `[MASK]` does not mark a word. `force` also
    replaces an index that was built with other texts or settings.

        >>> result = polyseme.similar("A [crane] caught a fish.", source="sentences.txt")     # doctest: +SKIP
        >>> [(use.text, use.cosine) for use in result.near.same]                              # doctest: +SKIP
    """
    check_result_output(options.output, SIMILAR_FORMATS, force=options.force)
    loaded = model_for_uses("similar", options)
    compared_by = [_compared_by(loaded, options.layer)]
    if options.against is not None:
        compared_by.append(_against(loaded, options))
    result = similar_uses(options, compared_by)
    write_result(result, options.output, SIMILAR_FORMATS, force=options.force)
    return result


def _compared_by(model: Model, layer: str | int) -> ComparedBy:
    return ComparedBy(bundle=model.bundle, layer=layer, precision=model.precision, model=model.path)


def _against(model: Model, options: SimilarOptions) -> ComparedBy:
    """What else uses are compared by: another layer of the model, or another model, its top layer or a named one."""
    against = options.against
    if isinstance(against, str | int) and is_layer(against):
        return _compared_by(model, against)
    name, layer = against, None
    if isinstance(against, str) and not Path(against).exists():
        (name, layer), *more = named_models(against)
        if more:
            raise OptionError(f"Uses are compared by one other layer or model. Got {against!r}: name one of them.")
    other = load(name, device=options.device, dtype=options.dtype)  # type: ignore[arg-type]
    return _compared_by(other, "-1" if layer is None else layer)
