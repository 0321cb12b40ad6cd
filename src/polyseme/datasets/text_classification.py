"""Benchmarks of single texts: the Stanford Sentiment Treebank, TREC's questions, IMDb's reviews."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from polyseme.datasets.benchmark import (
    Benchmark,
    BenchmarkData,
    Columns,
    Files,
    file_reader,
    one_label,
    table_items,
    table_reader,
    text_lines,
)
from polyseme.errors import InputError
from polyseme.files.rows import Place, excerpt
from polyseme.files.source import READ_ERRORS, open_source, suffixes
from polyseme.tasks.items import Item, ReadingLog

# --- SST -------------------------------------------------------------------------------------------------------------

_OPEN = re.compile(r"\(([0-4]) ")
_LEAF = re.compile(r"\([0-4] ([^()]+)\)")
_ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
FIVE = {str(label): str(label) for label in range(5)}
THREE = {"0": "negative", "1": "negative", "2": "neutral", "3": "positive", "4": "positive"}
TWO = {label: name for label, name in THREE.items() if name != "neutral"}
"""From the label of a node to that of the task; a node without one is left out."""


def tree_nodes(tree: str, place: object) -> list[tuple[str, list[str]]]:
    """The label and the words of each node of a tree, the root first.

    >>> tree_nodes("(3 (2 Not) (4 great))", "here")
    [('3', ['Not', 'great']), ('2', ['Not']), ('4', ['great'])]
    """
    nodes: list[tuple[str, list[str]]] = []
    above: list[int] = []
    at = 0
    while at < len(tree):
        if (opened := _OPEN.match(tree, at)) is not None and (above or not nodes):
            above.append(len(nodes))
            nodes.append((opened[1], []))
            at = opened.end()
        elif tree[at] == ")" and above:
            above.pop()
            at += 1
        elif tree[at] == " " and above:
            at += 1
        elif above and tree[at] != "(":
            end = min(place for place in (tree.find(")", at), tree.find("(", at), len(tree)) if place >= 0)
            for number in above:
                nodes[number][1].append(_unescape(tree[at:end]))
            at = end
        else:
            break
    if above or at < len(tree) or not nodes or not all(words for _, words in nodes):
        raise InputError(
            f"{place}: this is no tree such as (3 (2 Not) (4 great)), with a label from 0 to 4 on every node; it "
            f"breaks off at character {at + 1}: {excerpt(tree[at:]) or 'the end'!r}."
        )
    return nodes


def _root(tree: str, place: object) -> tuple[str, list[str]]:
    """The label and the words of a whole tree."""
    words = _LEAF.findall(tree)
    if _OPEN.match(tree) and tree.count("(") == tree.count(")") == 2 * len(words) - 1:  # every node has two below it
        return tree[1], [_unescape(word) for word in words]
    return tree_nodes(tree, place)[0]


def _unescape(word: str) -> str:
    return _ESCAPES.get(word, word.replace("\\/", "/").replace("\\*", "*"))


def sst_reader(labels: Mapping[str, str], *, phrases: bool = False) -> Callable[[Files], BenchmarkData]:
    """Sentences with the label of the root; with `phrases`, every phrase of the training trees, each once."""

    def read(files: Files) -> BenchmarkData:
        splits: dict[str, Sequence[Item]] = {}
        for split, file in files.items():
            splits[split] = list(_tree_items(file, labels, phrases=phrases and split == "train"))
        return BenchmarkData(splits)

    return read


def _tree_items(file: Path, labels: Mapping[str, str], *, phrases: bool) -> Iterator[Item]:
    seen: set[str] = set()
    for line in text_lines(file):
        if not line.text.strip():
            continue
        place = f"{file}, line {line.number}"
        nodes = tree_nodes(line.text.strip(), place) if phrases else [_root(line.text.strip(), place)]
        for number, (label, words) in enumerate(nodes):
            text = " ".join(words)
            if label not in labels or (phrases and text in seen):
                continue
            seen.add(text)
            id_ = f"{line.number}.{number}" if phrases else str(line.number)
            yield Item(text=text, gold=labels[label], id=id_, place=place)


_SST = {
    "train": ("train.trees.txt", "train.txt"),
    "dev": ("dev.trees.txt", "dev.txt"),
    "test": ("test.trees.txt", "test.txt"),
}


def _sst(name: str, description: str, labels: Mapping[str, str], *, phrases: bool = False) -> Benchmark:
    return Benchmark(
        name=name,
        kind="classify",
        description=description,
        metrics=("accuracy", "macro_f1"),
        folders=("sst", "SST", "trees"),
        files=_SST,
        labels=tuple(dict.fromkeys(labels.values())),
        reader=sst_reader(labels, phrases=phrases),
    )


# --- TREC ------------------------------------------------------------------------------------------------------------

_QUESTION = re.compile(r"([A-Z]+):(\S+) (.+)")


def _trec(column: str) -> Callable[[Files], BenchmarkData]:
    columns = Columns(text=("question",), label=(column,), fields=("coarse", "fine"))
    tables = table_reader(columns, lambda label, _: label)

    def read(files: Files) -> BenchmarkData:
        if all(suffixes(str(file))[0] == ".tsv" for file in files.values()):
            return tables(files)
        return file_reader(lambda file, log: list(_label_lines(file, column)))(files)

    return read


def _label_lines(file: Path, column: str) -> Iterator[Item]:
    """TREC's own files: `DESC:manner How did serfdom develop ?`, in Latin-1."""
    for number, line in enumerate(_any_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        place = Place(str(file), number)
        question = _QUESTION.fullmatch(line.strip())
        if question is None:
            raise InputError(
                f"{place}: a question begins with its class, as in 'DESC:manner How …'. Got {excerpt(line)!r}."
            )
        fields = {"coarse": question[1], "fine": f"{question[1]}:{question[2]}"}
        yield Item(text=question[3], gold=fields[column], id=str(number), place=str(place), fields=fields)


def _any_text(file: Path) -> str:
    """A file in UTF-8 or, if it is not that, in Latin-1."""
    source = open_source(file)
    try:
        raw = source.stream.read()
    except READ_ERRORS as error:
        raise source.explain(error) from error
    finally:
        source.close()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


# --- IMDb ------------------------------------------------------------------------------------------------------------

_REVIEW = re.compile(r"([0-9]+)_([0-9]+)\.txt")
_IMDB_LABELS = ("neg", "pos")
_IMDB_COLUMNS = Columns(text=("review",), fields=("rating",))


def _imdb(file: Path, log: ReadingLog) -> Sequence[Item]:
    if not file.is_dir():
        return table_items(file, _IMDB_COLUMNS, one_label(_IMDB_LABELS), log)
    return [item for label in _IMDB_LABELS for item in _reviews(file / label, label)]


def _reviews(folder: Path, label: str) -> Iterator[Item]:
    """The official download: one file per review, its number and its rating in its name."""
    reviews = [(match, file) for file in folder.glob("*.txt") if (match := _REVIEW.fullmatch(file.name))]
    if not reviews:
        raise InputError(f"{folder} has no reviews in it (files such as 0_9.txt), as the download of IMDb has.")
    for match, file in sorted(reviews, key=lambda each: int(each[0][1])):
        text = re.sub(r"<br\s*/?>", " ", _any_text(file)).strip()
        fields = {"rating": match[2]}
        yield Item(text=text, gold=label, id=f"{label}/{match[1]}", place=str(file), fields=fields)


SENTENCES: tuple[Benchmark, ...] = (
    _sst("sst5", "from very bad (0) to very good (4), how does the reviewer like it?", FIVE),
    _sst("sst3", "does the reviewer like it, not, or neither?", THREE),
    _sst("sst2-trees", "does the reviewer like it? (whole sentences, neutral ones left out)", TWO),
    _sst("sst5-phrases", "sst5, trained on every phrase of the trees", FIVE, phrases=True),
    _sst("sst3-phrases", "sst3, trained on every phrase of the trees", THREE, phrases=True),
    _sst("sst2-phrases", "sst2-trees, trained on every phrase of the trees", TWO, phrases=True),
    *(
        Benchmark(
            name=name,
            kind="classify",
            description=f"what does the question ask for? ({n_classes} classes)",
            metrics=("accuracy", "macro_f1"),
            folders=("trec", "TREC"),
            files={
                "train": ("train.tsv", "train_5500.label"),
                "dev": ("dev.tsv",),
                "test": ("test.tsv", "TREC_10.label"),
            },
            reader=_trec(column),
        )
        for name, column, n_classes in (("trec", "coarse", 6), ("trec-fine", "fine", 50))
    ),
    Benchmark(
        name="imdb",
        kind="classify",
        description="is the review good or bad? (long texts)",
        metrics=("accuracy",),
        folders=("imdb", "aclImdb"),
        files={"train": ("train.tsv", "train.sample.tsv", "train"), "test": ("test.tsv", "test.sample.tsv", "test")},
        labels=_IMDB_LABELS,
        reader=file_reader(_imdb),
    ),
)
