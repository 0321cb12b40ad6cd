"""Small models of two stacks for the tests of decoding, beside the reference's with the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from polyseme.convert.families import FAMILIES
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.next_piece import StepByStep
from references import Pair, make_pair
from tiny_models import tiny_config, tiny_tokenizer

SPREAD = {"bart": 0.2, "t5": 0.3}
"""Wide enough that a wrong mask shows, narrow enough that more than one piece is likely."""
ARCHITECTURES = {"bart": "BartForConditionalGeneration", "t5": "T5ForConditionalGeneration"}
FIRST = {"bart": 2, "t5": 0}
N_PIECES = 99


@cache
def pair(family: str, dtype: torch.dtype = torch.float64) -> Pair:
    """A small model, ours and the reference's."""
    found = make_pair(FAMILIES[family], ARCHITECTURES[family], spread=SPREAD[family])
    found.reference.to(dtype)
    found.ours.to(dtype)
    found.reference.generation_config.forced_eos_token_id = None
    return found


@cache
def pair_with_tokenizer(family: str) -> Pair:
    """The same with the tiny tokenizer of the family, for tests that read texts."""
    found = make_pair(FAMILIES[family], ARCHITECTURES[family], tiny_config(family))
    found.ours.tokenizer = tiny_tokenizer(family)
    return found


def writer(family: str, dtype: torch.dtype = torch.float64, *, fast: bool = True, **more: Any) -> LanguageModel:
    bundle = pair(family, dtype).ours
    assert bundle.decoder is not None
    return LanguageModel(
        **{
            "next_piece": StepByStep(bundle.decoder, bundle.outputs["causal"], fast=fast),
            "n_pieces": N_PIECES,
            "device": torch.device("cpu"),
            "source": bundle.encoder,
            "before": (FIRST[family],),
            "room": 39,
            **more,
        }
    )


def sources(lengths: Sequence[int] = (9, 3, 14, 1), seed: int = 3) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(10, N_PIECES, (length,), generator=generator).tolist() for length in lengths]


def for_the_reference(rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    longest = max(map(len, rows))
    blank = [longest - len(row) for row in rows]
    return {
        "input_ids": torch.tensor([[*row, *([8] * n)] for n, row in zip(blank, rows, strict=True)]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * n for n, row in zip(blank, rows, strict=True)]),
    }
