"""A tiny model that can do everything, and the command line run in this process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.commands import Ended, Refuse, Run
from click.testing import CliRunner

from polyseme.bundle import new_bundle, save_bundle
from polyseme.cli import main
from polyseme.convert.families import FAMILIES
from polyseme.text.load import load_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dawn", "broke", "the", "vase", "##s", ".", ",", "!", "?"),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS if letter != "s"),
)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random BERT with every output, of 3 layers and windows of 40 pieces."""
    place = tmp_path_factory.mktemp("tiny")
    (place / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    family = FAMILIES["bert"]
    config: Any = dataclasses.replace(family.tiny(), n_pieces=len(VOCABULARY), initial_spread=0.3)  # type: ignore[call-arg]
    torch.manual_seed(3)
    bundle = new_bundle(family, config, ["pooled", "masked", "next"], load_tokenizer(place, frame=family.frame))
    save_bundle(bundle, place / "model")
    return place / "model"


@pytest.fixture
def run() -> Run:
    """Carry out a command line in this process. What is not refused but breaks, breaks the test."""

    def run(*arguments: object, stdin: bytes | None = None) -> Ended:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def refuse(run: Run) -> Refuse:
    """Carry out a command line that is to be refused, and return the paragraph that says why.

    Refused means: exit code 2, one paragraph on standard error and nothing else anywhere, and every file under
    `folder` as it was, with no other beside them.
    """

    def refuse(*arguments: object, folder: Path, stdin: bytes | None = None) -> str:
        before = _contents(folder)
        ended = run(*arguments, stdin=stdin)
        assert ended.code == 2
        assert ended.out == ""
        assert ended.err.startswith("polyseme: ")
        assert ended.err.count("\n") == 1
        assert ended.err.endswith("\n")
        assert "Traceback" not in ended.err
        assert _contents(folder) == before
        return ended.err.removeprefix("polyseme: ").rstrip("\n")

    return refuse


def _contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }
