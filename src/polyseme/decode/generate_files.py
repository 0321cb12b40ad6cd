"""`generate` over files: prompts in, a line a text out, in their order and in bounded memory.

Prompts go in chunks, and batches never cross one. Of input of several chunks each is kept whole in a folder beside the
output (`files.spool`) until all are there, so that work which was stopped can be gone on with, and ends as if it had
never stopped: a text depends on its prompt, its number and its chunk alone. What cannot be read twice (standard input,
pipes) goes straight to the output.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polyseme.decode.texts import Continuation, Tally, TextGenerator
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import AnyPath, explained, put_in_place, whole_file
from polyseme.files.fitting import Fitter
from polyseme.files.found import Sources
from polyseme.files.read import ENDINGS, STRUCTURED, read_rows
from polyseme.files.rows import Row
from polyseme.files.source import COMPRESSIONS, Reading
from polyseme.files.spool import open_spool
from polyseme.files.write import FORMATS
from polyseme.text.words import document
from polyseme.types import Progress

CHUNK_PROMPTS = 64
"""Prompts that are kept, or lost, together."""
JSON_LINES = (".jsonl", ".ndjson")

Lines = Callable[[str, str, Mapping[str, Any], Sequence[Continuation]], list[str]]
"""The lines of one prompt: its id, its text, what came beside it, and what follows."""


def lines_for(output: AnyPath, n: int) -> Lines:
    """How texts are written to a file of this name: as records of JSON, or a plain line each."""
    suffix = Path(output).suffix.lower()
    if suffix in JSON_LINES:
        return lambda id, prompt, fields, found: [
            json.dumps(each, ensure_ascii=False, default=str) for each in records(id, prompt, fields, found)
        ]
    others = {*ENDINGS, *FORMATS, *STRUCTURED, *COMPRESSIONS} - {".txt", ".text"}
    if suffix in others:
        raise OptionError(
            f"{output}: texts are not written as {suffix}. End the name in .jsonl, for records with scores, or in .txt "
            "for a line a text."
        )
    if n > 1:
        raise OptionError(
            f"{output}: plain lines cannot say which of {n} texts are whose. End the name in .jsonl, or take one text "
            "a prompt."
        )
    return lambda id, prompt, fields, found: [_one_line(each.text) for each in found]


def _one_line(text: str) -> str:
    lines = text.splitlines()
    if len(lines) > 1:
        warnings.warn(
            "Some texts have line breaks, which are written as blanks, since a text is a line. A .jsonl keeps them.",
            PolysemeWarning,
            stacklevel=2,
        )
    return " ".join(lines)


def records(id: str, prompt: str, fields: Mapping[str, Any], found: Sequence[Continuation]) -> list[dict[str, Any]]:
    """What is known of the texts that follow one prompt, a record each."""
    return [
        {
            "id": id,
            "number": number,
            "prompt": prompt,
            "text": each.text,
            "ending": each.ending,
            "pieces": each.n_pieces,
            "log_probability": each.log_probability,
            "score": each.score,
            **({"fields": dict(fields)} if fields else {}),
        }
        for number, each in enumerate(found, start=1)
    ]


@dataclass
class _Chunk:
    number: int
    first: int
    """The number of its first prompt among all."""
    rows: list[Row]
    prompts: list[str]
    read_until: int

    @property
    def digest(self) -> str:
        """Equal for chunks of equal input."""
        given = [[row.id, prompt, dict(row.fields)] for row, prompt in zip(self.rows, self.prompts, strict=True)]
        return hashlib.sha256(json.dumps(given, default=str).encode()).hexdigest()


def generate_files(
    generator: TextGenerator,
    sources: Sources,
    output: AnyPath,
    *,
    reading: Mapping[str, Any],
    settings: Callable[[], Mapping[str, Any]],
    force: bool = False,
    progress: Progress | None = None,
) -> float:
    """Write what follows every prompt of some files; the seconds that an earlier run took of it are returned.

    `settings` gives all that decides the result; it is asked for only if the input is long enough to be gone on with.
    """
    lines = lines_for(output, generator.decoding.n)
    with read_rows(sources, **reading) as rows:
        told = progress or _nobody
        told(0, rows.total)
        chunks = _chunks(rows)
        first_two = list(itertools.islice(chunks, 2))
        if not first_two:
            raise InputError(f"{rows.name} has no prompts in it.")
        chunks = itertools.chain(first_two, chunks)
        work = _Work(generator, lines, lambda done: told(done, rows.total))
        if len(first_two) == 1 or rows.total is None:
            with whole_file(output, force=force) as made, explained(output), made.open("w", **_TEXT) as file:
                for chunk in chunks:
                    file.writelines(f"{line}\n" for line in work(chunk))
            return 0.0
        return _through_a_spool(work, chunks, output, settings(), force)


_TEXT: Any = {"encoding": "utf-8", "newline": "\n"}


def _nobody(done: int, total: int | None) -> None:
    """No one is told."""


class _Work:
    """A chunk to its lines."""

    def __init__(self, generator: TextGenerator, lines: Lines, told: Callable[[int], None]) -> None:
        self.generator = generator
        self.lines = lines
        self.told = told

    def __call__(self, chunk: _Chunk) -> list[str]:
        names = [f"The prompt in {row.place}" for row in chunk.rows]
        found = self.generator(chunk.prompts, first=chunk.first, names=names)
        self.told(chunk.read_until)
        each = zip(chunk.rows, chunk.prompts, found, strict=True)
        return [line for row, prompt, texts in each for line in self.lines(row.id, prompt, row.fields, texts)]


def _through_a_spool(
    work: _Work, chunks: Iterable[_Chunk], output: AnyPath, settings: Mapping[str, Any], force: bool
) -> float:
    """Chunks to a spool, those of an earlier run left as they are; then all of them to the output."""
    generator = work.generator
    generator.model.settle()
    n_before, seconds = 0, 0.0
    with open_spool(output, settings, Fitter(per="text"), per="text", force=force) as spool:
        places = []
        for chunk in chunks:
            place = spool.folder / f"{chunk.number:06}.json"
            places.append(place)
            kept = _kept(place, chunk.digest)
            if kept is None:
                before, started = asdict(generator.tally), time.perf_counter()
                made = work(chunk)
                took = {name: value - before[name] for name, value in asdict(generator.tally).items()}
                record = {"input": chunk.digest, "lines": made, "tally": took, "seconds": time.perf_counter() - started}
                with whole_file(place, force=True) as path:
                    path.write_text(json.dumps(record), encoding="utf-8")
            else:
                n_before += len(chunk.rows)
                seconds += kept["seconds"]
                _count(generator.tally, kept["tally"])
                work.told(chunk.read_until)
        if n_before:
            warnings.warn(
                f"Gone on with what an earlier run had done: {n_before:,} prompts.", PolysemeWarning, stacklevel=4
            )
        whole = spool.folder / f"whole{Path(output).suffix}"
        with whole_file(whole, force=True) as path, explained(output), path.open("w", **_TEXT) as file:
            for place in places:
                lines = json.loads(place.read_text(encoding="utf-8"))["lines"]
                file.writelines(f"{line}\n" for line in lines)
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
        found["lines"], found["seconds"] = list(found["lines"]), float(found["seconds"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        reason = "it is damaged"
    if reason:
        warnings.warn(f"{place} is made again: {reason}.", PolysemeWarning, stacklevel=5)
        return None
    return found


def _prompt(row: Row) -> str:
    """A row as a text; what is wrong with it is said with its place."""
    try:
        return document(row.content).text
    except InputError as error:
        raise InputError(f"{row.place}: {error}") from None


def _count(tally: Tally, more: Mapping[str, float]) -> None:
    for name in asdict(tally):
        setattr(tally, name, getattr(tally, name) + more[name])


def _chunks(rows: Reading[Row]) -> Iterator[_Chunk]:
    first = 0
    each = iter(rows)
    for number in itertools.count():
        some = list(itertools.islice(each, CHUNK_PROMPTS))
        if not some:
            return
        yield _Chunk(number, first, some, [_prompt(row) for row in some], rows.done)
        first += len(some)
