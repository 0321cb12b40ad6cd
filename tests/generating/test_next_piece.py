"""`NextPiece` over every kind of memory: the same as reading everything at once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from generating.writing import gpt2, padded, prompts, rereading, step_by_step
from polyseme.config import Direction, EncoderConfig
from polyseme.convert.families import FAMILIES
from polyseme.encoders.encoder import Encoder, Layers
from polyseme.encoders.transformer import Transformer
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.generating.language_model import language_model
from polyseme.generating.next_piece import PiecesSoFar, RereadingSteps, StepByStep
from polyseme.outputs.pieces import CausalOutput
from polyseme.parts.memory_and_cache import Memory
from polyseme.types import Batch, NextPiece, States
from references import assert_close
from tiny_models import tiny_model

N_STEPS = 6


# --- memories of every kind ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LoopConfig(EncoderConfig):
    """A recurrent network, as it may come."""

    kind = "loop"
    width: int

    @property
    def direction(self) -> Direction:
        return "causal"

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.width, self.width)

    @property
    def matrix_weights(self) -> int:
        return 2 * self.width**2


@dataclass
class LoopState(Memory):
    state: Tensor
    """[R, D]"""


class Loop(Encoder):
    """h = tanh(W h + x), a state a row, padding skipped."""

    config: LoopConfig

    def __init__(self) -> None:
        super().__init__()
        self.config = LoopConfig(n_pieces=99, width=16, memory="state")
        self.table = nn.Embedding(99, 16)
        self.recur = nn.Linear(16, 16)

    def forward(
        self, batch: Batch, *, layers: Layers = "all", attentions: bool = False, memory: Memory | None = None
    ) -> States:
        n_rows, n_pieces = batch.pieces.shape
        lengths = torch.full((n_rows,), n_pieces) if batch.lengths is None else batch.lengths
        first = self.new_memory(n_rows) if memory is None else memory
        assert isinstance(first, LoopState)
        state, top = first.state, []
        for place in range(n_pieces):
            new = torch.tanh(self.recur(state) + self.table(batch.pieces[:, place]))
            state = torch.where((place < lengths)[:, None], new, state)
            top.append(state)
        after = None if memory is None else LoopState(first.lengths + lengths, state)
        return States({1: torch.stack(top, 1)}, batch.lengths, 1, memory=after)

    def new_memory(self, rows: int, capacity: int | None = None) -> Memory:
        return LoopState(torch.zeros(rows, dtype=torch.long), torch.zeros(rows, 16, dtype=self.recur.weight.dtype))

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [list(self.parameters())]


SEGMENTS = TransformerConfig(
    n_pieces=99,
    width=16,
    n_layers=2,
    n_heads=2,
    inner_width=24,
    positions="relative",
    n_segments=0,
    masks=("causal",),
    memory="segment",
)
"""Transformer-XL's kind, with a memory of all that was read."""


def redrawn(encoder: Encoder) -> tuple[Encoder, CausalOutput]:
    torch.manual_seed(5)
    output = CausalOutput(16, 99)
    for parameter in [*encoder.parameters(), *output.parameters()]:
        nn.init.normal_(parameter, std=0.4)
    return encoder.double().eval(), output.double()


def models() -> dict[str, tuple[NextPiece, NextPiece]]:
    """By what they remember: step by step, and reading everything again."""
    bundle = gpt2().ours
    loop, segments = redrawn(Loop()), redrawn(Transformer(SEGMENTS))
    return {
        "cache": (step_by_step(bundle, fast=False), rereading(bundle)),
        "cache, fast": (step_by_step(bundle), rereading(bundle)),
        "state": (StepByStep(*loop), RereadingSteps(*loop)),
        "segment": (StepByStep(*segments), RereadingSteps(*segments)),
    }


every_memory = pytest.mark.parametrize("kind", ["cache", "cache, fast", "state", "segment"])


