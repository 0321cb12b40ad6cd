"""Generation on a GPU by kernels for few rows: whether they equal the plain path, and their speed, in one command.

First speed, alone on the GPU: a GPT-2-small size with random weights, greedy, prompts of 16 pieces, texts of 64, with
the recorded step as it is (`prepare()`) and with the choice of a piece and the kernels in it (`prepare(kernels=True)`);
medians of alternating runs; beside them the time of a step alone, the kernels in it, and the prompt. Then equality:
`tests/generating/kernel_battery.py` for every kind of decoder in fp32 and bf16, in processes side by side. All of it is
written as JSON. It takes at most `--seconds`; what did not come to its turn is listed as such.

    python benchmarks/generate_kernels.py [--out results.json] [--seconds 175] [--rows 1 16] [--size gpt2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from generate import language_of, n_weights_of_a_step, read_bandwidth
from measure import alternate, machine, table

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel
from polyseme.recipes.published_sizes import SIZES
from polyseme.types import Batch

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {1: (2200, 4000), 16: (24000, 40000)}
"""By rows: pieces per second of a GPT-2-small size on an H200, least and aimed at."""
PROMPT, NEW = 16, 64
KINDS = (
    "norms before",
    "norms after",
    "scaled by layer",
    "bands",
    "sinusoids",
    "shared layers",
    "gated",
    "no biases, RMS norms, SiLU",
    "buckets and bands",
    "bart",
    "t5",
)


def random_bundle(size: str) -> Bundle:
    torch.manual_seed(0)
    published = SIZES[size]
    bundle = new_bundle(FAMILIES[published.family], published.config, ["causal"]).eval()
    return bundle.to(device="cuda", dtype=torch.bfloat16)


def of_a_step(model: LanguageModel, prompts: torch.Tensor) -> dict[str, Any]:
    """Microseconds of one recorded step, the kernels in it, and those that take longest."""
    batch = Batch(prompts.cuda())
    _, memory = model.next_piece.start(batch, PROMPT + NEW)
    steps = model.next_piece.steps  # type: ignore[attr-defined]
    pieces = batch.pieces[:, 0].contiguous()
    never = torch.zeros(model.n_pieces, dtype=torch.int8, device="cuda")
    graph = steps._graph(memory)
    first = memory.lengths.clone()
    n_in_graph = 1
    if steps.ahead:
        _, _, memory = graph.chosen(pieces, memory, never, 8)
        n_in_graph = 8
    else:
        graph(pieces, memory)
    captured = graph._captured[8 if steps.ahead else 0]

    def replay() -> None:
        graph.memory.lengths.copy_(first)
        captured.replay()

    microseconds = median_of_events(replay) / n_in_graph
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        captured.replay()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    for event in profile.events() or []:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels.setdefault(event.name[:60], []).append(event.device_time)
    longest = sorted(kernels.items(), key=lambda item: -sum(item[1]))[:12]
    return {
        "microseconds": round(microseconds, 1),
        "kernels": sum(map(len, kernels.values())) / n_in_graph,
        "longest": {name: [len(each) / n_in_graph, round(sum(each) / len(each), 2)] for name, each in longest},
    }


def median_of_events(run: Callable[[], None], rounds: int = 20) -> float:
    """Microseconds by the device's own clock."""
    times = []
    run()
    for _ in range(rounds):
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        started.record()
        run()
        ended.record()
        ended.synchronize()
        times.append(started.elapsed_time(ended) * 1000)
    return sorted(times)[rounds // 2]


@torch.no_grad()
def measure(size: str, n_rows: int, rounds: int) -> dict[str, Any]:
    """Both ways of writing, in alternating runs, with equal weights."""
    prompts = torch.randint(SIZES[size].vocabulary, (n_rows, PROMPT), generator=torch.Generator().manual_seed(n_rows))
    models, texts, first_seconds = {}, {}, {}
    for name, kernels in (("recorded step", False), ("kernels", True)):
        bundle = random_bundle(size)
        models[name] = language_of(bundle, "cuda")
        started = time.perf_counter()
        models[name].prepare(kernels=kernels)
        write_on(models[name], prompts.tolist(), Decoding(max_new=NEW))
        torch.cuda.synchronize()
        first_seconds[name] = time.perf_counter() - started

    def writing(name: str, n_new: int) -> Callable[[], None]:
        def run() -> None:
            texts[name] = write_on(models[name], prompts.tolist(), Decoding(max_new=n_new))
            torch.cuda.synchronize()

        return run

    one = alternate({name: writing(name, 1) for name in models}, rounds)
    whole = alternate({name: writing(name, NEW) for name in models}, rounds)
    by_name: dict[str, Any] = {
        name: {
            "pieces_per_second": round(n_rows * NEW / seconds),
            "milliseconds_to_first_piece": round(one[name] * 1000, 2),
            "seconds_of_first_run": round(first_seconds[name], 1),
            "has_kernels": models[name].next_piece.steps._kernels is not None,  # type: ignore[attr-defined]
            "step": of_a_step(models[name], prompts),
        }
        for name, seconds in whole.items()
    }
    pairs = list(zip(*texts.values(), strict=True))
    n_bytes = n_weights_of_a_step(bundle) * 2
    return {
        "rows": n_rows,
        "floor": FLOORS.get(n_rows, (None, None))[0],
        "aim": FLOORS.get(n_rows, (None, None))[1],
        "texts_equal": sum(one[0].pieces == other[0].pieces for one, other in pairs) / len(pairs),
        "microseconds_of_reading": round(n_bytes / read_bandwidth(n_bytes, "cuda") * 1e6, 1),
        **by_name,
    }


def compare(kind: str, dtype: str, until: float) -> list[dict[str, Any]]:
    """The lines of the battery for one kind."""
    command = [sys.executable, str(ROOT / "tests" / "generating" / "kernel_battery.py"), "--kinds", kind]
    seconds = until - time.monotonic()
    nothing = {"kind": kind, "dtype": dtype, "right": False}
    if seconds < 5:
        return [{**nothing, "error": "there was no time left"}]
    try:
        run = subprocess.run(
            [*command, "--dtype", dtype], capture_output=True, text=True, timeout=seconds, check=False, env=os.environ
        )
    except subprocess.TimeoutExpired as error:
        found = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return [*lines_of(found), {**nothing, "error": "there was no time left"}]
    lines = lines_of(run.stdout)
    return lines if run.returncode in (0, 1) and lines else [*lines, {**nothing, "error": run.stderr[-2000:]}]


def lines_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def main() -> int:
    """Measure, compare, print, write; 1 if a comparison failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=175)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", default="gpt2", choices=sorted(SIZES))
    parser.add_argument("--processes", type=int, default=max((os.cpu_count() or 2) - 2, 1))
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    if not torch.cuda.is_available():
        sys.exit("This needs a GPU. On a CPU, tests/generating/kernel_battery.py --device cpu compares all kinds.")
    speed = [measure(options.size, n_rows, options.rounds) for n_rows in options.rows]
    print(machine("torch", "triton") + f"; {options.size}, bf16, prompts of {PROMPT}, {NEW} new pieces\n")
    lines = [
        [
            str(each["rows"]),
            name,
            f"{each[name]['pieces_per_second']:,}",
            f"{each['floor']} / {each['aim']}",
            f"{each[name]['step']['microseconds']} ({each['microseconds_of_reading']} to read the weights)",
            f"{each[name]['step']['kernels']:.0f}",
            f"{each[name]['milliseconds_to_first_piece']}",
            f"{each['texts_equal']:.0%}",
        ]
        for each in speed
        for name in ("recorded step", "kernels")
    ]
    head = ["rows", "route", "pieces/s", "floor / aim", "µs per step", "kernels", "ms to first piece", "texts equal"]
    print(table(head, lines), flush=True)
    tasks = [(kind, dtype) for dtype in ("fp32", "bf16") for kind in KINDS]
    with ThreadPoolExecutor(options.processes) as pool:
        compared = [line for lines in pool.map(lambda task: compare(*task, until), tasks) for line in lines]
    wrong = [line for line in compared if not line["right"]]
    print(f"\n{len(compared) - len(wrong)} comparisons right, {len(wrong)} not")
    for line in wrong:
        print(json.dumps(line)[:300])
    if options.out is not None:
        options.out.write_text(
            json.dumps({"machine": machine("torch", "triton"), "speed": speed, "compared": compared})
        )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
