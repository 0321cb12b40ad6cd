"""AWD-LSTM equals fastai's, in inference and in a training step with given masks; masks are drawn as the paper says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golden_awd_lstm import WITHIN, expected, golden_bundle
from polyseme.bundle import Bundle
from polyseme.encoders.recurrent import Recurrent
from polyseme.encoders.recurrent_config import RecurrentConfig
from polyseme.errors import ModelError
from polyseme.objectives.streams import Streamed
from polyseme.parts.recurrence import State
from polyseme.types import Batch


def assert_equal(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=WITHIN, rtol=0.0)


def recurrent(bundle: Bundle) -> Recurrent:
    assert isinstance(bundle.encoder, Recurrent)
    return bundle.encoder


def assert_state(memory: Any, golden: dict[str, Tensor], batch: str) -> None:
    assert isinstance(memory, State)
    for layer, (h, c) in enumerate(zip(memory.outputs, memory.cells, strict=True)):
        assert_equal(h, golden[f"{batch}.layer{layer}.h"][0])
        assert_equal(c, golden[f"{batch}.layer{layer}.c"][0])


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_inference_equals_fastai_s(name: str) -> None:
    """All layers, states and logits of two windows, with the state carried; the backward one is read from the end."""
    bundle, golden = golden_bundle(name), expected(name)
    if name == "backward":
        bundle = golden_bundle(name, reads="backwards")
    turned = (lambda x: x.flip(1)) if name == "backward" else (lambda x: x)
    memory: Any = bundle.encoder.new_memory(3)
    for batch in ("batch0", "batch1"):
        with torch.no_grad():
            states = bundle.encoder(Batch(turned(golden[f"{batch}.input_ids"])), memory=memory)
            logits = bundle.outputs["causal"].logits(states[-1])
        memory = states.memory
        assert_equal(turned(states[0]), golden[f"{batch}.embedding"])
        for layer in range(3):
            theirs = golden[f"{batch}.layer{layer}.output"]
            assert_equal(turned(states[layer + 1]), theirs)
        assert_equal(turned(logits), golden[f"{batch}.logits"])
        assert_state(memory, golden, batch)


def test_read_both_ways_it_equals_fastai_s() -> None:
    """Its decoder, which has seen what it predicts, is left out."""
    bundle, golden = golden_bundle("bidir", bidir=True), expected("bidir")
    assert not bundle.outputs
    with torch.no_grad():
        states = bundle.encoder(Batch(golden["batch0.input_ids"]))
    for layer in range(3):
        assert_equal(states[layer + 1], golden[f"batch0.layer{layer}.output"])


# --- a training step --------------------------------------------------------------------------------------------------


class Given(nn.Module):
    """A mask in the place of a drawn one."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor, pieces: Tensor | None = None) -> Tensor:
        return x * (self.mask if pieces is None else self.mask[pieces])


class InTurn(nn.Module):
    """One module after another, at each call the next."""

    def __init__(self, *each: nn.Module) -> None:
        super().__init__()
        self.each = list(each)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.each[(self.calls - 1) % len(self.each)](x)  # type: ignore[no-any-return]


def put_masks(encoder: Recurrent, masks: dict[str, Tensor]) -> None:
    encoder.tokens.dropout = Given(masks["embedding"])
    encoder.dropout_of_tokens = Given(masks["input"])
    encoder.dropout = InTurn(Given(masks["hidden0"]), Given(masks["hidden1"]))
    encoder.dropout_of_top = Given(masks["output"])
    for layer in range(3):
        encoder._readers(layer)[0].weight_dropout = Given(masks[f"weight_hh{layer}"])


THEIRS = {"input": "module.weight_ih_l0", "recurrent": "weight_hh_l0_raw", "bias": "module.bias_ih_l0"}


