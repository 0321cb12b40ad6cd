"""Small language models for the tests of writing on, beside the reference's with the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.convert.families import FAMILIES
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.next_piece import RereadingSteps, StepByStep
from polyseme.types import Batch, NextPiece
from references import Pair, make_pair

SPREAD = 0.12
"""Wide enough that a wrong mask shows, narrow enough that more than one piece is likely."""
N_PIECES = 99


@cache
def gpt2(dtype: torch.dtype = torch.float64) -> Pair:
    """A small GPT-2, ours and the reference's."""
    pair = make_pair(FAMILIES["gpt2"], "GPT2LMHeadModel", spread=SPREAD)
    pair.reference.to(dtype)
    pair.ours.to(dtype)
    return pair


def step_by_step(bundle: Bundle, *, fast: bool = True) -> StepByStep:
    return StepByStep(bundle.encoder, bundle.outputs["causal"], fast=fast)  # type: ignore[arg-type]


def rereading(bundle: Bundle) -> RereadingSteps:
    return RereadingSteps(bundle.encoder, bundle.outputs["causal"])  # type: ignore[arg-type]


def language(next_piece: NextPiece, *, end: int | None = None, **more: Any) -> LanguageModel:
    """A language model over the small vocabulary."""
    return LanguageModel(
        **{
            "next_piece": next_piece,
            "n_pieces": N_PIECES,
            "device": torch.device("cpu"),
            "room": 40,
            "end": end,
            **more,
        }
    )


def prompts(lengths: Sequence[int] = (5, 3, 7, 1), seed: int = 3) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(10, N_PIECES, (length,), generator=generator).tolist() for length in lengths]


def padded(rows: Sequence[Sequence[int]]) -> Batch:
    """Rows as a batch, with padding on the right that would be noticed."""
    longest = max(map(len, rows))
    pieces = torch.tensor([[*row, *([8] * (longest - len(row)))] for row in rows])
    return Batch(pieces, torch.tensor([len(row) for row in rows]))


def for_the_reference(rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Rows as the reference takes them to write on from: padded on the left."""
    longest = max(map(len, rows))
    blank = [longest - len(row) for row in rows]
    return {
        "input_ids": torch.tensor([[0] * n + list(row) for n, row in zip(blank, rows, strict=True)]),
        "attention_mask": torch.tensor([[0] * n + [1] * len(row) for n, row in zip(blank, rows, strict=True)]),
    }


def before(row: Sequence[int], end: int) -> list[int]:
    """A row up to its end piece."""
    return list(row[: row.index(end)]) if end in row else list(row)
