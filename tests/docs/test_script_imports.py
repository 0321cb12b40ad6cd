"""What scripts and notebooks import from polyseme and from each other exists: most of them are run by no quick test."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [
    *(script for folder in ("benchmarks", "experiments") for script in sorted((ROOT / folder).glob("*.py"))),
    *(script for pattern in ("*.py", "*.ipynb") for script in sorted((ROOT / "examples").rglob(pattern))),
]
PEERS = {"gensim", "kenlm", "pyspark", "ray", "scipy", "sentence_transformers", "transformers", "triton"}
"""Packages that a script may need beyond polyseme's own, and that may be absent here."""


def code_of(script: Path) -> str:
    """The text of a script, or of all cells of a notebook."""
    text = script.read_text(encoding="utf-8")
    if script.suffix != ".ipynb":
        return text
    cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return "\n".join("".join(lines) for lines in cells)


def imports_of(script: Path) -> Iterator[tuple[str, list[str]]]:
    """Every module that a script imports, anywhere in it, with the names that it takes from it."""
    for node in ast.walk(ast.parse(code_of(script))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, [alias.name for alias in node.names]


def file_of(module: str, folder: Path) -> Path | None:
    """The file of a module of polyseme, or of another script in the same folder."""
    parts = module.split(".")
    if parts[0] != "polyseme":
        file = folder / f"{module}.py"
        return file if file.exists() else None
    place = ROOT.joinpath("src", *parts)
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@functools.cache
def names_in(file: Path) -> set[str]:
    """What a module defines or imports, outside of functions and classes; of a package also its modules."""
    names = {each.stem for each in file.parent.iterdir()} if file.name == "__init__.py" else set()
    nodes: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        nodes.extend(ast.iter_child_nodes(node))
    return names


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.stem)
def test_what_a_script_imports_is_there(script: Path) -> None:
    for module, names in imports_of(script):
        first = module.split(".")[0]
        file = file_of(module, script.parent)
        if file is not None:
            assert file.exists(), module
            assert not set(names) - names_in(file), module
        elif first not in PEERS and first not in sys.stdlib_module_names:
            assert importlib.util.find_spec(module) is not None, module
