"""The fast step: equal to the encoder's own forward pass, in every layout, and as a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from generating import kernel_battery
from generating.writing import padded
from polyseme.encoders.inference import Precision
from polyseme.encoders.transformer import Transformer
from polyseme.errors import ModelError
from polyseme.generating.fast_decoder import FastSteps, steps_fast
from polyseme.generating.next_piece import StepByStep, in_precision
from polyseme.generating.step_graph import Graph
from polyseme.outputs.pieces import MaskedOutput, TableOutput
from polyseme.parts.memory_and_cache import Cache
from polyseme.types import Batch, States
from references import assert_close
from tiny_models import tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:This processor has no instructions")

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: each for kind, each in kernel_battery.KINDS.items() if each[0] in ("gpt2", "openai-gpt")},
    "buckets": ("gpt2", {"positions": "buckets", "n_buckets": 8, "max_distance": 10}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
ROWS = [[5, 9, 3, 7, 21], [30], [4, 4, 8], [17, 2, 3, 4]]


def stepping(kind: str, dtype: torch.dtype) -> tuple[StepByStep, StepByStep]:
    """The plain way and the fast one."""
    family, changes = KINDS[kind]
    bundle = tiny_model(family, **changes).bundle.to(dtype)
    encoder, output = bundle.encoder, bundle.outputs["causal"]
    return StepByStep(encoder, output, fast=False), StepByStep(encoder, output)  # type: ignore[arg-type]


def compare(plain: StepByStep, fast: StepByStep, rows: list[list[int]], tolerance: float) -> None:
    expected, theirs = plain.start(padded(rows), 16)
    found, ours = fast.start(padded(rows), 16)
    assert_close(found, expected, tolerance)
    generator = torch.Generator().manual_seed(1)
    for _ in range(6):
        pieces = torch.randint(90, (len(rows), 1), generator=generator)
        expected, theirs = plain.step(Batch(pieces), theirs)
        found, ours = fast.step(Batch(pieces), ours)
        assert_close(found, expected, tolerance)
    assert ours.lengths.tolist() == theirs.lengths.tolist()


@pytest.mark.parametrize(
    ("rows", "settled"),
    [(ROWS[:1], True), (ROWS, False), ([ROWS[2], ROWS[2]], True)],
    ids=["one row, laid out", "rows, as they are", "level rows, laid out"],
)
@every_kind
def test_the_fast_step_equals_the_forward_pass(kind: str, rows: list[list[int]], settled: bool) -> None:
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        plain, fast = stepping(kind, dtype)
        assert fast.steps is not None
        if settled:
            fast.prepare()
        compare(plain, fast, rows, tolerance)


def test_several_layouts_of_one_model() -> None:
    plain, fast = stepping("norms before", torch.float32)
    fast.prepare()
    for rows in (ROWS, ROWS[:1], ROWS[1:3], ROWS[3:]):
        compare(plain, fast, rows, 1e-5)


def test_an_output_of_another_kind() -> None:
    bundle = tiny_model("gpt2").bundle.double()
    output = MaskedOutput(32, 32, 99, activation="gelu", epsilon=1e-5, tied=False).double().eval()
    torch.nn.init.normal_(output.table)
    compare(StepByStep(bundle.encoder, output, fast=False), StepByStep(bundle.encoder, output), ROWS, 1e-10)


@pytest.mark.parametrize(
    ("family", "changes"),
    [("bert", {}), ("gpt2", {"memory": "none"}), ("transfo-xl", {})],
    ids=["both directions", "no memory", "segments"],
)
def test_encoders_that_go_the_plain_way(family: str, changes: dict[str, Any]) -> None:
    config = tiny_model(family).bundle.config.replace(**changes)
    encoder = Transformer(config)
    assert not steps_fast(encoder)
    with pytest.raises(ModelError, match="has no fast step"):
        FastSteps(encoder, tiny_model("gpt2").bundle.outputs["causal"])  # type: ignore[arg-type]


# --- in bf16 and int8 -------------------------------------------------------------------------------------------------

LARGEST_ERROR = {"bf16": 0.05, "int8": 0.08}
"""Of log-probabilities, root mean square, as a share of their spread."""


@pytest.mark.parametrize("precision", LARGEST_ERROR)
@pytest.mark.parametrize("family", ["gpt2", "openai-gpt", "bart", "t5"])
def test_rounded_products(family: str, precision: Precision) -> None:
    """Near fp32, and the same for a row by itself, for all rows, and however much work there is."""
    bundle = tiny_model(family).bundle
    writer = bundle.encoder if bundle.decoder is None else bundle.decoder
    exact = StepByStep(writer, bundle.outputs["causal"])  # type: ignore[arg-type]
    near = in_precision(exact, precision)
    assert isinstance(near, StepByStep)

    def scores(steps: StepByStep, rows: slice) -> Tensor:
        source = None
        if bundle.decoder is not None:
            with torch.no_grad():
                source = bundle.encoder(padded(SOURCES[rows]), layers=[-1])
        found, memory = steps.start(Batch(torch.tensor([[2]] * 4)[rows], source=source), 16)
        for number in range(6):
            found, memory = steps.step(Batch(torch.tensor([[number], [7], [8], [9]])[rows]), memory)
        return found.log_softmax(-1)

    expected, together = scores(exact, slice(4)), scores(near, slice(4))
    error = (together - expected).square().mean().sqrt() / expected.std()
    assert 0 < error < LARGEST_ERROR[precision]
    near.prepare()
    alone = torch.cat([scores(near, slice(row, row + 1)) for row in range(4)])
    assert_close(alone, together, 0.02)  # where fp32 between products differs in its last digit, a rounding may turn


# --- with a source ----------------------------------------------------------------------------------------------------

SOURCES = [[7, 8, 9], [11, 12, 13, 14, 15, 16], [40], [3, 4]]


def with_source(family: str, dtype: torch.dtype) -> tuple[StepByStep, StepByStep, States]:
    """A decoder, the plain way and the fast one, and what it reads."""
    bundle = tiny_model(family).bundle.to(dtype)
    output = bundle.outputs["causal"]
    if isinstance(output, TableOutput) and output.bias is not None:
        torch.nn.init.normal_(output.bias)
    assert bundle.decoder is not None
    with torch.no_grad():
        source = bundle.encoder(padded(SOURCES), layers=[-1])
    return StepByStep(bundle.decoder, output, fast=False), StepByStep(bundle.decoder, output), source  # type: ignore[arg-type]


@pytest.mark.parametrize("settled", [False, True], ids=["as they are", "laid out"])
@pytest.mark.parametrize("family", ["bart", "t5", "transformer"])
def test_a_step_with_a_source(family: str, settled: bool) -> None:
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        plain, fast, source = with_source(family, dtype)
        assert fast.steps is not None
        if settled:
            fast.prepare()
        batch = Batch(torch.tensor([[2]] * 4), source=source)
        (_, theirs), (_, ours) = plain.start(batch, 16), fast.start(batch, 16)
        for number in range(6):
            pieces = torch.tensor([[number], [7], [8], [9]])
            expected, theirs = plain.step(Batch(pieces), theirs)
            found, ours = fast.step(Batch(pieces), ours)
            assert_close(found, expected, tolerance)
        rows = torch.tensor([2, 2, 1])
        expected, theirs = plain.step(Batch(pieces[:3]), theirs.select(rows))
        found, ours = fast.step(Batch(pieces[:3]), ours.select(rows))
        assert_close(found, expected, tolerance)


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_a_graph_with_a_source(family: str) -> None:
    plain, fast, source = with_source(family, torch.float64)
    assert fast.steps is not None
    batch = Batch(torch.tensor([[2]] * 4), source=source)
    (_, theirs), (_, ours) = plain.start(batch, 16), plain.start(batch, 16)
    assert isinstance(ours, Cache)
    graph = Graph(fast.steps, ours)
    for number in range(6):
        pieces = torch.tensor([number, 7, 8, 9])
        expected, theirs = plain.step(Batch(pieces[:, None]), theirs)
        found, ours = graph(pieces, ours)
        assert_close(found, expected, 1e-10)
        if number == 3:
            rows = torch.tensor([3, 0, 0, 1])
            theirs, ours = theirs.select(rows), ours.select(rows)


# --- graphs: here the function that is captured runs as it is --------------------------------------------------------


class Stepping:
    """A graph and the plain way side by side."""

    def __init__(self, kind: str = "norms before", rows: list[list[int]] = ROWS, n_slots: int = 16) -> None:
        self.plain, self.fast = stepping(kind, torch.float64)
        assert self.fast.steps is not None
        self.n_slots = n_slots
        self.theirs = self.start(rows)
        self.ours = self.start(rows)
        self.graph = Graph(self.fast.steps, self.ours)

    def start(self, rows: list[list[int]]) -> Cache:
        memory = self.plain.start(padded(rows), self.n_slots)[1]
        assert isinstance(memory, Cache)
        return memory

    def step(self, pieces: Tensor) -> None:
        expected, theirs = self.plain.step(Batch(pieces[:, None]), self.theirs)
        assert isinstance(theirs, Cache)
        self.theirs = theirs
        found, self.ours = self.graph(pieces, self.ours)
        assert_close(found, expected, 1e-10)


@every_kind
def test_a_graph_reads_all_slots_and_sees_those_that_are_filled(kind: str) -> None:
    side_by_side = Stepping(kind)
    for number in range(5):
        side_by_side.step(torch.tensor([number, 7, 8, 9]))
    assert side_by_side.ours.keys[0] is side_by_side.graph.memory.keys[0]


def test_what_a_graph_gives_is_not_changed_by_its_next_step() -> None:
    side_by_side = Stepping()
    first, memory = side_by_side.graph(torch.tensor([1, 2, 3, 4]), side_by_side.ours)
    kept = first.clone()
    side_by_side.graph(torch.tensor([5, 6, 7, 8]), memory)
    assert torch.equal(first, kept)


def test_rows_picked_for_a_beam_are_copied_in() -> None:
    side_by_side = Stepping()
    side_by_side.step(torch.tensor([1, 2, 3, 4]))
    rows = torch.tensor([3, 3, 0, 1])
    side_by_side.theirs, side_by_side.ours = side_by_side.theirs.select(rows), side_by_side.ours.select(rows)
    side_by_side.step(torch.tensor([5, 6, 7, 8]))
    side_by_side.step(torch.tensor([5, 6, 7, 8]))


def test_other_prompts_take_the_place_of_those_before() -> None:
    side_by_side = Stepping()
    side_by_side.step(torch.tensor([1, 2, 3, 4]))
    others = [[7], [8, 8], [9, 9, 9], [1, 1, 1, 1]]
    spent = side_by_side.ours
    side_by_side.theirs, side_by_side.ours = side_by_side.start(others), side_by_side.start(others)
    side_by_side.step(torch.tensor([1, 2, 3, 4]))
    with pytest.raises(ModelError, match="This memory is spent"):
        side_by_side.graph(torch.tensor([1, 2, 3, 4]), spent)


def test_a_memory_that_was_read_on_from_is_spent() -> None:
    side_by_side = Stepping()
    _, first = side_by_side.graph(torch.tensor([1, 2, 3, 4]), side_by_side.ours)
    side_by_side.graph(torch.tensor([1, 2, 3, 4]), first)
    with pytest.raises(ModelError, match="This memory is spent"):
        side_by_side.graph(torch.tensor([1, 2, 3, 4]), first)
