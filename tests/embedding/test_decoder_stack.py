"""The decoder's layers, with the text on both sides: equal to the reference's decoder states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import polyseme
from generating.two_sides import pair_with_tokenizer
from polyseme.api import Model
from polyseme.cli import main
from polyseme.convert.families import FAMILIES
from polyseme.errors import ModelError, OptionError
from references import assert_close
from tiny_models import TEXT, tiny_model, tiny_tokenizer

SENTENCE = "Sandy broke the law."
both = pytest.mark.parametrize("family", ["bart", "t5"])


def reference_states(family: str, text: str) -> tuple[list[int], list[torch.Tensor]]:
    """What the decoder reads, the text shifted to the right, and its layers."""
    tokenizer = tiny_tokenizer(family)
    framed = Model(pair_with_tokenizer(family).ours).pieces(text).ids
    first = tokenizer.specials[FAMILIES[family].first or ""]
    row = [first, *framed[:-1].tolist()]
    with torch.no_grad():
        found = pair_with_tokenizer(family).reference(
            input_ids=torch.from_numpy(framed)[None], decoder_input_ids=torch.tensor([row]), output_hidden_states=True
        )
    return row, [layer[0] for layer in found.decoder_hidden_states]


@both
def test_pieces_of_the_decoder_equal_the_reference(family: str) -> None:
    found = Model(pair_with_tokenizer(family).ours).pieces(SENTENCE, stack="decoder", attentions=True)
    row, layers = reference_states(family, SENTENCE)
    assert found.ids.tolist() == row
    assert found.spans[-1].tolist() == [len(SENTENCE) - 1, len(SENTENCE)]
    for ours, theirs in zip(found.states, layers, strict=True):
        assert_close(torch.from_numpy(ours), theirs, 1e-10)
    assert found.attentions is not None
    assert found.attentions.shape[0] == len(layers) - 1


@both
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_a_word_has_the_state_at_which_the_decoder_has_read_it(family: str, layer: int) -> None:
    model = Model(pair_with_tokenizer(family).ours)
    [embedded] = model.embed([SENTENCE], layer=layer, pool="last", stack="decoder")
    pieces = model.pieces(SENTENCE, stack="decoder")
    last = [max(n for n, (_, end) in enumerate(pieces.spans.tolist()) if end == word.end) for word in embedded.words]
    np.testing.assert_allclose(embedded.vectors, pieces.states[layer][last].astype(np.float32), rtol=1e-5, atol=1e-6)
    [of_encoder] = model.embed([SENTENCE], layer=layer)
    assert layer == 0 or not np.allclose(embedded.vectors, of_encoder.vectors)


@both
def test_alone_and_among_others_and_long(family: str) -> None:
    model = Model(pair_with_tokenizer(family).ours)
    texts = [SENTENCE, "Dawn", TEXT, "The vase broke the house."]
    together = model.embed(texts, stack="decoder")
    for text, one in zip(texts, together, strict=True):
        [alone] = model.embed([text], stack="decoder")
        np.testing.assert_allclose(one.vectors, alone.vectors, atol=1e-5 * float(np.abs(alone.vectors).max()))
        assert len(one.vectors) == len(one.words)


def test_files_and_commands(tmp_path: Path) -> None:
    model = tiny_model("bart")
    model.save(tmp_path / "bart")
    (tmp_path / "text.txt").write_text(f"{SENTENCE}\nDawn broke.\n", encoding="utf-8")
    line = ["embed", str(tmp_path / "text.txt"), "-m", str(tmp_path / "bart"), "-o", str(tmp_path / "v.npz")]
    result = CliRunner().invoke(main, [*line, "--stack", "decoder"])
    assert result.exit_code == 0, result.stderr
    [first, _] = polyseme.read_vectors(tmp_path / "v.npz")
    [expected] = model.embed([SENTENCE], stack="decoder")
    np.testing.assert_allclose(first.vectors, expected.vectors, atol=1e-5)
    result = CliRunner().invoke(main, ["pieces", "Dawn", "-m", str(tmp_path / "bart"), "--stack", "decoder"])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split()[0] == "</s>"


def test_a_decoder_asked_for_on_an_encoder() -> None:
    for call in ("embed", "pieces"):
        with pytest.raises(ModelError, match="one stack, and no decoder"):
            getattr(tiny_model("bert"), call)("Dawn", stack="decoder")
    with pytest.raises(OptionError, match="Did you mean 'decoder'"):
        tiny_model("bart").embed("Dawn", stack="decoders")  # type: ignore[arg-type]
