"""Recurrent encoders on a GPU beside plain cuDNN in one run: ELMo's inference, and AWD-LSTM's training.

    python benchmarks/recurrent_gpu.py [--rows 512] [--length 128] [--dtype bf16] [--rounds 5] [--seconds 60]
    python benchmarks/recurrent_gpu.py --awd-lstm [--rows 80] [--length 70] [--dtype fp32] [--rounds 15]

**ELMo's** four LSTMs (4096 cells, width 512, two per direction), forward pass. Four routes: `torch.nn.LSTM` with a
projection, stacked (cuDNN, which has no clipping); polyseme's encoder without clipping, which runs the same kernels;
and with the clipping that the published weights need, by two products and two kernels per step, eager and as a CUDA
graph. All leave out the token layer, which is computed once per word type. First the kernels are compared with the loop
that is written out: `tests/parts/lstm_battery.py`, and the whole encoder. With --loop that loop is timed, too. Each
line is printed as soon as it is known; a part that fails is printed with its traceback, and the next one follows. All
is written as JSON to `--out`, or to $OUT/recurrent_gpu.json; it takes at most `--seconds`.

**AWD-LSTM** (400, 1150, 1150, 400, over 33,280 words), forward and backward pass and a step of AdamW, beside a plain
model of the same shape: `torch.nn.Embedding`, three `torch.nn.LSTM` with `torch.nn.Dropout` between them, and the tied
softmax. Ours has all that is published: weight drop, dropout of words and rows, α and β. cuDNN wants the weights of a
layer in one stretch of memory; dropped weights are new in every batch, so ours are copied into one once per layer and
batch (`parts/recurrence.py`). The layers alone are timed, too, without softmax and optimizer. With --dtype bf16
products are under autocast: torch's LSTM runs in fp16 then, and ours in fp32 (TF32), since gradients leave the range of
fp16. First the kernel's gradients are compared with those of the written-out loop, with the same weights dropped.

Runs alternate; medians.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from gpu_report import Report, kernels_of, since_start
from measure import alternate, machine, skip, table
from torch import Tensor, nn

from polyseme.api import DTYPES
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.elmo import SIZES
from polyseme.convert.families import FAMILIES
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.recurrent import Recurrent, TwoWay
from polyseme.encoders.recurrent_config import TwoWayConfig
from polyseme.objectives.streams import Streamed
from polyseme.parts.recurrence import Reader
from polyseme.types import Batch

ROOT = Path(__file__).resolve().parents[1]
FLOOR = 0.75
"""The least expected share of plain cuDNN's speed, with clipping and without."""
TRAINING_FLOOR = 0.6
"""The same of AWD-LSTM's training."""


