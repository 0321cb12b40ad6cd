"""Benchmarks with one tag per word: treebanks' parts of speech, named entities, any CoNLL files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from polyseme.datasets.benchmark import Benchmark, BenchmarkData, Files
from polyseme.files.rows import Row, read_rows
from polyseme.tasks.items import Item
from polyseme.tasks.tag import SPAN_METRICS, in_scheme, last_column


def conll_items(file: Path, *, word: int = 1, tag: int | None = None) -> list[Item]:
    """The sentences of a CoNLL file; columns count from 1, and the tag is in the last one unless another is named."""
    with read_rows(file, format="conll", field=str(word), fields="all" if tag is None else [str(tag)]) as rows:
        return [_item(row, last_column(row, word) if tag is None else str(tag)) for row in rows]


def conllu_items(file: Path, column: str = "upos") -> list[Item]:
    """The sentences of a treebank with one of its columns as tags."""
    with read_rows(file, format="conllu", fields=[column]) as rows:
        return [_item(row, column) for row in rows]


def _item(row: Row, column: str) -> Item:
    tags = tuple(row.fields[column])
    return Item.of_words([str(word) for word in row.content], gold=tags, id=row.id, place=str(row.place))


# --- the benchmarks --------------------------------------------------------------------------------------------------


def tag_reader(read_file: Callable[[Path], Sequence[Item]]) -> Callable[[Files], BenchmarkData]:
    """A reader of sentences with tags; invalid tags of published files are repaired, with a note."""

    def read(files: Files) -> BenchmarkData:
        tagged = in_scheme({split: read_file(file) for split, file in files.items()}, repair=True)
        return BenchmarkData(dict(tagged.splits), scheme=tagged.scheme, notes=list(tagged.notes))

    return read


def _entities(name: str, description: str, folders: tuple[str, ...], files: Mapping[str, tuple[str, ...]]) -> Benchmark:
    return Benchmark(
        name=name,
        kind="tag",
        description=description,
        metrics=SPAN_METRICS,
        folders=folders,
        files=files,
        reader=tag_reader(conll_items),
    )


def _treebank(name: str, column: str, labels: str) -> Benchmark:
    return Benchmark(
        name=name,
        kind="tag",
        description=f"{labels} of each word, in a treebank of Universal Dependencies (English Web Treebank)",
        metrics=("word_accuracy",),
        folders=("ud-ewt", "UD_English-EWT", "UD_English-EWT-master"),
        files={split: (f"*-ud-{split}.conllu", f"{split}.conllu") for split in ("train", "dev", "test")},
        reader=lambda files: BenchmarkData({split: conllu_items(file, column) for split, file in files.items()}),
    )


TAGGING: tuple[Benchmark, ...] = (
    _treebank("ud-ewt", "upos", "universal part of speech"),
    _treebank("ud-ewt-xpos", "xpos", "part of speech (Penn Treebank's)"),
    _entities(
        "wnut17",
        "rare and new names in noisy text",
        ("wnut17", "emerging_entities_17", "emerging_entities_17-master"),
        {
            "train": ("train.conll", "wnut17train.conll"),
            "dev": ("dev.conll", "emerging.dev.conll"),
            "test": ("test.conll", "emerging.test.annotated"),
        },
    ),
    _entities(
        "wikigold",
        "names in Wikipedia (no standard split)",
        ("wikigold",),
        {"train": ("train.conll", "wikigold.conll.txt"), "dev": ("dev.conll",), "test": ("test.conll",)},
    ),
    _entities(
        "conll",
        "names or other spans in any CoNLL files; the tags are in the last column",
        ("conll", "conll2003", "conll03", "CoNLL-2003"),
        {
            "train": ("train.conll", "eng.train", "train.txt", "*train*.conll", "*train*.iob", "*train*.bio"),
            "dev": ("dev.conll", "eng.testa", "valid.txt", "dev.txt", "*dev*.conll", "*dev*.iob", "*dev*.bio"),
            "test": ("test.conll", "eng.testb", "test.txt", "*test*.conll", "*test*.iob", "*test*.bio"),
        },
    ),
)
