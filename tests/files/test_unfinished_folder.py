"""The folder in which an output grows: when it goes, and when it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyseme.files import unfinished_folder
from polyseme.files.unfinished_folder import clear_up, unfinished_work


def test_a_folder_whose_removal_was_cut_short_goes_with_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "model"
    with monkeypatch.context() as patch:
        patch.setattr(unfinished_folder, "remove", lambda folder: None)
        with unfinished_work(output, {}, noun="model", force=False) as folder:
            (folder / "seed0").mkdir()
            output.mkdir()
    assert (folder / "seed0").is_dir()
    clear_up(output)
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


def test_work_that_was_interrupted_stays(tmp_path: Path) -> None:
    output = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        _begin(output)
    clear_up(output)
    assert (tmp_path / "model.unfinished" / "seed0").is_dir()


def _begin(output: Path) -> None:
    with unfinished_work(output, {}, noun="model", force=False) as folder:
        (folder / "seed0").mkdir()
        raise KeyboardInterrupt
