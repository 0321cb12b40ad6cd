"""Kernels for few rows beside the plain step, as a program: on a GPU, or in Triton's interpreter on a CPU.

It prints one line of JSON for each comparison, and ends with exit code 1 if one failed. Scores may be off from the
plain step in float64 by `FACTOR` times what the plain step in the same precision is off.

    TRITON_INTERPRET=1 python tests/generating/kernel_battery.py --device cpu [--kinds bart] [--dtype fp32]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any, cast

import torch
from torch import Tensor

from polyseme.api import DTYPES
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.extras import require
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.fast_decoder import FastSteps
from polyseme.generating.kernel_steps import EARLY_CAPABILITY, KernelSteps
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.next_piece import StepByStep
from polyseme.parts import kernel_trials
from polyseme.parts.kernel_trials import LEAST_CAPABILITY
from polyseme.parts.memory_and_cache import Cache
from polyseme.types import Batch

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "norms before": ("gpt2", {}),
    "norms after": ("openai-gpt", {}),
    "scaled by layer": ("gpt2", {"scale_by_layer": True}),
    "bands": ("gpt2", {"masks": ("causal", "band:3", "causal")}),
    "sinusoids": ("gpt2", {"positions": "sinusoidal"}),
    "shared layers": ("gpt2", {"layer_map": (0, 1, 0)}),
    "gated": ("gpt2", {"gated": True}),
    "no biases, RMS norms, SiLU": (
        "gpt2",
        {
            "norm_kind": "rms",
            "activation": "silu",
            "attention_bias": False,
            "attention_output_bias": False,
            "inner_bias": False,
        },
    ),
    "buckets and bands": ("gpt2", {"positions": "buckets", "n_buckets": 8, "masks": ("causal", "band:3", "causal")}),
    "bart": ("bart", {}),
    "t5": ("t5", {}),
}
ROWS = [[5, 9, 3, 7, 21], [30], [4, 4, 8], [17, 2, 3, 4], [5, 6], [7, 8, 9]]
FACTOR = 8
FLOOR = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
"""Of the largest score: what may be off where the plain step is exact by luck."""


def random_bundle(kind: str) -> Bundle:
    """A tiny model in float64 whose weights spread widely, so that a wrong mask shows."""
    family_name, changes = KINDS[kind]
    family = FAMILIES[family_name]
    torch.manual_seed(0)
    bundle = new_bundle(family, family.tiny().replace(**changes), ["causal"]).eval().double()
    for name, parameter in bundle.named_parameters():
        torch.nn.init.normal_(parameter, mean=float(name.endswith("norm.weight")), std=0.3)
    return bundle


def writer_of(bundle: Bundle) -> StepByStep:
    encoder = bundle.encoder if bundle.decoder is None else bundle.decoder
    return StepByStep(encoder, bundle.outputs["causal"])  # type: ignore[arg-type]


def start(bundle: Bundle, rows: list[list[int]], device: str) -> Cache:
    """Read prompts, or sources and one piece, the plain way."""
    longest = max(map(len, rows))
    pieces = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=device)
    batch = Batch(pieces, torch.tensor([len(row) for row in rows], device=device))
    if bundle.decoder is not None:
        batch = Batch(pieces[:, :1], source=bundle.encoder(batch, layers=[-1]))
    return cast(Cache, writer_of(bundle).start(batch, 16)[1])


def step(steps: FastSteps, pieces: Tensor, memory: Cache) -> tuple[Tensor, Cache]:
    scores = steps.run(pieces, memory, n_slots=memory.keys[0].shape[2])
    return scores, dataclasses.replace(memory, lengths=memory.lengths + 1)


@torch.no_grad()
def scores_and_choices(kind: str, n_rows: int, dtype: torch.dtype, device: str, early: bool) -> dict[str, Any]:
    """A few steps: how far scores are off, and whether choices are what scores say."""
    kernels = require("polyseme.parts.row_kernels", extra="dev")
    exact = random_bundle(kind).to(device)
    memories, steps = [], []
    for bundle in (exact, random_bundle(kind).to(device, dtype), random_bundle(kind).to(device, dtype)):
        memories.append(start(bundle, ROWS[:n_rows], device))
        steps.append(cast(FastSteps, writer_of(bundle).steps))
    fused = KernelSteps(
        steps[2].encoder, steps[2].output, steps[2]._biases, kernels, steps[2]._plain_scores, early=early
    )
    off, plain_off, n_wrong = 0.0, 0.0, 0
    generator = torch.Generator().manual_seed(1)
    for _ in range(3 if device != "cpu" else 1):
        pieces = torch.randint(90, (n_rows,), generator=generator).to(device)
        expected, memories[0] = step(steps[0], pieces, memories[0])
        plain, memories[1] = step(steps[1], pieces, memories[1])
        found = fused.scores(pieces, memories[2])
        largest = expected.abs().max()
        off = max(off, ((found - expected).abs().max() / largest).item())
        plain_off = max(plain_off, ((plain - expected).abs().max() / largest).item())
        forbidden = torch.zeros(found.shape[1], dtype=torch.int8, device=device)
        forbidden[found.argmax(dim=-1)[0]] = 1
        chosen, likelihoods = torch.empty_like(pieces), torch.empty_like(found[:, 0])
        fused.greedy_step(pieces, memories[2], forbidden, chosen, likelihoods)
        right = found.masked_fill(forbidden.bool(), float("-inf")).argmax(dim=-1)
        by_scores = found.log_softmax(dim=-1).gather(1, right[:, None])[:, 0]
        n_wrong += int((chosen != right).sum() + (pieces != right).sum())
        n_wrong += int(
            ((likelihoods - by_scores).abs() > 1e-4).sum() + (memories[2].lengths != memories[1].lengths).sum()
        )
    allowed = max(FACTOR * plain_off, FLOOR[dtype])
    return {"off": off, "allowed": allowed, "n_wrong": n_wrong, "right": off <= allowed and not n_wrong}


@torch.no_grad()
def texts(kind: str, n_rows: int, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Whole texts, written with the choice in the step and without: in fp32 they must be the same.

    Where there are kernels, they must have passed their trials.
    """
    written = []
    n_failed = 0
    for kernels in (False, True):
        bundle = random_bundle(kind).to(device, dtype)
        reads_source = bundle.decoder is not None
        model = LanguageModel(
            next_piece=writer_of(bundle),
            n_pieces=bundle.config.n_pieces,
            device=torch.device(device),
            source=bundle.encoder if reads_source else None,
            before=(2,) if reads_source else (),
            end=11,
            forbidden=(3, 4),
        )
        model.prepare(kernels=kernels)
        rows = ROWS[:n_rows]
        prompts, sources = ([[] for _ in rows], rows) if reads_source else (rows, None)
        found = write_on(model, prompts, Decoding(max_new=21, min_new=5), sources=sources)
        written.append([each[0] for each in found])
        steps = cast(StepByStep, model.next_piece).steps
        if steps is not None and steps._kernels is not None:
            n_failed += sum(early is None for early in steps._kernels._starts.values())
            n_failed += not steps._kernels._starts
    n_wrong = sum(one.pieces != other.pieces or one.ending != other.ending for one, other in zip(*written, strict=True))
    off = max(abs(one.log_probability - other.log_probability) for one, other in zip(*written, strict=True))
    right = not n_failed and (dtype != torch.float32 or (not n_wrong and off < 1e-2))
    return {"off": off, "n_wrong": n_wrong, "n_failed": n_failed, "right": right}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 6])
    parser.add_argument("--trials", action="store_true", help="in the interpreter: try kernels and write by them")
    options = parser.parse_args()
    if options.trials:
        kernel_trials.gpu_capability = lambda device: LEAST_CAPABILITY
    dtype = DTYPES[options.dtype]
    failed = False
    for kind in options.kinds:
        for n_rows in options.rows:
            early = options.device != "cpu" and torch.cuda.get_device_capability() >= EARLY_CAPABILITY
            comparisons = {
                "scores": scores_and_choices(kind, n_rows, dtype, options.device, early),
                "texts": texts(kind, n_rows, dtype, options.device),
            }
            for name, result in comparisons.items():
                failed |= not result["right"]
                line = {"kind": kind, "rows": n_rows, "dtype": options.dtype, "compared": name, **result}
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
