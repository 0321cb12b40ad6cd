"""The data that `probe` reads: named benchmarks with one of their labels, files of words with tags, and edges.

Edges are JSON lines. A line has a text and its targets, as edge probing has them (jiant; Tenney et al. 2019):

    {"text": "Dawn broke early", "targets": [{"span1": [0, 1], "span2": [1, 2], "label": "nsubj"}]}

Spans count the words, which blanks separate, end excluded; without `span2` the label is of one span. Or a line is one
target: `text`, `span1`, `span2` and `label`; there spans count characters, or words where the text is a list of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyseme.datasets import coarse_senses
from polyseme.datasets.benchmark import Benchmark
from polyseme.datasets.named_benchmarks import BENCHMARKS, benchmark_folder, named_benchmark, read_benchmark
from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.in_memory import InMemory, inputs_of
from polyseme.files.rows import Row, excerpt, read_rows
from polyseme.files.source_paths import Sources
from polyseme.tasks.edge import span_of
from polyseme.tasks.items import Item, TaskData
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.own_data import read_own
from polyseme.tasks.splits import dev_note, split_files, with_dev
from polyseme.verb_options.probe_options import ProbeOptions

EDGES = "edges"
OWN = ("tag", EDGES, "edge", "edge-pair")
"""Kinds of data of one's own."""
NAMED = (*(name for name, each in BENCHMARKS.items() if each.kind in OWN), coarse_senses.NAME)
RELATIONS = "deprel"


def read_probe_data(options: ProbeOptions) -> TaskData:
    """What is probed for, read."""
    named = {split: getattr(options, split) for split in ("train", "dev", "test")}
    files = {split: file for split, file in named.items() if file is not None}
    if options.name in OWN:
        if "train" not in files:
            raise OptionError(f"Probing {options.name} needs training data. Name it with --train FILE (train=…).")
        if options.name != EDGES:
            return _read_own(options.name, files, options)
        if options.label is not None:
            raise OptionError("The labels of edges are in the field 'label' of each target. Leave --label out.")
        return _read_edges(files)
    if files:
        raise OptionError(
            f"{next(iter(files))} is for data of your own: {', '.join(OWN)}. {options.name} has its own; its folder is "
            "named with --data (data=…)."
        )
    if options.name == coarse_senses.NAME:
        return coarse_senses.read_coarse_senses(options.data)
    benchmark = named_benchmark(options.name, among=(*NAMED, *OWN))
    if benchmark.kind not in OWN:
        raise OptionError(
            f"{benchmark.name} has labels of whole texts. Probes are of words, spans and pairs of spans: "
            f"{', '.join((*NAMED, *OWN))}."
        )
    if options.label is None and options.unit != "arcs":
        return read_benchmark(benchmark.name, options.data)
    return _read_label(benchmark, options)


def _read_own(kind: str, files: Mapping[str, Sources], options: ProbeOptions) -> TaskData:
    return read_own(kind, files, unseen="keep", **_columns(kind, options))


def _columns(kind: str, options: ProbeOptions) -> dict[str, Any]:
    columns: dict[str, Any] = {} if options.label is None else {"label": options.label}
    if options.unit == "arcs":
        if kind != "tag":
            raise OptionError("Arcs are those of a treebank (CoNLL-U); this data has spans. Leave --unit out.")
        columns = {"label": RELATIONS, "marks": "head", "format": "conllu", **columns}
    return columns


def _read_label(benchmark: Benchmark, options: ProbeOptions) -> TaskData:
    """A benchmark of words with another label than its usual one."""
    files = split_files(benchmark_folder(benchmark, options.data), benchmark.files)
    formats = {KINDS["tag"].format_of(str(file), None) for file in files.values()} if benchmark.kind == "tag" else set()
    if formats not in ({"conllu"}, {"conll"}):
        raise OptionError(f"{benchmark.name} has one kind of label. Leave out label and unit.")
    if options.unit == "arcs" and formats != {"conllu"}:
        raise OptionError(f"{benchmark.name} has no heads: arcs are those of a treebank, such as ud-ewt.")
    reading = {"format": formats.pop(), **_columns("tag", options)}
    return read_own("tag", {split: str(file) for split, file in files.items()}, unseen="keep", repair=True,
                    name=f"{benchmark.name}, {reading.get('label')}", **reading)  # fmt: skip


# --- edges ------------------------------------------------------------------------------------------------------------


def _read_edges(files: Mapping[str, Sources]) -> TaskData:
    splits: dict[str, Any] = {}
    for split, source in files.items():
        table_or_files = inputs_of(source)
        with read_rows(table_or_files, field="text", fields="all") as rows:
            splits[split] = [item for row in rows for item in _targets(row)]
    notes = []
    if "dev" not in splits and "test" not in splits and len(splits["train"]) > 1:
        splits["train"], splits["dev"] = with_dev(splits["train"])
        notes.append(dev_note(splits["train"], splits["dev"]))
    first = inputs_of(files["train"])
    name = first.name if isinstance(first, InMemory) else Path(first[0]).name
    return TaskData(name=name, kind="edge", splits=splits, metrics=("accuracy",), notes=tuple(notes))


def _targets(row: Row) -> Iterator[Item]:
    """Of each target an item."""
    targets = row.fields.get("targets")
    if targets is None:
        yield _target(row, row.content, row.fields)
        return
    if not isinstance(targets, list) or not all(isinstance(each, dict) for each in targets):
        raise InputError(f"{row.place}: 'targets' must be a list of objects. Got {excerpt(str(targets))!r} instead.")
    words = row.content.split() if isinstance(row.content, str) else row.content
    for target in targets:
        yield _target(row, words, target)


def _target(row: Row, content: Any, target: Mapping[str, Any]) -> Item:
    place = str(row.place)
    words = isinstance(content, list | tuple)
    item = (
        Item.of_words([str(word) for word in content], place=place) if words else Item(text=str(content), place=place)
    )
    names = [name for name in ("span1", "span2") if target.get(name) not in (None, [])]
    if "span1" not in names:
        raise InputError(f"{place}: a target needs 'span1'. {nearest('span1', map(str, target))}")
    if target.get("label") is None:
        raise InputError(f"{place}: a target needs 'label'. {nearest('label', map(str, target))}")
    label = target["label"]
    if isinstance(label, list) and len(label) == 1:
        [label] = label
    if not isinstance(label, str | int):
        raise InputError(
            f"{place}: 'label' must be one label, a text or a whole number. Got {excerpt(str(label))!r} instead. A "
            "probe predicts one label of each target."
        )
    return replace(item, spans=tuple(span_of(item, name, target[name], place) for name in names), gold=str(label))
