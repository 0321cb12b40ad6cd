"""`attention`: where the words of a text look, in every layer and head."""

from __future__ import annotations

import time

from polyseme.analysis.attention_findings import AttentionFindings
from polyseme.analysis.attention_maps import read_attention
from polyseme.analysis.findings import check_findings_output
from polyseme.api import load
from polyseme.errors import OptionError
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.plots.html_page import framed_page
from polyseme.result_tables import ShownAsTable, Table, counted
from polyseme.text.documents import to_document
from polyseme.verb_options.attention_options import AttentionOptions, AttentionUnits, ViewAttentionOptions


@flat(AttentionOptions)
def attention(options: AttentionOptions) -> AttentionFindings:
    """Compute the attention between the words of a text, in every layer and head.

    For a model with a decoder, the result also has the decoder's attention to itself and to its source.

        >>> polyseme.attention("The animal was too tired.", output="attention.html")     # doctest: +SKIP
    """
    check_findings_output(options.output, force=options.force)
    started = time.perf_counter()
    loaded = load(model_or_default("attention", options.model), device=options.device)
    reading = read_attention(
        loaded.bundle,
        options.text,
        target=options.target,
        pieces=options.pieces,
        with_rollout=options.rollout,
        progress=options.progress,
    )
    document = to_document(options.text, 0)
    findings = AttentionFindings(
        model=loaded.path,
        data=f"a text of {counted(len(document.words), 'word')}",
        notes=reading.notes,
        cost=reading.tally.cost(time.perf_counter() - started, loaded.bundle.device),
        text=document.text,
        maps=reading.maps,
    )
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings


class AttentionView(ShownAsTable):
    """The page of some attention, as a notebook shows it."""

    def __init__(self, findings: AttentionFindings, height: int) -> None:
        self.findings = findings
        self.height = height

    def table(self) -> Table:
        return self.findings.table()

    def _repr_html_(self) -> str:
        return framed_page(self.findings.html(), height=self.height)


@flat(ViewAttentionOptions)
def view_attention(options: ViewAttentionOptions) -> AttentionView:
    """The attention of a text as an interactive page in a notebook; `attention` returns the figures.

    >>> polyseme.view_attention("The animal was too tired.", rollout=True)               # doctest: +SKIP
    """
    if options.height is not None and options.height < 1:
        raise OptionError(f"The height must be at least 1 pixel. Got {options.height} instead.")
    if isinstance(options.text, AttentionFindings):
        changed = [*options.changed(AttentionUnits), *(["model"] if options.model is not None else [])]
        if changed:
            raise OptionError(f"The findings have their model and units already. Leave out {', '.join(changed)}.")
        findings = options.text
    else:
        findings = attention(options.text, model=options.model, **options.values(AttentionUnits))
    return AttentionView(findings, options.height or findings.page_height())
