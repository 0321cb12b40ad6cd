"""Greedy generation: polyseme beside `transformers`' `generate`, with the same weights and prompts, in one run.

Models of GPT-2-small, BART-base or T5-small size with random weights, so that nothing has to be downloaded; no text
ends early. The last two read the prompts as sources. Peers: `generate` with its defaults (a dynamic cache, not
compiled), the same in bf16, and with `cache_implementation="static"` and its compiled forward pass (CUDA graphs on a
GPU). Compilation happens in the warm-up runs and is not counted. On a CPU polyseme also runs its steps in bf16 and int8
(`--precisions`); what these cost in perplexity is printed by `generate_precision.py`. Runs alternate; medians, with the
processor's time beside. The share of the read bandwidth counts every weight that a step needs once, whatever the number
of rows, against the fastest plain read of a tensor of that size in the same run. The pieces that are generated in one
precision must be equal, except for ties.

On a CPU, `quick.py` runs this script with a smaller load. On a GPU it prints the figures of generation with their
floors; `gpu_floors.py` prints those of the encoder, of training and of a tagger.

    python benchmarks/generate.py [--rows 1 16] [--new 64] [--rounds 5] [--device cpu] [--dtype fp32]
                                  [--precisions bf16 int8] [--size gpt2 bart-base t5-small]
                                  [--peers dynamic bf16 static] [--figures FILE]
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from measure import Figure, add_figures_option, alternate, machine, need, publish, ratio, table

from polyseme.api import DTYPES
from polyseme.bundle import Bundle, named_tensors, new_bundle
from polyseme.convert.conversion_table import write
from polyseme.convert.families import FAMILIES
from polyseme.encoders.inference import Precision
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.next_piece import StepByStep, in_precision
from polyseme.parts.device import find_device
from polyseme.recipes.published_sizes import SIZES

FLOORS = {
    ("gpt2", "cpu", 1): 1.5,
    ("gpt2", "cpu", 16): 1.0,
    ("gpt2", "cuda", 1): 6.0,
    ("gpt2", "cuda", 16): 4.0,
    ("bart-base", "cpu", 1): 1.0,
    ("bart-base", "cpu", 16): 1.0,
    ("t5-small", "cpu", 1): 1.0,
    ("t5-small", "cpu", 16): 1.0,
}
"""By size, device and rows: the least expected speed, as a multiple of the dynamic, uncompiled peer's."""
FIRST = 2
"""The piece that a decoder begins with."""
PEERS = {
    "dynamic": "transformers, defaults",
    "bf16": "transformers, bf16",
    "static": "transformers, static cache, compiled",
}
OURS: dict[Precision, str] = {"own": "polyseme", "bf16": "polyseme, bf16", "int8": "polyseme, int8"}
SMALLER = {PEERS["bf16"]: 0.5, OURS["bf16"]: 0.5, OURS["int8"]: 0.25}
"""Bytes of a weight, as a share of those in fp32."""
COMPILE_RUNS = 3
"""Warm-up runs of the compiled peer: the first compiles, the next ones record CUDA graphs."""


def twins(size: str, dtype: torch.dtype, device: str) -> tuple[Bundle, torch.nn.Module]:
    """Ours, and the reference with the same random weights."""
    import transformers

    published = SIZES[size]
    family = FAMILIES[published.family]
    torch.manual_seed(0)
    ours = new_bundle(family, published.config, ["causal"]).eval()
    tensors = write(family.table(published.config, True), named_tensors(ours), ["causal"], prefix=True)
    settings = transformers.AutoConfig.for_model(family.name, **family.write_config(published.config))
    auto_class = transformers.AutoModelForSeq2SeqLM if ours.decoder is not None else transformers.AutoModelForCausalLM
    theirs = auto_class.from_config(settings).eval()
    theirs.load_state_dict({**theirs.state_dict(), **tensors})
    theirs.tie_weights()
    return ours.to(device=device, dtype=dtype), theirs.to(device=device, dtype=dtype)


