"""`senses`: the uses of a word, grouped by sense."""

from __future__ import annotations

from polyseme.api import Model, load
from polyseme.bundle import Bundle
from polyseme.errors import ModelError
from polyseme.files.result_formats import check_result_output, write_result
from polyseme.options import flat
from polyseme.packaged_models import PACKAGED, default_model, where_output
from polyseme.verb_options.model_options import LayerOptions
from polyseme.verb_options.word_options import SensesOptions
from polyseme.verbs.model_of_uses import has_own_vectors, model_for_uses
from polyseme.word_senses.result_files import SENSES_FORMATS
from polyseme.word_senses.sense_groups import Senses, senses_of
from polyseme.word_senses.wordnet import WordNet

NO_NAMES = "none"


@flat(SensesOptions)
def senses(options: SensesOptions) -> Senses:
    """Group the uses of a word, whatever its case, by sense: how many there are and why, names, examples, and a map.

    The number of senses is estimated unless `n_senses` sets it; the result states how, also where there is only one.
    With `apply`, every use gets one of the senses that were found before, with their identifiers and names.

        >>> result = polyseme.senses("broke", source="sentences.txt", output="broke.html")    # doctest: +SKIP
        >>> result.n_senses, result.explanation, [sense.name for sense in result.senses]      # doctest: +SKIP
        >>> polyseme.senses("broke", source="new.txt", apply="broke.json").uses[0].sense      # doctest: +SKIP
    """
    check_result_output(options.output, SENSES_FORMATS, force=options.force)
    wordnet = None if options.wordnet is None else WordNet(options.wordnet)
    takes_vectors = has_own_vectors(options) and not options.changed(LayerOptions)
    needs_model = options.model is not None or wordnet is not None or not takes_vectors
    loaded = model_for_uses("senses", options) if needs_model else None
    result = senses_of(
        None if loaded is None else loaded.bundle,
        options,
        namer=None if options.apply is not None else _namer(options, loaded),
        wordnet=wordnet,
        precision="own" if loaded is None else loaded.precision,
        model="" if loaded is None else loaded.path,
    )
    write_result(result, options.output, SENSES_FORMATS, force=options.force)
    return result


def _namer(options: SensesOptions, loaded: Model | None) -> Bundle | None:
    """The model that suggests replacements; None where there is none, and where none is wanted."""
    if options.names is not None and str(options.names) == NO_NAMES:
        return None
    if options.names is not None:
        bundle = load(options.names, device=options.device).bundle
        if not _fills_masks(bundle):
            raise ModelError(f"The model for names, {options.names}, cannot fill masks. {where_output('masked')}")
        return bundle
    if loaded is not None and _fills_masks(loaded.bundle):
        return loaded.bundle
    packaged = PACKAGED[default_model("fill")]
    return None if packaged.find() is None else load(packaged.name, device=options.device).bundle


def _fills_masks(bundle: Bundle) -> bool:
    return "masked" in bundle.outputs and bundle.tokenizer is not None and "mask" in bundle.tokenizer.specials
