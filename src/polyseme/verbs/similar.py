"""`similar`: the nearest uses of a word in context."""

from __future__ import annotations

from polyseme.options import flat
from polyseme.verb_options.word_options import SimilarOptions
from polyseme.verbs.model_of_uses import model_for_uses
from polyseme.word_senses.result_files import check_result_output, write_result
from polyseme.word_senses.similar_uses import Similar, similar_uses


@flat(SimilarOptions)
def similar(options: SimilarOptions) -> Similar:
    """The nearest uses of the word that brackets mark in a text: of the same word, and of others.

    They are searched among all words of `source`, as `embed` reads it, or of the `index` that was made of it. `[MASK]`
    is not taken for a marked word. `force` also replaces an index that does not fit.

        >>> result = polyseme.similar("A [crane] caught a fish.", source="sentences.txt")     # doctest: +SKIP
        >>> [(use.text, use.cosine) for use in result.near.same]                              # doctest: +SKIP
    """
    if options.output is not None:
        check_result_output(options.output, Similar, force=options.force)
    loaded = model_for_uses("similar", options)
    result = similar_uses(loaded.bundle, options, precision=loaded.precision, model=loaded.path)
    if options.output is not None:
        write_result(result, options.output, force=options.force)
    return result
