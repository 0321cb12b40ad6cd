"""The models that a run keeps on its way: `at-words/N/` is the model after N words, with `seen.json` beside its files.

`seen.json` has the numbers of words, pieces and steps behind the model. Words are counted as often as they are read, as
pieces times the words per piece of the training text. A model is kept after the step with which N words are reached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from polyseme.bundle import Bundle
from polyseme.config import Config
from polyseme.errors import InputError, OptionError
from polyseme.files.atomic import whole_folder
from polyseme.json_reading import load_json
from polyseme.model_folder import save_bundle
from polyseme.training.effects import StepState
from polyseme.training.run_folder import LEDGER, MODEL, RUN, write_json

AT_WORDS = "at-words"
SEEN = "seen.json"


@dataclass(frozen=True, kw_only=True)
class AmountRead(Config):
    """How much a model has read."""

    words: int
    pieces: int
    step: int


class ModelAtWords(NamedTuple):
    """A model's folder, and what it has read."""

    folder: Path
    seen: AmountRead


_NUMBER = re.compile(r"(?P<number>[0-9][0-9_]*(\.[0-9]+)?)(?P<unit>[kmb]?)", re.ASCII)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def numbers_of_words(values: str | Sequence[str | int]) -> tuple[int, ...]:
    """Numbers of words as a user writes them, in order.

    >>> numbers_of_words("10M,1.5k")
    (1500, 10000000)
    """
    listed = values.split(",") if isinstance(values, str) else values
    return tuple(sorted({_number_of_words(str(value)) for value in listed}))


def _number_of_words(text: str) -> int:
    match = _NUMBER.fullmatch(text.strip().lower())
    number = Decimal(0) if match is None else Decimal(match["number"].replace("_", "")) * _UNITS[match["unit"]]
    if number < 1 or number != int(number):
        raise OptionError(
            f"A number of words must be whole and at least 1, as in 500k, 1M, 10M or 2_000. Got {text!r} instead."
        )
    return int(number)


@dataclass
class KeepAtWords:
    """Writes the model as it is once certain numbers of words are reached."""

    folder: Path
    """Of the run."""
    numbers: Sequence[int]
    words_per_piece: float
    results: Callable[[], Mapping[str, Bundle]]
    """The bundles of a model, by name; all processes must call this."""
    shard_size: int | None
    pieces: int
    """Read before this process began."""

    def words(self, pieces: int) -> int:
        """How many words so many pieces are."""
        return round(pieces * self.words_per_piece)

    def __call__(self, moment: StepState) -> None:
        before, now = self.words(self.pieces), self.words(moment.pieces)
        self.pieces = moment.pieces
        reached = [number for number in self.numbers if before < number <= now]
        if not reached:
            return
        bundles = self.results()
        if moment.trainer.devices.leads:
            for number in reached:
                self._write(number, bundles, AmountRead(words=now, pieces=moment.pieces, step=moment.done))
        moment.trainer.devices.wait()

    def _write(self, number: int, bundles: Mapping[str, Bundle], seen: AmountRead) -> None:
        (self.folder / AT_WORDS).mkdir(exist_ok=True)
        with whole_folder(self.folder / AT_WORDS / str(number), force=True) as folder:
            save_bundle(bundles[MODEL], folder, force=True, shard_size=self.shard_size)
            for name, bundle in bundles.items():
                if name != MODEL:
                    save_bundle(bundle, folder / name, shard_size=self.shard_size)
            write_json(folder / SEEN, seen.to_json())


def kept_models(path: Path) -> list[ModelAtWords]:
    """The models of a run by words, the last one included; `path` is the run's folder, or that of one of its models.

    The words of the last model are those of its own `seen.json`; without one, they follow from its pieces by the words
    per piece of the model before.
    """
    run, part = (path.parent, path.name) if (path.parent / RUN).is_file() else (path, MODEL)
    if not (run / RUN).is_file():
        raise InputError(
            f"{path} is no run: it has no {RUN}. A curve is drawn over the models of one run: name the folder that "
            "polyseme pretrain has written."
        )
    folders = [folder for folder in (run / AT_WORDS).glob("*") if (folder / SEEN).is_file()]
    models = sorted(
        (ModelAtWords(_model_in(each, part), _read_seen(each)) for each in folders), key=lambda each: each.seen.words
    )
    if not models:
        raise InputError(
            f"{run} kept no model on its way: there is no {AT_WORDS}/N/{SEEN} in it. A run keeps models at "
            "numbers of words with `polyseme pretrain --keep-at-words 1M,10M`."
        )
    last = _finished_model(run, part, models[-1].seen)
    return models if last is None else [*models, last]


def _finished_model(run: Path, part: str, before: AmountRead) -> ModelAtWords | None:
    """The finished model; None where there is none, or where it is the one before."""
    folder = run / part
    if not folder.is_dir():
        return None
    seen = _read_seen(folder) if (folder / SEEN).is_file() else _by_ledger(run, before)
    return ModelAtWords(folder, seen) if seen.step > before.step else None


def _by_ledger(run: Path, before: AmountRead) -> AmountRead:
    pieces, steps = _numbers(run / LEDGER, "pieces", "steps")
    return AmountRead(words=round(pieces * before.words / max(before.pieces, 1)), pieces=pieces, step=steps)


def _model_in(folder: Path, part: str) -> Path:
    """The folder of one of several models that were kept together, or of the only one."""
    return folder / part if (folder / part).is_dir() else folder


def _read_seen(folder: Path) -> AmountRead:
    words, pieces, step = _numbers(folder / SEEN, "words", "pieces", "step")
    return AmountRead(words=words, pieces=pieces, step=step)


def _numbers(file: Path, *names: str) -> list[int]:
    """Whole numbers of a JSON file, by their names."""
    try:
        content = load_json(file, kind=dict)
        return [int(content[name]) for name in names]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} does not say how much a model has read: {', '.join(names)} are needed ({error!r})."
        ) from None
