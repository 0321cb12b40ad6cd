"""`senses`: the uses of a word, grouped by sense."""

from __future__ import annotations

from polyseme.api import load
from polyseme.files.reading_options import TextOptions
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options import LayerOptions, SensesOptions
from polyseme.word_senses.result_files import check_result_output, write_result
from polyseme.word_senses.sense_groups import Senses, senses_of


@flat(SensesOptions)
def senses(options: SensesOptions) -> Senses:
    """Group the uses of a word, whatever its case, by sense: how many there are and why, examples, and a map.

    The number of senses is estimated unless `n_senses` sets it; the result states how, also where there is only one.

        >>> result = polyseme.senses("broke", source="sentences.txt", output="broke.html")    # doctest: +SKIP
        >>> result.n_senses, result.explanation                                               # doctest: +SKIP
    """
    if options.output is not None:
        check_result_output(options.output, Senses, force=options.force)
    loaded = load(model_or_default("senses", options.model), device=options.device, dtype=options.dtype)
    result = senses_of(
        loaded.bundle,
        options.word,
        options.source,
        **options.values(LayerOptions),
        n_senses=options.n_senses,
        map=options.map,
        seed=options.seed,
        batch_pieces=options.batch_pieces,
        precision=loaded.precision,
        reading=options.changed(TextOptions),
        progress=options.progress,
    )
    if options.output is not None:
        write_result(result, options.output, force=options.force)
    return result
