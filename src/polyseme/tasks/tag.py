"""Tag: each word of a sentence has a tag, its own or one that marks a span (BIO, BIOES, IOB1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import Advice, InputError, OptionError, nearest
from polyseme.files.in_memory import InMemory
from polyseme.files.readers.conllu import COLUMNS as CONLLU_COLUMNS
from polyseme.files.rows import Row, excerpt, no_field, read_rows
from polyseme.heads.head import NO_GOLD
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.tag_head import TagHead
from polyseme.tasks.data_columns import DataOptions, UsualNames, check_length, marks_of
from polyseme.tasks.encoder_rows import RowMaker, TaskRow, document_of
from polyseme.tasks.items import Item, ReadingLog, TaskData, labels_in
from polyseme.tasks.kind import Kind, given_words, most_frequent, predicted, refuse, rows_by_item
from polyseme.tasks.predictions import Judgment, Prediction
from polyseme.text.tag_schemes import converted, detect_scheme, fault_in, sorted_tags
from polyseme.text.windows import cut

SENTENCES = ("conll", "conllu")
"""Formats with one word per line."""
SPAN_METRICS = ("span_f1", "span_precision", "span_recall", "word_accuracy")
LEARNED_AS = {"IOB1": "BIO", "BILOU": "BIOES"}
"""What tags of a scheme are turned into unless the user names another; those of other schemes stay as they are."""
NOT_GIVEN = "_"
"""In CoNLL-U, the value of what a word does not have."""
_A_LINE = ", line "


class Tag(Kind):
    """Gold: a tuple with one tag per word. Sentences that are longer than a row are read in windows."""

    name = "tag"
    hub_task = "token-classification"
    usual_columns: ClassVar[UsualNames] = {"text": ("words", "tokens"), "label": ("tags", "ner_tags", "labels")}
    formats = (*SENTENCES, "jsonl", "parquet")
    formats_help = (
        "tags come as CoNLL or CoNLL-U, one word per line, or as JSON lines or Parquet with a list of words and a list "
        "of tags"
    )
    read_as: ClassVar[Mapping[str, str]] = {"tsv": "conll", "text": "conll"}
    has_labels = True
    labels_words = True
    head = TagHead
    head_options = frozenset({"crf", "scheme", "n_marks"})
    frozen_head = "bilstm"
    inputs_head = "bilstm-crf"
    judges_rows = False
    endings = (*Kind.endings, ".conll")

    # --- users' files -------------------------------------------------------------------------------------------------

    def read(self, file: str | InMemory, format: str, options: DataOptions, log: ReadingLog) -> Sequence[Item]:
        if format in SENTENCES:
            items = list(_sentences(str(file), format, options))
            if (
                format == "conllu"
                and options.label is not None
                and not any(set(item.gold) - {NOT_GIVEN} for item in items)
            ):
                raise no_label(str(options.label), str(file))
            return items
        return super().read(file, format, options, log)

    def item(self, row: Row, options: DataOptions, log: ReadingLog) -> Item:
        if isinstance(row.content, str):
            raise InputError(
                f"{row.place}: {options.text!r} must be a list of words, of which each has a tag. Got a text."
            )
        marks = () if options.marks is None else marks_of(row, row.fields[str(options.marks)])
        return _tagged_item(row, row.fields[str(options.label)], marks)

    def task(
        self, name: str, splits: Mapping[str, Sequence[Item]], options: DataOptions, notes: Sequence[str], *,
        by_line: bool = False,
    ) -> TaskData:  # fmt: skip
        tagged = in_scheme(splits, scheme=options.scheme, repair=options.repair, by_line=by_line)
        tags = (tag for items in tagged.splits.values() for item in items for tag in labels_in(item))
        return replace(
            super().task(name, tagged.splits, options, tagged.notes),
            labels=sorted_tags(tags, tagged.scheme),
            scheme=tagged.scheme,
            metrics=SPAN_METRICS if tagged.scheme is not None else ("word_accuracy",),
        )

    def metrics(self, *, n_labels: int) -> tuple[str, ...]:
        return ("word_accuracy",)

    def check_item(self, data: TaskData, item: Item) -> None:
        if len(item.gold) != len(item.words):
            raise refuse(item, f"there are {len(item.words)} words and {len(item.gold)} tags.")
        for number, word in enumerate(item.words, start=1):
            if not word.strip():
                raise refuse(item, f"word {number} is empty.")
        fault = None if data.scheme is None else fault_in(item.gold, data.scheme)
        if fault is not None:
            raise refuse(item, f"{fault.problem}, at word {fault.word + 1}, {item.words[fault.word]!r}.")

    # --- rows, gold and answers ---------------------------------------------------------------------------------------

    def rows(self, maker: RowMaker, items: Sequence[Item]) -> list[list[TaskRow]]:
        """Each window tags the words that it keeps."""
        results: list[list[TaskRow]] = []
        room = maker.max_pieces - maker.tokenizer.n_specials
        encoded = maker.encode([document_of(item) for item in items])
        for number, (item, pieces) in enumerate(zip(items, encoded, strict=True)):
            rows = []
            for window in cut(len(pieces), room, maker.config.direction):
                begins = pieces.words[:, 0]
                words = np.flatnonzero((begins >= window.keep_start) & (begins < window.keep_end))
                if not len(words):
                    continue
                framed = maker.tokenizer.frame(pieces.ids[window.start : window.end])
                places = np.minimum(pieces.words[words], window.end - 1) - window.start + framed.offset
                rows.append(TaskRow(number, maker.text(framed, places), first_word=int(words[0])))
            if sum(row.n_words for row in rows) != len(pieces.words):
                raise InputError(f"{item.place or 'A sentence'}: its words cannot be read in windows.")
            results.append(rows)
        return results

    def head_settings(self, data: TaskData) -> dict[str, Any]:
        marks = max((mark for item in data.splits["train"] for mark in item.marks), default=0)
        return {"scheme": data.scheme, "n_marks": marks + 1 if marks else 0}

    def gold(self, config: HeadConfig, item: Item, row: TaskRow) -> NDArray[Any]:
        number = {label: place for place, label in enumerate(config.labels)}
        tags = (item.gold or ())[row.first_word : row.first_word + row.n_words]
        return np.array([number.get(tag, NO_GOLD) for tag in tags], dtype=np.int64)

    def answers(
        self, config: HeadConfig, items: Sequence[Item], rows: Sequence[TaskRow], labels: Sequence[Any],
        probabilities: Sequence[Any],
    ) -> list[Judgment]:  # fmt: skip
        results = []
        for places in rows_by_item(items, rows):
            tags = tuple(config.labels[number] for place in places for number in labels[place])
            shares = [row for place in places for row in probabilities[place][: len(labels[place])]]
            results.append(Judgment(tags, shares))
        return results

    def baseline(self, data: TaskData, learned: Sequence[Item], items: Sequence[Item]) -> list[Any]:
        """Each word's most frequent tag; for words that were never seen, the most frequent of all."""
        by_word: dict[str, Counter[str]] = {}
        for item in learned:
            for word, tag in zip(item.words, item.gold, strict=True):
                by_word.setdefault(word, Counter())[tag] += 1
        best = {word: most_frequent(counts) for word, counts in by_word.items()}
        other = most_frequent(sum(by_word.values(), Counter()))
        return [tuple(best.get(word, other) for word in item.words) for item in items]

    def baseline_name(self, data: TaskData) -> str:
        return "most frequent tag of each word"

    # --- what is written ----------------------------------------------------------------------------------------------

    def prediction(self, config: HeadConfig, item: Item, judgment: Judgment) -> Prediction:
        numbers = [config.labels.index(tag) for tag in judgment.answer]
        return predicted(
            item,
            label=tuple(judgment.answer),
            words=given_words(item),
            probability=[float(row[number]) for number, row in zip(numbers, judgment.probabilities, strict=True)],
        )

    def table_header(self, config: HeadConfig) -> list[str]:
        return ["id", "position", "word", "tag", "probability"]

    def table_rows(
        self, config: HeadConfig, prediction: Prediction, fields: Sequence[Any]
    ) -> list[tuple[list[str], Sequence[Any]]]:
        """One row per word; a field with one value per word is shared out."""
        words = prediction.words or ()
        rows = zip(words, prediction.label, prediction.probability, strict=True)
        return [
            (
                [prediction.id, str(position), word, tag, f"{share:.6g}"],
                [each[position] if isinstance(each, list) and len(each) == len(words) else each for each in fields],
            )
            for position, (word, tag, share) in enumerate(rows)
        ]

    def arrow_columns(self, arrow: Any, config: HeadConfig) -> dict[str, Any]:
        text = arrow.string()
        strings = arrow.list_(text)
        return {"id": text, "words": strings, "tags": strings, "probabilities": arrow.list_(arrow.float64())}

    def badness(self, item: Item, judgment: Judgment, labels: Sequence[str]) -> float:
        """How many words have a wrong tag."""
        return float(sum(one != other for one, other in zip(item.gold, judgment.answer, strict=True)))


