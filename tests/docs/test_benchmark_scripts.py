"""What benchmark scripts import from polyseme and from each other is there: most need a GPU, so no test runs them."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PEERS = {"gensim", "kenlm", "scipy", "sentence_transformers", "transformers", "triton"}
"""Packages that a script may need beyond polyseme's own, and that may be absent here."""


def modules_of(script: Path) -> set[str]:
    """Every module that a script imports, anywhere in it."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules.add(node.module)
    return modules


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda each: each.stem)
def test_what_a_script_imports_is_there(script: Path) -> None:
    for module in modules_of(script):
        first = module.split(".")[0]
        if first in PEERS or first in sys.stdlib_module_names or (FOLDER / f"{module}.py").exists():
            continue
        assert importlib.util.find_spec(module) is not None, module
