"""`predict` over files: what a task model says of every text, in their order and in bounded memory.

Texts go in chunks, and batches never cross one. Of input of several chunks each is kept whole in a folder beside the
output (`files.spool`) until all are there, so that work which was stopped can be gone on with. What cannot be read
twice (standard input, pipes) goes straight to the output.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyseme.cost import Cost, forward_flops, peak_memory
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import AnyPath, explained, put_in_place, whole_file
from polyseme.files.fitting import Fitter
from polyseme.files.found import Sources
from polyseme.files.read import read_rows
from polyseme.files.rows import Row
from polyseme.files.source import Reading
from polyseme.files.spool import open_spool
from polyseme.tasks.items import Item
from polyseme.transfer.predictions import Prediction, prediction_of, writer_for
from polyseme.transfer.preparing import judge, prepare
from polyseme.transfer.steps import autocast
from polyseme.transfer.task_model import TaskModel
from polyseme.types import Progress

CHUNK_TEXTS = 256
"""Texts that are kept, or lost, together."""


@dataclass
class Tally:
    """What went through so far."""

    texts: int = 0
    words: int = 0
    pieces: int = 0
    flops: float = 0.0


@dataclass
class Predictor:
    """Items to predictions, as often as wanted; it keeps a tally of all of them."""

    model: TaskModel
    bf16: bool = False
    tally: Tally = field(default_factory=Tally)

    def __call__(self, items: Sequence[Item]) -> list[Prediction]:
        """What the model says of each, in their order."""
        if not items:
            return []
        before = self._words_read
        prepared = prepare(self.model, items, learning=False)
        judged = judge(self.model, prepared, autocast=autocast(self.model.device, bf16=self.bf16))
        config = self.model.head.config
        self.tally.texts += len(items)
        read = self._words_read - before
        self.tally.words += read or sum(unit.rows[0].n_words for unit in prepared.source.units)
        self.tally.pieces += prepared.n_pieces
        if self.model.bundle is not None:
            self.tally.flops += forward_flops(self.model.bundle.config, prepared.row_lengths)
        return [prediction_of(config, item, each) for item, each in zip(items, judged, strict=True)]

    @property
    def _words_read(self) -> int:
        return 0 if self.model.row_maker is None else self.model.row_maker.tally.words

    def notes(self) -> list[str]:
        """What was not read as it stands."""
        maker = self.model.row_maker
        return [] if maker is None else maker.tally.notes(maker.most_pieces)

    def cost(self, seconds: float) -> Cost:
        return Cost(
            pieces=self.tally.pieces,
            words=self.tally.words,
            documents=self.tally.texts,
            seconds=seconds,
            flops=self.tally.flops,
            peak_memory=peak_memory(),
            device=str(self.model.device),
        )


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Where the parts of an item stand besides the text: names of fields."""

    second: str | None = None
    choices: tuple[str, ...] = ()

    def fields(self, kept: Sequence[str]) -> tuple[str, ...]:
        """The fields that must be read."""
        if tuple(kept) == ("all",):
            return ("all",)
        needed = (self.second, *self.choices)
        return tuple(dict.fromkeys([*kept, *(name for name in needed if name is not None)]))

    def check(self, kind: str) -> None:
        if kind in ("pair", "span") and self.second is None:
            what = "the second text" if kind == "pair" else "the question"
            raise OptionError(f"A model for task {kind!r} needs the field with {what}. Name it (second=…, --second).")
        if kind == "choose" and not self.choices:
            raise OptionError(
                "A model that chooses needs the fields with the choices. Name them (choices=…, --choices)."
            )
        if kind in ("classify", "tag") and (self.second is not None or self.choices):
            raise OptionError(f"A model for task {kind!r} reads one text: leave out 'second' and 'choices'.")

    def item(self, row: Row, kept: Sequence[str]) -> Item:
        """A row as an item."""
        place = str(row.place)
        given = isinstance(row.content, str)
        text = str(row.content) if given else " ".join(row.content)
        words = () if given else tuple(row.content)
        choices: list[str] = []
        for name in self.choices:
            value = row.fields[name]
            choices += list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
        if self.choices and len(choices) < 2:
            raise InputError(f"{place}: there must be two choices or more. Got {len(choices)}.")
        fields = dict(row.fields)
        if tuple(kept) != ("all",):
            fields = {name: value for name, value in fields.items() if name in kept}
        second = None if self.second is None else str(row.fields[self.second])
        return Item(
            text=text, words=words, second=second, choices=tuple(choices), id=row.id, place=place, fields=fields
        )