class PlainStack(nn.Module):
    """Two layers per direction, the second with a skip connection, in plain torch."""

    def __init__(self, width: int, n_cells: int) -> None:
        super().__init__()
        self.forwards, self.backwards = (
            nn.ModuleList(nn.LSTM(width, n_cells, proj_size=width, batch_first=True) for _ in range(2))
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        halves = []
        for layers, tokens in ((self.forwards, x), (self.backwards, x.flip(1))):
            first = layers[0](tokens)[0]
            halves.append(layers[1](first)[0] + first)
        return torch.cat([halves[0], halves[1].flip(1)], dim=-1)


def captured(run: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Tensor]:
    """The same as a CUDA graph."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        run(x)
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(x)

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay


# --- AWD-LSTM's training ----------------------------------------------------------------------------------------------


class PlainModel(nn.Module):
    """A language model of the same shape in plain torch."""

    def __init__(self, n_pieces: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.table = nn.Embedding(n_pieces, widths[0])
        nn.init.normal_(self.table.weight, std=0.1)
        pairs = itertools.pairwise(widths)
        self.layers = nn.ModuleList(nn.LSTM(below, width, batch_first=True) for below, width in pairs)
        self.dropout = nn.Dropout(0.4)
        self.bias = nn.Parameter(torch.zeros(n_pieces))

    def top(self, pieces: Tensor) -> Tensor:
        x = self.dropout(self.table(pieces))
        for layer in self.layers:
            x = self.dropout(layer(x)[0])
        return x

    def forward(self, pieces: Tensor) -> Tensor:
        logits = nn.functional.linear(self.top(pieces[:, :-1]), self.table.weight, self.bias)
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), pieces[:, 1:].flatten())


def language_model(options: argparse.Namespace, **changes: int) -> Bundle:
    family = FAMILIES["awd-lstm"]
    width, hidden = options.token_width, options.hidden
    shape = {"n_pieces": options.pieces, "token_width": width, "top_width": width, "width": hidden, **changes}
    torch.manual_seed(0)
    return new_bundle(family, family.base().replace(**shape), ["causal"]).to(options.device)


def largest_difference(options: argparse.Namespace) -> float:
    """Of any gradient by the kernel from that by the loop, relative to its largest value; with the same masks."""
    bundle = language_model(options, n_pieces=500, token_width=40, top_width=40, width=120)
    encoder = bundle.encoder
    assert isinstance(encoder, Recurrent)
    pieces = torch.randint(500, (6, 20), device=options.device)
    gradients = []
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    for written_out in (False, True):
        for layer in range(encoder.config.n_layers):
            encoder._readers(layer)[0].written_out = written_out
        torch.manual_seed(1)
        states = encoder.train()(Batch(pieces), layers=[-1])
        gradients.append(torch.autograd.grad(states[-1].square().sum(), list(encoder.parameters())))
    torch.backends.cudnn.allow_tf32 = before
    pairs = zip(*gradients, strict=True)
    return max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs)


def train_awd_lstm(options: argparse.Namespace) -> None:
    """Time a training step, whole and of the layers alone, and print the table."""
    print(f"gradients of kernel and loop differ by {largest_difference(options):.1g} of the largest at most")
    device = options.device
    pieces = torch.randint(options.pieces, (options.rows, options.length + 1), device=device)
    bundle = language_model(options)
    encoder = bundle.encoder
    nets = Streamed(activation=2.0, temporal=1.0).nets(bundle).train()
    plain = PlainModel(options.pieces, bundle.config.widths).to(device).train()
    n_targets = options.rows * options.length

    def ours_loss() -> Tensor:
        parts, _ = nets({"pieces": pieces}, None)
        return (parts["causal"] + 2 * parts["activation"] + parts["temporal"]) / n_targets

    def in_precision(loss: Callable[[], Tensor]) -> Tensor:
        half = torch.autocast(torch.device(device).type, torch.bfloat16)
        with half if options.dtype == "bf16" else contextlib.nullcontext():
            return loss()

    def step(module: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=torch.device(device).type == "cuda")

        def run() -> None:
            in_precision(loss).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 0.25, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            _wait(device)

        return run

    def layers(module: nn.Module, top: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            in_precision(lambda: top().float().square().mean()).backward()
            module.zero_grad(set_to_none=True)
            _wait(device)

        return run

    runs = {
        "torch.nn.LSTM (cuDNN), whole step": step(plain, lambda: plain(pieces)),
        "AWD-LSTM, whole step": step(nets, ours_loss),
        "torch.nn.LSTM (cuDNN), layers alone": layers(plain, lambda: plain.top(pieces[:, :-1])),
        "AWD-LSTM, layers alone": layers(encoder, lambda: encoder(Batch(pieces[:, :-1]), layers=[-1])[-1]),
    }
    seconds = alternate(runs, options.rounds, warm_ups=3)
    peers = dict(zip(runs, [*list(runs)[:1] * 2, *list(runs)[2:3] * 2], strict=True))
    rows = [
        [name, f"{1000 * each:.2f}", f"{n_targets / each / 1e6:.3f}M", f"{seconds[peers[name]] / each:.2f}"]
        for name, each in seconds.items()
    ]
    print(f"{machine('torch')}; {options.rows} rows of {options.length}, {options.dtype}\n")
    print(table(["route", "milliseconds", "pieces/s", "times plain cuDNN"], rows))
    whole, alone = (seconds[peers[name]] / seconds[name] for name in ("AWD-LSTM, whole step", "AWD-LSTM, layers alone"))
    print(f"\nAWD-LSTM: {whole:.2f} x plain cuDNN, layers alone {alone:.2f} x (floor {TRAINING_FLOOR})")


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


# --- ELMo's inference -------------------------------------------------------------------------------------------------


def main() -> int:
    """Read the options, and time one of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--awd-lstm", action="store_true", help="training of AWD-LSTM instead of ELMo's inference")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--dtype")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="elmo-original", choices=SIZES, help="of ELMo")
    parser.add_argument("--loop", action="store_true", help="time ELMo's loop without kernels, too")
    parser.add_argument("--seconds", type=float, default=60, help="that ELMo may take")
    parser.add_argument("--out", type=Path, help="of ELMo's results as JSON")
    parser.add_argument("--pieces", type=int, default=33_280, help="of AWD-LSTM")
    parser.add_argument("--token-width", type=int, default=400, help="of AWD-LSTM")
    parser.add_argument("--hidden", type=int, default=1150, help="of AWD-LSTM")
    options = parser.parse_args()
    usual = {"rows": 80, "length": 70, "rounds": 15, "dtype": "fp32"}
    if not options.awd_lstm:
        usual = {"rows": 512, "length": 128, "rounds": 5, "dtype": "bf16"}
    for name, value in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if torch.device(options.device).type == "cuda" and not torch.cuda.is_available():
        skip("torch sees no GPU here")
    if options.awd_lstm:
        train_awd_lstm(options)
        return 0
    return run_elmo(options)


def compare_kernels(device: str, dtypes: set[str], seconds: float) -> dict[str, Any]:
    """The kernels of a step beside the loop, in a process of their own."""
    battery = ROOT / "tests" / "parts" / "lstm_battery.py"
    command = [sys.executable, str(battery), "--device", device, "--dtypes", *sorted(dtypes)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    wrong = [line for line in lines if not line["right"]]
    if wrong or not lines or run.returncode:
        raise RuntimeError(f"{len(lines) - len(wrong)} comparisons right; not: {wrong}. {run.stderr[-2000:]}")
    return {"right": len(lines)}


def run_elmo(options: argparse.Namespace) -> int:
    """Compare, time every route, and print the tables; 1 if a part failed."""
    until = time.monotonic() - since_start() + options.seconds
    report = Report("recurrent_gpu", options.out, until)
    if torch.device(options.device).type == "cuda":
        faulthandler.dump_traceback_later(until + 2 - time.monotonic(), exit=True)  # should a kernel never end
    dtype, published = DTYPES[options.dtype], SIZES[options.size]
    torch.manual_seed(0)
    x = torch.randn(options.rows, options.length, published.token_width, dtype=dtype, device=options.device)
    plain = PlainStack(published.width, published.inner_width).to(options.device, dtype).eval()
    print(f"{machine('torch')}; {options.size}, {options.rows} rows of {options.length}, {options.dtype}", flush=True)

    def ours(config: TwoWayConfig) -> tuple[TwoWay, Callable[[Tensor], Tensor]]:
        encoder = cast(TwoWay, build_encoder(config)).to(options.device, dtype).eval()

        def run(tokens: Tensor) -> Tensor:
            halves = encoder.forwards.over(tokens, None, layers=[-1]), encoder.backwards.over(tokens, None, layers=[-1])
            return torch.cat([each.layers[max(each.layers)] for each in halves], dim=-1)

        return encoder, run

    # Weights are random and small, so clips of a tenth: those that are published would hold nothing back.
    clips = {"cell_clip": 0.1, "projection_clip": 0.02}
    encoder, clipped = ours(published.replace(**clips))
    _, free = ours(published.replace(cell_clip=None, projection_clip=None))

    def written_out(tokens: Tensor) -> Tensor:
        readers = [each for each in encoder.modules() if isinstance(each, Reader)]
        for reader in readers:
            reader.written_out = True
        try:
            return clipped(tokens)
        finally:
            for reader in readers:
                reader.written_out = False

    def equality() -> dict[str, Any]:
        """Both against the loop in fp32, over a few rows and times."""
        few = x[:8, :16].contiguous()
        ours, loop = clipped(few).float(), written_out(few).float()
        encoder.float()
        exact = written_out(few.float())
        encoder.to(dtype)
        largest = exact.abs().max()
        off, loop_off = (float((each - exact).abs().max() / largest) for each in (ours, loop))
        has_kernels = any(each._kernels_per_step(few) for each in encoder.modules() if isinstance(each, Reader))
        if not off <= max(2 * loop_off, 1e-2):
            raise RuntimeError(f"Kernels are off by {off:.2g} of the largest state, the loop by {loop_off:.2g}.")
        return {"has_kernels": has_kernels, "off": off, "loop_off": loop_off}

    runs: dict[str, Callable[[], Tensor]] = {
        "torch.nn.LSTM (cuDNN), no clipping": lambda: plain(x),
        "polyseme, no clipping": lambda: free(x),
        "polyseme, clipping, eager": lambda: clipped(x),
    }
    if options.loop:
        runs["polyseme, clipping, the loop"] = lambda: written_out(x)

    def capture() -> dict[str, Any]:
        replay = captured(clipped, x)
        runs["polyseme, clipping, CUDA graph"] = replay
        return {"differs_from_eager_by": float((replay() - clipped(x)).abs().max())}

    def finished(run: Callable[[], Tensor]) -> Callable[[], None]:
        def run_and_wait() -> None:
            run()
            if x.is_cuda:
                torch.cuda.synchronize()

        return run_and_wait

    def speed() -> dict[str, Any]:
        seconds = alternate({name: finished(run) for name, run in runs.items()}, options.rounds)
        n_pieces = options.rows * options.length
        peer = next(iter(seconds.values()))
        rows = [
            [name, f"{1000 * each:.1f}", f"{n_pieces / each / 1e6:.3f}M", f"{peer / each:.2f}"]
            for name, each in seconds.items()
        ]
        print(table(["route", "milliseconds", "pieces/s", "times plain cuDNN"], rows), flush=True)
        return {"floor": FLOOR, "times_plain": {name: round(peer / each, 3) for name, each in seconds.items()}}

    def profile() -> dict[str, Any]:
        rows = kernels_of(lambda: clipped(x), 4 * options.length)
        print(table(["kernel", "in a step", "µs", "µs of a step"], rows), flush=True)
        return {"kernels_of_a_step": rows}

    with torch.inference_mode():
        report.part(
            "equality of a step", lambda: compare_kernels(options.device, {"fp32", options.dtype}, options.seconds / 2)
        )
        report.part("equality", equality)
        if x.is_cuda:
            report.part("CUDA graph", capture, least=4)
        report.part("speed", speed)
        if x.is_cuda:
            report.part("profile", profile, least=4)
    faulthandler.cancel_dump_traceback_later()
    return int(report.failed)


if __name__ == "__main__":
    sys.exit(main())
