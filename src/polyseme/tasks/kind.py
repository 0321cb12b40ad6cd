"""The contract of a kind of task: everything in which one kind differs from another.

A kind is one object: which columns its data has, how a row becomes an item, what must hold of items, what the encoder
reads of them, which head judges that, gold answers as arrays and predictions as answers, what is written of these, and
what a model that knows nothing would score. The rooms above ask the object and never compare names of kinds. A new kind
is a file with such an object and a line in `tasks.kinds`.

What is here holds for most kinds; `classify` is the plainest one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray

from polyseme.errors import Advice, InputError, OptionError
from polyseme.files.in_memory import InMemory
from polyseme.files.readers import ENDINGS
from polyseme.files.rows import Row
from polyseme.files.source import suffixes
from polyseme.heads.head import Head
from polyseme.heads.head_config import HeadConfig
from polyseme.tasks.data_columns import DataOptions, UsualNames, column_rows, resolve_columns
from polyseme.tasks.encoder_rows import RowMaker, TaskRow, document_of
from polyseme.tasks.items import Item, ReadingLog, TaskData
from polyseme.tasks.predictions import Judgment, Prediction
from polyseme.types import Document

TABLES = ("csv", "tsv", "jsonl", "parquet")
"""Formats whose columns have names."""


class Kind(ABC):
    """A kind of task. The attributes are what a kind must have; the methods hold for most."""

    name: str
    usual_columns: ClassVar[UsualNames]
    """Of each role that its files have, the usual names of the column."""
    formats: tuple[str, ...] = TABLES
    """Formats of users' files."""
    formats_help: str = ""
    """The same in words, for messages."""
    read_as: ClassVar[Mapping[str, str]] = {}
    """Formats that an ending stands for here, where that is not the usual one."""
    second: str | None = None
    """What the second text is called, where there is one."""
    has_choices: bool = False
    has_spans: bool = False
    """Whether an item is two spans, each in a column of its own."""
    has_labels: bool = False
    """Whether an answer is one of a set of labels, unless it is a number."""
    labels_words: bool = False
    """Whether the gold is one label per word."""

    hub_task: str = "text-classification"
    """The Hugging Face hub's name of such tasks."""

    head: ClassVar[type[Head]]
    head_options: frozenset[str] = frozenset()
    """The fields of `HeadConfig` that are for this kind only, or for few."""
    frozen_head: str = "linear"
    """The head over a frozen encoder, unless the user names one."""
    inputs_head: str = "bilstm"
    """The head over learned word inputs, unless the user names one."""
    max_pieces: int = 512
    """Of a row, unless the user says otherwise or the encoder reads fewer."""
    judges_rows: bool = True
    """Whether a row is judged by one vector; otherwise by those of its words."""
    reads_words: bool = False
    """Whether the head reads words even where there is a vector for the whole row."""
    writable: bool = False
    """Whether the answer can be written as a text by a model with a decoder."""

    # --- users' files -------------------------------------------------------------------------------------------------

    def format_of(self, file: str, format: str | None) -> str:
        """How a file is read: by the option, or by its ending."""
        ending = suffixes(file)[0]
        if format is not None:
            spelled = format.lower().removeprefix(".")
            read_as = ENDINGS.get(f".{spelled}", spelled)
        else:
            read_as = ENDINGS.get(ending, "json" if ending == ".json" else "text")
            read_as = self.read_as.get(read_as, read_as)
        if read_as not in self.formats:
            listed = self.formats_help or (
                f"the data of {self.name} comes as CSV, TSV, JSON lines or Parquet, with columns"
            )
            raise OptionError(
                f"{file} is read as {read_as}, and {listed}. Give a file with such an ending.",
                Advice("format", "Or name its format with {}."),
            )
        return read_as

    def read(self, file: str | InMemory, format: str, options: DataOptions, log: ReadingLog) -> Sequence[Item]:
        """The items of a user's file, or of a table in memory."""
        options = resolve_columns(options, file, self.usual_columns, format=format)
        return [self.item(row, options, log) for row in column_rows(file, format, options)]

    @abstractmethod
    def item(self, row: Row, options: DataOptions, log: ReadingLog) -> Item:
        """A row of a file as an item."""

    def task(
        self, name: str, splits: Mapping[str, Sequence[Item]], options: DataOptions, notes: Sequence[str], *,
        by_line: bool = False,
    ) -> TaskData:  # fmt: skip
        """What was read, as a task with its labels and metrics; `by_line`: each word has its own line."""
        if options.regression:
            raise OptionError(f"Regression is for classify and pair. Got {self.name} instead.")
        return TaskData(
            name=name, kind=self.name, splits=splits, metrics=self.metrics(n_labels=0), notes=tuple(notes)
        )  # fmt: skip

    @abstractmethod
    def metrics(self, *, n_labels: int) -> tuple[str, ...]:
        """The names of the metrics, unless a benchmark has its own; the first is what dev chooses by."""

    # --- checks -------------------------------------------------------------------------------------------------------

    def check_item(self, data: TaskData, item: Item) -> None:  # noqa: B027
        """Refuse an item whose gold does not fit it."""

    def texts(self, item: Item) -> dict[str, str]:
        """The texts of an item that must not be empty, by what they are called."""
        return {"text": item.text, **({} if self.second is None else {self.second: item.second or ""})}

    # --- what is read and judged --------------------------------------------------------------------------------------

    def seconds(self, item: Item) -> list[Document | None]:
        """Of each row of an item the text that is read with the first, or none."""
        return [None]

    def span_strings(self, item: Item) -> tuple[str, ...]:
        """The spans that an item is, as they are written; none where it is a whole text."""
        return ()

    def marked(self, item: Item) -> Item:
        """An item with marks on those words that the head must know of."""
        return item

    def encoder_rows(self, maker: RowMaker, items: Sequence[Item]) -> list[list[TaskRow]]:
        """What the encoder reads of each item."""
        return maker.prompted_rows(items) if maker.prompt else self.rows(maker, items)

    @abstractmethod
    def rows(self, maker: RowMaker, items: Sequence[Item]) -> list[list[TaskRow]]:
        """The same where a head reads the states, and no answer is written."""

    def units(self, rows: Sequence[TaskRow]) -> list[tuple[TaskRow, ...]]:
        """The rows of an item that are judged together: each by itself."""
        return [(row,) for row in rows]

    def reads_whole(self, maker: RowMaker, *, plain: bool, frozen: bool, from_start: bool) -> bool:
        """Whether the head reads one vector for the whole row.

        `plain`: the head has no body over words. `from_start`: the readout takes the state of a start special.
        """
        together = maker.frames_pairs or not self.has_two_texts
        return self.judges_rows and plain and (not frozen or from_start) and together

    def reads_decoder(self, *, over_whole: bool) -> bool:
        """Whether a model of two stacks is read at its decoder (BART); `over_whole`: one vector of the row is read."""
        return self.judges_rows and over_whole

    def whole_readout(self, readout: str, stack: str) -> str:
        """The readout of the whole row, where the head reads one."""
        return readout

    @property
    def judges_texts(self) -> bool:
        """Whether a whole text is judged, and no word of it; several models can then judge one together (`joined`)."""
        return self.judges_rows and not self.reads_words

    @property
    def has_two_texts(self) -> bool:
        return self.second is not None or self.has_choices

    def prompt(self, task: str) -> tuple[str, ...]:
        """What precedes each text of an item where the answer is written, as T5 has it.

        A task of one's own is called as its file is.
        """
        return (f"{task.partition('.')[0] or self.name} sentence: ",)

    # --- gold and answers ---------------------------------------------------------------------------------------------

    def head_settings(self, data: TaskData) -> dict[str, Any]:
        """Fields of `HeadConfig` that follow from the data."""
        return {}

    @abstractmethod
    def gold(self, config: HeadConfig, item: Item, row: TaskRow) -> NDArray[Any]:
        """The gold of a row, as the head learns from it."""

    @abstractmethod
    def answers(
        self, config: HeadConfig, items: Sequence[Item], rows: Sequence[TaskRow], labels: Sequence[Any],
        probabilities: Sequence[Any],
    ) -> list[Judgment]:  # fmt: skip
        """The head's predictions of units, of each its first row, as one answer per item."""

    def joined(self, config: HeadConfig, judgments: Sequence[Judgment]) -> Judgment:
        """What several models say of one item, by the mean of their probabilities. Only where it `judges_texts`."""
        raise TypeError(f"Answers of the kind {self.name!r} have no mean: it judges no whole texts.")

    def calibrated(
        self, config: HeadConfig, items: Sequence[Item], judge: Callable[[HeadConfig], Sequence[Judgment]]
    ) -> HeadConfig | None:
        """The head's config with what is chosen on dev after training; None: nothing is.

        `judge` judges the items with a config.
        """
        return None

    @abstractmethod
    def baseline(self, data: TaskData, learned: Sequence[Item], items: Sequence[Item]) -> list[Any]:
        """The answers of a model that knows no text, only the gold of `learned`; a result must beat them."""

    @abstractmethod
    def baseline_name(self, data: TaskData) -> str:
        """What the baseline answers, as reports call it."""

    # --- what is written ----------------------------------------------------------------------------------------------

    endings: tuple[str, ...] = (".jsonl", ".tsv", ".parquet")
    """Of the files that predictions are written to."""

    @abstractmethod
    def prediction(self, config: HeadConfig, item: Item, judgment: Judgment) -> Prediction:
        """A judgment as a record."""

    def shown_labels(self, config: HeadConfig) -> tuple[str, ...]:
        """The labels that have a column of probabilities in a table."""
        return ()

    def table_header(self, config: HeadConfig) -> list[str]:
        """The columns of a table of predictions."""
        second = [] if self.second is None else ["second"]
        shares = [f"p({each})" for each in self.shown_labels(config)]
        return ["id", "text", *second, "label", "probability", *shares]

    def table_rows(
        self, config: HeadConfig, prediction: Prediction, fields: Sequence[Any]
    ) -> list[tuple[list[str], Sequence[Any]]]:
        """The rows of one prediction in a table, each with its fields."""
        label = ", ".join(prediction.label) if isinstance(prediction.label, list | tuple) else prediction.label
        second = [] if self.second is None else [prediction.second or ""]
        share = "" if prediction.probability is None else f"{prediction.probability:.6g}"
        shares = [f"{prediction.probabilities[each]:.6g}" for each in self.shown_labels(config)]
        return [([prediction.id, prediction.text, *second, str(label), share, *shares], fields)]

    def arrow_columns(self, arrow: Any, config: HeadConfig) -> dict[str, Any]:
        """The columns of a Parquet file of predictions, with their types."""
        text, number = arrow.string(), arrow.float64()
        columns = {"id": text, "text": text, "second": text, "label": self.arrow_label(arrow, config)}
        return columns | {"probability": number, "probabilities": arrow.list_(number)}

    def arrow_label(self, arrow: Any, config: HeadConfig) -> Any:
        return arrow.string()

    # --- errors -------------------------------------------------------------------------------------------------------

    def comparable_gold(self, config: HeadConfig, item: Item) -> Any:
        """The gold of an item as the head's answers are compared with it."""
        return item.gold

    def shown_gold(self, item: Item) -> Any:
        """The gold as reports have it."""
        return item.gold

    def reading_options(self, config: HeadConfig) -> dict[str, Any]:
        """Options of `read_own` that the head of a task model decides."""
        return {}

    @abstractmethod
    def badness(self, item: Item, judgment: Judgment, labels: Sequence[str]) -> float:
        """How wrong an answer is, to order errors by; 0: it is right."""

    def confidence(self, judgment: Judgment, labels: Sequence[str]) -> float | None:
        """The probability of the one answer; None where there is no such number."""
        return None


