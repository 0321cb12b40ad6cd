"""Several models side by side: vectors are the concatenation of theirs, in files and in `WordEncoder`s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import polyseme
from polyseme.cli import main
from polyseme.embedding.side_by_side import SideBySide
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.text.documents import to_documents
from tiny_models import tiny_model

TEXTS = ["The vase broke.", "Sandy broke the world record in the house.", "", "A crane caught a fish."]


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    for family in ("bert", "elmo"):
        tiny_model(family).save(tmp_path / family)
    words = [
        f"{word} {number} {number / 7:.3f} -1" for number, word in enumerate(["the", "vase", "broke", "crane", "."])
    ]
    (tmp_path / "glove.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return [str(tmp_path / name) for name in ("glove.txt", "bert", "elmo")]


@pytest.mark.filterwarnings("ignore:The")
@pytest.mark.parametrize("per", ["word", "text"])
def test_a_file_has_the_vectors_of_each_model_beside_one_another(folders: list[str], per: Any, tmp_path: Path) -> None:
    glove, bert, elmo = folders
    texts = [text for text in TEXTS if text]
    together = tmp_path / "together.npz"
    polyseme.embed(texts, model=f"{glove},{bert}@concat:0:1,{elmo}", output=together, layer=-1, per=per, device="cpu")
    for number, (model, layer) in enumerate([(glove, -1), (bert, "concat:0:1"), (elmo, -1)]):
        polyseme.embed(texts, model=model, output=tmp_path / f"{number}.npz", layer=layer, per=per, device="cpu")
    each = [list(polyseme.read_vectors(tmp_path / f"{number}.npz")) for number in range(3)]
    for found, parts in zip(polyseme.read_vectors(together), zip(*each, strict=True), strict=True):
        assert found.id == parts[0].id
        np.testing.assert_array_equal(found.vectors, np.concatenate([one.vectors for one in parts], axis=-1))


def test_what_each_tokenizer_lacks_is_said_of_it_and_documents_are_counted_once(folders: list[str]) -> None:
    glove, bert, _ = folders
    members = {name: polyseme.load(name, device="cpu").embedder() for name in (glove, bert)}
    both = SideBySide(members)
    both(to_documents(TEXTS))
    assert (both.tally.documents, both.tally.words) == (4, members[bert].tally.words)
    assert both.tally.pieces == sum(each.tally.pieces for each in members.values())
    assert both.tally.flops == sum(each.tally.flops for each in members.values())
    with pytest.warns(
        PolysemeWarning, match=r"The tokenizer of .*glove\.txt has no pieces for 9 words \(47\.4% of 19\)"
    ):
        both.warn_unread()


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("{glove},", r"names with commas between them.*Got '' among them"),
        ("{glove},{bert}@", r"Got '.*bert@' among them"),
        ("{glove},{glove}", r"listed twice"),
        ("{glove},{bert}@all", r"Layer 'all' gives a word several vectors, and those of .*bert@all.*concat:0:-1"),
        ("{glove},{bert}@9", r"Layer '9' is not there"),
        ("{glove},nowhere", r"There is no model at 'nowhere'"),
    ],
)
def test_what_cannot_stand_side_by_side_is_refused(
    models: str, message: str, folders: list[str], tmp_path: Path
) -> None:
    """On the command line: one paragraph, exit code 2, nothing written."""
    text = tmp_path / "text.txt"
    text.write_text("The vase broke.\n", encoding="utf-8")
    names = models.format(glove=folders[0], bert=folders[1])
    command = ["embed", str(text), "-m", names, "-o", str(tmp_path / "out.npz"), "--device", "cpu"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert not (tmp_path / "out.npz").exists()
    with pytest.raises(polyseme.PolysemeError, match=message):
        polyseme.embed(text, model=names, output=tmp_path / "out.npz", device="cpu")


def test_word_encoders_side_by_side() -> None:
    """Their vectors concatenated, padded alike; what learns of each stays its own."""
    encoders = [
        polyseme.WordEncoder(tiny_model("nnlm"), layer=0),
        polyseme.WordEncoder(tiny_model("bert"), layer="mix", trainable="mix"),
    ]
    stack = polyseme.StackedWordEncoder(encoders)
    rows = [["The", "vase", "broke"], ["Dawn"]]
    vectors, mask = stack(rows)
    assert vectors.shape == (2, 3, stack.width)
    assert torch.equal(vectors, torch.cat([each(rows).vectors for each in encoders], dim=-1))
    assert mask.tolist() == [[True, True, True], [True, False, False]]
    vectors.sum().backward()
    assert [name for name, each in stack.named_parameters() if each.requires_grad] == [
        "encoders.1.mixes.0.weights",
        "encoders.1.mixes.0.gamma",
    ]
    for wrong in (
        polyseme.WordEncoder(tiny_model("bert"), layer="all"),
        polyseme.WordEncoder(tiny_model("bert"), n_mixes=2),
    ):
        with pytest.raises(OptionError, match="WordEncoder number 1 gives a word several vectors"):
            polyseme.StackedWordEncoder([encoders[0], wrong])
    with pytest.raises(OptionError, match="at least one"):
        polyseme.StackedWordEncoder([])
