"""What a GPU is measured by, in one command of about two minutes: embedding, masked-LM training, a tagger's five seeds.

- `embed`: the encoder in bf16, bert-base size and MiniLM's (6 × 384), rows of 32 to 128 pieces and of UD-EWT's lengths
  (drawn from its quantiles without POLYSEME_DATA); beside it without kernels of ours, and with some of them.
- `attention`: torch's ways of computing attention with dropout, forward and backward, at the shapes of training.
- `bert-base`, `12 x 256`: masked-LM training in bf16 with dropout 0.1; the seconds until the first steps are taken.
- `wnut17`: character CNN, BiLSTM and CRF over WNUT-17, five seeds, as `finetune wnut17 -m none --inputs char-cnn` does.

Every figure is printed as soon as it is there, with its floor; a part that fails prints its traceback, and the next one
begins. For what is below its floor, `torch.profiler` says what the GPU does: the twelve kernels that take longest, and
the share of the time in which any runs. All figures are in a JSON file, written after each part. Rows, weights and
pieces are random but for WNUT-17. Peers are in `embed_gpu.py`, `pretrain_gpu.py` and `finetune.py`; generation and its
floors, on a GPU and on a CPU, are in `generate.py`. `quick.py` does for a CPU what this script does for a GPU.

    POLYSEME_DATA=... python benchmarks/gpu_floors.py [--seconds 115] [--parts embed bert-base …] [--out FILE]

`--tiny` runs all of it in a few seconds on a CPU, to try the script itself.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import dataclasses
import json
import os
import pstats
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from embed_gpu import lengths_of, packed_batches, synced  # noqa: E402
from measure import alternate, machine, skip  # noqa: E402
from packed import lengths_drawn  # noqa: E402
from pretrain_gpu import SHAPES, our_steps, synchronize, timed  # noqa: E402

from polyseme.datasets.named_benchmarks import read_benchmark  # noqa: E402
from polyseme.encoders.encoder import Encoder  # noqa: E402
from polyseme.encoders.encoder_kinds import build_encoder  # noqa: E402
from polyseme.encoders.inference import InferenceEncoder, PackedRows, build_inference_encoder  # noqa: E402
from polyseme.encoders.transformer_config import TransformerConfig  # noqa: E402
from polyseme.recipes.published_sizes import get_size  # noqa: E402
from polyseme.training.recorded_step import CudaRecorder  # noqa: E402
from polyseme.transfer.finetune_settings import FinetuneSettings  # noqa: E402
from polyseme.transfer.finetune_task import FinetuneRun, finetune_task  # noqa: E402
from polyseme.transfer.train_seed import StepReport  # noqa: E402

FLOORS = {
    "embed bert-base, rows of 32-128": (2.5e6, 2.8e6),
    "embed bert-base, UD-EWT": (2.2e6, 2.6e6),
    "embed MiniLM, rows of 32-128": (6e6, 9e6),
    "embed MiniLM, UD-EWT": (4e6, 7e6),
    "train bert-base": (700e3, 760e3),
    "train 12 x 256": (3.3e6, 3.6e6),
    "wnut17, 5 seeds": (45.0, 25.0),
}
"""The least that is wanted of an H200, and what is aimed at: pieces per second; for WNUT-17 seconds."""
MINILM = {"n_layers": 6, "width": 384, "n_heads": 12, "inner_width": 1536}
N_SEEDS = 5
WATCHED = (150, 160)
"""The reports, one for ten steps of a seed, between which a tagger's seeds are profiled, if they will take too long."""
LEFT_FOR_A_PROFILE = 4.0
"""Seconds that must be left for one."""