# --- sentences of CoNLL -----------------------------------------------------------------------------------------------


def _sentences(file: str, format: str, options: DataOptions) -> Iterator[Item]:
    """CoNLL by the numbers of its columns, CoNLL-U by their names or numbers."""
    label, marks = options.label, options.marks
    feature = ""
    if format == "conllu":
        label, marks = conllu_name("upos" if label is None else label), None if marks is None else conllu_name(marks)
        if label not in CONLLU_COLUMNS:
            feature, label = str(options.label), "feats"
    fields = "all" if label is None else [str(name) for name in (label, marks) if name is not None]
    text = None if options.text is None else str(options.text)
    with read_rows(file, format=format, field=text, fields=fields) as rows:
        for row in rows:
            column = last_column(row, int(options.text or 1)) if label is None else str(label)
            tags = row.fields[column]
            if feature:
                tags = [feature_of(each, feature) for each in tags]
            if marks is not None and str(marks) not in row.fields:
                raise no_field(str(marks), row.fields, row.place)
            yield _tagged_item(row, tags, () if marks is None else marks_of(row, row.fields[str(marks)]))


def _tagged_item(row: Row, tags: Any, marks: tuple[int, ...]) -> Item:
    words = tuple(str(word) for word in row.content)
    if not isinstance(tags, list) or not all(isinstance(tag, str | int) for tag in tags):
        raise InputError(
            f"{row.place}: the tags must be a list with one for each word. Got {excerpt(str(tags))!r} instead."
        )
    check_length(row, "tags", tags)
    return Item.of_words(words, gold=tuple(map(str, tags)), marks=marks, id=row.id, place=str(row.place))


