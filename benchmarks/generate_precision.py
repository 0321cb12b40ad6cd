"""What bf16 and int8 cost a model that generates on a CPU: perplexity of text that its steps read, piece by piece.

Sentences of UD-EWT's dev set, with the packaged `english-decoder` unless another model is named. A piece is scored by
the step before it, as `generate` runs it; the last column counts pieces whose likeliest continuation is that of fp32.

    POLYSEME_DATA=... python benchmarks/generate_precision.py [-m english-decoder] [--sentences 300]
"""

from __future__ import annotations

import argparse
import lzma
import math

import torch
from measure import data_folder, machine, table
from torch import Tensor

import polyseme
from polyseme.api import Model
from polyseme.encoders.batch_runner import padded
from polyseme.encoders.inference import Precision
from polyseme.generating.language_model import language_model
from polyseme.types import Batch

ROWS = 16
PRECISIONS: dict[Precision, str] = {"own": "fp32", "bf16": "bf16", "int8": "int8"}


def sentences(count: int) -> list[str]:
    path = data_folder("tasks", "ud-ewt") / "en_ewt-ud-dev.conllu.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [line[len("# text = ") :].strip() for line in file if line.startswith("# text = ")][:count]


def read(model: Model, rows: list[list[int]], precision: Precision) -> tuple[Tensor, Tensor]:
    """Negative log-probabilities of all pieces but the first of each row, and what is likeliest in their places."""
    next_piece = language_model(model.bundle, precision).next_piece
    losses, likeliest = [], []
    for start in range(0, len(rows), ROWS):
        some = rows[start : start + ROWS]
        batch = padded(some, torch.device("cpu"))
        longest = batch.pieces.shape[1]
        lengths = torch.tensor([len(row) for row in some])
        scores, memory = next_piece.start(Batch(batch.pieces[:, :1]), longest)
        for place in range(1, longest):
            if place > 1:
                scores, memory = next_piece.step(Batch(batch.pieces[:, place - 1 : place]), memory)
            is_real = lengths > place
            log_probs = scores.log_softmax(-1)[is_real]
            losses.append(-log_probs.gather(1, batch.pieces[is_real, place : place + 1])[:, 0])
            likeliest.append(log_probs.argmax(-1))
    return torch.cat(losses), torch.cat(likeliest)


def main() -> None:
    """Read the sentences in each precision and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="english-decoder")
    parser.add_argument("--sentences", type=int, default=300)
    options = parser.parse_args()
    model = polyseme.load(options.model, device="cpu", dtype="fp32")
    rows = sorted((model.pieces(text).ids.tolist() for text in sentences(options.sentences)), key=len)
    rows = [row[:256] for row in rows if len(row) > 1]
    lines: list[list[str]] = []
    for precision, name in PRECISIONS.items():
        losses, likeliest = read(model, rows, precision)
        if precision == "own":
            exact, exact_likeliest = losses.mean().item(), likeliest
        change = math.exp(losses.mean().item() - exact) - 1
        same = (likeliest == exact_likeliest).float().mean().item()
        lines.append([name, f"{math.exp(losses.mean().item()):.3f}", f"{change:+.3%}", f"{same:.2%}"])
    print(machine("torch"))
    print(f"{options.model}, {len(rows):,} sentences, {len(losses):,} pieces\n")
    print(table(["precision", "perplexity per piece", "change", "likeliest piece as in fp32"], lines))


if __name__ == "__main__":
    main()
