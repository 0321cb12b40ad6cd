"""Masked-LM training on a GPU in bf16: polyseme beside `transformers` in one run, and how long steps wait for data.

Rows are random pieces, prepared by the loader ahead of the steps as in any run: taken from a layout, corrupted, copied
to the device. `transformers`, eager and compiled, gets batches that are already on the device, and at most 512 rows per
step. Dropout is as published (0.1) or as --dropout sets it, the same for both.

    python benchmarks/pretrain_gpu.py [--seconds 8] [--dropout 0.1] [--only bert-base] [--without-peer]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from measure import machine, need, skip, table

from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.random_keys import row_keys, uniform
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.objectives.masked import Masked
from polyseme.objectives.objective import Vocabulary
from polyseme.training.device_group import Devices
from polyseme.training.loader import Loader
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.training.trainer import Trainer
from polyseme.training.training_settings import Phase, Plan, TrainingSettings
from polyseme.types import Rows

N_PIECES = 30528
VOCABULARY = Vocabulary(
    n_pieces=N_PIECES,
    specials={"start": 101, "end": 102, "pad": 0, "unknown": 100, "mask": 103},
    before=(0,),
    after=(0,),
)
FLOORS = {"bert-base": 600e3, "12 x 256": 2.5e6}
SHAPES = {
    "bert-base": ({"n_layers": 12, "width": 768, "n_heads": 12, "inner_width": 3072}, 256),
    "12 x 256": ({"n_layers": 12, "width": 256, "n_heads": 4, "inner_width": 1024}, 1024),
}


@dataclass(frozen=True)
class RandomRows:
    """Random rows, framed as BERT's."""

    length: int
    n_rows: int = 1 << 20

    def rows(self, indices: np.ndarray) -> Rows:
        keys = row_keys(0, 0, indices)
        pieces = 1000 + (uniform(keys, "pieces", self.length) * (N_PIECES - 1000)).astype(np.int64)
        special = np.zeros(pieces.shape, np.bool_)
        special[:, [0, -1]] = True
        pieces[:, 0], pieces[:, -1] = 101, 102
        return Rows(pieces=pieces, starts=~special, special=special, keys=keys)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(step, seconds: float, warm_ups: int = 5) -> tuple[float, int]:
    """Seconds per step, and the number of steps."""
    for _ in range(warm_ups):
        step()
    synchronize()
    started, n = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        for _ in range(5):
            step()
        n += 5
        synchronize()
    return (time.perf_counter() - started) / n, n


def our_steps(
    shape: dict[str, int], rows: int, length: int, dropout: float, device: str = "cuda:0"
) -> tuple[Callable[[], None], list[float], Callable[[], None]]:
    """A function that takes a step, the seconds that each step has waited for data, and what ends it all."""
    config = TransformerConfig(
        n_pieces=N_PIECES,
        max_positions=512,
        **shape,
        dropout_rate=dropout,
        attention_dropout_rate=dropout,
        embedding_dropout_rate=dropout,
    )
    objective = Masked(known_vocabulary=VOCABULARY)
    on_gpu = torch.device(device).type == "cuda"
    settings = TrainingSettings(
        phases=(Phase(length=length, batch_size=rows),),
        optimizer=OptimizerSettings(lr=1e-4),
        schedule=Schedule(),
        dtype="bf16" if on_gpu else "fp32",
        compile=on_gpu,
    )
    devices = Devices(torch.device(device))
    torch.manual_seed(0)
    trainer = Trainer(objective, objective.nets(new_bundle(FAMILIES["bert"], config, ["masked"])), settings, devices)
    plan = Plan(settings, 1_000_000)
    steps = Loader([RandomRows(length)], objective, plan, devices, [rows]).steps(0, plan.n_steps, workers=2)
    waited: list[float] = []

    def step() -> None:
        batch = next(steps)
        waited.append(batch.waited)
        trainer.step(batch, plan)

    return step, waited, steps.close


def ours(shape: dict[str, int], rows: int, length: int, dropout: float, seconds: float) -> tuple[float, float]:
    """Seconds per step, and the share of it spent waiting for data."""
    step, waited, close = our_steps(shape, rows, length, dropout)
    taken, n = timed(step, seconds)
    close()
    return taken, sum(waited[-n:]) / n / taken


def theirs(shape: dict[str, int], rows: int, length: int, dropout: float, seconds: float, compiled: bool) -> float:
    """Seconds per step of `transformers`' own model with torch's fused AdamW."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=N_PIECES,
        num_hidden_layers=shape["n_layers"],
        hidden_size=shape["width"],
        num_attention_heads=shape["n_heads"],
        intermediate_size=shape["inner_width"],
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    model = BertForMaskedLM(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model, dynamic=False) if compiled else model
    pieces = torch.randint(1000, N_PIECES, (rows, length), device="cuda")
    chosen = torch.rand(rows, length, device="cuda") < 0.15
    labels = torch.where(chosen, pieces, -100)
    pieces = torch.where(chosen, 103, pieces)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = run(input_ids=pieces, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return timed(step, seconds)[0]


def peak() -> float:
    """FLOP/s of a large bf16 product in this run."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / timed(lambda: a @ b, 1.0)[0]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--only", choices=SHAPES)
    parser.add_argument("--without-peer", action="store_true")
    settings = parser.parse_args()
    if not torch.cuda.is_available():
        skip("torch sees no GPU here")
    if not settings.without_peer:
        need("transformers")
    torch.set_float32_matmul_precision("high")
    print(machine("torch", "transformers"), flush=True)
    highest = peak()
    for name, (shape, rows) in SHAPES.items():
        if settings.only not in (None, name):
            continue
        length, lines = 128, []
        flops = 6 * 128 * rows * (shape["n_layers"] * 12 * shape["width"] ** 2)
        taken, waiting = ours(shape, rows, length, settings.dropout, settings.seconds)
        speed = rows * length / taken
        lines.append(
            [f"polyseme, {rows} x {length}", f"{speed:,.0f}", f"{flops / taken / highest:.0%}", f"{waiting:.1%}"]
        )
        if not settings.without_peer:
            for compiled, n_rows in ((False, min(rows, 512)), (True, min(rows, 512))):
                seconds = theirs(shape, n_rows, length, settings.dropout, settings.seconds, compiled)
                label = f"transformers{', compiled' if compiled else ''}, {n_rows} x {length}"
                share = flops * n_rows / rows / seconds / highest
                lines.append([label, f"{n_rows * length / seconds:,.0f}", f"{share:.0%}", ""])
        print(f"\n{name}, dropout {settings.dropout} (floor {FLOORS[name]:,.0f} pieces/s)")
        print(
            table(["masked LM, bf16", "pieces/s", "of the product's peak (stack only)", "waiting for data"], lines),
            flush=True,
        )


if __name__ == "__main__":
    main()
