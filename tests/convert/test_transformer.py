"""The Transformer of 2017: both stacks against `torch.nn`, and its folder, which is of our own making."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from convert.two_stacks import PRECISIONS, read_and_write, source_and_target
from polyseme.bundle import Bundle, count_parameters, named_tensors, new_bundle
from polyseme.convert.transformer import FAMILY, read_config, write_config
from polyseme.encoders.transformer_layer import TransformerLayer
from polyseme.errors import ModelError
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.parts.masks import OwnSource, SameDocument
from polyseme.parts.positions import sinusoids
from polyseme.recipes.recipe_table import RECIPES
from polyseme.types import Batch
from references import assert_close, real
from spread import SPREAD
from tiny_models import tiny_config, tiny_tokenizer
from tolerance import expect, expect_together

TINY: Any = FAMILY.tiny()
OPTIONS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"norm": "before", "final_norm": True},
    "learned": {"positions": "learned", "max_positions": 40},
    "gelu": {"activation": "gelu", "norm": "before", "final_norm": True},
}


def ours_with(dtype: torch.dtype = torch.float64, **changes: Any) -> Bundle:
    """A bundle whose weights are spread so widely that a wrong mask shows."""
    torch.manual_seed(5)
    bundle = new_bundle(FAMILY, TINY.replace(**changes), ["causal"])
    for name, parameter in bundle.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=SPREAD)
    return bundle.to(dtype).eval()


class Reference(nn.Module):
    """`torch.nn`'s stacks over a table of pieces; after the paper there is no norm above a stack with norms after."""

    def __init__(self, ours: Bundle) -> None:
        super().__init__()
        config: Any = ours.config
        self.config = config
        before = config.norm == "before"
        options = {"activation": config.activation, "batch_first": True, "norm_first": before, "dropout": 0.0}
        second = config.decoder
        layer = nn.TransformerEncoderLayer(config.width, config.n_heads, config.inner_width, **options)
        decoder_layer = nn.TransformerDecoderLayer(config.width, second.n_heads, second.inner_width, **options)
        norms = [nn.LayerNorm(config.width) if before else None for _ in range(2)]
        self.encoder = nn.TransformerEncoder(layer, config.n_layers, norm=norms[0], enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder_layer, second.n_layers, norm=norms[1])
        self.double()
        self.pieces = nn.Parameter(ours.encoder.embeddings.pieces.weight.detach().clone())
        self.positions = nn.ParameterList()
        if config.positions == "learned":
            self.positions.extend(
                nn.Parameter(each.embeddings.positions.table.weight.detach().clone())
                for each in (ours.encoder, ours.decoder)  # type: ignore[union-attr]
            )
        self.pairs = [(self.pieces, ours.encoder.embeddings.pieces.weight)]
        for stack, theirs, mine in zip((0, 1), (self.encoder, self.decoder), (ours.encoder, ours.decoder), strict=True):
            for their_layer, our_layer in zip(theirs.layers, mine.layers, strict=True):  # type: ignore[union-attr]
                self._pair_layer(their_layer, our_layer)
            if before:
                self.pairs += zip(theirs.norm.parameters(), mine.norm.parameters(), strict=True)  # type: ignore[union-attr]
            if config.positions == "learned":
                self.pairs.append((self.positions[stack], mine.embeddings.positions.table.weight))  # type: ignore[union-attr]
        with torch.no_grad():
            for their, our in self.pairs:
                their.copy_(our)

    def _pair_layer(self, theirs: Any, ours: TransformerLayer) -> None:
        attentions = [(theirs.self_attn, ours.attention)]
        norms = [ours.attention_norm, ours.feed_forward_norm]
        if ours.cross is not None:
            attentions.append((theirs.multihead_attn, ours.cross))
            norms.insert(1, ours.cross_norm)
        for their, our in attentions:
            self.pairs += [(their.in_proj_weight, our.project.weight), (their.in_proj_bias, our.project.bias)]
            self.pairs += zip(their.out_proj.parameters(), our.output.parameters(), strict=True)
        self.pairs += zip(theirs.linear1.parameters(), ours.feed_forward.up.parameters(), strict=True)
        self.pairs += zip(theirs.linear2.parameters(), ours.feed_forward.down.parameters(), strict=True)
        for number, norm in enumerate(norms, start=1):
            self.pairs += zip(getattr(theirs, f"norm{number}").parameters(), norm.parameters(), strict=True)

    def embedded(self, stack: int, pieces: Tensor) -> Tensor:
        """Pieces times √width, and where they stand."""
        places = torch.arange(pieces.shape[1])
        if self.config.positions == "learned":
            below = self.positions[stack][places]
        else:
            below = sinusoids(places, self.config.width, "interleaved").to(self.pieces.dtype)
        return self.pieces[pieces] * self.config.width**0.5 + below

    def forward(self, source: Batch, target: Batch) -> tuple[Tensor, Tensor]:
        padding = [~real(each) for each in (source, target)]
        read = self.encoder(self.embedded(0, source.pieces), src_key_padding_mask=padding[0])
        causal = torch.ones(2 * target.pieces.shape[1:], dtype=torch.bool).triu(1)
        written = self.decoder(
            self.embedded(1, target.pieces),
            read,
            tgt_mask=causal,
            tgt_key_padding_mask=padding[1],
            memory_key_padding_mask=padding[0],
        )
        return read, written


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("option", OPTIONS)
def test_both_stacks_equal_torch_s(option: str, dtype: torch.dtype) -> None:
    """States of both, losses through the shared table, and all gradients; ragged on both sides."""
    ours = ours_with(torch.float32, **OPTIONS[option])
    reference = Reference(ours)
    source, target = source_and_target(TINY)
    labels = torch.randint(5, TINY.n_pieces, target.pieces.shape, generator=torch.Generator().manual_seed(3))

    def ask_all(reference: Any) -> dict[str, Tensor]:
        read, written = reference(source, target)
        logits = written[real(target)] @ reference.pieces.T
        loss = nn.functional.cross_entropy(logits, labels[real(target)])
        return {"read": read[real(source)], "written": written[real(target)], "loss": loss}

    def gradients(reference: Any) -> dict[int, Tensor]:
        ask_all(reference)["loss"].backward()
        return {number: their.grad for number, (their, _) in enumerate(reference.pairs)}

    expected, expected_gradients = expect(reference, ask_all, dtype), expect_together(reference, gradients, dtype)
    ours.to(dtype)
    for attentions in (False, True):  # fused, and written out
        read, written = read_and_write(ours, source, target, attentions=attentions)
        expected["read"].check(read[-1][real(source)])
        expected["written"].check(written[-1][real(target)])

    loss = ours.outputs["causal"].loss(written[-1][real(target)], labels[real(target)]).mean()
    expected["loss"].check(loss)
    loss.backward()
    compared = set()
    for number, (_, our) in enumerate(reference.pairs):
        expected_gradients[number].check(our.grad)
        compared.add(id(our))
    assert compared == {id(parameter) for parameter in ours.parameters()}