class Report:
    """What was measured, printed at once and written after each part."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.figures: dict[str, Any] = {}
        out = options.out or (Path(os.environ["OUT"]) / "gpu_floors.json" if "OUT" in os.environ else None)
        self.file = None if out is None else Path(out)

    def left(self) -> float:
        """Seconds of the budget, which counts from the start of the program."""
        return float(self.options.seconds) - (time.perf_counter() - STARTED)

    def say(self, line: str) -> None:
        print(f"[{time.perf_counter() - STARTED:6.1f} s] {line}", flush=True)

    def keep(self, part: str, /, **figures: Any) -> None:
        self.figures.setdefault(part, {}).update(figures)

    def speed(self, name: str, value: float, **more: Any) -> bool:
        """Pieces per second beside their floor; whether the floor is reached."""
        floor, aim = FLOORS[name]
        reached = value >= floor
        self.keep(name, pieces_per_second=round(value), floor=floor, aim=aim, reached=reached, **more)
        beside = "".join(f", {key} {each}" for key, each in more.items())
        self.say(f"{name}: {value / 1e6:.3f}M pieces/s (floor {floor / 1e6:.2f}M, aim {aim / 1e6:.2f}M){beside}")
        return reached

    def write(self) -> None:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.figures, indent=1))

    def profile(self, name: str, run: Callable[[], object]) -> None:
        """What the GPU does in a run."""
        if not torch.cuda.is_available() or self.left() < LEFT_FOR_A_PROFILE:
            return
        watched = Watched(self, name)
        run()
        watched.stop()

    def kernels(self, name: str, spans: list[tuple[float, float, str]], wall: float) -> None:
        """The share of the time in which the GPU is busy, and the kernels that take longest; all in microseconds."""
        busy, until, kernels = 0.0, float("-inf"), {}
        for start, end, kernel in sorted(spans):
            busy += max(0.0, end - max(start, until))
            until = max(until, end)
            kernels.setdefault(kernel, []).append(end - start)
        longest = sorted(kernels.items(), key=lambda item: -sum(item[1]))[:12]
        total = sum(map(sum, kernels.values())) or 1.0
        self.say(f"  {name}: the GPU is busy for {busy / wall:.1%} of {wall / 1000:.2f} ms, {len(spans)} kernels")
        for kernel, times in longest:
            print(
                f"    {sum(times) / total:6.1%}  {sum(times) / 1000:8.3f} ms  {len(times):5d} ×  {kernel}", flush=True
            )
        self.keep(
            name,
            busy=round(busy / wall, 4),
            wall_ms=round(wall / 1000, 3),
            kernels={kernel: [len(times), round(sum(times) / 1000, 4)] for kernel, times in longest},
        )


class Watched:
    """The GPU, from here to `stop`."""

    def __init__(self, report: Report, name: str) -> None:
        self.report, self.name = report, name
        synchronize()
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self.profile.__enter__()
        self.started = time.perf_counter()

    def stop(self) -> None:
        synchronize()
        wall = 1e6 * (time.perf_counter() - self.started)
        self.profile.__exit__(None, None, None)
        spans = [
            (event.time_range.start, event.time_range.end, event.name[:90])
            for event in self.profile.events() or []
            if event.device_type == torch.autograd.DeviceType.CUDA
        ]
        self.report.kernels(self.name, spans, wall)


# --- the parts --------------------------------------------------------------------------------------------------------


def embed(report: Report) -> None:
    """The encoder over packed rows: as it runs, and with the kernels of `packed_on_gpu` otherwise or not at all."""
    tiny, device = report.options.tiny, report.options.device
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    n_rows, budget = (60, 512) if tiny else (4000, 65536)
    bert = get_size("bert-base").config
    minilm = TransformerConfig.from_json({**bert.to_json(), **MINILM})
    lengths = {"rows of 32-128": lengths_of("uniform 32-128", n_rows), "UD-EWT": lengths_drawn(n_rows)}
    for size, config in {"bert-base": bert, "MiniLM": minilm}.items():
        if tiny:
            config = config.replace(n_layers=1, width=48, n_heads=4, inner_width=96)
        with torch.device(device):
            torch.manual_seed(0)
            exact = build_encoder(config).eval()
        encoder = copy.deepcopy(exact).to(dtype)
        plain, inference = build_inference_encoder(encoder), build_inference_encoder(encoder)
        began = time.perf_counter()
        inference.prepare()
        has_kernels = getattr(inference, "kernels", None) is not None
        report.say(
            f"embed {size}: kernels {'used' if has_kernels else 'not used'}, {time.perf_counter() - began:.1f} s"
        )
        for kind, each in lengths.items():
            name = f"embed {size}, {kind}"
            batches = packed_batches(each, budget, device)
            ways = {name: inference}
            if has_kernels or tiny:
                ways["without kernels"] = plain
                ways["kernels for sums alone"] = with_attention_kernel(inference, up_to=0)
                ways["kernels for attention always"] = with_attention_kernel(inference, up_to=1 << 30)

            def run(way: str, batches: list[PackedRows] = batches, ways: Any = ways) -> None:
                for batch in batches:
                    ways[way](batch, [-1])

            seconds = alternate({way: synced(partial(run, way)) for way in ways}, 7, warm_ups=3)
            for way in list(ways)[1:]:
                figure = f"{sum(each) / seconds[way] / 1e6:.3f}M"
                report.say(f"  {name}, {way}: {figure} pieces/s, off by {apart(exact, ways[way], batches[0]):.1e}")
                report.keep(name, **{way: figure})
            off_by = f"{apart(exact, ways[name], batches[0]):.1e}"
            reached = report.speed(name, sum(each) / seconds[name], batches=len(batches), off_by=off_by)
            if not reached:
                report.profile(name, synced(partial(run, name)))


def with_attention_kernel(inference: InferenceEncoder, *, up_to: int) -> InferenceEncoder:
    """The same with the attention kernel for batches whose rows have so many pieces on the mean, at most."""
    changed: Any = copy.copy(inference)
    if getattr(changed, "kernels", None) is not None:
        changed.kernels = dataclasses.replace(changed.kernels, max_mean_length=up_to)
    return changed  # type: ignore[no-any-return]


def apart(exact: Encoder, inference: InferenceEncoder, rows: PackedRows) -> float:
    """How far states are from those of single precision, as a share of the largest; of the first rows of a batch."""
    lengths = list(rows.lengths)[:200]
    few = PackedRows(rows.pieces[: sum(lengths)], None, lengths)
    with torch.inference_mode():
        found, expected = inference(few, [-1]), build_inference_encoder(exact)(few, [-1])
    top = max(expected)
    return float((found[top].float() - expected[top]).abs().max() / expected[top].abs().max())


def attention(report: Report) -> None:
    """Milliseconds of attention, forward and backward, by each of torch's kernels."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    device = report.options.device
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    for name, (shape, rows) in SHAPES.items():
        rows = 2 if report.options.tiny else rows
        sizes = (rows, shape["n_heads"], 128, shape["width"] // shape["n_heads"])
        q, k, v = (torch.randn(sizes, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
        upstream = torch.randn(sizes, device=device, dtype=dtype)
        for dropout in (0.0, 0.1):
            for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):

                def run(p: float = dropout, b: str = backend) -> None:
                    with sdpa_kernel([getattr(SDPBackend, b)]):
                        out = F.scaled_dot_product_attention(q, k, v, dropout_p=p)  # noqa: B023
                    torch.autograd.grad(out, (q, k, v), upstream)  # noqa: B023

                try:
                    taken, _ = timed(run, 0.1)
                    figure = f"{1e3 * taken:.3f} ms"
                except RuntimeError as error:
                    figure = f"not possible ({str(error).splitlines()[0][:60]})"
                report.keep(f"attention {name}", **{f"{backend}, dropout {dropout}": figure})
        report.say(f"attention {name}, {rows} × {sizes[1]} heads × 128 × {sizes[3]}, forward and backward:")
        for key, figure in report.figures[f"attention {name}"].items():
            print(f"    {figure}  {key}", flush=True)


def train(report: Report, name: str) -> None:
    """Masked-LM training."""
    options, (shape, rows) = report.options, SHAPES[name]
    if options.tiny:
        shape, rows = {"n_layers": 1, "width": 32, "n_heads": 2, "inner_width": 64}, 4
    began = time.perf_counter()
    step, waited, close = our_steps(shape, rows, 128, 0.1, "cuda:0" if options.device == "cuda" else "cpu")
    built = time.perf_counter() - began
    for n in (1, 4):
        for _ in range(n):
            step()
        synchronize()
        report.say(f"  train {name}: {time.perf_counter() - began:.1f} s until {len(waited)} steps were taken")
        report.keep(f"train {name}", **{f"seconds_until_step_{len(waited)}": round(time.perf_counter() - began, 2)})
    taken, n = timed(step, 0.2 if options.tiny else 3.0)
    share = sum(waited[-n:]) / n / taken
    reached = report.speed(
        f"train {name}",
        rows * 128 / taken,
        milliseconds=round(1e3 * taken, 3),
        built=f"{built:.1f} s",
        waiting_for_data=f"{share:.1%}",
    )
    if not reached:
        report.profile(f"train {name}", lambda: [step() for _ in range(3)])
    close()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class OutOfTimeError(Exception):
    """The seconds are spent."""


@contextmanager
def counted_recordings() -> Iterator[list[float]]:
    """The seconds of each recording of a step, in this block."""
    seconds: list[float] = []
    record = CudaRecorder.record

    def counted(self: CudaRecorder, run: Callable[[], Any]) -> Callable[[], Any]:
        began = time.perf_counter()
        try:
            return record(self, run)
        finally:
            seconds.append(time.perf_counter() - began)

    CudaRecorder.record = counted  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        CudaRecorder.record = record  # type: ignore[method-assign]


def wnut17(report: Report) -> None:
    """A tagger's seeds; if the seconds do not last, how far they came, and how long all would have taken."""
    options = report.options
    n_seeds = 2 if options.tiny or report.left() < 15 else N_SEEDS
    began = time.perf_counter()
    data = read_benchmark("wnut17", Path(os.environ["POLYSEME_DATA"]) / "tasks")
    read = time.perf_counter() - began
    if options.tiny:
        data = dataclasses.replace(data, splits={name: items[:40] for name, items in data.splits.items()})
    settings = FinetuneSettings(
        head="bilstm-crf", inputs=("char-cnn",), seeds=tuple(range(n_seeds)), epochs=1 if options.tiny else None
    )
    name, (floor, aim) = f"wnut17, {n_seeds} seeds", FLOORS["wnut17, 5 seeds"]
    done: dict[int, int] = {}
    n_steps = n_reports = 0
    watched: Watched | None = None
    of_host = cProfile.Profile()

    def on_report(step: StepReport) -> None:
        nonlocal n_steps, n_reports, watched
        done[step.seed], n_steps = max(done.get(step.seed, 0), step.done), step.n_steps
        n_reports += 1
        share = sum(done.values()) / (n_steps * n_seeds)
        if n_reports == WATCHED[0] and (time.perf_counter() - began) / share > floor and options.device == "cuda":
            watched = Watched(report, name)
            of_host.enable()
        elif n_reports == WATCHED[1] and watched is not None:
            of_host.disable()
            watched.stop()
            pstats.Stats(of_host, stream=sys.stdout).sort_stats("tottime").print_stats(12)
        if report.left() < 1.0:
            raise OutOfTimeError

    began = time.perf_counter()
    with counted_recordings() as recordings:
        try:
            finetuned = finetune_task(data, None, settings, FinetuneRun(device=options.device, on_report=on_report))
        except OutOfTimeError:
            finetuned = None
    taken = time.perf_counter() - began
    recorded = f"{len(recordings)} steps recorded in {sum(recordings):.1f} s; data read in {read:.1f} s"
    if finetuned is None:
        share = sum(done.values()) / max(n_steps * n_seeds, 1)
        total = taken / share if share else float("inf")
        report.say(
            f"{name}: stopped after {taken:.1f} s and {share:.0%} of the steps, all of them would take about "
            f"{total:.0f} s (floor {floor:.0f} s, aim {aim:.0f} s); {recorded}"
        )
        report.keep(name, stopped_after=round(taken, 1), share=round(share, 3), estimated_seconds=round(total, 1))
    else:
        report.say(f"{name}: {taken:.1f} s (floor {floor:.0f} s, aim {aim:.0f} s, of 5 seeds); {recorded}")
        figures = [round(100 * each.dev["span_f1"], 1) for each in finetuned.report.seeds]
        report.say(f"  span F1 on dev, by seed: {figures}")
        report.keep(name, seconds=round(taken, 1), floor=floor, aim=aim, span_f1=figures)
    report.keep(name, recordings=len(recordings), seconds_recording=round(sum(recordings), 2))


PARTS: dict[str, Callable[[Report], None]] = {
    "embed": embed,
    "attention": attention,
    "bert-base": lambda report: train(report, "bert-base"),
    "12 x 256": lambda report: train(report, "12 x 256"),
    "wnut17": wnut17,
}


def main() -> None:
    """Run the parts in the order in which they are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=115.0)
    parser.add_argument("--out", help="a JSON file (default: gpu_floors.json in $OUT)")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, on a CPU where there is no GPU")
    options = parser.parse_args()
    options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device == "cpu" and not options.tiny:
        skip("torch sees no GPU here; --tiny tries the script itself")
    torch.set_float32_matmul_precision("high")
    report = Report(options)
    report.say(f"imported; {machine('torch')}")
    report.keep("machine", name=machine("torch"), seconds_imports=round(time.perf_counter() - STARTED, 1))
    if options.device == "cuda":
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        peak = 2 * 8192**3 / timed(lambda: a @ a, 0.3)[0]
        report.say(f"a matrix product of 8192³ in bf16: {peak / 1e12:.0f} TFLOP/s")
        report.keep("machine", matrix_product_tflops=round(peak / 1e12))
    for name in options.parts:
        if report.left() < 5:
            report.say(f"{name}: left out, the {options.seconds:.0f} seconds are spent")
            continue
        try:
            PARTS[name](report)
        except Exception:  # noqa: BLE001 - the other parts are measured all the same
            report.say(f"{name} failed:")
            traceback.print_exc(file=sys.stdout)
            report.keep(name, failed=traceback.format_exc(limit=-3))
        report.write()
    report.say("done" if report.file is None else f"done; figures in {report.file}")


if __name__ == "__main__":
    main()
