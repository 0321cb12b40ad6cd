"""ELMo's four LSTMs (4096 cells, 512 wide, two each way) forwards on a GPU: polyseme beside plain cuDNN, in one run.

Three ways: `torch.nn.LSTM` with a projection, stacked (cuDNN, which knows no clips); polyseme's encoder without clips,
which runs the same kernels; and with the clips that the published weights need, as the loop it is, and captured once as
a CUDA graph. The token layer is left out of all: it is computed once a word type. Runs alternate; medians.

    python benchmarks/recurrent_gpu.py [--rows 512] [--length 128] [--dtype bf16] [--rounds 5] [--device cuda]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from measure import alternate, machine, table
from torch import Tensor, nn

from polyseme.api import DTYPES
from polyseme.convert.elmo import SIZES
from polyseme.encoders.encoder_kinds import build_encoder

FLOOR = 0.75
"""Of plain cuDNN's speed, without clips."""


class PlainStack(nn.Module):
    """Two layers each way, the second with a skip connection, as anyone would write it."""

    def __init__(self, width: int, n_cells: int) -> None:
        super().__init__()
        self.onward, self.back = (
            nn.ModuleList(nn.LSTM(width, n_cells, proj_size=width, batch_first=True) for _ in range(2))
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for layers, way in ((self.onward, x), (self.back, x.flip(1))):
            first = layers[0](way)[0]
            found.append(layers[1](first)[0] + first)
        return torch.cat([found[0], found[1].flip(1)], dim=-1)


def captured(run: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Tensor]:
    """The same as a CUDA graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        run(x)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(x)

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay


def main() -> None:
    """Time all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="elmo-original", choices=SIZES)
    asked = parser.parse_args()
    dtype, published = DTYPES[asked.dtype], SIZES[asked.size]
    torch.manual_seed(0)
    x = torch.randn(asked.rows, asked.length, published.token_width, dtype=dtype, device=asked.device)
    plain = PlainStack(published.width, published.inner_width).to(asked.device, dtype).eval()

    def ours(config: object) -> Callable[[Tensor], Tensor]:
        encoder = build_encoder(config).to(asked.device, dtype).eval()

        def run(tokens: Tensor) -> Tensor:
            halves = encoder.onward.over(tokens, None, layers=[-1]), encoder.back.over(tokens, None, layers=[-1])
            return torch.cat([each[-1] for each in halves], dim=-1)

        return run

    clipped, free = ours(published), ours(published.replace(cell_clip=None, projection_clip=None))
    runs: dict[str, Callable[[], Tensor]] = {
        "torch.nn.LSTM (cuDNN), no clips": lambda: plain(x),
        "polyseme, no clips": lambda: free(x),
        "polyseme, clips, a loop": lambda: clipped(x),
    }

    def finished(run: Callable[[], Tensor]) -> Callable[[], None]:
        def waits() -> None:
            run()
            if x.is_cuda:
                torch.cuda.synchronize()

        return waits

    with torch.inference_mode():
        if x.is_cuda:
            replay = captured(clipped, x)
            runs["polyseme, clips, as a CUDA graph"] = replay
            difference = (replay() - clipped(x)).abs().max()
            print(f"graph and loop differ by {float(difference):g} at most")
        seconds = alternate({name: finished(run) for name, run in runs.items()}, asked.rounds)
    n_pieces = asked.rows * asked.length
    peer = next(iter(seconds.values()))
    rows = [
        [name, f"{1000 * each:.1f}", f"{n_pieces / each / 1e6:.3f}M", f"{peer / each:.2f}"]
        for name, each in seconds.items()
    ]
    print(f"{machine('torch')}; {asked.size}, {asked.rows} rows of {asked.length}, {asked.dtype}\n")
    print(table(["route", "milliseconds", "pieces/s", "times plain cuDNN"], rows))
    print(f"\nwithout clips: {peer / seconds['polyseme, no clips']:.2f} x plain cuDNN (floor {FLOOR})")


if __name__ == "__main__":
    main()
