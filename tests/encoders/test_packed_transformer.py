"""Packed rows equal padded ones, whatever masks and positions a Transformer has, by every path that attention takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conformance.cases import CAUSAL, TRANSFORMERS, redrawn
from polyseme.encoders import packed_transformer
from polyseme.encoders.inference import ByLength, PackedRows, build_inference_encoder
from polyseme.encoders.packed_on_gpu import PackedKernels
from polyseme.encoders.packed_transformer import PackedTransformer, runs_in_one_call
from polyseme.encoders.transformer import Transformer
from polyseme.types import Batch
from references import assert_close, ragged_batch, real

LENGTHS = (1, 3, 3, 7, 8, 11, 11, 20)
CASES = {
    **TRANSFORMERS,
    "rotary, causal and a band": CAUSAL.replace(positions="rotary"),
    "buckets, causal": TRANSFORMERS["buckets"].replace(masks=("causal",), memory="cache"),
    "relative, causal": TRANSFORMERS["any order"].replace(masks=("causal",), query_stream=False),
    "local and gated": TRANSFORMERS["bert"].replace(masks=("local:2",), gated=True, activation="silu"),
}
every_case = pytest.mark.parametrize("name", CASES)


def both_ways(encoder: Transformer, dtype: torch.dtype = torch.float32) -> tuple[PackedRows, Callable[[Any], None]]:
    """Rows of several lengths, and what compares their packed states with those of the padded pass."""
    batch = ragged_batch(encoder.config, lengths=LENGTHS)
    keep = real(batch)
    segments = None if batch.segments is None else batch.segments[keep]
    with torch.no_grad():
        expected = encoder(batch)

    def compare(states: dict[int, Tensor]) -> None:
        assert sorted(states) == list(range(expected.depth + 1))
        for number, layer in states.items():
            assert_close(layer, expected[number][keep], 1e-10 if dtype == torch.float64 else 1e-5)

    return PackedRows(batch.pieces[keep], segments, list(LENGTHS)), compare


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("step", [1, 16], ids=["rows of one length", "rows of like lengths"])
@every_case
def test_packed_rows_equal_padded_ones(
    name: str, step: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(packed_transformer.LIKE_LENGTHS, "cpu", step)
    encoder = redrawn(Transformer(CASES[name]), dtype)
    rows, compare = both_ways(encoder, dtype)  # type: ignore[arg-type]
    packed = build_inference_encoder(encoder)
    assert isinstance(packed, PackedTransformer)
    compare(packed(rows, "all"))
    packed.prepare()
    compare(packed(rows, "all"))


def flash(
    q: Tensor, k: Tensor, v: Tensor, ends: Tensor, _: Tensor, *longest: int, scale: float, window_size: Any = (-1, -1)
) -> Tensor:
    """What `torch.nn.attention.varlen` computes, a row at a time: [N, H, d]."""
    assert longest == (max(LENGTHS), max(LENGTHS))
    attended = torch.empty_like(q)
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        scores = scale * torch.einsum("qhd,khd->hqk", q[start:end], k[start:end])
        ahead = torch.arange(end - start)[None] - torch.arange(end - start)[:, None]
        left, right = (len(q) if side == -1 else side for side in window_size)
        scores = scores.masked_fill((ahead < -left) | (ahead > right), float("-inf"))
        attended[start:end] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[start:end])
    return attended


def never(*_: object, **__: object) -> Tensor:
    raise AssertionError("these rows are short")


class WrittenOut:
    """What `parts.packed_kernels` computes."""

    @staticmethod
    def attend(
        q: Tensor, k: Tensor, v: Tensor, row_of: Tensor, bounds: Tensor, *, scale: float, window: tuple[int, int]
    ) -> Tensor:
        assert bounds[row_of].tolist() == [start for start, end in bounds.unfold(0, 2, 1).tolist()
                                           for _ in range(start, end)]  # fmt: skip
        return flash(q, k, v, bounds, bounds, max(LENGTHS), max(LENGTHS), scale=scale, window_size=window).flatten(1)

    @staticmethod
    def add_and_norm(
        x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float, *, rms: bool, summed: bool
    ) -> tuple[Tensor, Tensor]:
        total, width = x + residual, x.shape[1:]
        normed = F.rms_norm(total, width, weight, epsilon) if rms else F.layer_norm(total, width, weight, bias, epsilon)
        return total if summed else torch.full_like(total, torch.nan), normed


@every_case
def test_all_rows_in_one_call_equal_padded_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU in half precision; positions that add to the scores take the other path."""
    encoder = redrawn(Transformer(CASES[name]))
    assert isinstance(encoder, Transformer)
    adds = CASES[name].positions in ("buckets", "relative")
    assert runs_in_one_call(encoder, flash) != adds
    if adds:
        return
    rows, compare = both_ways(encoder)
    monkeypatch.setattr(
        packed_transformer,
        "attention_over",
        lambda rows, places, encoder, like, kernels: packed_transformer._in_one_call(rows, places, encoder, flash),
    )
    compare(PackedTransformer(encoder)(rows, "all"))
    in_one_call = packed_transformer._in_one_call
    monkeypatch.setattr(
        packed_transformer,
        "attention_over",
        lambda rows, places, encoder, like, kernels: in_one_call(rows, places, encoder, never, kernels),
    )
    packed = PackedTransformer(encoder)
    packed.kernels = PackedKernels(WrittenOut)  # type: ignore[arg-type]
    for layer in packed.layers:
        layer.fuse_norms(packed.kernels)
    compare(packed(rows, "all"))


def test_a_kernel_without_windows_is_for_encoders_without_any() -> None:
    def windowless(q: Tensor, *, scale: float) -> Tensor: ...

    assert runs_in_one_call(Transformer(TRANSFORMERS["bert"]), windowless)
    assert not runs_in_one_call(Transformer(TRANSFORMERS["modernbert"]), windowless)
    assert not runs_in_one_call(Transformer(TRANSFORMERS["gpt2"]), windowless)


def test_a_stack_that_reads_a_source_runs_by_length() -> None:
    config = TRANSFORMERS["buckets"].replace(masks=("causal",), cross=True, memory="cache")
    assert isinstance(build_inference_encoder(Transformer(config)), ByLength)


def test_only_the_layers_asked_for_are_returned() -> None:
    encoder = redrawn(Transformer(TRANSFORMERS["modernbert"]))
    packed = build_inference_encoder(encoder)
    rows = PackedRows(torch.arange(5, 15), None, [4, 6])
    assert sorted(packed(rows, [0])) == [0]
    assert sorted(packed(rows, [0, -1])) == [0, encoder.config.depth]
    with torch.no_grad():
        assert_close(packed(rows, [2])[2][:4], encoder(Batch(torch.arange(5, 9)[None]))[2][0], 1e-5)
