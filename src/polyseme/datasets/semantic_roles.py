"""Semantic roles as tagging: PropBank's arguments of each predicate of the English Web Treebank.

An item is a sentence with one of its predicates marked (`Item.marks` is 1 there); its tags are the arguments of that
predicate, in BIO. The words are those of the treebank, which must lie beside, joined by the ids of sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.datasets.benchmark import Benchmark, BenchmarkData, Files
from polyseme.datasets.sequence_labeling import TAGGING, conllu_items
from polyseme.errors import InputError
from polyseme.files.rows import Place, read_rows
from polyseme.tasks.items import Item, ReadingLog
from polyseme.tasks.splits import split_files
from polyseme.tasks.tag import SPAN_METRICS
from polyseme.text.tag_schemes import Span, tags_of

_TREEBANK = next(benchmark for benchmark in TAGGING if benchmark.name == "ud-ewt")


def read_roles(files: Files) -> BenchmarkData:
    """The predicates of each split."""
    log = ReadingLog()
    splits = {}
    for split, file in files.items():
        words = {item.id: item.words for item in conllu_items(_words_of(file, split))}
        splits[split] = [item for each in _sentences(file, words) for item in _predicates(*each, log)]
    return BenchmarkData(dict(splits), scheme="BIO", notes=list(log.notes()))


def _words_of(file: Path, split: str) -> Path:
    """The treebank's file of a split: beside the roles, or in a folder next to theirs."""
    folders = [file.parent, *(file.parent.parent / name for name in _TREEBANK.folders)]
    for folder in folders:
        files = split_files(folder, {split: _TREEBANK.files[split]})
        if split in files:
            return files[split]
    raise InputError(
        f"{file} has roles and no words: they are in the treebank UD_English-EWT. Put its {split} file "
        f"({_TREEBANK.files[split][0]}) into one of {', '.join(map(str, folders))}."
    )


Sentence = tuple[Place, str, Sequence[Mapping[str, Any]], tuple[str, ...]]


def _sentences(file: Path, words: Mapping[str, tuple[str, ...]]) -> Iterator[Sentence]:
    with read_rows(file, field="id", fields=["n", "props"]) as rows:
        for row in rows:
            id_ = str(row.content)
            if id_ not in words:
                raise InputError(f"{row.place}: the treebank has no sentence with the id {id_!r}.")
            if row.fields["n"] != len(words[id_]):
                n = len(words[id_])
                raise InputError(f"{row.place}: the sentence should have {row.fields['n']} words, and has {n} there.")
            yield row.place, id_, row.fields["props"], words[id_]


def _predicates(
    place: Place, id_: str, predicates: Sequence[Mapping[str, Any]], words: tuple[str, ...], log: ReadingLog
) -> Iterator[Item]:
    text = " ".join(words)
    for predicate in predicates:
        spans: list[Span] = []
        for label, first, last in sorted(predicate["args"], key=lambda argument: int(argument[1])):
            if not 0 <= first <= last < len(words):
                raise InputError(f"{place}: the argument {label} reaches from word {first} to {last}, of {len(words)}.")
            if spans and first < spans[-1].end:
                log.add("an argument left out that overlaps one before it", place)
                continue
            spans.append(Span(first, last + 1, label))
        at = int(predicate["pred"])
        yield Item(
            text=text,
            words=words,
            marks=tuple(int(number == at) for number in range(len(words))),
            gold=tags_of(spans, len(words)),
            id=f"{id_}:{at}",
            place=str(place),
            fields={"sense": predicate["sense"]},
        )


ROLES: tuple[Benchmark, ...] = (
    Benchmark(
        name="srl",
        kind="tag",
        description="who did what to whom: the arguments of a marked predicate (PropBank on the English Web Treebank)",
        metrics=SPAN_METRICS,
        folders=("srl", "propbank"),
        files={split: (f"*propbank-{split}.jsonl", f"{split}.jsonl") for split in ("train", "dev", "test")},
        reader=read_roles,
    ),
)
