"""ELMo's four LSTMs (4096 cells, width 512, two per direction), forward pass on a GPU, beside plain cuDNN in one run.

Three routes: `torch.nn.LSTM` with a projection, stacked (cuDNN, which has no clipping); polyseme's encoder without
clipping, which runs the same kernels; and with the clipping that the published weights need, eager and as a CUDA graph.
All leave out the token layer, which is computed once per word type. Runs alternate; medians.

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
"""The least expected share of plain cuDNN's speed, without clipping."""


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


def main() -> None:
    """Time every route and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="elmo-original", choices=SIZES)
    options = parser.parse_args()
    dtype, published = DTYPES[options.dtype], SIZES[options.size]
    torch.manual_seed(0)
    x = torch.randn(options.rows, options.length, published.token_width, dtype=dtype, device=options.device)
    plain = PlainStack(published.width, published.inner_width).to(options.device, dtype).eval()

    def ours(config: object) -> Callable[[Tensor], Tensor]:
        encoder = build_encoder(config).to(options.device, dtype).eval()

        def run(tokens: Tensor) -> Tensor:
            halves = encoder.forwards.over(tokens, None, layers=[-1]), encoder.backwards.over(tokens, None, layers=[-1])
            return torch.cat([each[-1] for each in halves], dim=-1)

        return run

    clipped, free = ours(published), ours(published.replace(cell_clip=None, projection_clip=None))
    runs: dict[str, Callable[[], Tensor]] = {
        "torch.nn.LSTM (cuDNN), no clipping": lambda: plain(x),
        "polyseme, no clipping": lambda: free(x),
        "polyseme, clipping, eager": lambda: clipped(x),
    }

    def finished(run: Callable[[], Tensor]) -> Callable[[], None]:
        def run_and_wait() -> None:
            run()
            if x.is_cuda:
                torch.cuda.synchronize()

        return run_and_wait

    with torch.inference_mode():
        if x.is_cuda:
            replay = captured(clipped, x)
            runs["polyseme, clipping, CUDA graph"] = replay
            difference = (replay() - clipped(x)).abs().max()
            print(f"CUDA graph and eager differ by {float(difference):g} at most")
        seconds = alternate({name: finished(run) for name, run in runs.items()}, options.rounds)
    n_pieces = options.rows * options.length
    peer = next(iter(seconds.values()))
    rows = [
        [name, f"{1000 * each:.1f}", f"{n_pieces / each / 1e6:.3f}M", f"{peer / each:.2f}"]
        for name, each in seconds.items()
    ]
    print(f"{machine('torch')}; {options.size}, {options.rows} rows of {options.length}, {options.dtype}\n")
    print(table(["route", "milliseconds", "pieces/s", "times plain cuDNN"], rows))
    print(f"\nwithout clipping: {peer / seconds['polyseme, no clipping']:.2f} x plain cuDNN (floor {FLOOR})")


if __name__ == "__main__":
    main()
