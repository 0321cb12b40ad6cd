"""A table in memory is read as the file with its texts, also where files are read several times."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import datasets
import polyseme
from polyseme.errors import InputError
from polyseme.files.texts_on_disk import on_disk

TEXTS = [f"Dawn broke over the {word}.\nThe vase broke." for word in ("sea", "hill", "house", "river") * 20]


def test_a_corpus_of_a_table_is_that_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    options = {"tokenizer": "characters", "held_out": 0.1, "workers": 1}
    expected = polyseme.build_corpus(path, output=tmp_path / "file", **options)  # type: ignore[arg-type]
    tables = [
        (pd.DataFrame({"review": TEXTS, "stars": range(len(TEXTS))}), "review"),
        (pl.Series(TEXTS), None),
        (datasets.Dataset.from_dict({"text": TEXTS}), None),
    ]
    for number, (table, field) in enumerate(tables):
        corpus = polyseme.build_corpus(table, field=field, output=tmp_path / str(number), **options)  # type: ignore[arg-type]
        assert corpus.record["sources"][0]["splits"] == expected.record["sources"][0]["splits"]
        shards = sorted((tmp_path / "file").glob("shards/**/*.pieces"))
        assert shards
        for shard in shards:
            ours = tmp_path / str(number) / shard.relative_to(tmp_path / "file")
            assert ours.read_bytes() == shard.read_bytes()


def test_the_same_table_is_the_same_file_and_it_goes() -> None:
    frame = pd.DataFrame({"text": TEXTS})
    with on_disk(frame, None) as (first, field):
        assert field == "text"
        assert len(Path(first).read_text().splitlines()) == len(TEXTS)
    assert not Path(first).exists()
    with on_disk(frame, None) as (again, _):
        assert again == first
    with on_disk(["texts/", "books=2:more/"], "body") as unchanged:
        assert unchanged == (["texts/", "books=2:more/"], "body")
    with pytest.raises(InputError, match=r"no field 'txt'\. Did you mean 'text'"), on_disk(frame, "txt"):
        pass