def last_column(row: Row, word: int) -> str:
    """The number of the last column of a sentence, which must come after that of the words."""
    last = max([int(name) for name in row.fields if name.isdecimal()], default=0)
    if last < word:
        raise InputError(f"{row.place}: there is no column of tags after that of the words, which is column {word}.")
    return str(last)


def conllu_name(column: str | int) -> str:
    """The name of a column of CoNLL-U that is named, or numbered."""
    spelled = str(column)
    if spelled.isdecimal() and 1 <= int(spelled) <= len(CONLLU_COLUMNS):
        return CONLLU_COLUMNS[int(spelled) - 1]
    return spelled.lower()


def feature_of(features: str, name: str) -> str:
    """A morphological feature of a word, by the features that a treebank has of it.

    >>> feature_of("Mood=Ind|Tense=Past", "Tense"), feature_of("_", "Tense")
    ('Past', '_')
    """
    pairs = (each.partition("=") for each in features.split("|"))
    return next((value for feature, _, value in pairs if feature == name), NOT_GIVEN)


def no_label(label: str, file: str) -> OptionError:
    """A column or feature that no word of a treebank has."""
    with read_rows(file, format="conllu", fields=["feats"]) as rows:
        features = {each.partition("=")[0] for row in rows for cell in row.fields["feats"] for each in cell.split("|")}
    known = [*CONLLU_COLUMNS[2:6], *CONLLU_COLUMNS[7:], *sorted(features - {NOT_GIVEN})]
    return OptionError(f"No word of {file} has a label {label!r}. {nearest(label, known)}")


# --- schemes ----------------------------------------------------------------------------------------------------------


class TaggedSplits(NamedTuple):
    """Splits whose tags are all valid and in one scheme, or in none."""

    splits: Mapping[str, Sequence[Item]]
    scheme: str | None = None
    notes: tuple[str, ...] = ()


def in_scheme(
    splits: Mapping[str, Sequence[Item]], *, scheme: str | None = None, repair: bool = False, by_line: bool = True
) -> TaggedSplits:
    """The splits with all tags valid and in one scheme, which is found by looking at them.

    Args:
        splits: sentences with tags.
        scheme: what the tags are turned into; None: as they are, BIO where they are IOB1, BIOES where they are BILOU.
        repair: whether an invalid sequence is rewritten, as `conlleval` would read it, instead of refused.
        by_line: whether each word has a line of its own, so that the line of a tag can be named.
    """
    tagged = [item for items in splits.values() for item in items if item.gold is not None]
    detected = detect_scheme(item.gold for item in tagged)
    if detected is None:
        if scheme is not None:
            got = f" Got {tagged[0].gold[0]!r} in {tagged[0].place}." if tagged else ""
            raise InputError(
                f"The tags do not mark spans, so that they cannot be turned into {scheme}: a tag must be O, or a "
                f"letter, a hyphen and a type, as in B-PER.{got}"
            )
        return TaggedSplits(splits)
    faults = _faults(tagged, detected, by_line)
    if faults and not repair:
        n_others = len(faults) - 1
        others = f"There {'is 1 other' if n_others == 1 else f'are {n_others:,} others'} like it. " if n_others else ""
        raise InputError(
            f"{faults[0]}. {others}Correct it.",
            Advice("repair", "Or have such sequences rewritten, as conlleval reads them, with --repair (repair=True)."),
        )
    target = scheme or LEARNED_AS.get(detected, detected)
    notes = []
    if faults:
        count = (
            "1 invalid sequence of tags was" if len(faults) == 1 else f"{len(faults):,} invalid sequences of tags were"
        )
        notes.append(f"{count} repaired, as conlleval reads them; the first: {faults[0]}.")
    if detected != target:
        notes.append(f"Tags were turned from {detected} into {target}.")
    if notes:
        splits = {split: [_convert_tags(item, target) for item in items] for split, items in splits.items()}
    return TaggedSplits(splits, target, tuple(notes))


def _convert_tags(item: Item, scheme: str) -> Item:
    return item if item.gold is None else replace(item, gold=converted(item.gold, scheme))


def _faults(items: Sequence[Item], scheme: str, by_line: bool) -> list[str]:
    """What is wrong in each sentence that has an invalid sequence, and where."""
    faults = []
    for item in items:
        fault = fault_in(item.gold, scheme)
        if fault is not None:
            name, mark, line = item.place.rpartition(_A_LINE)
            place = f"{name}{mark}{int(line) + fault.word}" if mark and by_line else item.place
            faults.append(f"{place}: {fault.problem}, at word {fault.word + 1}, {item.words[fault.word]!r}")
    return faults
