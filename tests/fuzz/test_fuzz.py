"""A few random command lines in this process; `make fuzz` runs thousands in processes of their own."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from fuzz.cases import Outcome, run_line
from fuzz.command_lines import CommandLine, random_line
from fuzz.workplace import build_models

VERBS = (
    *("attention", "attribute", "cells", "concordance", "corpus", "embed", "fill", "generate", "lens", "next", "patch"),
    *("pieces", "predict", "score", "show"),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "models"
    build_models(folder, families=("bert", "gpt2", "lstm"))
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_a_random_command_line(verb: str, models: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        outcome = run_line(random_line(f"sample of {verb}", verb), models, inside=True)
    assert not outcome.faults, f"{outcome.line}\n{outcome.err}"


def test_a_seed_is_one_command_line() -> None:
    lines = [str(random_line(f"3:{case}")) for case in range(40)]
    assert lines == [str(random_line(f"3:{case}")) for case in range(40)]
    assert len(set(lines)) > 35


@pytest.mark.parametrize(
    ("code", "err", "changes", "fault"),
    [
        (1, "Traceback (most recent call last):\nValueError: x", {}, "a traceback"),
        (2, "polyseme: There is no file x. Name another.", {"out.npz": "added"}, "files changed"),
        (2, "polyseme: no\n", {}, "no sentence"),
        (2, "polyseme: One thing is wrong here.\npolyseme: And another thing is.\n", {}, "not one paragraph"),
        (0, "", {".out.npz.1-ab.part": "added"}, "left unfinished"),
        (-11, "", {}, "exit code"),
    ],
)
def test_faults_are_noticed(code: int, err: str, changes: dict[str, str], fault: str) -> None:
    faults = Outcome(CommandLine("show", ()), code, "", err, 1.0, stopped=False, changes=changes).faults
    assert any(fault in each for each in faults)
