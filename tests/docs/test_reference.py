"""The reference page shows every public name, with its options."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

import polyseme
from polyseme.options import doc_of, fields_of
from polyseme.verb_options.pretraining_options import PretrainOptions

ROOT = Path(__file__).parents[2]


def page() -> str:
    spec = importlib.util.spec_from_file_location("mkdocs_reference", ROOT / "mkdocs_reference.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    made: str = hook.with_public_names((ROOT / "docs" / "reference.md").read_text(encoding="utf-8"))
    return made


@pytest.mark.parametrize("name", polyseme.__all__)
def test_every_public_name_is_shown(name: str) -> None:
    home = getattr(polyseme, name).__module__
    lines = page().splitlines()
    assert f"::: {home}.{name}" in lines or f"::: {home}" in lines


def test_a_function_documents_its_options() -> None:
    doc = inspect.getdoc(polyseme.pretrain)
    assert doc is not None
    plain = " ".join(doc.split())
    for field in fields_of(PretrainOptions):
        assert f"{field.name}: {' '.join(doc_of(field).help.split())}" in plain
