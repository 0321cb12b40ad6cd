"""Scores given a source equal the reference's losses, piece by piece; files of two sides."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner

import polyseme
from generating.two_sides import FIRST, pair_with_tokenizer
from polyseme.api import Model
from polyseme.cli import main
from polyseme.convert.families import FAMILIES
from polyseme.errors import InputError, OptionError
from polyseme.text.documents import to_documents
from tiny_models import tiny_model

SOURCES = ["The vase broke.", "Dawn", "Sandy broke the law; they throw a party!", "", "Dawn"]
TARGETS = ["Dawn broke.", "A crane picked up the steel beam", "We", "the note is flat", ""]
both = pytest.mark.parametrize("family", ["bart", "t5"])


def losses(family: str, source: str, target: str) -> list[float]:
    """Of every label, the pieces of the frame included, as the reference computes its loss."""
    tokenizer = pair_with_tokenizer(family).ours.tokenizer
    assert tokenizer is not None
    read, labels = (
        torch.from_numpy(tokenizer.frame(each.ids).ids)[None]
        for each in tokenizer.encode_many(to_documents([source, target]))
    )
    first = torch.full((1, 1), tokenizer.specials[FAMILIES[family].first or ""])
    with torch.no_grad():
        decoder_input = torch.cat([first, labels[:, :-1]], dim=1)
        logits = pair_with_tokenizer(family).reference(input_ids=read, decoder_input_ids=decoder_input).logits
    return F.cross_entropy(logits[0], labels[0], reduction="none").tolist()


@both
def test_log_probabilities_equal_the_references_losses(family: str) -> None:
    model = Model(pair_with_tokenizer(family).ours)
    found = model.score(TARGETS, source=SOURCES)
    before = 1 if family == "bart" else 0
    for source, target, scored in zip(SOURCES, TARGETS, found, strict=True):
        expected = [-loss for loss in losses(family, source, target)[before:-1]]
        np.testing.assert_allclose(scored.piece_log_probs, expected, rtol=1e-9)
    for batch_pieces in (1, 30):
        for one, other in zip(model.score(TARGETS, source=SOURCES, batch_pieces=batch_pieces), found, strict=True):
            np.testing.assert_allclose(one.piece_log_probs, other.piece_log_probs, rtol=1e-9)
    assert FIRST


@both
def test_the_source_decides(family: str) -> None:
    model = Model(pair_with_tokenizer(family).ours)
    one, other, again = model.score(["Dawn broke."] * 3, source=["The vase broke.", "A crane", "The vase broke."])
    assert not np.allclose(one.piece_log_probs, other.piece_log_probs)
    assert one.piece_log_probs.tolist() == again.piece_log_probs.tolist()


def test_files_of_two_sides(tmp_path: Path) -> None:
    model = tiny_model("bart")
    model.save(tmp_path / "bart")
    sources, targets = zip(*[each for each in zip(SOURCES, TARGETS, strict=True) if each[0]], strict=True)
    for name, lines in (("en", sources), ("de", targets)):
        (tmp_path / f"test.{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    line = ["score", str(tmp_path / "test.de"), "-m", str(tmp_path / "bart"), "--json"]
    result = CliRunner().invoke(main, [*line, "--source", str(tmp_path / "test.en")])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["how"] == "left to right, given a source"
    expected = model.score(list(targets), source=list(sources))
    for text, scored in zip(found["texts"], expected, strict=True):
        np.testing.assert_allclose(text["log_probs"], scored.word_log_probs, rtol=1e-4)
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 2
    assert "--source" in result.stderr


@pytest.mark.parametrize(("n_sources", "place"), [(3, "test.de, line 4"), (7, "test.en, line 6")])
def test_sides_of_different_length(tmp_path: Path, n_sources: int, place: str) -> None:
    tiny_model("t5").save(tmp_path / "t5")
    (tmp_path / "test.en").write_text("Dawn broke.\n" * n_sources, encoding="utf-8")
    (tmp_path / "test.de").write_text("Dawn broke.\n" * 5, encoding="utf-8")
    with pytest.raises(InputError, match=place):
        polyseme.score(tmp_path / "test.de", source=tmp_path / "test.en", model=tmp_path / "t5", device="cpu")


def test_a_blank_source_is_refused_with_its_place(tmp_path: Path) -> None:
    tiny_model("t5").save(tmp_path / "t5")
    (tmp_path / "test.en").write_text("Dawn broke.\n \nDawn broke.\n", encoding="utf-8")
    (tmp_path / "test.de").write_text("Dawn broke.\n" * 3, encoding="utf-8")
    with pytest.raises(InputError, match=r"test\.en, line 2: there is no word in this source.*test\.de, line 2"):
        polyseme.score(tmp_path / "test.de", source=tmp_path / "test.en", model=tmp_path / "t5", device="cpu")


def test_what_makes_no_sense() -> None:
    model = tiny_model("bart")
    with pytest.raises(OptionError, match="Give a source for each text"):
        model.score(["Dawn"])
    with pytest.raises(InputError, match="1 texts and 2 sources"):
        model.score(["Dawn"], source=["a", "b"])
    with pytest.raises(InputError, match=r"The source of text 0 makes [\d,]+ pieces"):
        model.score(["Dawn"], source=["Dawn broke " * 30])
    with pytest.raises(OptionError, match="reads no source"):
        tiny_model("gpt2").score(["Dawn"], source=["Dawn"])
    with pytest.raises(OptionError, match=r"one stream that reads on.*reads a source"):
        model.score(["Dawn"], source=["Dawn"], neural_cache=True)
    with pytest.raises(OptionError, match=r"one stream that reads on.*in any order"):
        tiny_model("xlnet").score(["Dawn"], neural_cache=True)
