"""What the nets of all objectives do with a step's tensors.

Shapes: R rows, T pieces of a row, K targets of a row, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.bundle import Bundle
from polyseme.config import EncoderConfig
from polyseme.parts.masks import SameDocument
from polyseme.types import Batch, Rows


def shared_arrays(rows: Rows, pieces: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
    """What every objective hands on of its rows, as small as it may be: the pieces, and what keeps documents apart."""
    arrays: dict[str, NDArray[np.generic]] = {"pieces": pieces.astype(np.int32)}
    for name, value in (("documents", rows.documents), ("positions", rows.positions)):
        if value is not None:
            arrays[name] = value.astype(np.int32)
    return arrays


def batch_of(arrays: Mapping[str, Tensor], pieces: Tensor) -> Batch:
    """A batch as the encoder reads it; documents are kept apart where the rows say which is which."""
    documents, positions = arrays.get("documents"), arrays.get("positions")
    return Batch(
        pieces,
        positions=None if positions is None else positions.long(),
        mask=None if documents is None else SameDocument(documents.long()),
    )


def pick(states: Tensor, places: Tensor) -> Tensor:
    """The states [R, T, D] at `places` [R, K], as [R·K, D]: only these reach the vocabulary."""
    n_rows, n_pieces = states.shape[:2]
    first = torch.arange(n_rows, device=states.device)[:, None] * n_pieces
    return states.flatten(0, 1).index_select(0, (places + first).flatten())


def in_full(numbers: Tensor) -> Tensor:
    """At least single precision: losses and what is sampled are never worked out in half."""
    return numbers.float() if numbers.dtype in (torch.bfloat16, torch.float16) else numbers


def output_flops(output: nn.Module, n_targets: int) -> float:
    """Floating-point operations of an output over so many states: two for each weight of its matrices."""
    return 2.0 * n_targets * sum(each.numel() for each in output.parameters() if each.dim() > 1)


def memory_flops(config: EncoderConfig, n_queries: int) -> float:
    """What a memory of earlier pieces costs a row: keys and values made of it anew, which every query meets."""
    held = config.memory_length or 0 if config.memory == "segment" else 0
    return 4.0 * held * config.attention_widths * (config.widths[-1] + n_queries)


def trained(bundle: Bundle, outputs: Iterable[str]) -> Bundle:
    """A bundle of the same parts with only those outputs that were trained; others no longer fit the encoder."""
    return Bundle(
        family=bundle.family,
        encoder=bundle.encoder,
        decoder=bundle.decoder,
        outputs={name: bundle.outputs[name] for name in outputs},
        tokenizer=bundle.tokenizer,
        tied=bundle.tied,
        foreign=bundle.foreign,
    )
