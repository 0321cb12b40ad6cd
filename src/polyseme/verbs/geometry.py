"""`geometry`: how alike the vectors of words are, layer by layer."""

from __future__ import annotations

from polyseme.analysis.findings import check_findings_output
from polyseme.analysis.geometry import GeometryPlan
from polyseme.analysis.geometry import geometry as measured
from polyseme.analysis.geometry_findings import GeometryFindings
from polyseme.analysis.layers_of_words import LayersOfWords, Texts
from polyseme.api import Model, folder_of, load
from polyseme.files.atomic import AnyPath
from polyseme.files.in_memory import inputs_of, names_of
from polyseme.files.reading_options import TextOptions
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.verb_options.geometry_options import GeometryOptions

OF_PLAN = ("remove_components", "max_types", "min_uses", "max_uses", "seed")


@flat(GeometryOptions)
def geometry(options: GeometryOptions) -> GeometryFindings:
    """Measure the geometry of a model's layers: anisotropy, self-similarity, intra-sentence similarity, CKA.

    The measures are Ethayarajh's (2019), each as it is and adjusted for anisotropy, of the vectors as they are and
    without their mean and first components. Texts are streamed: memory does not grow with them.

        >>> found = polyseme.geometry(source="texts/", output="geometry.html")                # doctest: +SKIP
        >>> pandas.DataFrame(found.records()).plot("layer", "anisotropy")                     # doctest: +SKIP
    """
    inputs = inputs_of(options.source)
    models = [each for each in (folder_of(options.model), folder_of(options.against)) if each is not None]
    check_findings_output(options.output, force=options.force, inputs=[*names_of(inputs), *models])
    model = _layers(model_or_default("geometry", options.model), options)
    findings = measured(
        model,
        Texts(options.source, options.changed(TextOptions), options.max_words),
        GeometryPlan(**{name: getattr(options, name) for name in OF_PLAN}),
        against=None if options.against is None else _layers(options.against, options),
        progress=options.progress,
    )
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings


def _layers(model: AnyPath | Model, options: GeometryOptions) -> LayersOfWords:
    loaded = load(model, device="auto" if isinstance(model, Model) else options.device)
    settings = {"pool": options.pool, "batch_pieces": options.batch_pieces}
    return LayersOfWords(loaded.bundle, name=loaded.path, precision=loaded.precision, **settings)
