"""Tokenizers of every kind, loaded once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from polyseme.text.tokenizer import PieceTokenizer
from polyseme.text.tokenizer_files import load_tokenizer
from text.samples import KINDS


@pytest.fixture(scope="session")
def folder_of(vocabulary: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a vocabulary; RoBERTa's files, published apart, are put into one."""

    def find(kind: str) -> Path:
        if kind != "roberta":
            return vocabulary(kind)
        folder = tmp_path_factory.mktemp("roberta")
        for part, name in (("gpt2", "encoder.json"), ("gpt2", "vocab.bpe"), ("roberta", "dict.txt")):
            shutil.copy(vocabulary(part) / name, folder)
        return folder

    return find


@pytest.fixture(scope="session")
def tokenizer_of(folder_of: Callable[[str], Path]) -> Callable[[str], PieceTokenizer]:
    loaded: dict[str, PieceTokenizer] = {}

    def load(kind: str) -> PieceTokenizer:
        if kind not in loaded:
            loaded[kind] = load_tokenizer(folder_of(kind))
        return loaded[kind]

    return load


@pytest.fixture(scope="session", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tokenizer_of: Callable[[str], PieceTokenizer]) -> PieceTokenizer:
    return tokenizer_of(request.param)
