"""`probe`: what each layer of a model knows of words, spans and pairs of spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from polyseme.analysis.dependency_trees import Treebank, read_treebank
from polyseme.analysis.findings import check_findings_output
from polyseme.analysis.probing.probe_data import read_probe_data
from polyseme.analysis.probing.probe_findings import ProbeFindings
from polyseme.analysis.probing.probe_layers import ProbePlan, probe_layers
from polyseme.analysis.probing.targets import targets_of
from polyseme.analysis.structural_findings import StructuralFindings, probe_structure
from polyseme.analysis.structural_probe import StructuralSettings
from polyseme.api import load
from polyseme.errors import OptionError
from polyseme.files.in_memory import InMemory, inputs_of, names_of
from polyseme.files.source_paths import Sources
from polyseme.options import flat
from polyseme.packaged_models import model_or_default
from polyseme.tasks.items import TaskData
from polyseme.verb_options.probe_options import ProbeOptions

OF_PLAN = ("layers", "probe", "hidden", "l2", "control", "code_length", "random", "pool", "stack")


@flat(ProbeOptions)
def probe(options: ProbeOptions) -> ProbeFindings | StructuralFindings:
    """Train classifiers on a model's frozen layers, beside what they could learn without it.

    Each layer has a probe of its own, and their mix one more. All vectors come from one pass over the text.

        >>> polyseme.probe("ud-ewt", data="tasks", model="models/mine", control=True)  # doctest: +SKIP
    """
    files = [each for each in (options.train, options.dev, options.test) if each is not None]
    check_findings_output(
        options.output, force=options.force, inputs=[name for each in files for name in names_of(inputs_of(each))]
    )
    seeds = options.seed_numbers()
    if options.structural is not None:
        return _probe_trees(options, seeds)
    loaded = load(model_or_default("probe", options.model), device=options.device)
    plan = ProbePlan(
        **{name: getattr(options, name) for name in OF_PLAN},
        seeds=seeds,
        cache=None if options.cache is None else Path(options.cache),
    )
    plan.chosen(plan.config_of(loaded.bundle))  # layers that are not there are refused before a treebank is read
    data = read_probe_data(options)
    plan = replace(plan, split=options.split or _split(data))
    targets = targets_of(data, unit=options.unit, splits=("train", plan.split), max_items=options.max_items)
    name = loaded.path or "a model"
    findings = probe_layers(loaded.bundle, targets, plan, name=name, progress=options.progress)
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings


def _split(data: TaskData) -> str:
    """Test, where there is one with labels."""
    return "test" if data.splits.get("test") and data.splits["test"][0].gold is not None else "dev"


def _probe_trees(options: ProbeOptions, seeds: Sequence[int]) -> StructuralFindings:
    """The structural probe."""
    assert options.structural is not None
    loaded = load(model_or_default("probe", options.model), device=options.device)
    singles, mix = ProbePlan(layers=options.layers).chosen(loaded.bundle.config)
    if mix:
        raise OptionError("Structural probes read single layers. Leave mix out of --layers.")
    findings = probe_structure(
        loaded.bundle,
        _treebank(options),
        StructuralSettings(kind=options.structural, rank=options.rank),
        model=loaded.path or "a model",
        layers=singles,
        seeds=seeds,
        random=options.random,
        progress=options.progress,
    )
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings


def _treebank(options: ProbeOptions) -> Treebank:
    """A named treebank, or files of the user's own: of one alone every second sentence is read."""
    if options.name != "tag":
        if options.train is not None or options.test is not None:
            raise OptionError(
                f"{options.name} has its own files. For a treebank of your own, probe tag with --train and --test."
            )
        return read_treebank(options.name, data=options.data, max_items=options.max_items)
    if options.train is None:
        raise OptionError("A structural probe needs a treebank to train on: name it with --train FILE (train=…).")
    train, test = _file(options.train), None if options.test is None else _file(options.test)
    if test is None:
        return read_treebank(train, max_items=options.max_items)
    return read_treebank(test, train=train, max_items=options.max_items)


def _file(source: Sources) -> Path:
    names = inputs_of(source)
    if isinstance(names, InMemory) or len(names) != 1:
        raise OptionError(f"A structural probe reads one CoNLL-U file per part. Got {source!r} instead.")
    return Path(names[0])