def further(n_rows: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return list(torch.randint(99, (N_STEPS, n_rows), generator=generator))


@every_memory
def test_step_by_step_equals_reading_everything_again(kind: str) -> None:
    """Prompts of different lengths, padded on the right, then one piece a row at a time."""
    stepping, again = models()[kind]
    rows = prompts() if kind != "segment" else prompts((5, 5, 5))  # its distances count padding of a first segment
    batch = padded(rows)
    found, memory = stepping.start(batch, 20)
    expected, all_of_it = again.start(batch, 20)
    assert_close(found, expected, 1e-10)
    for pieces in further(len(rows)):
        found, memory = stepping.step(Batch(pieces[:, None]), memory)
        expected, all_of_it = again.step(Batch(pieces[:, None]), all_of_it)
        assert_close(found, expected, 1e-10)
    assert not stepping.normalized
    assert found.exp().sum(-1).tolist() != pytest.approx([1.0] * len(rows))


@every_memory
def test_two_halves_with_memory_equal_one_pass(kind: str) -> None:
    stepping, _ = models()[kind]
    rows = prompts((9, 9))
    whole, _ = stepping.start(padded(rows), 20)
    found, memory = stepping.start(padded([row[:4] for row in rows]), 20)
    for place in range(4, 9):
        found, memory = stepping.step(Batch(torch.tensor([[row[place]] for row in rows])), memory)
    assert_close(found, whole, 1e-10)


@every_memory
def test_memory_can_be_selected_detached_and_written_to_tensors(kind: str) -> None:
    stepping, _ = models()[kind]
    rows = prompts((4, 4, 4))
    picked = torch.tensor([2, 0, 2])
    _, memory = stepping.start(padded([rows[row] for row in picked]), 20)
    expected, _ = stepping.step(Batch(torch.tensor([[5], [6], [7]])), memory)

    _, memory = stepping.start(padded(rows), 20)
    selected = memory.select(picked).detach()
    kept = {name: tensor.clone() for name, tensor in selected.tensors().items()}
    assert "lengths" in kept
    assert not any(tensor.requires_grad for tensor in kept.values())
    found, _ = stepping.step(Batch(torch.tensor([[5], [6], [7]])), selected)
    assert_close(found, expected, 1e-12)
    restored = memory.with_tensors(kept)
    found, _ = stepping.step(Batch(torch.tensor([[5], [6], [7]])), restored)
    assert_close(found, expected, 1e-12)


def test_rows_are_put_back_among_others() -> None:
    """As where one row is read anew and the others go on."""
    stepping, again = models()["cache, fast"]
    rows = prompts((4, 4, 4))
    _, memory = stepping.start(padded(rows), 20)
    _, other = stepping.start(padded([[9, 8, 7]]), 20)
    mixed = memory.put(torch.tensor([1]), other)
    found, _ = stepping.step(Batch(torch.tensor([[5], [6], [7]])), mixed)
    expected, _ = again.start(padded([[*rows[0], 5], [9, 8, 7, 6], [*rows[2], 7]]), 20)
    assert_close(found, expected, 1e-10)


def test_a_memory_of_another_kind_is_refused() -> None:
    stepping, again = models()["cache"]
    _, memory = stepping.start(padded(prompts()), 20)
    with pytest.raises(ModelError, match="Got Cache instead"):
        again.step(Batch(torch.zeros(4, 1, dtype=torch.long)), memory)


# --- bundles ---------------------------------------------------------------------------------------------------------


def test_a_causal_model_goes_step_by_step() -> None:
    model = tiny_model("gpt2")
    found = language_model(model.bundle)
    assert isinstance(found.next_piece, StepByStep)
    assert (found.before, found.room, found.end, found.forbidden) == ((), 40, 0, ())


def test_a_model_without_an_end_piece() -> None:
    found = language_model(tiny_model("openai-gpt").bundle)
    assert found.end is None


def test_rows_without_a_piece_are_never_written() -> None:
    model = tiny_model("gpt2")
    wider = tiny_model("gpt2", n_pieces=model.bundle.config.n_pieces + 3)
    n_pieces = model.bundle.config.n_pieces
    assert language_model(wider.bundle).forbidden == (n_pieces, n_pieces + 1, n_pieces + 2)


@pytest.mark.parametrize(("family", "never"), [("lstm", True), ("transfo-xl", True), ("openai-gpt", False)])
def test_the_unknown_word_is_never_written(family: str, never: bool) -> None:
    """Nobody knows how it is spelled; of pieces smaller than words others write it, too."""
    model = tiny_model(family)
    unknown = model.bundle.tokenizer.specials["unknown"]  # type: ignore[union-attr]
    assert (unknown in language_model(model.bundle).forbidden) == never
    with torch.no_grad():
        for parameter in model.bundle.parameters():
            parameter.zero_()  # all pieces are equally likely
    [written] = model.generate(["Dawn broke"], temperature=1.0, max_new=30, n=30, seed=1)
    assert any("<unk>" in text for text in written) != never


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_a_masked_model_fills_a_mask_at_the_end(family: str) -> None:
    """With a warning; what it says is what `fill` says of a mask there."""
    model = tiny_model(family)
    with pytest.warns(PolysemeWarning, match="has learned to fill masks, not to write on"):
        found = language_model(model.bundle)
    specials = model.bundle.tokenizer.specials  # type: ignore[union-attr]
    assert found.before == (specials["start"],)
    assert found.end == specials["end"]
    assert set(found.forbidden) == {specials[role] for role in ("start", "pad", "mask")}
    assert found.room == 40 - 3
    rows = [model.pieces(text).ids[:-1].tolist() for text in ("Dawn broke", "The vase")]
    log_probs, memory = found.next_piece.start(padded(rows), 20)
    assert isinstance(memory, PiecesSoFar)
    for text, row in zip(("Dawn broke[MASK]", "The vase[MASK]"), log_probs, strict=True):
        [expected] = model.fill(text, top=3)
        best = row.softmax(-1).topk(3)
        assert model.bundle.tokenizer.pieces(best.indices.tolist()) == expected.pieces  # type: ignore[union-attr]
        assert best.values.tolist() == pytest.approx(expected.probabilities, rel=1e-4)
    following = model.bundle.tokenizer.pieces([int(log_probs[0].argmax())])  # type: ignore[union-attr]
    assert following
    then, _ = found.next_piece.step(Batch(torch.tensor([[7], [9]])), memory)
    at_once, _ = found.next_piece.start(padded([[*rows[0], 7], [*rows[1], 9]]), 20)
    assert_close(then, at_once, 1e-5)


@pytest.mark.parametrize(
    ("family", "outputs"), [("electra", ["replaced"]), ("bert", ["next", "pooled"]), ("gpt2", [])], ids=str
)
def test_a_model_without_a_fitting_output(family: str, outputs: list[str]) -> None:
    bundle = tiny_model(family).bundle
    for name in set(bundle.outputs) - set(outputs):
        del bundle.outputs[name]
    with pytest.raises(ModelError, match="The model cannot generate"):
        language_model(bundle)


def test_a_model_without_a_tokenizer() -> None:
    bundle = tiny_model("gpt2").bundle
    bundle.tokenizer = None
    with pytest.raises(ModelError, match="no tokenizer"):
        language_model(bundle)


def test_every_family_of_one_direction_is_known() -> None:
    """No family is asked for by name: whatever sees only what stands before can write on."""
    causal = [name for name, family in FAMILIES.items() if family.tiny().direction == "causal"]
    assert {"gpt2", "openai-gpt"} <= set(causal)
    for name in causal:
        if "causal" in FAMILIES[name].outputs:
            assert isinstance(language_model(tiny_model(name).bundle).next_piece, StepByStep)