def language_of(ours: Bundle, device: str, precision: Precision = "own") -> LanguageModel:
    """Our model as the decoding loop sees it, without a tokenizer."""
    writer = ours.encoder if ours.decoder is None else ours.decoder
    return LanguageModel(
        next_piece=in_precision(StepByStep(writer, ours.outputs["causal"]), precision),  # type: ignore[arg-type]
        n_pieces=ours.config.n_pieces,
        device=torch.device(device),
        source=None if ours.decoder is None else ours.encoder,
        before=() if ours.decoder is None else (FIRST,),
        room=writer.config.max_positions,
    )


def n_weights_of_a_step(ours: Bundle) -> int:
    """Weights that one step reads. Those of a source's encoder are read once per text and do not count."""
    if ours.decoder is None:
        return ours.n_parameters()
    distinct = {id(each): each.numel() for part in (ours.decoder, ours.outputs) for each in part.parameters()}
    of_source = sum(
        cross.project.weight.numel() * 2 // 3
        for layer in ours.decoder.layers  # type: ignore[union-attr]
        if (cross := layer.cross) is not None  # type: ignore[union-attr]
    )
    return sum(distinct.values()) - of_source


def read_bandwidth(n_bytes: int, device: str, rounds: int = 20) -> float:
    """Bytes per second of the fastest read of a tensor of this size."""
    tensor = torch.ones(n_bytes // 4, device=device)
    best = float("inf")
    for _ in range(rounds):
        synchronize(device)
        started = time.perf_counter()
        tensor.sum()
        synchronize(device)
        best = min(best, time.perf_counter() - started)
    return n_bytes / best


def generate_theirs(
    peer: str, theirs: torch.nn.Module, ids: torch.Tensor, n_new: int, has_source: bool
) -> list[list[int]]:
    """The new pieces of every row, by `generate`."""
    import transformers

    options: dict[str, Any] = {"decoder_start_token_id": FIRST, "forced_eos_token_id": None} if has_source else {}
    if peer == "static":
        compile_config = transformers.CompileConfig()
        compile_config._compile_all_devices = True  # by default `generate` compiles on accelerators only
        options |= {"cache_implementation": "static", "compile_config": compile_config}
    generated = theirs.generate(  # type: ignore[operator]
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=n_new,
        min_new_tokens=n_new,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
        **options,
    )
    return generated[:, 1 if has_source else ids.shape[1] :].tolist()


def figures_of(
    every: Mapping[str, Sequence[float]], texts: Mapping[str, list[list[int]]], case: tuple[str, str, int], dtype: str
) -> list[Figure]:
    """The ratios to report: each peer beside ours in the same precision.

    Args:
        every: the seconds of each route in each round.
        texts: what each route wrote.
        case: the size, the type of the device and the number of rows.
        dtype: that of the weights.
    """
    size, _, n_rows = case
    figures = []
    for peer, name in PEERS.items():
        if name not in every:
            continue
        in_bf16 = peer == "bf16" and OURS["bf16"] in every
        ours = OURS["bf16"] if in_bf16 else OURS["own"]
        n_equal = sum(one == other for one, other in zip(texts[ours], texts[name], strict=True))
        what = f"generate, {size} size, batch size {n_rows}, {'bf16' if in_bf16 else dtype}"
        floor = FLOORS.get(case) if peer == "dynamic" else None
        note = f"{n_equal} of {n_rows} texts equal"
        figures.append(ratio(every, name, ours, what=what, peer=name, floor=floor, note=note))
    return figures


def measure(size: str, options: argparse.Namespace, device: str) -> None:
    """Print the table of one size."""
    dtype = DTYPES[options.dtype]
    ours, theirs = twins(size, dtype, device)
    on_cpu = torch.device(device).type == "cpu"
    precisions: list[Precision] = ["own", *(options.precisions if on_cpu and options.dtype == "fp32" else [])]
    models = {OURS[precision]: language_of(ours, device, precision) for precision in precisions}
    for model in models.values():
        model.prepare()
    peers = [peer for peer in options.peers if peer != "bf16" or dtype == torch.float32]
    in_bf16 = copy.deepcopy(theirs).bfloat16() if "bf16" in peers else theirs
    has_source = ours.decoder is not None
    decoding = Decoding(max_new=options.new)
    n_bytes = n_weights_of_a_step(ours) * dtype.itemsize
    print(
        f"\n{size}, {ours.n_parameters() / 1e6:.1f}M parameters ({n_bytes / 1e6:.0f} MB per step), {options.dtype} on "
        f"{device}; {'sources' if has_source else 'prompts'} of {options.prompt} pieces, {options.new} new ones; "
        f"medians of {options.rounds} alternating runs\n"
    )
    lines, notes = [], []
    for n_rows in options.rows:
        generator = torch.Generator().manual_seed(n_rows)
        prompts = torch.randint(ours.config.n_pieces, (n_rows, options.prompt), generator=generator)
        texts: dict[str, list[list[int]]] = {}

        def run_ours(name: str, prompts: torch.Tensor = prompts, texts: dict[str, Any] = texts) -> None:
            rows, model = prompts.tolist(), models[name]
            if has_source:
                generated = write_on(model, [[] for _ in rows], decoding, sources=rows)
            else:
                generated = write_on(model, rows, decoding)
            texts[name] = [continuations[0].pieces for continuations in generated]
            synchronize(device)

        def run_theirs(peer: str, prompts: torch.Tensor = prompts, texts: dict[str, Any] = texts) -> None:
            network = in_bf16 if peer == "bf16" else theirs
            texts[PEERS[peer]] = generate_theirs(peer, network, prompts.to(device), options.new, has_source)

        torch.compiler.reset()  # another number of rows gets a graph of its own, not one with a dynamic shape
        runs: dict[str, Any] = {PEERS[peer]: partial(run_theirs, peer) for peer in peers}
        runs |= {name: partial(run_ours, name) for name in models}
        processor: dict[str, float] = {}
        every: dict[str, list[float]] = {}
        warm_ups = {PEERS["static"]: COMPILE_RUNS}
        seconds = alternate(runs, options.rounds, warm_ups=warm_ups, processor=processor, every=every)
        bandwidth = read_bandwidth(n_bytes, device)
        for name, taken in seconds.items():
            share = n_bytes * SMALLER.get(name, 1.0) * options.new / taken / bandwidth
            ratios = [f"{taken / seconds[of]:.2f}" if name not in models else "" for of in models]
            speed = f"{n_rows * options.new / taken:,.0f}"
            lines.append([str(n_rows), name, f"{taken:.3f}", f"{processor[name]:.3f}", speed, f"{share:.0%}", *ratios])
        case = (size, torch.device(device).type, n_rows)
        publish(figures_of(every, texts, case, options.dtype), options.figures)
        notes.append(f"{n_rows} rows: a plain read {bandwidth / 1e9:,.1f} GB/s")
        for name in list(models)[1:]:
            n_equal = sum(one == other for one, other in zip(texts["polyseme"], texts[name], strict=True))
            notes.append(f"{n_rows} rows: {name}: {n_equal} of {n_rows} texts as in fp32")
    head = ["rows", "route", "seconds", "of processor", "pieces/s", "of read bandwidth"]
    print("\n" + table([*head, *(f"{name} is × as fast" for name in models)], lines))
    print("\n" + "\n".join(notes))


def synchronize(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure every size and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="fp32", choices=sorted(DTYPES))
    parser.add_argument("--precisions", nargs="*", choices=["bf16", "int8"], default=["bf16", "int8"])
    parser.add_argument("--size", nargs="+", default=["gpt2", "bart-base", "t5-small"], choices=sorted(SIZES))
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    add_figures_option(parser)
    options = parser.parse_args()
    need("transformers")
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.WARNING)
    device = find_device(options.device)
    print(machine("torch", "transformers"))
    for size in options.size:
        measure(size, options, device)


if __name__ == "__main__":
    main()
