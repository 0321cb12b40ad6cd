"""Sound model folders, and one to spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from polyseme.convert.families import FAMILIES
from tiny_models import tiny_model


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound folder of every family."""
    folders = {name: tmp_path_factory.mktemp("good") / name for name in FAMILIES}
    for name, folder in folders.items():
        tiny_model(name).save(folder)
    return folders


@pytest.fixture
def folder(good: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a sound BERT to spoil."""
    return Path(shutil.copytree(good["bert"], tmp_path / "spoilt"))