@pytest.mark.parametrize("written_out", [False, True])
def test_a_training_step_equals_fastai_s(written_out: bool) -> None:
    """Losses, regularization, states and every gradient, given all masks; by torch's kernel and by the loop."""
    bundle, golden = golden_bundle("forward"), expected("train")
    encoder = recurrent(bundle)
    for layer in range(3):
        encoder._readers(layer)[0].written_out = written_out
    objective = Streamed(activation=2.0, temporal=1.0)
    nets = objective.nets(bundle).train()
    memory: Any = encoder.new_memory(3)
    for batch in ("batch0", "batch1"):
        masks = {name.removeprefix(f"{batch}.mask."): each for name, each in golden.items() if ".mask." in name}
        put_masks(encoder, {name: each for name, each in masks.items() if "." not in name})
        ids, targets = golden[f"{batch}.input_ids"], golden[f"{batch}.target_ids"]
        pieces = torch.cat([ids, targets[:, -1:]], dim=1)
        assert torch.equal(pieces[:, 1:], targets)
        n_rows, length = ids.shape
        counts = {"causal": n_rows * length, "activation": n_rows * length, "temporal": n_rows * (length - 1)}
        nets.zero_grad(set_to_none=True)
        loss = objective.loss(nets, {"pieces": pieces}, memory)
        means = {name: part / counts[name] for name, part in loss.parts.items()}
        memory = loss.memory
        sum(objective.weights[name] * mean for name, mean in means.items()).backward()  # type: ignore[union-attr]
        for ours, theirs, weight in (
            ("causal", "cross_entropy", 1),
            ("activation", "ar_alpha2", 2),
            ("temporal", "tar_beta1", 1),
        ):
            assert_equal(weight * means[ours], golden[f"{batch}.loss.{theirs}"][0])
        assert_state(memory, golden, batch)
        gradient = {"0.encoder.weight": encoder.tokens.table.grad, "1.decoder.bias": bundle.outputs["causal"].bias.grad}
        for layer in range(3):
            reader = encoder._readers(layer)[0]
            gradient |= {f"0.rnns.{layer}.{name}": getattr(reader, ours).grad for ours, name in THEIRS.items()}
        for name, ours in gradient.items():
            assert_equal(ours, golden[f"{batch}.grad.{name}"])


# --- the paper's equations, and its masks -----------------------------------------------------------------------------

SMALL = RecurrentConfig(
    n_pieces=30,
    token_width=6,
    width=10,
    top_width=6,
    n_layers=3,
    output_dropout_rate=0.4,
    dropout_rate=0.3,
    embedding_dropout_rate=0.5,
    word_dropout_rate=0.3,
    weight_dropout_rate=0.5,
    locked_dropout=True,
)


def in_double(config: RecurrentConfig = SMALL) -> Recurrent:
    torch.manual_seed(3)
    return Recurrent(config).double().train()


