"""Every command that README and the docs show has only options that its verb has, and every Python block compiles."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from polyseme.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[tuple[str, int]]:
    """The code of each block of a language, and its line."""
    text = page.read_text(encoding="utf-8")
    matches = re.finditer(rf"^```{language}[^\n]*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [(each[1], text[: each.start()].count("\n") + 2) for each in matches]


def commands(page: Path) -> list[list[str]]:
    """The arguments of each `polyseme` command, without examples of other programs."""
    lines = [line for code, _ in blocks(page, "sh") for line in code.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("polyseme ")]


SHOWN = [(page, arguments) for page in PAGES for arguments in commands(page)]


def test_commands_are_shown() -> None:
    assert len(SHOWN) > 50
    assert {page.name for page, _ in SHOWN} >= {"README.md", "start.md", "embed.md", "transfer.md", "pretrain.md"}


@pytest.mark.parametrize(("page", "arguments"), SHOWN, ids=[f"{page.name}: {' '.join(each)}" for page, each in SHOWN])
def test_options_exist(page: Path, arguments: list[str]) -> None:
    assert isinstance(main, click.Group)
    verb, *others = arguments
    command = main.get_command(click.Context(main), verb)
    if isinstance(command, click.Group) and others:
        command = command.get_command(click.Context(command), others[0])
    assert command is not None
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    shown = {each.partition("=")[0] for each in others if re.match(r"--[a-z]|-[a-z]$", each)}
    assert shown <= known


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_python_compiles(page: Path) -> None:
    for code, line in blocks(page, "python"):
        compile("\n" * (line - 1) + code, str(page), "exec")
