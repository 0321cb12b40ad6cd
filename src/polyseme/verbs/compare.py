"""`compare`: a word, or all frequent words, in two corpora."""

from __future__ import annotations

from polyseme.api import load
from polyseme.errors import OptionError
from polyseme.files.result_formats import check_result_output, write_result
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.two_corpora.compare_word import Comparison, compare_word
from polyseme.two_corpora.compare_words import Differences, compare_words
from polyseme.two_corpora.comparison_files import WORD_FORMATS, WORDS_FORMATS
from polyseme.verb_options.word_options import AllWordsOptions, CompareOptions, OneWordOptions


@flat(CompareOptions)
def compare(options: CompareOptions) -> Comparison | Differences:
    """Compare how a word, whatever its case, is used in two corpora; without a word, all words frequent in both.

    The measures are those of research on semantic change (APD, PRT, JSD), with a permutation test and bootstrap
    intervals. The result for a word is a `Comparison`: measures, senses that grew or shrank, uses. That for all words
    is `Differences`: the words in order, with p-values adjusted for their number.

        >>> result = polyseme.compare("plane", source=["1900s.txt", "1990s.txt"], output="plane.html")  # doctest: +SKIP
        >>> result.apd.value, result.apd.p                                                              # doctest: +SKIP
        >>> polyseme.compare(source=[old_texts, new_texts]).listed[0].word                              # doctest: +SKIP
    """
    sources = list(options.source) if isinstance(options.source, list | tuple) else [options.source]
    if len(sources) != 2:
        raise OptionError(
            f"Two corpora are compared, and {len(sources)} {'was' if len(sources) == 1 else 'were'} given. Give --in "
            "twice (source=[first, second]); files that belong to one corpus go into one folder or pattern."
        )
    useless = options.changed(AllWordsOptions if options.word is not None else OneWordOptions)
    if useless:
        name = next(iter(useless))
        kind = "all words, and one word was given" if options.word is not None else "one word, and none was given"
        raise OptionError(f"The option {name!r} is for {kind}. Leave it out.")
    if options.max_uses is not None and options.max_uses < 2:
        raise OptionError(f"At least 2 uses of each corpus must be drawn. Got max_uses {options.max_uses} instead.")
    formats = WORDS_FORMATS if options.word is None else WORD_FORMATS
    check_result_output(options.output, formats, force=options.force)
    loaded = load(model_or_default("compare", options.model), device=options.device, dtype=options.dtype)
    compared = compare_words if options.word is None else compare_word
    result = compared(loaded.bundle, sources, options, precision=loaded.precision)
    write_result(result, options.output, formats, force=options.force)
    return result
