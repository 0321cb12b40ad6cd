"""Raw text to a corpus: in parallel, in bounded memory, and resumed after a stop."""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from polyseme.corpus.corpus import ABOUT, FORMAT, TOKENIZER, Corpus, fingerprint_of
from polyseme.corpus.document_reader import STRETCH, describe_files, text_sources, within_limit
from polyseme.corpus.held_out_split import Extremes, move_documents
from polyseme.corpus.parallel_text import pair_sources
from polyseme.corpus.partial_corpus import NOTES, AnySource, Unfinished, Writers, errors_in_words, unfinished_corpus
from polyseme.corpus.shards import SIDE, SPLITS, Counts, Shard, State, dtype_for
from polyseme.corpus.tokenizer_choice import TokenizerChoice
from polyseme.corpus.worker_processes import MOST_WORKERS, Load, Work, WorkerProcesses, usable_cores
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import check_output, whole_file, whole_folder
from polyseme.files.source import STANDARD_INPUT
from polyseme.files.source_paths import Sources
from polyseme.files.unfinished_folder import clear_up, short
from polyseme.json_reading import load_json
from polyseme.text.framing import Frame
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer
from polyseme.types import Progress
from polyseme.verb_options.pretraining_options import CorpusOptions, PairedTextOptions

SMALL = 1 << 23
"""Bytes of files below which other processes take longer to start than they save."""


def build(options: CorpusOptions) -> Corpus:
    """Build the corpus that the options describe, resume it, or with `reuse` open the one that is there."""
    _check(options)
    output, force = options.output, options.force
    reading = {name: getattr(options, name) for name in ("documents", "field", "format")}
    texts = _sources(options.sources, options.values(PairedTextOptions), reading)
    choice = TokenizerChoice.of(options)
    settings = {
        "sources": [[source.name, source.weight, describe_files(source.paths)] for source in texts],
        **reading,
        "limit": options.limit,
        "held_out": options.held_out,
        "seed": options.seed,
        **choice.settings,
        "corpus format": FORMAT,
    }
    clear_up(output)
    if options.reuse and not force and (finished := _finished(Path(output), settings, texts)) is not None:
        return finished
    check_output(
        output,
        force=force,
        kind="folder",
        inputs=[*(name for source in texts for name in source.paths.names), options.tokenizer],
        marks=["corpus.json"],
    )
    _refuse_reading_twice(texts, choice)
    with unfinished_corpus(output, settings, force=force) as unfinished, errors_in_words(output):
        building = _Building(unfinished, texts, choice, settings, options.limit, options.held_out, options.progress)
        tokenizer = building.run(options.seed, options.workers)
        unfinished.finish(force=force)
    for note in building.warned:
        warnings.warn(note, PolysemeWarning, stacklevel=4)
    return Corpus.open(output, tokenizer=tokenizer)


def _sources(
    sources: Sources | dict[str, tuple[Sources, float]] | None,
    pairs: Mapping[str, Sources | None],
    reading: Mapping[str, str | None],
) -> list[AnySource]:
    """Plain texts, or texts in pairs."""
    if all(side is None for side in pairs.values()):
        if sources is None:
            raise OptionError("There is nothing to read. Name files or folders of text, or both sides of pairs.")
        return [*text_sources(sources, **reading)]
    if sources is not None:
        raise OptionError("Texts were named by themselves and in pairs (source, target). Name one or the other.")
    for name, value in reading.items():
        if value is not None:
            raise OptionError(f"The option {name!r} is not for pairs, whose sides are plain text, one text per line.")
    return [*pair_sources(**pairs)]


