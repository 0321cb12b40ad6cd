"""The published sizes by name: the table that the benchmarks keep."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_FILE = Path(__file__).parents[1] / "benchmarks" / "model_sizes.py"
_spec = importlib.util.spec_from_file_location("model_sizes", _FILE)
assert _spec is not None
assert _spec.loader is not None
_sizes = importlib.util.module_from_spec(_spec)
sys.modules["model_sizes"] = _sizes
_spec.loader.exec_module(_sizes)

SIZES = _sizes.SIZES
size_named = _sizes.size_named