def test_sinusoids_are_the_paper_s() -> None:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos(…)."""
    found = sinusoids(torch.tensor([0, 3]), 6, "interleaved")
    angles = [3 / 10000 ** (2 * i / 6) for i in range(3)]
    expected = torch.stack([f(torch.tensor(angle)) for angle in angles for f in (torch.sin, torch.cos)])
    torch.testing.assert_close(found[1], expected)
    assert found[0].tolist() == [0, 1, 0, 1, 0, 1]


def test_pairs_that_share_a_row_do_not_see_each_other() -> None:
    """Two pairs in one row give the states that each gives alone."""
    ours = ours_with()
    generator = torch.Generator().manual_seed(9)
    sources, targets = ([torch.randint(5, 99, (1, n), generator=generator) for n in ns] for ns in ((5, 3), (4, 6)))
    documents, source_documents = (
        torch.cat([torch.full((1, each.shape[1]), number) for number, each in enumerate(side)], dim=1)
        for side in (targets, sources)
    )
    positions, source_positions = (
        torch.cat([torch.arange(each.shape[1])[None] for each in side], dim=1) for side in (targets, sources)
    )
    with torch.no_grad():
        read = ours.encoder(
            Batch(torch.cat(sources, dim=1), positions=source_positions, mask=SameDocument(source_documents))
        )
        batch = Batch(
            torch.cat(targets, dim=1),
            positions=positions,
            mask=SameDocument(documents),
            source=read,
            source_mask=OwnSource(documents, source_documents),
        )
        together = ours.decoder(batch)  # type: ignore[misc]
        alone = [read_and_write(ours, Batch(a), Batch(b)) for a, b in zip(sources, targets, strict=True)]
        open_wide = ours.decoder(dataclasses.replace(batch, source_mask=None))  # type: ignore[misc]
    for number in range(together.depth + 1):
        assert_close(together[number], torch.cat([each[1][number] for each in alone], dim=1), 1e-12)
    assert (open_wide[-1] - together[-1]).abs().max() > 1e-3


# --- its folder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "apart"])
def test_it_is_saved_and_loaded(tied: bool, tmp_path: Path) -> None:
    torch.manual_seed(4)
    bundle = new_bundle(FAMILY, tiny_config("transformer"), ["causal"], tiny_tokenizer("transformer"), tied=tied)
    save_bundle(bundle, tmp_path / "model")
    loaded = load_bundle(tmp_path / "model")
    assert loaded.config == bundle.config
    assert loaded.tied is tied
    assert loaded.decoder is not None
    assert loaded.decoder.piece_table() is loaded.encoder.piece_table()
    assert (loaded.outputs["causal"].table is loaded.encoder.piece_table()) is tied
    mine, theirs = named_tensors(bundle), named_tensors(loaded)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(each, theirs[name]) for name, each in mine.items())


def test_what_it_cannot_be_is_refused() -> None:
    with pytest.raises(ModelError, match="'decoder_layers'"):
        write_config(TINY.replace(decoder_layers=None))
    with pytest.raises(ModelError, match="share one table"):
        write_config(TINY.replace(embedding_width=8))
    with pytest.raises(ModelError, match="does not say 'width'"):
        read_config({name: value for name, value in write_config(TINY).items() if name != "width"}, "config.json")


@pytest.mark.parametrize(("name", "count"), [("transformer-base", 63.1e6), ("transformer-big", 214.3e6)])
def test_sizes_are_near_the_published_ones(name: str, count: float) -> None:
    """65 and 213 million in the paper, with a vocabulary of about 37,000 pieces."""
    recipe = RECIPES[name]
    found = count_parameters("transformer", recipe.config(recipe.vocabulary), ["causal"])
    assert found == pytest.approx(count, rel=1e-3)
    layers, width = recipe.shape["n_layers"], recipe.shape["width"]
    stacks = layers * (12 * width**2 + 16 * width**2) + layers * width * (13 + 19)
    assert found == pytest.approx(stacks + 37_056 * width, rel=1e-3)
