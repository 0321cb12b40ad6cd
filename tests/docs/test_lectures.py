"""The table of what lectures describe: the page is that of its data, and every command can be parsed."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import polyseme
from polyseme.cli import main
from polyseme.objectives.objective_table import objective_from
from polyseme.papers import read_table
from polyseme.recipes.recipe_table import COUNTED, RECIPES

ROOT = Path(__file__).parents[2]
ITEMS: list[dict[str, Any]] = json.loads((ROOT / "docs" / "lectures.json").read_text(encoding="utf-8"))["items"]
COMMANDS = [(item["item"], item["command"]) for item in ITEMS if "command" in item]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lectures", ROOT / "experiments" / "lectures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_its_data(script: ModuleType) -> None:
    assert (ROOT / "docs" / "lectures.md").read_text(encoding="utf-8") == script.page()


def test_every_item_is_there_and_says_what_it_lacks() -> None:
    assert [item["item"] for item in ITEMS] == list(range(1, 127))
    for item in ITEMS:
        assert "command" in item or "page" in item or item.get("note"), item
        assert item["state"] == "works" or item.get("note"), item
    assert sum(item["state"] == "works" for item in ITEMS) >= 112


@pytest.mark.parametrize(("item", "line"), COMMANDS)
def test_commands_can_be_parsed(item: int, line: str) -> None:
    program, *words = shlex.split(line)
    if program != "polyseme":
        file = next(word for word in words if word.endswith((".py", ".ipynb")))
        assert (ROOT / file).is_file()
        return
    assert isinstance(main, click.Group)
    verb, *others = words
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    if isinstance(command, click.Group) and others:
        command = command.get_command(click.Context(command), others[0])
        assert command is not None
        verb, *others = others
    request = command.make_context(verb, others).params
    assert not re.fullmatch(r"\S+\.\w+", request.get("text") or ""), "the name of a file where a text is read"
    if verb == "published":
        read_table(request["name"]).only(request["systems"] or "")
    if verb == "claims":
        polyseme.check_claims(request["name"], show=True)
    if request.get("recipe") in RECIPES:
        recipe = RECIPES[request["recipe"]]
        recipe.config(300, request.get("shape"))
        objective_from(recipe.objective, {**recipe.objective_settings, **(request.get("objective") or {})})
    else:
        assert request.get("recipe") in (None, *COUNTED)
