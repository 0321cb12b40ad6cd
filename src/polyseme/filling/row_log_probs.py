"""Log-probabilities of all pieces at places of rows, by an encoder packed for inference or by a decoder.

Shapes: R rows, V pieces in the vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.config import EncoderConfig
from polyseme.cost import Tally, forward_flops
from polyseme.embedding.decoder_stack import decoder_of
from polyseme.encoders.batch_runner import MemoryLimit, padded, run_batches
from polyseme.encoders.inference import PackedRows
from polyseme.scoring.target_rows import PiecePredictor, in_single_precision, usage_of

Ints = NDArray[np.int64]
Row = tuple[Ints, int, int]
"""The pieces of a row, specials included; the first place that predicts; the number of places."""


class RowLogProbs:
    """An encoder packed for inference, with the output that predicts."""

    def __init__(self, predictor: PiecePredictor, config: EncoderConfig) -> None:
        self.predictor = predictor
        self.config = config
        self.memory_limit = MemoryLimit(predictor.device)
        self.tally = Tally()

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Row]) -> list[Tensor]:
        """[places, V] for each row."""
        predictor = self.predictor
        lengths = np.array([len(ids) for ids, _, _ in rows], dtype=np.int64)
        results: list[Tensor] = [torch.zeros(0)] * len(rows)

        def run(numbers: Ints) -> tuple[list[int], Tensor]:
            chosen = [rows[number] for number in numbers.tolist()]
            sizes = [len(ids) for ids, _, _ in chosen]
            starts = np.cumsum([0, *sizes[:-1]])
            flat = torch.from_numpy(np.concatenate([ids for ids, _, _ in chosen])).to(predictor.device)
            states = next(iter(predictor.inference(PackedRows(flat, None, sizes), [-1]).values()))
            places = np.concatenate(
                [start + np.arange(place, place + n) for start, (_, place, n) in zip(starts, chosen, strict=True)]
            )
            picked = states[torch.from_numpy(places).to(predictor.device)].to(predictor.dtype)
            return numbers.tolist(), predictor.output.log_probs(picked).cpu()

        for numbers, log_probs in run_batches(
            run,
            lengths,
            encoder=predictor.inference,
            limit=self.memory_limit,
            batch_pieces=predictor.batch_pieces,
            threads=predictor.threads,
        ):
            for number, part in zip(numbers, log_probs.split([rows[number][2] for number in numbers]), strict=True):
                results[number] = part
        usage = usage_of(self.config, lengths.tolist(), sum(n for _, _, n in rows), predictor.output)
        self.tally.add(Tally(pieces=usage.pieces, flops=usage.flops))
        return results


class DecoderSteps:
    """What a decoder writes next, given a source."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.decoder = decoder_of(bundle)
        self.output = in_single_precision(bundle.outputs["causal"])  # type: ignore[arg-type]
        self.dtype = next(self.output.parameters()).dtype
        self.tally = Tally()

    @torch.inference_mode()
    def __call__(self, source: Ints, rows: Sequence[Sequence[int]]) -> Tensor:
        """[R, V]: behind each row, which begins with the piece that the decoder begins with."""
        device = self.bundle.device
        batch = padded(rows, device)
        batch.source = self.bundle.encoder(padded([source] * len(rows), device), layers=[-1])
        states = self.decoder(batch, layers=[-1])[-1]
        last = torch.tensor([len(row) - 1 for row in rows], device=device)
        usage = usage_of(self.decoder.config, [len(row) for row in rows], len(rows), self.output)
        sources = [len(source)] * len(rows)
        of_sources = forward_flops(self.bundle.config, sources)
        self.tally.add(Tally(pieces=usage.pieces + sum(sources), flops=usage.flops + of_sources))
        return self.output.log_probs(states[torch.arange(len(rows), device=device), last].to(self.dtype)).cpu()
