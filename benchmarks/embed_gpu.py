"""The encoder on a GPU in bf16, bert-base size, over rows of mixed length, beside `transformers` in the same run.

Random weights and pieces (speed does not depend on them); lengths uniform from 32 to 128 and, if POLYSEME_DATA is set,
those of UD-EWT. `transformers` runs in input order and sorted by length; sorted, also compiled (`torch.compile` with
dynamic shapes, compiled in the warm-up runs). Padding is not counted.

    python benchmarks/embed_gpu.py [--size bert-base] [--rows 4000]
    python benchmarks/embed_gpu.py --shape 6 384 12 1536            # the shape of MiniLM
"""

from __future__ import annotations

import argparse
import lzma
import os
from collections.abc import Callable

import torch
from measure import alternate, data_folder, machine, need, skip, table

from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.inference import PackedRows, build_inference_encoder
from polyseme.recipes.published_sizes import get_size

SHAPE = ("n_layers", "width", "n_heads", "inner_width")


def lengths_of(kind: str, count: int) -> list[int]:
    """Row lengths, in input order."""
    if kind == "uniform 32-128":
        return torch.randint(32, 129, (count,), generator=torch.Generator().manual_seed(1)).tolist()
    path = data_folder("tasks", "ud-ewt") / "en_ewt-ud-train.conllu.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        words = [len(line.split()) - 3 for line in file if line.startswith("# text = ")]
    return [2 + round(1.3 * each) for each in words[:count]]


def packed_batches(lengths: list[int], budget: int, device: str = "cuda") -> list[PackedRows]:
    """Rows sorted by length, as many per batch as fit the budget, on the device."""
    batches: list[list[int]] = [[]]
    for length in sorted(lengths):
        if sum(batches[-1]) + length > budget:
            batches.append([])
        batches[-1].append(length)
    return [PackedRows(torch.randint(5, 30000, (sum(each),), device=device), None, each) for each in batches if each]


def padded_batches(lengths: list[int], n_rows: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pieces and masks, padded to the longest row of each batch."""
    batches = []
    for start in range(0, len(lengths), n_rows):
        part = torch.tensor(lengths[start : start + n_rows])
        mask = torch.arange(int(part.max()))[None] < part[:, None]
        batches.append((torch.randint(5, 30000, mask.shape).cuda(), mask.cuda()))
    return batches


def synced(run: Callable[[], object]) -> Callable[[], None]:
    """The same, waiting until the device has finished."""

    def run_and_wait() -> None:
        with torch.inference_mode():
            run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return run_and_wait


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="bert-base")
    parser.add_argument("--shape", type=int, nargs=4, metavar="N", help="other layers, width, heads and inner width")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--batch-pieces", type=int, default=65536)
    parser.add_argument("--rounds", type=int, default=7)
    settings = parser.parse_args()
    if not torch.cuda.is_available():
        skip("torch sees no GPU here")
    need("transformers")
    from transformers import BertConfig, BertModel

    config = get_size(settings.size).config
    if settings.shape:
        config = config.replace(**dict(zip(SHAPE, settings.shape, strict=True)))
    inference = build_inference_encoder(build_encoder(config).to("cuda", torch.bfloat16).eval())
    inference.prepare()
    theirs = BertModel(
        BertConfig(
            vocab_size=config.n_pieces,
            hidden_size=config.width,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            intermediate_size=config.inner_width,
        )
    )
    theirs = theirs.to("cuda", torch.bfloat16).eval()
    compiled = torch.compile(theirs, dynamic=True)
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    product = alternate({"product": synced(lambda: square @ square)}, 10, warm_ups=3)["product"]
    peak = 2 * 8192**3 / product
    print(machine("torch", "transformers"), f"matrix product {peak / 1e12:.0f} TFLOP/s")

    kinds = ["uniform 32-128", *(["UD-EWT"] if "POLYSEME_DATA" in os.environ else [])]
    rows = []
    for kind in kinds:
        lengths = lengths_of(kind, settings.rows)
        ours = packed_batches(lengths, settings.batch_pieces)
        in_input_order = padded_batches(lengths, 32)
        by_length = padded_batches(sorted(lengths), 256)
        seconds = alternate(
            {
                "transformers, input order, batches of 32": synced(
                    lambda b=in_input_order: [theirs(*each) for each in b]
                ),
                "transformers, sorted by length, batches of 256": synced(
                    lambda b=by_length: [theirs(*each) for each in b]
                ),
                "transformers, sorted by length, compiled": synced(lambda b=by_length: [compiled(*each) for each in b]),
                "polyseme": synced(lambda b=ours: [inference(each, [-1]) for each in b]),
            },
            settings.rounds,
            warm_ups=3,
        )
        n_pieces = sum(lengths)
        for name, taken in seconds.items():
            share = 2 * config.matrix_weights * n_pieces / taken / peak
            rows.append([kind, name, f"{n_pieces / taken / 1e6:.2f}M", f"{share:.0%}"])
    print(table(["lengths", "route", "pieces/s", "of a matrix product's FLOP/s"], rows))


if __name__ == "__main__":
    main()
