"""Writing on, greedily: polyseme beside `transformers` `generate` with its cache, same weights, same prompts, same run.

GPT-2-small, BART-base or T5-small size, random weights, so that nothing has to be fetched; no text ends early. The last
two read the prompts as sources, and write texts of their own. Runs alternate; medians. The share of the read bandwidth
counts every weight that a step needs once, whatever the number of rows, against the best plain read of a tensor of that
size found in the same run. Pieces must be equal, but for ties.

    python benchmarks/generate.py [--rows 1 16] [--new 64] [--rounds 5] [--device cpu] [--dtype fp32]
                                  [--size gpt2 bart-base t5-small]
"""

from __future__ import annotations

import argparse
import logging
import os
import time

import torch
from measure import alternate, machine, table

from polyseme.api import DTYPES
from polyseme.bundle import Bundle, named_tensors, new_bundle
from polyseme.convert.conversion_table import write
from polyseme.convert.families import FAMILIES
from polyseme.convert.model_sizes import SIZES
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.next_piece import LanguageModel, StepByStep
from polyseme.parts.device import find_device

FLOORS = {
    ("gpt2", "cpu", 1): 1.1,
    ("gpt2", "cpu", 16): 1.0,
    ("gpt2", "cuda", 1): 6.0,
    ("gpt2", "cuda", 16): 4.0,
    ("bart-base", "cpu", 1): 1.0,
    ("bart-base", "cpu", 16): 1.0,
    ("t5-small", "cpu", 1): 1.0,
    ("t5-small", "cpu", 16): 1.0,
}
"""By size, device and rows, how many times as fast as the reference is expected at least."""
FIRST = 2
"""The piece that a decoder begins with."""


def twins(size: str, dtype: torch.dtype, device: str) -> tuple[Bundle, torch.nn.Module]:
    """Ours, and the reference with the same random weights."""
    import transformers

    published = SIZES[size]
    family = FAMILIES[published.family]
    torch.manual_seed(0)
    ours = new_bundle(family, published.config, ["causal"]).eval()
    tensors = write(family.table(published.config, True), named_tensors(ours), ["causal"], prefix=True)
    settings = transformers.AutoConfig.for_model(family.name, **family.write_config(published.config))
    found = transformers.AutoModelForSeq2SeqLM if ours.decoder is not None else transformers.AutoModelForCausalLM
    theirs = found.from_config(settings).eval()
    theirs.load_state_dict({**theirs.state_dict(), **tensors})
    theirs.tie_weights()
    return ours.to(device=device, dtype=dtype), theirs.to(device=device, dtype=dtype)


def language_of(ours: Bundle, device: str) -> LanguageModel:
    """Ours as decoding sees it, without a tokenizer."""
    writer = ours.encoder if ours.decoder is None else ours.decoder
    return LanguageModel(
        next_piece=StepByStep(writer, ours.outputs["causal"]),  # type: ignore[arg-type]
        n_pieces=ours.config.n_pieces,
        device=torch.device(device),
        source=None if ours.decoder is None else ours.encoder,
        before=() if ours.decoder is None else (FIRST,),
        room=writer.config.max_positions,
    )


def n_weights_of_a_step(ours: Bundle) -> int:
    """Weights that one step reads: those of a source's encoder only once a text."""
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
    """Bytes a second of the quickest read of a tensor of this size."""
    held = torch.ones(n_bytes // 4, device=device)
    best = float("inf")
    for _ in range(rounds):
        _wait(device)
        started = time.perf_counter()
        held.sum()
        _wait(device)
        best = min(best, time.perf_counter() - started)
    return n_bytes / best


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="fp32", choices=sorted(DTYPES))
    parser.add_argument("--size", nargs="+", default=["gpt2", "bart-base", "t5-small"], choices=sorted(SIZES))
    asked = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.WARNING)
    device = find_device(asked.device)
    print(machine("torch", "transformers"))
    for size in asked.size:
        measure(size, asked, device)


def measure(size: str, asked: argparse.Namespace, device: str) -> None:
    """The table of one size."""
    ours, theirs = twins(size, DTYPES[asked.dtype], device)
    config = ours.config
    model = language_of(ours, device)
    model.settle()
    has_source = model.source is not None
    decoding = Decoding(max_new=asked.new)
    n_bytes = n_weights_of_a_step(ours) * DTYPES[asked.dtype].itemsize
    print(
        f"\n{size}, {ours.n_parameters() / 1e6:.1f}M parameters ({n_bytes / 1e6:.0f} MB a step), {asked.dtype} on "
        f"{device}; {'sources' if has_source else 'prompts'} of {asked.prompt} pieces, {asked.new} new ones; medians "
        f"of {asked.rounds} alternating runs\n"
    )
    lines, notes = [], []
    for n_rows in asked.rows:
        generator = torch.Generator().manual_seed(n_rows)
        prompts = torch.randint(config.n_pieces, (n_rows, asked.prompt), generator=generator)
        ids = prompts.to(device)
        found: dict[str, list[list[int]]] = {}

        def run_ours(prompts: torch.Tensor = prompts, found: dict[str, list[list[int]]] = found) -> None:
            rows = prompts.tolist()
            if has_source:
                written = write_on(model, [[] for _ in rows], decoding, sources=rows)
            else:
                written = write_on(model, rows, decoding)
            found["ours"] = [texts[0].pieces for texts in written]
            _wait(device)

        def run_theirs(ids: torch.Tensor = ids, found: dict[str, list[list[int]]] = found) -> None:
            made = theirs.generate(  # type: ignore[operator]
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=asked.new,
                min_new_tokens=asked.new,
                eos_token_id=None,
                pad_token_id=0,
                use_cache=True,
                **({"decoder_start_token_id": FIRST, "forced_eos_token_id": None} if has_source else {}),
            )
            found["theirs"] = made[:, 1 if has_source else ids.shape[1] :].tolist()

        seconds = alternate({"transformers": run_theirs, "polyseme": run_ours}, asked.rounds)
        bandwidth = read_bandwidth(n_bytes, device)
        ratio = seconds["transformers"] / seconds["polyseme"]
        for name, taken in seconds.items():
            share = n_bytes * asked.new / taken / bandwidth
            lines.append(
                [
                    str(n_rows),
                    name,
                    f"{taken:.3f}",
                    f"{n_rows * asked.new / taken:,.0f}",
                    f"{share:.0%}",
                    f"{ratio:.2f}" if name == "polyseme" else "",
                ]
            )
        floor = FLOORS.get((size, torch.device(device).type, n_rows))
        alike = sum(one == other for one, other in zip(found["ours"], found["theirs"], strict=True))
        notes.append(
            f"{n_rows} rows: {ratio:.2f} x transformers{'' if floor is None else f' (floor {floor})'}; {alike} of "
            f"{n_rows} texts the same; a plain read {bandwidth / 1e9:,.1f} GB/s"
        )
    print(table(["rows", "route", "seconds", "pieces/s", "of read bandwidth", "times transformers"], lines))
    print("\n" + "\n".join(notes))


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
