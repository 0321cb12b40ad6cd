"""Benchmarks with a tag a word: treebanks' parts of speech, named entities, any CoNLL files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from polyseme.datasets.benchmark import Benchmark, Files, Read
from polyseme.errors import InputError
from polyseme.files.row_reader import read_rows
from polyseme.files.rows import Row
from polyseme.tasks.items import Item
from polyseme.text.tag_schemes import converted, detect_scheme, fault_in

Splits = dict[str, Sequence[Item]]
LEARNT_AS = {"IOB1": "BIO", "BILOU": "BIOES"}
"""What tags of a scheme are turned into unless another is asked for; those of other schemes stay as they are."""
_A_LINE = ", line "


def conll_items(file: Path, *, word: int = 1, tag: int | None = None) -> list[Item]:
    """The sentences of a CoNLL file; columns count from 1, and the tag is in the last one unless another is named."""
    with read_rows(file, format="conll", field=str(word), fields="all" if tag is None else [str(tag)]) as rows:
        return [_item(row, last_column(row, word) if tag is None else str(tag)) for row in rows]


def last_column(row: Row, word: int) -> str:
    """The number of the last column of a sentence, which must come after that of the words."""
    last = max([int(name) for name in row.fields if name.isdecimal()], default=0)
    if last < word:
        raise InputError(f"{row.place}: there is no column of tags after that of the words, which is column {word}.")
    return str(last)


def conllu_items(file: Path, column: str = "upos") -> list[Item]:
    """The sentences of a treebank with what stands in one of its columns, a value a word."""
    with read_rows(file, format="conllu", fields=[column]) as rows:
        return [_item(row, column) for row in rows]


def _item(row: Row, column: str) -> Item:
    tags = tuple(row.fields[column])
    return Item.of_words([str(word) for word in row.content], gold=tags, id=row.id, place=str(row.place))


# --- schemes ---------------------------------------------------------------------------------------------------------


def in_scheme(splits: Splits, *, scheme: str | None = None, repair: bool = False, line_a_word: bool = True) -> Read:
    """The splits with all tags valid and in one scheme, which is found by looking at them.

    Args:
        splits: sentences with tags.
        scheme: what the tags are turned into; None: as they are, BIO where they are IOB1, BIOES where they are BILOU.
        repair: whether an invalid sequence is written anew, as `conlleval` would read it, instead of refused.
        line_a_word: whether each word has a line of its own, so that the line of a tag can be named.
    """
    tagged = [item for items in splits.values() for item in items if item.gold is not None]
    found = detect_scheme(item.gold for item in tagged)
    if found is None:
        if scheme is not None:
            got = f" Got {tagged[0].gold[0]!r} in {tagged[0].place}." if tagged else ""
            raise InputError(
                f"The tags do not mark spans, so that they cannot be turned into {scheme}: a tag must be O, or a "
                f"letter, a hyphen and a type, as in B-PER.{got}"
            )
        return Read(splits)
    faults = _faults(tagged, found, line_a_word)
    if faults and not repair:
        raise InputError(
            f"{faults[0]}. {_others(len(faults) - 1)}Correct it, or have such sequences written anew, as conlleval "
            "would read them, with --repair (repair=True)."
        )
    wanted = scheme or LEARNT_AS.get(found, found)
    notes = []
    if faults:
        notes.append(f"{_count(len(faults))} repaired, as conlleval reads them; the first: {faults[0]}.")
    if found != wanted:
        notes.append(f"Tags were turned from {found} into {wanted}.")
    if faults or found != wanted:
        splits = {split: [_converted(item, wanted) for item in items] for split, items in splits.items()}
    return Read(splits, scheme=wanted, notes=notes)


def _converted(item: Item, scheme: str) -> Item:
    return item if item.gold is None else replace(item, gold=converted(item.gold, scheme))


def _faults(items: Sequence[Item], scheme: str, line_a_word: bool) -> list[str]:
    """What is wrong in each sentence that has an invalid sequence, and where."""
    found = []
    for item in items:
        fault = fault_in(item.gold, scheme)
        if fault is not None:
            name, mark, line = item.place.rpartition(_A_LINE)
            place = f"{name}{mark}{int(line) + fault.word}" if mark and line_a_word else item.place
            found.append(f"{place}: {fault.what}, at word {fault.word + 1}, {item.words[fault.word]!r}")
    return found


def _count(n: int) -> str:
    return "1 invalid sequence of tags was" if n == 1 else f"{n:,} invalid sequences of tags were"


def _others(n: int) -> str:
    return f"There {'is 1 other' if n == 1 else f'are {n:,} others'} like it. " if n else ""


# --- the benchmarks --------------------------------------------------------------------------------------------------


def tag_reader(read_file: Callable[[Path], Sequence[Item]]) -> Callable[[Files], Read]:
    """A reader of sentences with tags; what is invalid in published files is repaired, and said."""

    def read(files: Files) -> Read:
        return in_scheme({split: read_file(file) for split, file in files.items()}, repair=True)

    return read


def _entities(name: str, about: str, folders: tuple[str, ...], files: Mapping[str, tuple[str, ...]]) -> Benchmark:
    return Benchmark(
        name=name,
        kind="tag",
        about=about,
        metrics=("span_f1", "span_precision", "span_recall", "word_accuracy"),
        folders=folders,
        files=files,
        reader=tag_reader(conll_items),
    )


def _treebank(name: str, column: str, what: str) -> Benchmark:
    return Benchmark(
        name=name,
        kind="tag",
        about=f"{what} of each word, in a treebank of Universal Dependencies (English Web Treebank)",
        metrics=("word_accuracy",),
        folders=("ud-ewt", "UD_English-EWT", "UD_English-EWT-master"),
        files={split: (f"*-ud-{split}.conllu", f"{split}.conllu") for split in ("train", "dev", "test")},
        reader=lambda files: Read({split: conllu_items(file, column) for split, file in files.items()}),
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
        {
            "train": ("train.conll", "wikigold.conll.txt"),
            "dev": ("dev.conll",),
            "test": ("test.conll",),
        },
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
