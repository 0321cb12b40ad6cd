"""The models that a run kept at numbers of words: found in order, the last one included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyseme.errors import InputError
from polyseme.training.models_at_words import AmountRead, kept_models


def keep(folder: Path, *, words: int, pieces: int, step: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "seen.json").write_text(json.dumps({"words": words, "pieces": pieces, "step": step}))


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    """A finished run that kept two models; names of folders are no order."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "ledger.json").write_text(json.dumps({"pieces": 40_000, "steps": 90}))
    keep(run / "at-words" / "1000", words=1004, pieces=1300, step=3)
    keep(run / "at-words" / "20000", words=20_010, pieces=26_000, step=60)
    (run / "model").mkdir()
    return run


def test_by_words_and_the_last_one_by_its_pieces(a_run: Path) -> None:
    assert [(model.folder.relative_to(a_run).as_posix(), model.seen) for model in kept_models(a_run)] == [
        ("at-words/1000", AmountRead(words=1004, pieces=1300, step=3)),
        ("at-words/20000", AmountRead(words=20_010, pieces=26_000, step=60)),
        ("model", AmountRead(words=round(40_000 * 20_010 / 26_000), pieces=40_000, step=90)),
    ]


def test_the_last_one_says_itself_how_much_it_has_read(a_run: Path) -> None:
    keep(a_run / "model", words=31_000, pieces=40_000, step=90)
    assert kept_models(a_run)[-1].seen.words == 31_000


def test_a_last_model_that_was_kept_already_is_not_repeated(a_run: Path) -> None:
    (a_run / "ledger.json").write_text(json.dumps({"pieces": 26_000, "steps": 60}))
    assert [model.folder.name for model in kept_models(a_run)] == ["1000", "20000"]


def test_an_unfinished_run_has_those_that_it_kept(a_run: Path) -> None:
    (a_run / "model").rmdir()
    assert [model.folder.name for model in kept_models(a_run)] == ["1000", "20000"]


def test_a_model_beside_the_runs_own(a_run: Path) -> None:
    """ELECTRA's generator, kept beside the discriminator."""
    (a_run / "generator").mkdir()
    for each in ("1000", "20000"):
        (a_run / "at-words" / each / "generator").mkdir()
    folders = [model.folder.relative_to(a_run).as_posix() for model in kept_models(a_run / "generator")]
    assert folders == ["at-words/1000/generator", "at-words/20000/generator", "generator"]


def test_what_is_refused(a_run: Path, tmp_path: Path) -> None:
    (a_run / "at-words" / "1000" / "seen.json").write_text('{"words": 3}')
    with pytest.raises(InputError, match=r"1000/seen.json does not say how much a model has read: words, pieces, step"):
        kept_models(a_run)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"is no run: it has no run.json"):
        kept_models(empty)
    (empty / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"kept no model on its way"):
        kept_models(empty)
