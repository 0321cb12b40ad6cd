"""What all tests share: where the larger data is, and how hypothesis draws its examples."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

IN_CI = os.environ.get("CI") == "true"

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if IN_CI else "local")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of data too large for the repository; tests that need it are skipped where it is absent."""
    folder = os.environ.get("POLYSEME_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    if IN_CI:
        pytest.fail("POLYSEME_DATA must name the folder of test data in CI.")
    pytest.skip("needs POLYSEME_DATA")
