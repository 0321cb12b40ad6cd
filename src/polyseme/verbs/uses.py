"""`uses`: a word's type against its uses, by layer, as a matrix and beside their neighbors."""

from __future__ import annotations

from polyseme.analysis.findings import check_findings_output
from polyseme.analysis.word_uses import UsedModel, word_uses
from polyseme.analysis.word_uses_findings import WordUsesFindings
from polyseme.api import Model, folder_of, load
from polyseme.errors import OptionError
from polyseme.files.atomic import AnyPath
from polyseme.files.in_memory import inputs_of, names_of
from polyseme.files.vector_inputs import vector_files
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.uses_options import WordUsesOptions


@flat(WordUsesOptions)
def uses(options: WordUsesOptions) -> WordUsesFindings:
    """Compare the uses of a word: by layer, as a matrix, and beside its neighbors without and with context.

    The neighbors are Table 4 of Peters et al. (2018): of the word's one context-free vector, and of single uses.

        >>> found = polyseme.uses("play", source="texts/", output="play.html")                # doctest: +SKIP
        >>> found.static_neighbors, found.near                                                # doctest: +SKIP
    """
    inputs = [] if options.source is None else names_of(inputs_of(options.source))
    models = [each for each in (folder_of(options.model), folder_of(options.static)) if each is not None]
    check_findings_output(options.output, force=options.force, inputs=[*inputs, *models])
    if options.source is not None and options.format is None and (files := vector_files(options.source)):
        raise OptionError(f"{files[0]} has vectors of one layer, and uses are compared at all layers. Name the texts.")
    model = _use_model(model_or_default("uses", options.model), options)
    findings = word_uses(options, model, None if options.static is None else _use_model(options.static, options))
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings


def _use_model(model: AnyPath | Model, options: WordUsesOptions) -> UsedModel:
    settings = {} if isinstance(model, Model) else {"device": options.device, "dtype": options.dtype}
    loaded = load(model, **settings)  # type: ignore[arg-type]
    return UsedModel(loaded.bundle, loaded.path, loaded.precision)
