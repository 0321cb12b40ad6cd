"""Natural-language inference: SNLI (Bowman et al. 2015), MultiNLI's own files, SICK (Marelli et al. 2014)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from polyseme.datasets.benchmark import (
    LEFT_OUT,
    UNLABELED,
    Benchmark,
    BenchmarkData,
    Columns,
    Files,
    a_number,
    one_label,
    table_items,
    table_reader,
)
from polyseme.errors import InputError
from polyseme.files.rows import Place, excerpt, read_rows
from polyseme.files.source import suffixes
from polyseme.tasks.items import Item, ReadingLog

NLI_LABELS = ("entailment", "neutral", "contradiction")
NO_GOLD = "-"
"""The gold label of a pair on which annotators did not agree."""
_COLUMNS = Columns(
    text=("premise", "sentence1"),
    second=("hypothesis", "sentence2"),
    label=("gold_label", "label"),
    fields=("genre",),
    ragged=True,
)
_TO_GOLD = one_label(NLI_LABELS, left_out=NO_GOLD)
_TABLES = table_reader(_COLUMNS, _TO_GOLD)


def read_inference(files: Files) -> BenchmarkData:
    """SNLI and MultiNLI, as tables or as JSON lines."""
    read = _TABLES({split: file for split, file in files.items() if suffixes(str(file))[0] != ".jsonl"})
    log = ReadingLog()
    for split, file in files.items():
        if suffixes(str(file))[0] == ".jsonl":
            read.splits[split] = _json_items(file, log)
    read.notes += log.notes()
    in_order = [name for split in files for name in (split, split + UNLABELED) if name in read.splits]
    return replace(read, splits={name: read.splits[name] for name in in_order})


def _json_items(file: Path, log: ReadingLog) -> list[Item]:
    items = []
    with read_rows(file, field="sentence1", fields="all") as rows:
        for row in rows:
            second, label = row.fields.get("sentence2"), row.fields.get("gold_label")
            if not isinstance(row.content, str) or not isinstance(second, str) or not isinstance(label, str):
                raise InputError(
                    f"{row.place}: 'sentence1', 'sentence2' and 'gold_label' must all be there, as strings."
                )
            gold = _TO_GOLD(label, row.place)
            if gold is LEFT_OUT:
                log.add("a row left out that has no gold label (-)", row.place)
                continue
            genre = row.fields.get("genre")
            items.append(
                Item(
                    text=row.content,
                    second=second,
                    gold=gold,
                    id=str(row.fields.get("pairID") or row.id),
                    place=str(row.place),
                    fields={} if genre is None else {"genre": genre},
                )
            )
    return items


# --- SICK ------------------------------------------------------------------------------------------------------------

_SICK_SPLITS = {"TRAIN": "train", "TRIAL": "dev", "TEST": "test"}
_SICK_FILES = {
    "all": ("SICK.txt",),
    "train": ("train.tsv", "SICK_train.txt"),
    "dev": ("dev.tsv", "SICK_trial.txt"),
    "test": ("test.tsv", "SICK_test_annotated.txt"),
}


def _small_label(label: str, place: Place) -> str:
    if label.lower() not in NLI_LABELS:
        raise InputError(f"{place}: {excerpt(label)!r} is no label of SICK. There are: {', '.join(NLI_LABELS)}.")
    return label.lower()


def _sick(label: tuple[str, ...], to_gold: Callable[[str, Place], object]) -> Callable[[Files], BenchmarkData]:
    """The splits apart, or all in one file with a column that says which is which."""
    columns = Columns(
        text=("sentence_a", "sentence_A"), second=("sentence_b", "sentence_B"), label=label, fields=("SemEval_set",)
    )
    read_tables = table_reader(columns, to_gold)

    def read(files: Files) -> BenchmarkData:
        if "all" not in files:
            return read_tables(files)
        log = ReadingLog()
        splits: dict[str, Sequence[Item]] = {}
        items = table_items(files["all"], columns, to_gold, log)
        for item in items:
            if item.fields.get("SemEval_set") not in _SICK_SPLITS:
                name = item.fields.get("SemEval_set")
                raise InputError(
                    f"{item.place}: 'SemEval_set' must be {', '.join(_SICK_SPLITS)}. Got {name!r} instead."
                )
        for theirs, ours in _SICK_SPLITS.items():
            splits[ours] = [item for item in items if item.fields["SemEval_set"] == theirs]
        return BenchmarkData({split: chosen for split, chosen in splits.items() if chosen}, notes=list(log.notes()))

    return read


INFERENCE: tuple[Benchmark, ...] = (
    Benchmark(
        name="snli",
        kind="pair",
        description="does the first sentence entail or contradict the second, or neither? (captions)",
        metrics=("accuracy",),
        folders=("snli", "SNLI", "snli_1.0"),
        files={
            "train": ("train.tsv", "train.sample.tsv", "snli_1.0_train.jsonl", "snli_1.0_train.txt"),
            "dev": ("dev.tsv", "dev.sample.tsv", "snli_1.0_dev.jsonl", "snli_1.0_dev.txt"),
            "test": ("test.tsv", "test.sample.tsv", "snli_1.0_test.jsonl", "snli_1.0_test.txt"),
        },
        labels=NLI_LABELS,
        reader=read_inference,
    ),
    Benchmark(
        name="sick",
        kind="pair",
        description="does the first sentence entail or contradict the second, or neither? (plain words)",
        metrics=("accuracy",),
        folders=("sick", "SICK"),
        files=_SICK_FILES,
        labels=NLI_LABELS,
        reader=_sick(("label", "entailment_label", "entailment_judgment"), _small_label),
    ),
    Benchmark(
        name="sick-relatedness",
        kind="pair",
        description="how related are the two sentences, from 1 to 5?",
        metrics=("pearson", "spearman"),
        folders=("sick", "SICK"),
        files=_SICK_FILES,
        regression=True,
        reader=_sick(("relatedness", "relatedness_score"), a_number),
    ),
)