@dataclass
class _Chunk:
    number: int
    items: list[Item]
    read_until: int

    @property
    def digest(self) -> str:
        """Equal for chunks of equal input."""
        given = [[item.id, item.text, item.words, item.second, item.choices, dict(item.fields)] for item in self.items]
        return hashlib.sha256(json.dumps(given, default=str).encode()).hexdigest()


def predict_files(
    predictor: Predictor,
    sources: Sources,
    output: AnyPath | None,
    *,
    reading: Mapping[str, Any],
    columns: Columns,
    settings: Callable[[], Mapping[str, Any]],
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[list[Prediction], float]:
    """Predict for every text of some files; what was found, where there is no output, and an earlier run's seconds."""
    config = predictor.model.head.config
    columns.check(config.kind)
    kept = tuple(reading.get("fields", ()))
    with read_rows(sources, **{**reading, "fields": columns.fields(kept)}) as rows:
        told = progress or _nobody
        told(0, rows.total)
        chunks = _chunks(rows, columns, kept)
        first_two = list(itertools.islice(chunks, 2))
        if not first_two:
            raise InputError(f"{rows.name} has no texts in it.")
        chunks = itertools.chain(first_two, chunks)

        def work(chunk: _Chunk) -> list[Prediction]:
            found = predictor(chunk.items)
            told(chunk.read_until, rows.total)
            return found

        if output is None:
            return [each for chunk in chunks for each in work(chunk)], 0.0
        if len(first_two) == 1 or rows.total is None:
            with whole_file(output, force=force) as made, explained(output), writer_for(made, config) as writer:
                for chunk in chunks:
                    writer.write(work(chunk))
            return [], 0.0
        return [], _through_a_spool(predictor, work, chunks, output, settings(), force, told, rows.total)


def _through_a_spool(
    predictor: Predictor,
    work: Callable[[_Chunk], list[Prediction]],
    chunks: Iterable[_Chunk],
    output: AnyPath,
    settings: Mapping[str, Any],
    force: bool,
    told: Progress,
    total: int | None,
) -> float:
    """Chunks to a spool, those of an earlier run left as they are; then all of them to the output."""
    n_before, seconds = 0, 0.0
    with open_spool(output, settings, Fitter(per="text"), per="text", force=force) as spool:
        places = []
        for chunk in chunks:
            place = spool.folder / f"{chunk.number:06}.json"
            places.append(place)
            kept = _kept(place, chunk.digest)
            if kept is not None:
                n_before += len(chunk.items)
                seconds += kept["seconds"]
                _count(predictor.tally, kept["tally"])
                told(chunk.read_until, total)
                continue
            before, started = dict(vars(predictor.tally)), time.perf_counter()
            made = [each.to_json() for each in work(chunk)]
            took = {name: value - before[name] for name, value in vars(predictor.tally).items()}
            record: dict[str, Any] = {"input": chunk.digest, "predictions": made, "tally": took}
            record["seconds"] = time.perf_counter() - started
            with whole_file(place, force=True) as path:
                path.write_text(json.dumps(record), encoding="utf-8")
        if n_before:
            warnings.warn(
                f"Gone on with what an earlier run had done: {n_before:,} texts.", PolysemeWarning, stacklevel=4
            )
        whole = spool.folder / f"whole{Path(output).suffix}"
        config = predictor.model.head.config
        with whole_file(whole, force=True) as path, explained(output), writer_for(path, config) as writer:
            for place in places:
                found = json.loads(place.read_text(encoding="utf-8"))["predictions"]
                writer.write([Prediction.from_json(each) for each in found])
        spool.about_to_finish(whole)
        put_in_place(whole, output, force=force)
        spool.remove()
    return seconds


def _kept(place: Path, digest: str) -> dict[str, Any] | None:
    """What an earlier run has made of a chunk, if its input is still the same."""
    try:
        found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        reason = "" if found["input"] == digest else "the input has changed there"
        _count(Tally(), found["tally"])
        found["seconds"] = float(found["seconds"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        reason = "it is damaged"
    if reason:
        warnings.warn(f"{place} is made again: {reason}.", PolysemeWarning, stacklevel=5)
        return None
    return found


def _count(tally: Tally, more: Mapping[str, float]) -> None:
    for name in vars(tally):
        setattr(tally, name, getattr(tally, name) + more[name])


def _chunks(rows: Reading[Row], columns: Columns, kept: Sequence[str]) -> Iterator[_Chunk]:
    each = iter(rows)
    for number in itertools.count():
        some = list(itertools.islice(each, CHUNK_TEXTS))
        if not some:
            return
        yield _Chunk(number, [columns.item(row, kept) for row in some], rows.done)


def _nobody(done: int, total: int | None) -> None:
    """No one is told."""