def _check(options: CorpusOptions) -> None:
    if not 0 <= options.held_out < 1:
        raise OptionError(f"The share that is held out must be from 0 to below 1. Got {options.held_out} instead.")
    for name in ("sample", "workers", "limit", "min_count"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise OptionError(f"The option {name!r} must be at least 1. Got {value} instead.")
    if options.workers is not None and options.workers > MOST_WORKERS:
        raise OptionError(f"The option 'workers' must be at most {MOST_WORKERS:,}. Got {options.workers} instead.")


def _refuse_reading_twice(texts: Sequence[AnySource], choice: TokenizerChoice) -> None:
    if choice.kind is not None and any(STANDARD_INPUT in source.paths.names for source in texts):
        raise InputError(
            "Standard input can be read only once, and a tokenizer is to be trained on the text before the text is "
            "read with it. Give the name of a file, or a folder with a tokenizer."
        )


def _finished(folder: Path, settings: Mapping[str, Any], texts: Sequence[AnySource]) -> Corpus | None:
    """The corpus in a folder, if it was built with these settings from files as large as these."""
    if not (folder / ABOUT).is_file():
        return None
    corpus = Corpus.open(folder)
    sizes = [source["file_bytes"] for source in corpus.record["sources"]]
    same = corpus.record["settings"] == json.loads(json.dumps(settings)) and sizes == [each.total for each in texts]
    return corpus if same else None


@dataclass
class _Building:
    """One call of `build_corpus` at work."""

    unfinished: Unfinished
    texts: Sequence[AnySource]
    choice: TokenizerChoice
    settings: Mapping[str, Any]
    limit: int | None
    held_out: float
    progress: Progress | None
    notes: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    """Those notes that a user should hear of at once."""

    @property
    def sides(self) -> Sequence[str]:
        return self.texts[0].sides

    def run(self, seed: int, workers: int | None) -> PieceTokenizer:
        """Everything but the last step, which gives the corpus its name; returns the tokenizer."""
        total = sum(source.total for source in self.texts)
        if workers is None:
            workers = 1 if total < SMALL else usable_cores()
        with WorkerProcesses(workers) as processes:
            if self.choice.ready is not None:
                processes.start(min(usable_cores(), min(total, self.limit or total) // STRETCH))
            tokenizer = self._tokenizer()
            self._build(tokenizer, seed, processes)
        return tokenizer

    def _build(self, tokenizer: PieceTokenizer, seed: int, processes: WorkerProcesses) -> None:
        work = Work(tokenizer, seed, self.sides)
        done = self._whole_stretches()
        last = done[-1] if done else None
        with Writers(self.unfinished.corpus, self.texts, dtype_for(tokenizer.n_pieces)) as writers:
            if last is not None and not writers.resume(last["states"]):
                self.unfinished.start_over("its files are damaged")
                done, last = [], None
            if last is None:
                writers.begin()
            extremes = Extremes.from_json(last["extremes"]) if last else Extremes()
            n_vanished = int(last["vanished"]) if last else 0
            folder = str(self.unfinished.corpus / TOKENIZER)
            with self.unfinished.writing(done) as write:
                tasks = self._tasks(len(done))
                with contextlib.closing(processes.in_order(tasks, work, folder)) as results:
                    for task, worked in results:
                        extremes.observe(task.source, worked, writers.n_documents(task.source))
                        n_vanished += worked.n_vanished
                        writers.append(task.source, worked)
                        write(
                            {
                                "input": task.digest,
                                "states": writers.states(),
                                "extremes": extremes.to_json(),
                                "vanished": n_vanished,
                            }
                        )
                        if self.progress is not None:
                            self.progress(task.done, task.total)
            states = writers.finish()
        self._conclude(tokenizer, states, extremes, n_vanished)

    def _tokenizer(self) -> PieceTokenizer:
        """The tokenizer: the one that was chosen, that an earlier call trained, or trained now."""
        folder = self.unfinished.corpus / TOKENIZER
        notes_path = self.unfinished.folder / NOTES
        if not folder.is_dir():
            tokenizer, notes = self.choice.create(self.texts, self.limit)
            with whole_file(notes_path, force=True) as path:
                path.write_text(json.dumps({"notes": notes, "frame": tokenizer.framing.to_json()}), encoding="utf-8")
            with whole_folder(folder) as new:
                tokenizer.save(str(new))
        try:
            record = load_json(notes_path, kind=dict)
            self.notes += record["notes"]
            self.warned += record["notes"][1:]
            frame = Frame.from_json(record["frame"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{notes_path} is damaged ({error!r}). To start again, remove {short(self.unfinished.folder)} first."
            ) from None
        return load_tokenizer(folder, frame=frame)

    def _whole_stretches(self) -> list[dict[str, Any]]:
        """The lines of the journal whose input is still the same."""
        journal = self.unfinished.journal()
        if not journal:
            return []
        tasks = self._tasks(0)
        n_same = 0
        for line in journal:
            task = next(tasks, None)
            if task is None or task[0].digest != line["input"]:
                warnings.warn(
                    f"The input has changed since the work began; it is repeated from stretch {n_same + 1} on.",
                    PolysemeWarning,
                    stacklevel=5,
                )
                break
            n_same += 1
        return journal[:n_same]

    def _tasks(self, first: int) -> Iterator[tuple[_Task, Load]]:
        """The stretches of all sources, from one on."""
        total = sum(source.total for source in self.texts)
        before = number = 0
        for at, source in enumerate(self.texts):
            share = self.held_out if source.held_out is None else source.held_out
            for stretch in within_limit(source.stretches(), self.limit):
                if number >= first:
                    digest = hashlib.blake2b(digest_size=16)
                    for text in stretch.texts:
                        digest.update(len(text).to_bytes(8, "little"))
                        digest.update(text)
                    task = _Task(at, digest.hexdigest(), before + stretch.done, total or None)
                    yield task, Load(stretch.texts, share)
                number += 1
            before += source.total

    def _conclude(
        self,
        tokenizer: PieceTokenizer,
        states: Mapping[str, Mapping[str, Mapping[str, State]]],
        extremes: Extremes,
        n_vanished: int,
    ) -> None:
        """See to the split, count, take checksums, and write `corpus.json`."""
        counts = {
            name: {side: {split: state.counts for split, state in mine.items()} for side, mine in sides.items()}
            for name, sides in states.items()
        }
        first = self.sides[0]
        n_documents = {split: sum(each[first][split].documents for each in counts.values()) for split in SPLITS}
        if not sum(n_documents.values()):
            raise InputError(
                f"There is no text in {self.texts[0].paths.name}: no document has anything in it that the tokenizer "
                "reads. Give files with text."
            )
        dtype = dtype_for(tokenizer.n_pieces)
        holds_out = self.held_out and all(source.held_out is None for source in self.texts)
        lacking = "train" if not n_documents["train"] else "held" if holds_out and not n_documents["held"] else None
        if lacking is not None:
            moved = extremes.to_move(lacking)
            if moved is None:
                self.notes.append(
                    "No document is held out, since there is only one, however often: nothing will tell how well a "
                    "model predicts new text. If each line is a text of its own, say so (--documents line)."
                )
                self.warned.append(self.notes[-1])
                if lacking == "train":
                    raise InputError("There is only one document, and it would be held out. Give more text.")
            else:
                for at, places in moved.items():
                    name = self.texts[at].name
                    for number, side in enumerate(self.sides):
                        mine = {place: n_bytes[number] for place, n_bytes in places.items()}
                        counts[name][side] = move_documents(
                            self.unfinished.corpus, name, side, counts[name][side], dtype, lacking, mine
                        )
        self._note_oddities(n_vanished)
        record: dict[str, Any] = {
            "format": FORMAT,
            "tokenizer": {"fingerprint": tokenizer.fingerprint, "frame": tokenizer.framing.to_json()},
            "n_pieces": tokenizer.n_pieces,
            "sides": [*self.sides],
            "sources": [
                {
                    "name": source.name,
                    "weight": source.weight,
                    "files": describe_files(source.paths),
                    "file_bytes": source.total,
                    "splits": {
                        split: self._described_split(source, split, counts[source.name], dtype) for split in SPLITS
                    },
                }
                for source in self.texts
            ],
            "settings": self.settings,
            "notes": self.notes,
        }
        record["fingerprint"] = fingerprint_of(record)
        with whole_file(self.unfinished.corpus / ABOUT, force=True) as path:
            path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _described_split(
        self, source: AnySource, split: str, counts: Mapping[str, Mapping[str, Counts]], dtype: np.dtype[Any]
    ) -> dict[str, Any]:
        """Counts and checksums; of pairs, those of each side."""
        by_side = {
            side: {
                "counts": counts[side][split].to_json(),
                "checksums": Shard(
                    self.unfinished.corpus, source.name, split, counts[side][split], dtype, side
                ).checksums(),
            }
            for side in source.sides
        }
        return by_side.get(SIDE, by_side)

    def _note_oddities(self, n_vanished: int) -> None:
        tallies = [source.tally for source in self.texts]
        for n, one, several in (
            (
                sum(tally.empty for tally in tallies),
                "empty document was left out",
                "empty documents were left out",
            ),
            (
                n_vanished,
                "document came out as nothing and was left out",
                "documents came out as nothing and were left out",
            ),
            (
                sum(tally.cut for tally in tallies),
                "document was too long to be handled in one and was cut",
                "documents were too long to be handled in one and were cut",
            ),
            (
                sum(tally.surrogates for tally in tallies),
                "document has lone surrogates, which were read as U+FFFD",
                "documents have lone surrogates, which were read as U+FFFD",
            ),
        ):
            if n:
                self.notes.append(f"{n:,} {one if n == 1 else several}.")
                self.warned.append(self.notes[-1])


@dataclass(frozen=True)
class _Task:
    """Where a stretch of documents comes from."""

    source: int
    digest: str
    done: int
    total: int | None