def test_regularization_and_gradients_are_the_papers_in_double() -> None:
    """The LSTM's equations, α·L2(m ⊙ h) and β·L2(h_t − h_{t+1}) written out, with dropped weights."""
    encoder = in_double()
    mask = {layer: (torch.rand_like(encoder._readers(layer)[0].recurrent) < 0.5) * 2.0 for layer in range(3)}
    m = (torch.rand(2, 1, 6, dtype=torch.float64) < 0.6) / 0.6
    encoder.tokens.dropout = nn.Identity()
    encoder.tokens.forward = lambda pieces: nn.functional.embedding(pieces, encoder.tokens.table)  # type: ignore[method-assign]
    encoder.dropout_of_tokens = encoder.dropout = nn.Identity()
    encoder.dropout_of_top = Given(m)
    for layer in range(3):
        encoder._readers(layer)[0].weight_dropout = Given(mask[layer])
    pieces = torch.randint(30, (2, 7))
    states = encoder(Batch(pieces), layers=[-1])
    ours = 2 * states[-1].square().mean() + states.undropped.diff(dim=1).square().mean()
    gradients = torch.autograd.grad(ours, list(encoder.parameters()))

    x = encoder.tokens.table[pieces]
    for layer in range(3):
        reader = encoder._readers(layer)[0]
        h = c = torch.zeros(2, reader.width, dtype=torch.float64)
        out = []
        for t in range(7):
            gates = x[:, t] @ reader.input.T + h @ (reader.recurrent * mask[layer]).T + reader.bias
            i, f, g, o = gates.split(reader.width, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            out.append(h)
        x = torch.stack(out, dim=1)
    theirs = 2 * (m * x).square().mean() + (x[:, 1:] - x[:, :-1]).square().mean()
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    for mine, written in zip(gradients, torch.autograd.grad(theirs, list(encoder.parameters())), strict=True):
        torch.testing.assert_close(mine, written, atol=1e-12, rtol=0)


def test_a_row_has_one_mask_for_all_its_pieces() -> None:
    """Where a unit of the top layer or the token layer is dropped, it is so at every piece; rows differ."""
    encoder = in_double(SMALL.replace(word_dropout_rate=0.0))
    states = encoder(Batch(torch.randint(30, (8, 9))))
    for layer in range(4):
        gone = states[layer] == 0
        assert torch.equal(gone.all(dim=1), gone.any(dim=1))
        assert 0 < gone.any(dim=1).double().mean() < 1
        assert (gone.any(dim=1)[0] != gone.any(dim=1)).any()
    kept = states[3] != 0
    expected_scale = states.undropped / (1 - 0.4)
    torch.testing.assert_close(states[3][kept], expected_scale[kept])


def test_words_are_dropped_whole_wherever_they_are() -> None:
    encoder = in_double(SMALL)
    vectors = encoder.tokens(torch.arange(30).repeat(4, 3))  # every word twelve times
    gone = (vectors == 0).all(dim=-1)
    assert torch.equal(gone, (vectors == 0).any(dim=-1))
    assert torch.equal(gone, gone[:1, :30].repeat(4, 3))
    assert 0 < gone[0, :30].sum() < 30
    torch.testing.assert_close(vectors[0, :30][~gone[0, :30]], (encoder.tokens.table / 0.7)[~gone[0, :30]])


@pytest.mark.parametrize("written_out", [False, True])
def test_dropped_weights_are_the_same_at_all_times_of_a_batch(written_out: bool) -> None:
    """One draw per pass: a gradient of zero is exactly at the dropped weights, and about half are."""
    encoder = in_double(SMALL.replace(n_layers=1, top_width=None, word_dropout_rate=0.0))
    reader = encoder._readers(0)[0]
    reader.written_out = written_out
    draws = []
    reader.weight_dropout.register_forward_hook(lambda module, inputs, output: draws.append(output.detach()))
    encoder(Batch(torch.randint(30, (4, 9))))[-1].sum().backward()
    [dropped] = draws
    assert torch.equal(dropped == 0, reader.recurrent.grad == 0)
    torch.testing.assert_close(dropped[dropped != 0], 2 * reader.recurrent.detach()[dropped != 0])
    assert 0.35 < (dropped == 0).double().mean() < 0.65
    encoder(Batch(torch.randint(30, (4, 9))))
    assert not torch.equal(draws[1] == 0, dropped == 0)


def test_inference_drops_nothing() -> None:
    encoder = in_double().eval()
    plain = SMALL.replace(
        output_dropout_rate=None,
        dropout_rate=0.0,
        embedding_dropout_rate=0.0,
        word_dropout_rate=0.0,
        weight_dropout_rate=0.0,
    )
    undropped = Recurrent(plain).double().train()
    undropped.load_state_dict(encoder.state_dict())
    batch = Batch(torch.randint(30, (3, 8)))
    assert torch.equal(encoder(batch)[-1], undropped(batch)[-1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_dropout_rate": 1.0}, "weight_dropout_rate.*from 0 to below 1"),
        ({"output_dropout_rate": "half"}, "output_dropout_rate"),
        ({"filter_widths": (1, 2), "filter_counts": (4, 4)}, "word_dropout_rate.*spelled have none"),
        ({"decoder_layers": 1, "decoder_feeding": "attentional"}, "piece by piece, so that no mask can stay"),
    ],
)
def test_what_cannot_be_dropped_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        SMALL.replace(**changes)
