"""`generate` over files: prompts in, one line per text out, in their order and in bounded memory.

The job is `files.chunked_job`'s. Work that was stopped is resumed, and ends as if it had never stopped: a text depends
on its prompt, its number and its chunk alone.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.atomic import AnyPath
from polyseme.files.chunk_spool import JsonLines
from polyseme.files.chunked_job import open_lines, run_job
from polyseme.files.chunks import Chunk, Job, every
from polyseme.files.readers import ENDINGS, STRUCTURED
from polyseme.files.rows import Row, read_rows
from polyseme.files.source import COMPRESSIONS
from polyseme.files.source_paths import Sources
from polyseme.files.vector_files import FORMATS
from polyseme.generating.text_generator import Continuation, TextGenerator
from polyseme.text.documents import make_document
from polyseme.types import OnBatch, Progress

CHUNK_PROMPTS = 64
"""Prompts that are kept, or lost, together."""
JSON_LINES = (".jsonl", ".ndjson")

Lines = Callable[[str, str, Mapping[str, Any], Sequence[Continuation]], list[str]]
"""The lines of one prompt: its id, its text, what came beside it, and what follows."""


def lines_for(output: AnyPath, n: int) -> Lines:
    """How texts are written to a file of this name: as records of JSON, or a plain line each."""
    suffix = Path(output).suffix.lower()
    if suffix in JSON_LINES:
        return lambda id, prompt, fields, continuations: [
            json.dumps(each, ensure_ascii=False, default=str) for each in records(id, prompt, fields, continuations)
        ]
    others = {*ENDINGS, *FORMATS, *STRUCTURED, *COMPRESSIONS} - {".txt", ".text"}
    if suffix in others:
        raise OptionError(
            f"{output}: texts are not written as {suffix}. End the name in .jsonl, for records with scores, or in .txt "
            "for one line per text."
        )
    if n > 1:
        raise OptionError(
            f"{output}: plain lines cannot show which prompt each of {n} texts belongs to. End the name in .jsonl, or "
            "generate one text per prompt."
        )
    return lambda id, prompt, fields, continuations: [_one_line(each.text) for each in continuations]


def _one_line(text: str) -> str:
    lines = text.splitlines()
    if len(lines) > 1:
        warnings.warn(
            "Some texts have line breaks, which are written as blanks, since a text is a line. A .jsonl keeps them.",
            PolysemeWarning,
            stacklevel=2,
        )
    return " ".join(lines)


def records(
    id: str, prompt: str, fields: Mapping[str, Any], continuations: Sequence[Continuation]
) -> list[dict[str, Any]]:
    """What is known of the continuations of one prompt, one record each."""
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
        for number, each in enumerate(continuations, start=1)
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
) -> None:
    """Write what follows every prompt of some files.

    `settings` gives all that decides the result; it is called only if the input is long enough to be resumed.
    """
    lines = lines_for(output, generator.decoding.n)

    def compute(chunk: Chunk[str], on_batch: OnBatch) -> list[str]:
        names = [f"The prompt in {row.place}" for row in chunk.rows]
        continuations = generator(chunk.units, first=chunk.first, names=names)
        prompts = zip(chunk.rows, chunk.units, continuations, strict=True)
        return [line for row, prompt, texts in prompts for line in lines(row.id, prompt, row.fields, texts)]

    job = Job(
        noun="prompts",
        ends_chunk=every(CHUNK_PROMPTS),
        prepare=lambda rows: list(map(_prompt, rows)),
        compute=compute,
        tally=generator.tally,
        open_output=open_lines,
        storage=JsonLines(),
        settings=settings,
        before_first=generator.model.prepare,
    )
    with read_rows(sources, **reading) as rows:
        run_job(job, rows, output, force=force, progress=progress)


def _prompt(row: Row) -> str:
    """The text of a row; errors name its place."""
    try:
        return make_document(row.content).text
    except InputError as error:
        raise InputError(f"{row.place}: {error}") from None
