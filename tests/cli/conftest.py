"""A tiny model that can do everything, and the command line run in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.commands import Ended, Refuse, Run
from cli.option_names import foreign
from packaged import english, stand_in  # noqa: F401 - fixtures
from polyseme.cli import VERBS, main
from tiny_models import tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random BERT with every output, of 3 layers and windows of 40 pieces."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tiny_model("bert").save(folder)
    return folder


@pytest.fixture(scope="session")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random GPT-2."""
    folder = tmp_path_factory.mktemp("causal") / "model"
    tiny_model("gpt2").save(folder)
    return folder


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
        if arguments and arguments[0] in VERBS:
            typed = " ".join(map(str, arguments)).split()
            others = [each for each in foreign(ended.err, str(arguments[0])) if each not in typed]
            assert not others, "options that the verb has not"
        assert _contents(folder) == before
        return ended.err.removeprefix("polyseme: ").rstrip("\n")

    return refuse


def _contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
