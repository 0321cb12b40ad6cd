"""Rows to one file by way of chunks: as if it had never stopped, in the order of the rows, and told of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from polyseme.errors import PolysemeWarning
from polyseme.files.chunked_job import Chunk, Chunks, Work, write_chunks
from polyseme.files.row_reader import read_rows
from polyseme.files.unfinished_folder import unfinished_folder

TEXTS = [f"text {number}" for number in range(11)]


@dataclass
class Tally:
    texts: int = 0


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

    def make(chunk: Chunk[str]) -> list[Any]:
        if chunk.number == stop_at:
            raise KeyboardInterrupt
        assert chunk.units[0] == texts[chunk.first]
        made.append(chunk.number)
        tally.texts += len(chunk.units)
        return [[chunk.first, len(unit), unit] for unit in chunk.units]

    def write(path: Path, each: Iterable[list[Any]]) -> None:
        path.write_text("".join(json.dumps(one) + "\n" for some in each for one in some))

    with read_rows(source) as rows:
        chunks = Chunks(rows, 4, lambda row: str(row.content), what="texts")
        work = Work(make=make, write=write, given=str, tally=tally)
        write_chunks(
            chunks,
            work,
            tmp_path / "out.jsonl",
            settings=settings,
            force=False,
            told=lambda done, total: None if told is None else told.append(done),
        )
    return tally, made


def test_chunks_come_in_order_and_the_folder_goes(tmp_path: Path) -> None:
    told: list[int] = []
    tally, made = lengths(tmp_path, TEXTS, told=told)
    assert (tally.texts, made) == (11, [0, 1, 2])
    assert [json.loads(line)[2] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == TEXTS
    assert told == sorted(told)
    assert len(told) == 3
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
    assert tally == Tally(11)
    assert isinstance(tally.texts, int)
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
    assert (tally.texts, made) == (11, [0, 1, 2])
    assert [json.loads(line)[2] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == changed


def test_one_chunk_needs_no_folder(tmp_path: Path) -> None:
    def settings() -> dict[str, Any]:
        raise AssertionError("asked for, and nothing is kept")

    assert lengths(tmp_path, TEXTS[:4], settings=settings)[1] == [0]
    assert not unfinished_folder(tmp_path / "out.jsonl").exists()
