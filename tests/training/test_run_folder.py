"""The folder of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyseme.errors import InputError, OutputError
from polyseme.training.run_folder import Run

SETTINGS = {"recipe": "bert-tiny", "training": {"seed": 0, "phases": [{"batch_size": 8}]}}


def test_what_was_begun_is_found_again(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", SETTINGS)
    run.n_steps = 7
    run.write()
    again = Run.create(tmp_path / "run", SETTINGS)
    assert (again.n_steps, again.finished, again.settings) == (7, False, SETTINGS)


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", SETTINGS)
    with pytest.raises(OutputError, match=r"training\.seed is 0 there and 3 here"):
        Run.create(tmp_path / "run", {**SETTINGS, "training": {"seed": 3, "phases": [{"batch_size": 8}]}})


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", SETTINGS)
    run.finished = True
    run.write()
    with pytest.raises(OutputError, match="finished"):
        Run.create(tmp_path / "run", SETTINGS)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "precious"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="already there"):
        Run.create(place, SETTINGS)
    assert (place / "thesis.txt").read_text() == "years of work"


def test_a_corpus_that_was_being_built_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "run"
    (place / "corpus").mkdir(parents=True)
    Run.create(place, SETTINGS)
    assert (place / "corpus").is_dir()


@pytest.mark.parametrize("content", [None, "{", '{"settings": {}}'])
def test_what_is_no_run_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(InputError, match=r"is no run|is damaged"):
        Run.open(tmp_path)
