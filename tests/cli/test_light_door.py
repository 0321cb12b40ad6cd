"""The door is light: what importing polyseme, and asking it for help, may load."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "numpy", "tokenizers", "safetensors", "pyarrow", "h5py", "rich", "transformers"}

IMPORT = "import polyseme"
COMMAND = """
import sys
from polyseme.cli import main
try:
    main({!r})
except SystemExit as end:
    assert not end.code
"""


@pytest.mark.parametrize(
    "script",
    [IMPORT, COMMAND.format(["--help"]), COMMAND.format(["--version"]), COMMAND.format(["embed", "--help"])],
    ids=["import", "help", "version", "embed-help"],
)
def test_nothing_heavy_is_loaded(script: str) -> None:
    assert not loaded_by(script) & HEAVY


@pytest.mark.parametrize("listing", ["models", "published"])
def test_listings_that_need_no_tensors_load_none(listing: str) -> None:
    assert not loaded_by(COMMAND.format([listing])) & (HEAVY - {"rich"})


def loaded_by(script: str) -> set[str]:
    """The packages that are loaded when a script has run in a process of its own."""
    script += "\nimport sys; print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert "polyseme" in loaded
    return loaded


def test_a_name_is_loaded_when_it_is_used() -> None:
    script = "import polyseme, sys; polyseme.Word; assert 'torch' not in sys.modules; polyseme.PolysemeError"
    subprocess.run([sys.executable, "-c", script], check=True)
    import polyseme

    assert set(polyseme.__all__) <= set(dir(polyseme))
    assert all(hasattr(polyseme, name) for name in polyseme.__all__)
