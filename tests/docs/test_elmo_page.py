"""The page for those who come from AllenNLP: its own code runs as it stands there, and does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from golden_elmo import GOLDEN, golden_bundle
from polyseme.api import Model
from polyseme.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "elmo.md"
TEXT = "Dawn broke.\nThe vase broke, and so did we.\nShe threw a party.\n"


class Block(NamedTuple):
    """Code of the page, and where it stands."""

    language: str
    theirs: bool
    code: str
    line: int


def blocks() -> list[Block]:
    page = PAGE.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w+)([^\n]*)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    return [Block(each[1], "AllenNLP" in each[2], each[3], page[: each.start()].count("\n") + 2) for each in found]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """All our blocks, one after another, in a folder with a small ELMo: the folder, and what the code has left."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "elmo-dir").mkdir()
    shutil.copy(GOLDEN / "allennlp" / "options.json", folder / "elmo-dir" / "options.json")
    shutil.copy(GOLDEN / "allennlp" / "lm_weights.hdf5", folder / "elmo-dir" / "weights.hdf5")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks():
            if block.theirs:
                continue
            if block.language == "python":
                exec(compile("\n" * (block.line - 1) + block.code, str(PAGE), "exec"), names)
            else:
                for line in block.code.splitlines():
                    _run(line)
    return folder, names


def _run(line: str) -> None:
    program, *arguments = shlex.split(line, comments=True)
    assert program == "polyseme"
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, f"{line}: {result.output}"


def test_every_block_is_ours_or_theirs_and_both_stand_side_by_side() -> None:
    found = blocks()
    assert {block.language for block in found} == {"python", "sh"}
    theirs = [number for number, block in enumerate(found) if block.theirs]
    assert len(theirs) == 3
    for number in theirs:
        assert "llennlp" in found[number].code
        assert (found[number + 1].language, found[number + 1].theirs) == (found[number].language, False)
    assert all("llennlp" not in block.code for block in found if not block.theirs)


def test_the_embedder(ran: tuple[Path, dict[str, Any]]) -> None:
    _, names = ran
    model = Model(golden_bundle("allennlp"))
    expected = model.embed([["Dawn", "broke"]], layer="all")[0].vectors
    np.testing.assert_allclose(names["dawn"].vectors, expected, atol=1e-6)
    np.testing.assert_allclose(names["first"][0].vectors, model.embed([["Dawn", "broke", "."]])[0].vectors, atol=1e-6)
    assert np.abs(names["first"][0].vectors - names["second"][0].vectors).max() > 1e-2


def test_the_command(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, names = ran
    expected = Model(golden_bundle("allennlp")).embed("Dawn broke.", layer="all")[0].vectors
    assert names["vectors"].shape[-1] == 32
    with h5py.File(folder / "all.h5") as file:
        np.testing.assert_allclose(file["0"][()], expected.swapaxes(0, 1), atol=1e-6)
    with h5py.File(folder / "average.h5") as file:
        np.testing.assert_allclose(file["0"][()], expected.mean(axis=1), atol=1e-6)
    with h5py.File(folder / "top.h5") as file:
        np.testing.assert_allclose(file["0"][()], expected[:, -1], atol=1e-6)
    assert (folder / "as-they-were.h5").is_file()


def test_the_module(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, names = ran
    assert names["low"].shape == names["high"].shape == (2, 3, 32)
    assert names["losses"][-1] < 0.8 * names["losses"][0]
    assert names["ids"].tolist() == [spelled("Dawn"), spelled("broke")]
    assert {each.name for each in (folder / "tuned-elmo").iterdir()} >= {"options.json", "weights.hdf5"}
    assert set(torch.load(folder / "mixes.pt", weights_only=True)) == {"mixes.0.weights", "mixes.0.gamma"}
    assert len(torch.load(folder / "tuned.pt", weights_only=True)) > 10


def spelled(word: str) -> list[int]:
    row = [259, *(byte + 1 for byte in word.encode()), 260]
    return row + [261] * (50 - len(row))


def test_the_view(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, names = ran
    assert len(names["view"].correlated) == 10
    page = (folder / "cell.html").read_text(encoding="utf-8")
    assert "Layer 1, backwards, cell 17" in page
