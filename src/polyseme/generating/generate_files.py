"""`generate` over files: prompts in, a line a text out, in their order and in bounded memory.

Prompts go in chunks (`files.chunks`), and batches never cross one. Work that was stopped is gone on with and ends as if
it had never stopped: a text depends on its prompt, its number and its chunk alone.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import AnyPath
from polyseme.files.chunked_job import Chunk, Chunks, Work, write_chunks
from polyseme.files.row_reader import ENDINGS, STRUCTURED, read_rows
from polyseme.files.rows import Row
from polyseme.files.source import COMPRESSIONS
from polyseme.files.source_paths import Sources
from polyseme.files.write_vectors import FORMATS
from polyseme.generating.text_generator import Continuation, TextGenerator
from polyseme.text.documents import make_document
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
    told = progress or _nobody

    def make(chunk: Chunk[_Prompt]) -> list[str]:
        names = [f"The prompt in {row.place}" for row, _ in chunk.units]
        found = generator([prompt for _, prompt in chunk.units], first=chunk.first, names=names)
        each = zip(chunk.units, found, strict=True)
        return [line for (row, prompt), texts in each for line in lines(row.id, prompt, row.fields, texts)]

    with read_rows(sources, **reading) as rows:
        told(0, rows.total)
        chunks = Chunks(rows, CHUNK_PROMPTS, _prompt, what="prompts")
        if chunks.are_kept:
            generator.model.settle()
        work = Work(make=make, write=_write, given=_given, tally=generator.tally)
        return write_chunks(chunks, work, output, settings=settings, force=force, told=told)


_Prompt = tuple[Row, str]


def _prompt(row: Row) -> _Prompt:
    """A row and its text; what is wrong with it is said with its place."""
    try:
        return row, make_document(row.content).text
    except InputError as error:
        raise InputError(f"{row.place}: {error}") from None


def _given(unit: _Prompt) -> list[Any]:
    row, prompt = unit
    return [row.id, prompt, dict(row.fields)]


def _write(path: Path, made: Iterable[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for lines in made:
            file.writelines(f"{line}\n" for line in lines)


def _nobody(done: int, total: int | None) -> None:
    """No one is told."""
