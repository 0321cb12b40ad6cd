"""Generation on a GPU by kernels for few rows: whether they equal the plain path, and their speed, in one command.

First equality: `tests/generating/kernel_battery.py` for kinds of decoders in fp32 and bf16, in processes side by side,
and meanwhile a GPT-2-small size with random weights. Then speed, alone on the GPU: that size, greedy, prompts of 16
pieces, texts of 64, with the recorded step alone (`prepare(kernels=False)`) and with the choice of a piece and the
kernels in it (`prepare()`), each kernel started early, for few rows, and one after another; medians of alternating
runs; the time of a step alone, and a table of the kernels in it.

Each line is printed as soon as it is known. A part that fails is printed with its traceback, and the next one follows.
Everything is written as JSON to `--out`, or to $OUT/generate_kernels.json where that variable is set. It takes at most
`--seconds`; what did not come to its turn is listed as such.

    python benchmarks/generate_kernels.py [--out results.json] [--seconds 175] [--rows 1 16] [--kinds bart t5]
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from generate import language_of, n_weights_of_a_step, read_bandwidth, synchronize
from gpu_report import Report, kernels_of, since_start
from measure import alternate, machine, skip, table

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.fast_decoder import FastSteps
from polyseme.generating.kernel_steps import difference
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.step_graph import GREEDY_STEPS
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


ROUTES = {"recorded step": None, "kernels": True, "kernels, not early": False}
"""Whether kernels start early; None where there are none."""


def random_bundle(size: str, device: str) -> Bundle:
    torch.manual_seed(0)
    published = SIZES[size]
    bundle = new_bundle(FAMILIES[published.family], published.config, ["causal"]).eval()
    return bundle.to(device=device, dtype=torch.bfloat16)


def device_of(bundle: Bundle) -> str:
    return next(bundle.encoder.parameters()).device.type


def model_of(bundle: Bundle, route: str) -> LanguageModel:
    model = language_of(bundle, device_of(bundle))
    early = ROUTES[route]
    model.prepare(kernels=early is not None)
    if early is False and (kernels := steps_of(model)._kernels) is not None:
        kernels.may_start_early = False
    return model


def steps_of(model: LanguageModel) -> FastSteps:
    return model.next_piece.steps  # type: ignore[attr-defined, no-any-return]


def step_of(model: LanguageModel, prompts: torch.Tensor) -> tuple[Callable[[], None], int]:
    """What replays the recorded step, and how many steps that is."""
    batch = Batch(prompts.to(model.device))
    _, memory = model.next_piece.start(batch, PROMPT + NEW)
    steps = steps_of(model)
    pieces = batch.pieces[:, 0].contiguous()
    forbidden = torch.zeros(model.n_pieces, dtype=torch.int8, device=model.device)
    graph = steps._graph(memory)
    first = memory.lengths.clone()
    if steps.greedy:
        graph.greedy_steps(pieces, memory, forbidden, GREEDY_STEPS)
    else:
        graph(pieces, memory)
    n_greedy = GREEDY_STEPS if steps.greedy else 0

    def replay() -> None:
        graph.memory.lengths.copy_(first)
        graph._run(n_greedy)

    return replay, max(n_greedy, 1)


def median_time(run: Callable[[], None], device: str, rounds: int = 20) -> float:
    """Microseconds by the device's own clock."""
    times = []
    run()
    for _ in range(rounds):
        if device == "cpu":
            start_time = time.perf_counter()
            run()
            times.append((time.perf_counter() - start_time) * 1e6)
            continue
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        started.record()
        run()
        ended.record()
        ended.synchronize()
        times.append(started.elapsed_time(ended) * 1000)
    return sorted(times)[rounds // 2]


def equality(bundle: Bundle, n_rows: int) -> dict[str, Any]:
    """Whether kernels of the measured size pass their trial, and what they differ by."""
    kernels = steps_of(model_of(bundle, "kernels"))._kernels
    if kernels is None:
        raise RuntimeError("There are no kernels here.")
    passed = kernels.serves(n_rows)
    off = difference(kernels, n_rows) if passed else None
    return {"rows": n_rows, "passed": passed, "early": kernels.launch.early, "differ_by": off}


def step_times(bundle: Bundle, route: str, prompts: torch.Tensor) -> dict[str, Any]:
    """Microseconds of one recorded step."""
    replay, n_steps = step_of(model_of(bundle, route), prompts)
    device, n_bytes = device_of(bundle), n_weights_of_a_step(bundle) * 2
    microseconds = median_time(replay, device) / n_steps
    reading = n_bytes / read_bandwidth(n_bytes, device) * 1e6
    return {
        "rows": len(prompts),
        "route": route,
        "microseconds": round(microseconds, 1),
        "microseconds_of_reading": round(reading, 1),
        "pieces_per_second_of_steps_alone": round(len(prompts) / microseconds * 1e6),
    }


def profile(bundle: Bundle, route: str, prompts: torch.Tensor) -> dict[str, Any]:
    """The kernels of a step; those that start early take long because they wait."""
    rows = kernels_of(*step_of(model_of(bundle, route), prompts))
    print(f"\n{route}, {len(prompts)} rows")
    print(table(["kernel", "in a step", "µs", "µs of a step"], rows), flush=True)
    return {"rows": len(prompts), "route": route, "kernels_of_a_step": rows}


def measure(bundle: Bundle, prompts: torch.Tensor, rounds: int) -> dict[str, Any]:
    """Whole texts, in alternating runs."""
    n_rows, device = len(prompts), device_of(bundle)
    models, texts, first_seconds = {}, {}, {}
    for name in ("recorded step", "kernels"):
        started = time.perf_counter()
        models[name] = model_of(bundle, name)
        write_on(models[name], prompts.tolist(), Decoding(max_new=NEW))
        synchronize(device)
        first_seconds[name] = round(time.perf_counter() - started, 1)

    def writing(name: str, n_new: int) -> Callable[[], None]:
        def run() -> None:
            texts[name] = write_on(models[name], prompts.tolist(), Decoding(max_new=n_new))
            synchronize(device)

        return run

    one = alternate({name: writing(name, 1) for name in models}, rounds)
    whole = alternate({name: writing(name, NEW) for name in models}, rounds)
    pairs = list(zip(*texts.values(), strict=True))
    return {
        "rows": n_rows,
        "floor_and_aim": FLOORS.get(n_rows),
        "pieces_per_second": {name: round(n_rows * NEW / seconds) for name, seconds in whole.items()},
        "milliseconds_to_first_piece": {name: round(seconds * 1000, 2) for name, seconds in one.items()},
        "seconds_of_first_run": first_seconds,
        "texts_equal": sum(one[0].pieces == other[0].pieces for one, other in pairs) / len(pairs),
    }


def compare(kind: str, dtype: str, rows: list[str], until: float) -> list[dict[str, Any]]:
    """The lines of the battery for one kind."""
    command = [sys.executable, str(ROOT / "tests" / "generating" / "kernel_battery.py"), "--kinds", kind]
    seconds = until - time.monotonic()
    nothing = {"kind": kind, "dtype": dtype, "right": False}
    if seconds < 5:
        return [{**nothing, "error": "there was no time left"}]
    try:
        run = subprocess.run(
            [*command, "--dtype", dtype, "--rows", *rows],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired as error:
        found = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return [*lines_of(found), {**nothing, "error": "there was no time left"}]
    lines = lines_of(run.stdout)
    return lines if run.returncode in (0, 1) and lines else [*lines, {**nothing, "error": run.stderr[-2000:]}]


def lines_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def of_battery(tasks: list[Future[list[dict[str, Any]]]]) -> dict[str, Any]:
    """How many comparisons were right, and the others in full."""
    compared = [line for task in tasks for line in task.result()]
    wrong = [line for line in compared if not line["right"]]
    for line in wrong:
        print(json.dumps(line)[:1500], flush=True)
    return {"right": len(compared) - len(wrong), "not_right": len(wrong), "wrong": [json.dumps(each) for each in wrong]}


@torch.no_grad()
def main() -> int:
    """Compare, measure, print, write; 1 if a part or a comparison failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=175)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", default="gpt2", choices=sorted(SIZES))
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS, help="of decoders that are compared")
    parser.add_argument("--battery-rows", nargs="+", default=["1", "4", "6"], help="rows of those")
    parser.add_argument("--battery-share", type=float, default=0.5, help="of the seconds that comparing may take")
    parser.add_argument("--device", default="cuda", help="cpu: a trial of this script, without kernels")
    parser.add_argument("--processes", type=int, default=max((os.cpu_count() or 2) - 2, 1))
    options = parser.parse_args()
    started = time.monotonic() - since_start()
    if options.device == "cuda" and not torch.cuda.is_available():
        skip("torch sees no GPU here; tests/generating/kernel_battery.py --device cpu compares all kinds on a CPU")
    faulthandler.dump_traceback_later(
        started + options.seconds + 2 - time.monotonic(), exit=True
    )  # should a kernel never end
    report = Report("generate_kernels", options.out, started + options.seconds)
    print(machine("torch") + f"; {options.size}, bf16, prompts of {PROMPT}, {NEW} new pieces", flush=True)
    with ThreadPoolExecutor(options.processes) as pool:
        until = started + options.battery_share * options.seconds
        pairs = [(kind, dtype) for kind in options.kinds for dtype in ("bf16", "fp32")]
        tasks = [pool.submit(compare, *pair, options.battery_rows, until) for pair in pairs]
        bundle = random_bundle(options.size, options.device)
        for n_rows in options.rows:
            report.part("equality", functools.partial(equality, bundle, n_rows))
        battery = report.part("battery", lambda: of_battery(tasks))
    prompts = {
        n_rows: torch.randint(
            SIZES[options.size].vocabulary, (n_rows, PROMPT), generator=torch.Generator().manual_seed(n_rows)
        )
        for n_rows in options.rows
    }
    for n_rows in options.rows:
        for route in ROUTES:
            report.part("step", functools.partial(step_times, bundle, route, prompts[n_rows]))
    for n_rows in options.rows:
        report.part("texts", functools.partial(measure, bundle, prompts[n_rows], options.rounds), least=4)
    for n_rows in options.rows:
        report.part("profile", functools.partial(profile, bundle, "kernels, not early", prompts[n_rows]), least=4)
    faulthandler.cancel_dump_traceback_later()
    return int(report.failed or battery is None or bool(battery["not_right"]))


if __name__ == "__main__":
    sys.exit(main())
