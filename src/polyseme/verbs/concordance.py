"""`concordance`: every match of a word, a lemma or a pattern, in its context."""

from __future__ import annotations

from typing import get_args

from polyseme.errors import OptionError
from polyseme.extras import later
from polyseme.files.in_memory import inputs_of
from polyseme.files.result_formats import check_result_output, write_result
from polyseme.keyword_in_context.concordance_files import FORMATS
from polyseme.keyword_in_context.keyword_lines import Concordance, find_lines
from polyseme.options import check_choice, flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.word_options import ConcordanceOptions, MatchKind, Sort


@flat(ConcordanceOptions)
def concordance(options: ConcordanceOptions) -> Concordance:
    """Keyword in context: each match of a word (or several), a lemma of a treebank, or a regular expression.

    Lines are in the order of the texts, or sorted by the words on their left or right; by their similarity to a use
    that is marked in `like`; or by sense. Only the last two load a model.

        >>> result = polyseme.concordance("broke", source="corpus.txt", sort="right")          # doctest: +SKIP
        >>> [keyword.after for keyword in result.keywords()]                                   # doctest: +SKIP
    """
    source = inputs_of(options.source)
    sort = options.sort or ("text" if options.like is None else "similarity")
    _check(options, sort)
    check_result_output(options.output, FORMATS, force=options.force)
    if sort in ("similarity", "sense"):
        model = model_or_default("concordance", options.model)
        loaded = later("polyseme.api").load(model, device=options.device, dtype=options.dtype)
        result: Concordance = later("polyseme.keyword_in_context.lines_by_vector").sorted_lines(
            loaded.bundle, source, options, precision=loaded.precision
        )
    else:
        result = find_lines(source, options, sort=sort)
    write_result(result, options.output, FORMATS, force=options.force)
    return result


def _check(options: ConcordanceOptions, sort: str) -> None:
    check_choice("match", options.match, get_args(MatchKind))
    check_choice("sort", sort, get_args(Sort))
    for name, number in (("width", options.width), ("sample", options.sample)):
        if number is not None and number < 1:
            raise OptionError(f"The option {name!r} must be at least 1. Got {number} instead.")
    if (sort == "similarity") != (options.like is not None):
        raise OptionError(
            "Lines are sorted by similarity to a use that is marked in a text: give it with --like (like=…), as in "
            "--like 'Dawn [broke].', and no other order."
        )
    if options.n_senses is not None and sort != "sense":
        raise OptionError("The option 'n_senses' is for lines that are sorted by sense (--sort sense). Leave it out.")
