"""`heads`: which attention head follows which dependency relation."""

from __future__ import annotations

from polyseme.analysis.attention_heads import AttentionHeads, find_heads
from polyseme.analysis.dependency_trees import read_treebank
from polyseme.analysis.findings import check_findings_output
from polyseme.analysis.word_attention import check_attentions, head_numbers
from polyseme.api import Model, load
from polyseme.embedding.row_documents import document_of
from polyseme.encoders.transformer import Transformer
from polyseme.files.in_memory import inputs_of, names_of
from polyseme.files.rows import read_rows
from polyseme.files.source_paths import Sources
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.pruning.head_importance import gradient_importance, normalize_by_layer
from polyseme.pruning.pruning_subject import TextSubject, objective_of
from polyseme.pruning.text_rows import text_batches
from polyseme.verb_options.heads_options import HeadsOptions


@flat(HeadsOptions)
def attention_heads(options: HeadsOptions) -> AttentionHeads:
    """Which attention head follows which dependency relation, and what heads attend to otherwise.

    Of each relation the best head is chosen on some sentences of a treebank, read on others, and compared with the best
    fixed offset. `records()` has a row for each relation and direction, `head_records()` one for each head.

        >>> polyseme.attention_heads("ud-ewt", data="tasks", relations=["obj", "det"])  # doctest: +SKIP
    """
    inputs = [options.treebank] if options.train is None else [options.treebank, options.train]
    texts = [] if options.importance is None else names_of(inputs_of(options.importance))
    check_findings_output(options.output, force=options.force, inputs=[*inputs, *texts])
    model = load(model_or_default("heads", options.model), device=options.device)
    check_attentions(model.bundle)
    treebank = read_treebank(options.treebank, data=options.data, train=options.train, max_items=options.max_items)
    importance = None if options.importance is None else importance_on(model, options.importance)
    findings = find_heads(
        model.bundle,
        treebank,
        model=model.path,
        relations=options.relations,
        min_count=options.min_count,
        importance=importance,
        progress=options.progress,
    )
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings


def importance_on(model: Model, texts: Sources) -> dict[tuple[int, int], float]:
    """Of each head of the encoder, by layer and number, how much it matters for predicting the pieces of texts."""
    bundle = model.bundle
    objective = objective_of(bundle)
    with read_rows(inputs_of(texts)) as rows:
        batches = text_batches(map(document_of, rows), bundle, objective)
    by_place = normalize_by_layer(gradient_importance(TextSubject(bundle, {"dev": batches}, objective), bundle))
    of_encoder = {
        (place.at.layer, place.head): value for place, value in by_place.items() if place.at.part == "encoder"
    }
    assert isinstance(bundle.encoder, Transformer)
    weight_sets = bundle.encoder.config.weight_sets
    return {(layer, head): of_encoder[weight_sets[layer - 1], head] for layer, head in head_numbers(bundle)}
