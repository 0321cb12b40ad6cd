"""A stand-in for the package of English models: a module with two tiny random models, of the same layouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_models import tiny_model

MODULE = "polyseme_english"
FAMILIES = {"encoder": "modernbert", "decoder": "gpt2"}


def write_stand_in(folder: Path) -> Path:
    """Write the module into a folder that is to be on Python's path; return the module's folder."""
    module = folder / MODULE
    module.mkdir(parents=True)
    (module / "__init__.py").write_text('"""Two tiny random models."""\n')
    for name, family in FAMILIES.items():
        tiny_model(family, max_positions=128).save(module / name, store="bf16", shard_size=20_000)
    return module


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in's folder, which is on no path yet."""
    return write_stand_in(tmp_path_factory.mktemp("packages"))


@pytest.fixture
def english(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, installed."""
    monkeypatch.syspath_prepend(str(stand_in.parent))
    return stand_in