def predicted(item: Item, **answer: Any) -> Prediction:
    """The prediction of an item."""
    return Prediction(id=item.id, text=item.text, second=item.second, fields=dict(item.fields), **answer)


def most_frequent(counts: Counter[Any]) -> Any:
    """The most frequent; of several, the first in order."""
    return min(counts, key=lambda label: (-counts[label], label))


def rows_by_item(items: Sequence[Item], rows: Sequence[TaskRow]) -> list[list[int]]:
    """Of each item the places of its rows."""
    places: list[list[int]] = [[] for _ in items]
    for place, row in enumerate(rows):
        places[row.item].append(place)
    return places


def wrong_margin(shares: Sequence[float], right: int | None) -> float:
    """How much surer a wrong answer was than the right one, which may be none of those that the model knows."""
    return float(max(shares) - (shares[right] if right is not None else 0.0)) + 1e-9


def mean_probabilities(judgments: Sequence[Judgment]) -> list[float]:
    """Of what several models say of one item."""
    each = zip(*(judgment.probabilities for judgment in judgments), strict=True)
    return [sum(shares) / len(judgments) for shares in each]


def place_of(item: Item, row: TaskRow) -> str:
    """Where an item was read, for messages."""
    return item.place or f"Item {item.id or row.item + 1}"


def given_words(item: Item) -> tuple[str, ...]:
    """The words of an item: as given, or as its text is split."""
    return item.words or tuple(map(str, document_of(item).words))


def refuse(item: Item, problem: str) -> InputError:
    """An error that names the item's place."""
    return InputError(f"{item.place}: {problem}")
