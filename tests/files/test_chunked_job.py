"""Rows to one file by way of chunks: as if it had never stopped, in the order of the rows, and told of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from damage import flip_bit
from polyseme.cost import Tally
from polyseme.errors import OutputError, PolysemeWarning
from polyseme.files.chunk_spool import JsonLines
from polyseme.files.chunked_job import open_lines, run_job
from polyseme.files.chunks import Chunk, Job, every
from polyseme.files.rows import read_rows
from polyseme.files.unfinished_folder import locked, unfinished_folder

TEXTS = [f"text {number}" for number in range(11)]


def lengths(
    tmp_path: Path,
    texts: list[str],
    *,
    stop_at: int | None = None,
    settings: Callable[[], dict[str, Any]] = dict,
    told: list[int] | None = None,
) -> tuple[Tally, list[int]]:
    """Write the length of each text in chunks of 4; what was counted, and the chunks that were made here."""
    source = tmp_path / "texts.txt"
    source.write_text("".join(f"{text}\n" for text in texts))
    tally, made = Tally(), []

    def compute(chunk: Chunk[str], on_batch: Any) -> list[str]:
        if chunk.number == stop_at:
            raise KeyboardInterrupt
        assert chunk.units[0] == texts[chunk.first]
        made.append(chunk.number)
        tally.documents += len(chunk.units)
        return [json.dumps([chunk.first, len(unit), unit]) for unit in chunk.units]

    job = Job(
        noun="texts",
        ends_chunk=every(4),
        prepare=lambda rows: [str(row.content) for row in rows],
        compute=compute,
        tally=tally,
        open_output=open_lines,
        storage=JsonLines(),
        settings=settings,
    )
    with read_rows(source) as rows:
        progress = None if told is None else lambda done, total: told.append(done)
        run_job(job, rows, tmp_path / "out.jsonl", progress=progress)
    return tally, made


def test_chunks_come_in_order_and_the_folder_goes(tmp_path: Path) -> None:
    told: list[int] = []
    tally, made = lengths(tmp_path, TEXTS, told=told)
    assert (tally.documents, made) == (11, [0, 1, 2])
    assert [json.loads(line)[2] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == TEXTS
    assert told == sorted(told)
    assert len(told) == 4  # before the first chunk, and after each
    assert not unfinished_folder(tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("stop_at", [1, 2])
def test_stopped_work_ends_as_if_it_had_never_stopped(tmp_path: Path, stop_at: int) -> None:
    (tmp_path / "whole").mkdir()
    lengths(tmp_path / "whole", TEXTS)
    with pytest.raises(KeyboardInterrupt):
        lengths(tmp_path, TEXTS, stop_at=stop_at)
    assert not (tmp_path / "out.jsonl").exists()
    with pytest.warns(PolysemeWarning, match=f"{4 * stop_at} texts"):
        tally, made = lengths(tmp_path, TEXTS)
    assert made == [0, 1, 2][stop_at:]
    assert tally.documents == 11
    assert isinstance(tally.documents, int)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole" / "out.jsonl").read_bytes()


def test_what_has_changed_or_is_damaged_is_made_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        lengths(tmp_path, TEXTS, stop_at=2)
    (unfinished_folder(tmp_path / "out.jsonl") / "000001.json").write_text('{"input": 1}')
    changed = ["another", *TEXTS[1:]]
    with pytest.warns(PolysemeWarning) as said:
        tally, made = lengths(tmp_path, changed)
    reasons = [str(each.message).rpartition(": ")[2] for each in said]
    assert reasons == ["the input has changed there.", "it is damaged."]
    assert (tally.documents, made) == (11, [0, 1, 2])
    assert [json.loads(line)[2] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == changed


@pytest.mark.parametrize("file", ["000001.jsonl", "000001.json"])
@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_noise_in_a_chunk_is_noticed(tmp_path: Path, file: str, at: float) -> None:
    with pytest.raises(KeyboardInterrupt):
        lengths(tmp_path, TEXTS, stop_at=2)
    flip_bit(unfinished_folder(tmp_path / "out.jsonl") / file, at)
    with pytest.warns(PolysemeWarning) as said:
        _, made = lengths(tmp_path, TEXTS)
    assert any(re.search(r"Chunk 1 in .* is computed again: it is damaged", str(each.message)) for each in said)
    assert made == [1, 2]
    assert [json.loads(line)[2] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == TEXTS


def test_chunks_of_an_older_version_are_used(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        lengths(tmp_path, TEXTS, stop_at=2)
    for path in unfinished_folder(tmp_path / "out.jsonl").glob("[0-9]*.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps({name: each for name, each in record.items() if name not in ("checksum", "record")}))
    with pytest.warns(PolysemeWarning, match="8 texts"):
        assert lengths(tmp_path, TEXTS)[1] == [2]


def test_work_on_an_input_that_has_become_short_is_cleared(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        lengths(tmp_path, TEXTS, stop_at=2)
    folder = unfinished_folder(tmp_path / "out.jsonl")
    with locked(folder, noun="output"), pytest.raises(OutputError, match="Another process is at work"):
        lengths(tmp_path, TEXTS[:4])
    with pytest.raises(OutputError, match="of other settings: layer was null and is 3"):
        lengths(tmp_path, TEXTS[:4], settings=lambda: {"layer": 3})
    assert folder.is_dir()
    assert lengths(tmp_path, TEXTS[:4])[1] == [0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "texts.txt"]


def test_one_chunk_needs_no_folder(tmp_path: Path) -> None:
    def settings() -> dict[str, Any]:
        raise AssertionError("asked for, and nothing is kept")

    assert lengths(tmp_path, TEXTS[:4], settings=settings)[1] == [0]
    assert not unfinished_folder(tmp_path / "out.jsonl").exists()
