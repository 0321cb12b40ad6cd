"""What all tests share: where the larger data is, published vocabularies and real text, and hypothesis's settings."""

from __future__ import annotations

import gc
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import vocabularies

gc.set_threshold(50_000, 20, 20)  # a million objects are loaded: looking through them took a twentieth of the time

IN_CI = os.environ.get("CI") == "true"

try:
    from hypothesis import settings
except ImportError:  # a borrowed machine: files with property tests cannot be imported, the others run
    pass
else:
    settings.register_profile("local", deadline=None, max_examples=50)
    settings.register_profile("ci", deadline=None, derandomize=True)
    settings.load_profile("ci" if IN_CI else "local")


def data_folder() -> Path | None:
    folder = os.environ.get("POLYSEME_DATA")
    return Path(folder) if folder and Path(folder).is_dir() else None


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of data too large for the repository; tests that need it are skipped where it is absent."""
    folder = data_folder()
    if folder is not None:
        return folder
    if IN_CI:
        pytest.fail("POLYSEME_DATA must name the folder of test data in CI.")
    pytest.skip("needs POLYSEME_DATA")


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """The folder of a published vocabulary; those that are not in `tests/golden` need the larger data."""
    unpacked = tmp_path_factory.mktemp("vocab")
    vocabularies.unpack(unpacked)

    def folder_of(kind: str) -> Path:
        if kind in vocabularies.KINDS:
            return unpacked / kind
        folder: Path = request.getfixturevalue("data") / "vocab" / kind
        return folder

    return folder_of


@pytest.fixture(scope="session")
def real_text() -> Callable[[str, int], str]:
    """The first characters of a part of the larger data's corpus, or of our own documentation."""

    def read(part: str, n_characters: int) -> str:
        folder = data_folder()
        if folder is not None:
            with lzma.open(folder / "corpus" / f"{part}.txt.xz", "rt", encoding="utf-8") as file:
                return file.read(n_characters)
        pages = sorted(Path(__file__).parents[1].joinpath("docs").rglob("*.md"))
        lines = (line for page in pages for line in page.read_text(encoding="utf-8").splitlines())
        prose = (line for line in lines if not set("<[") & set(line))  # no special pieces, written out
        return "\n".join(prose)[:n_characters]

    return read
