"""Dependency trees of treebanks: the sentences of CoNLL-U files, or of a named one, with head words and relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyseme.datasets.named_benchmarks import BENCHMARKS, benchmark_folder, named_benchmark
from polyseme.errors import InputError, OptionError
from polyseme.files.atomic import AnyPath
from polyseme.files.rows import Row, excerpt, read_rows
from polyseme.files.source import COMPRESSIONS
from polyseme.tasks.splits import evenly_spaced, split_files
from polyseme.text.documents import make_document
from polyseme.types import Document

ENDING = ".conllu"
PUNCTUATION = "PUNCT"
"""The universal part of speech of punctuation."""


@dataclass(frozen=True)
class Tree:
    """A sentence with its dependencies."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    """Of each word the number of its head word, counted from 1; 0 of the root."""
    relations: tuple[str, ...]
    """Of each word the relation to its head word: nsubj, obl:tmod."""
    parts_of_speech: tuple[str, ...]
    id: str = ""

    def __len__(self) -> int:
        return len(self.words)

    def document(self) -> Document:
        """What a tokenizer reads."""
        return make_document(self.words, id=self.id)


def read_trees(source: AnyPath) -> list[Tree]:
    """The sentences of a CoNLL-U file, or of several; a tree that is none is refused with its place."""
    with read_rows(str(source), format="conllu", fields=["head", "deprel", "upos"]) as rows:
        return [_tree(row) for row in rows]


def _tree(row: Row) -> Tree:
    n_words = len(row.content)
    heads: list[int] = []
    for word, head in zip(row.content, row.fields["head"], strict=True):
        if not head.isdecimal() or int(head) > n_words or int(head) == len(heads) + 1:
            raise InputError(
                f"{row.place}: the head word of {excerpt(word)!r} must be the number of another word of the sentence, "
                f"from 1 to {n_words}, or 0 for the root. Got {head!r} instead. Heads are in column 7 (HEAD) of "
                "CoNLL-U, relations in column 8 (DEPREL)."
            )
        heads.append(int(head))
    _refuse_cycles(heads, row)
    return Tree(tuple(row.content), tuple(heads), tuple(row.fields["deprel"]), tuple(row.fields["upos"]), row.id)


def _refuse_cycles(heads: Sequence[int], row: Row) -> None:
    reaches_root = {0}
    for word in range(1, len(heads) + 1):
        path: dict[int, None] = {}
        while word not in reaches_root:
            if word in path:
                raise InputError(
                    f"{row.place}: the head words of the sentence form a cycle through "
                    f"{excerpt(row.content[word - 1])!r}, so that it is no tree. Correct the treebank."
                )
            path[word] = None
            word = heads[word - 1]
        reaches_root.update(path)


# --- which files ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Treebank:
    """Sentences to fit or choose by, and others to read the figures on."""

    train: Sequence[Tree]
    test: Sequence[Tree]
    description: str
    """In words, for the sources of findings."""


def read_treebank(
    treebank: AnyPath, *, data: AnyPath | None = None, train: AnyPath | None = None, max_items: int | None = None
) -> Treebank:
    """A named treebank by its splits, or a file: with another file to choose by, or cut in two.

    Args:
        treebank: a benchmark (ud-ewt), or a CoNLL-U file, on which figures are read.
        data: the folder of a benchmark.
        train: a file to choose by; None: the benchmark's own, or of a single file every second sentence.
        max_items: at most so many of each of the two, evenly spaced: treebanks are sorted by genre.
    """
    files = treebank_files(treebank, data, train)
    if "train" in files:
        both = [read_trees(files[split]) for split in ("train", "test")]
        named = f"{files['train']} and {files['test']}" if is_file(treebank) else str(treebank)
    else:
        trees = read_trees(files["test"])
        if len(trees) < 2:
            raise InputError(
                f"{files['test']} has one sentence. Some sentences are needed for selection or training, and others "
                "for the figures: use a treebank with more sentences, or name another file with --train (train=…)."
            )
        both = [trees[::2], trees[1::2]]
        named = f"{files['test']}, every second sentence"
    first, second = (evenly_spaced(part, max_items) for part in both)
    return Treebank(
        first, second, f"{named}: selected on {len(first):,} sentences, evaluated on {len(second):,} others"
    )


def treebank_files(treebank: AnyPath, data: AnyPath | None, train: AnyPath | None) -> Mapping[str, Path]:
    """The file of `test`, and that of `train` where there is one."""
    if is_file(treebank):
        if data is not None:
            raise OptionError(f"The folder {data} is for a treebank by name, and {treebank} is a file. Leave it out.")
        return {"test": Path(treebank)} | ({} if train is None else {"train": Path(train)})
    treebanks = [name for name, each in BENCHMARKS.items() if _is_treebank(name)]
    benchmark = named_benchmark(str(treebank), among=treebanks)
    if not _is_treebank(benchmark.name):
        raise OptionError(
            f"{benchmark.name} is no treebank: its words have no head words and relations. Use "
            f"{' or '.join(treebanks)}, or a CoNLL-U file of your own."
        )
    files = split_files(benchmark_folder(benchmark, data), benchmark.files)
    test = files.get("test", files.get("dev"))
    chosen = files.get("train") if train is None else Path(train)
    if test is None or chosen is None:
        raise InputError(f"{data} has no {'training' if test else 'test'} sentences of {benchmark.name}.")
    return {"train": chosen, "test": test}


def is_file(treebank: AnyPath) -> bool:
    """Whether a file is meant, and not a benchmark."""
    name = str(treebank)
    return not isinstance(treebank, str) or Path(name).suffix in (ENDING, *COMPRESSIONS) or Path(name).is_file()


def _is_treebank(name: str) -> bool:
    return all(pattern.endswith(ENDING) for patterns in BENCHMARKS[name].files.values() for pattern in patterns)
