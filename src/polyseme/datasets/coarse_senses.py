"""CoarseWSD-20 (Loureiro et al. 2021): which sense a word has in its sentence, for twenty nouns.

A folder for each word: `train.data.txt` has the number of the word's token, a tab and the sentence; `train.gold.txt`
the number of the sense; `classes_map.txt` their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from polyseme.datasets.benchmark import data_place, text_lines
from polyseme.errors import InputError
from polyseme.files.atomic import AnyPath
from polyseme.files.rows import Place, excerpt
from polyseme.json_reading import damage_reported, load_json
from polyseme.tasks.items import Item, TaskData
from polyseme.tasks.splits import split_files

NAME = "coarsewsd20"
_MAP = "classes_map.txt"
_FOLDERS = (NAME, "CoarseWSD-20", "coarse-wsd-20")


def read_coarse_senses(data: AnyPath | None) -> TaskData:
    """All words: of each sentence an item with one span, whose label is the sense."""
    folder = _folder(data_place(data, NAME))
    splits: dict[str, list[Item]] = {}
    for word in _words(folder):
        with damage_reported(word / _MAP, "Get the data again."):
            senses = load_json(word / _MAP, kind=dict)
        for split in ("train", "test"):
            files = split_files(word, {kind: (f"{split}.{kind}.txt",) for kind in ("data", "gold")})
            if len(files) == 2:
                splits.setdefault(split, []).extend(_items(files["data"], files["gold"], senses))
    return TaskData(name=NAME, kind="edge", splits=splits, metrics=("accuracy",))


def _folder(place: Path) -> Path:
    places = [*(place / "tasks" / name for name in _FOLDERS), *(place / name for name in _FOLDERS), place]
    for each in places:
        if _words(each):
            return each
    looked = ", ".join(str(each / "WORD" / _MAP) for each in places)
    raise InputError(f"{place} does not hold the data of {NAME}. Looked for {looked}.")


def _words(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob(f"*/{_MAP}"))


def _items(data: Path, gold: Path, senses: dict[str, str]) -> Iterator[Item]:
    lines = [line for line in text_lines(data) if line.text.strip()]
    labels = [line for line in text_lines(gold) if line.text.strip()]
    if len(lines) != len(labels):
        raise InputError(f"{data} has {len(lines):,} sentences, and {gold} has {len(labels):,} labels.")
    for line, label in zip(lines, labels, strict=True):
        place = Place(str(data), line.number)
        number, tab, text = line.text.partition("\t")
        words = text.split()
        if not tab or not number.isdecimal() or int(number) >= len(words):
            raise InputError(
                f"{place}: a line must be the number of a token, a tab and the sentence, of {len(words)} tokens. Got "
                f"{excerpt(line.text)!r} instead."
            )
        if label.text.strip() not in senses:
            known = ", ".join(senses)
            raise InputError(
                f"{gold}, line {label.number}: there is no sense {excerpt(label.text)!r}. There are: {known}."
            )
        start = sum(len(word) + 1 for word in words[: int(number)])
        yield Item.of_words(
            words,
            spans=((start, start + len(words[int(number)])),),
            gold=senses[label.text.strip()],
            place=str(place),
        )
