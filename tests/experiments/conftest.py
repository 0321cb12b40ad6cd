"""What the tests of scripts share: `import_script`, and `script`, the one that a file names as `SCRIPT`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def import_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a script of benchmarks/ or experiments/ by its name."""
    for folder in ("benchmarks", "experiments"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module


@pytest.fixture
def script(import_script: Callable[[str], Any], request: pytest.FixtureRequest) -> Any:
    """The script that the test file names as `SCRIPT`."""
    return import_script(request.module.SCRIPT)
