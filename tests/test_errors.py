"""Errors name the options of the verb that raises them, and no others."""

from __future__ import annotations

import ast
import functools
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest

import polyseme
from cli.option_names import OPTION, OTHER_TOOLS, foreign, options_of
from polyseme.cli import VERBS
from polyseme.cli.record_options import Command, parameters_of
from polyseme.errors import Advice, InputError, PolysemeError
from polyseme.files.rows import read_rows
from polyseme.options import Options, doc, flat, option
from polyseme.verb_options.pretraining_options import PretrainOptions
from polyseme.verb_options.word_options import EmbedOptions

SOURCE = Path(polyseme.__file__).parent
HOMES = {"sweep_run": "sweep", "swept_verbs": "sweep"}
"""Files beside a verb's own."""


def test_advice_is_for_those_who_have_the_option() -> None:
    error = InputError("Wrong.", Advice("quotes", "Take {}.", "none"), Advice("source", "Name {}.", otherwise="Stop."))
    assert str(error) == "Wrong. Take --quotes none (quotes='none'). Name --source (source=…)."
    error.flags = {"source": "--in"}
    assert str(error) == "Wrong. Name --in (source=…)."
    error.flags = {}
    assert str(error) == "Wrong. Stop."
    assert str(pickle.loads(pickle.dumps(error))) == "Wrong. Stop."


def test_every_option_that_a_message_names_is_one() -> None:
    known = set().union(*map(options_of, VERBS)) | OTHER_TOOLS
    unknown = [
        f"{name}: {option}" for name, text in messages() for option in OPTION.findall(text) if option not in known
    ]
    assert not unknown


def test_a_verb_names_its_own_options() -> None:
    wrong = []
    for name, text in messages():
        room, _, file = name.partition("/")
        verb = HOMES.get(file.removesuffix(".py"), file.removesuffix(".py"))
        if room in ("verbs", "cli") and verb in VERBS:
            wrong += [f"{name}: {option}" for option in foreign(text, verb)]
    assert not wrong


@functools.cache
def messages() -> list[tuple[str, str]]:
    return list(_messages())


def _messages() -> Iterator[tuple[str, str]]:
    """Strings of all files that name an option, docstrings aside, with the parts of one message together."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(SOURCE).as_posix()
        if not OPTION.search(text) or name.startswith(("plots/", "verb_options/")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                    if isinstance(each, ast.Constant | ast.JoinedStr | ast.BinOp):
                        yield (
                            name,
                            "".join(
                                part.value
                                for part in ast.walk(each)
                                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                            ),
                        )


@dataclass(frozen=True, kw_only=True)
class WithQuotes(Options):
    path: str = field(kw_only=False, metadata=doc("A file."))
    quotes: str = option("double", "What encloses fields.", flags="-q --quoting")


@dataclass(frozen=True, kw_only=True)
class Without(Options):
    path: str = field(kw_only=False, metadata=doc("A file."))


@pytest.mark.parametrize(
    ("record", "advice"), [(WithQuotes, " --quoting none (quotes='none')."), (Without, "doubled.")]
)
def test_an_error_that_leaves_a_verb_knows_its_options(tmp_path: Path, record: Any, advice: str) -> None:
    @flat(record)
    def verb(options: Any) -> list[Any]:
        return list(read_rows(options.path))

    (tmp_path / "t.csv").write_text('text\n"open\n')
    with pytest.raises(InputError) as refused:
        verb(str(tmp_path / "t.csv"))
    assert str(refused.value).endswith(advice)


def test_a_lack_of_memory_is_met_with_options_of_the_command() -> None:
    def lack() -> None:
        raise MemoryError

    for record, named, others in (
        (PretrainOptions, ("--micro-batch-size", "--device cpu"), ("--batch-pieces",)),
        (EmbedOptions, ("--batch-pieces", "--device cpu"), ("--batch-size",)),
        (Options, (), ("--",)),
    ):
        command = Command("some", callback=lack, params=[each for each in parameters_of(record) if each.expose_value])
        for each in command.params:
            each.required = False
        with pytest.raises(PolysemeError, match="not enough memory") as refused:
            command.invoke(click.Context(command))
        assert all(each in str(refused.value) for each in named)
        assert not any(each in str(refused.value) for each in others)
