"""What the tests of pretraining share: a text, and a corpus of it, which none of them changes."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import polyseme
from polyseme.errors import PolysemeWarning
from training.kills import write_text


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents enough for a small corpus."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    write_text(path)
    return path


@pytest.fixture(scope="session")
def corpus(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a corpus."""
    place = tmp_path_factory.mktemp("corpus") / "corpus"
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.build_corpus(text, output=place, vocab_size=300)
    return place
