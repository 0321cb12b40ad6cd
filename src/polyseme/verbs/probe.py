"""`probe`: what each layer of a model knows of words, spans and pairs of spans."""

from __future__ import annotations

from pathlib import Path

from polyseme.analysis.findings import check_findings_output
from polyseme.analysis.probing.probe_data import read_probe_data
from polyseme.analysis.probing.probe_findings import ProbeFindings
from polyseme.analysis.probing.probe_layers import ProbePlan, probe_layers
from polyseme.analysis.probing.targets import targets_of
from polyseme.api import load
from polyseme.files.in_memory import inputs_of, names_of
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.tasks.items import TaskData
from polyseme.verb_options.probe_options import ProbeOptions

OF_PLAN = ("layers", "probe", "hidden", "l2", "control", "code_length", "random", "pool", "stack")


@flat(ProbeOptions)
def probe(options: ProbeOptions) -> ProbeFindings:
    """Train classifiers on a model's frozen layers, beside what they could learn without it.

    Each layer has a probe of its own, and their mix one more. All vectors come from one pass over the text.

        >>> polyseme.probe("ud-ewt", data="tasks", model="models/mine", control=True)  # doctest: +SKIP
    """
    files = [each for each in (options.train, options.dev, options.test) if each is not None]
    check_findings_output(
        options.output, force=options.force, inputs=[name for each in files for name in names_of(inputs_of(each))]
    )
    seeds = options.seed_numbers()
    data = read_probe_data(options)
    split = options.split or _split(data)
    targets = targets_of(data, unit=options.unit, splits=("train", split), max_items=options.max_items)
    loaded = load(model_or_default("probe", options.model), device=options.device)
    plan = ProbePlan(
        **{name: getattr(options, name) for name in OF_PLAN},
        seeds=seeds,
        split=split,
        cache=None if options.cache is None else Path(options.cache),
    )
    name = loaded.path or "a model"
    findings = probe_layers(loaded.bundle, targets, plan, name=name, progress=options.progress)
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings


def _split(data: TaskData) -> str:
    """Test, where there is one with labels."""
    return "test" if data.splits.get("test") and data.splits["test"][0].gold is not None else "dev"
