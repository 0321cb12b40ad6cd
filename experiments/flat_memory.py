"""The memory of `polyseme embed` against the length of its input.

    python experiments/flat_memory.py --words 5000000 --plot docs/assets/flat_memory.svg

A small random model with MiniLM's tokenizer embeds lines of English from a file, in a process of its own. Every tenth
of a second the resident memory of that process and its progress are recorded. Prints a table and the growth after the
first tenth of the input, draws a plot, and removes its files.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

MEBIBYTE = 2**20
SEED = 11
TEXT = (
    "the dawn broke a vase and the news of it broke into every house where people sat at table with bread and beer "
    "while a crane caught fish and another lifted beams of steel over the bank by the river"
)

MAKE_MODEL = """
import sys
import polyseme
from polyseme.api import Model
from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.encoders.transformer_config import TransformerConfig

tokenizer = polyseme.load("minilm", device="cpu").bundle.tokenizer
config = TransformerConfig(
    n_pieces=tokenizer.n_pieces, width=64, n_layers=1, n_heads=2, inner_width=64, max_positions=128
)
Model(new_bundle(FAMILIES["bert"], config, [], tokenizer).eval()).save(sys.argv[1])
"""

EMBED = """
import sys
import polyseme

def progress(done, total):
    print(done, flush=True)

cost = polyseme.embed(sys.argv[1], output=sys.argv[2], model=sys.argv[3], device="cpu", progress=progress)
print("words", cost.words, flush=True)
"""


def write_input(path: Path, n_words: int) -> None:
    draw, words = random.Random(SEED), TEXT.split()
    with path.open("w") as file:
        left = n_words
        while left > 0:
            length = min(left, draw.randint(5, 40))
            file.write(" ".join(draw.choices(words, k=length)) + "\n")
            left -= length


def resident(pid: int) -> int | None:
    """Resident memory of a process in bytes, or None if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * 4096


def measure(source: Path, output: Path, model: Path, n_words: int) -> list[tuple[float, float]]:
    """Words read, in millions, and resident MiB, at each moment."""
    size = source.stat().st_size
    progress_file = output.with_name("progress")
    points = []
    with progress_file.open("w") as log:
        command = [sys.executable, "-c", EMBED, str(source), str(output), str(model)]
        with subprocess.Popen(command, stdout=log) as process:
            while process.poll() is None:
                n_bytes = resident(process.pid)
                lines = progress_file.read_text().splitlines()
                if n_bytes and lines and lines[-1].isdigit():
                    points.append((int(lines[-1]) / size * n_words / 1e6, n_bytes / MEBIBYTE))
                time.sleep(0.1)
            if process.returncode:
                raise SystemExit(process.returncode)
    embedded = int(progress_file.read_text().split()[-1])
    if embedded != n_words:
        raise SystemExit(f"{embedded} of {n_words} words were embedded.")
    return points


def table(points: list[tuple[float, float]]) -> str:
    last = points[-1][0]
    lines = ["| words read | peak memory so far, MiB |", "|---|---|"]
    for tenth in range(1, 11):
        mebibytes = [memory for words, memory in points if words <= last * tenth / 10]
        if mebibytes:
            lines.append(f"| {last * tenth / 10:.2f} M | {max(mebibytes):.0f} |")
    return "\n".join(lines)


def plot(points: list[tuple[float, float]], path: Path, output_mib: float) -> None:
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "polyseme"
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    words, mebibytes = zip(*points, strict=True)
    axes.plot(words, mebibytes, color="#20639b", linewidth=1.2)
    axes.set_ylim(0, max(mebibytes) * 1.3)
    axes.set_xlim(0, max(words))
    axes.set_xlabel("words of input, millions")
    axes.set_ylabel("resident memory, MiB")
    axes.set_title(f"polyseme embed: memory against input ({output_mib:,.0f} MiB written)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=5_000_000)
    parser.add_argument("--suffix", default=".parquet", help="the format of the output")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path, help="write the points to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, output, model = folder / "in.txt", folder / f"out{options.suffix}", folder / "model"
        write_input(source, options.words)
        subprocess.run([sys.executable, "-c", MAKE_MODEL, str(model)], check=True)
        started = time.perf_counter()
        points = measure(source, output, model, options.words)
        seconds = time.perf_counter() - started
        written = output.stat().st_size / MEBIBYTE
    last = points[-1][0]
    early = max(memory for words, memory in points if words <= last / 10)
    print(f"{options.words:,} words, {options.suffix}, {seconds:.0f} s, {written:,.0f} MiB written")
    print(f"{platform.machine()}, Python {platform.python_version()}, seed {SEED}\n")
    print(table(points))
    peak = max(memory for _, memory in points)
    print(
        f"\npeak memory over the first tenth of the input {early:.0f} MiB, over all of it {peak:.0f} MiB: "
        f"{peak / early:.2f} ×"
    )
    if options.plot:
        plot(points, options.plot, written)
    if options.json:
        options.json.write_text(json.dumps(points))


if __name__ == "__main__":
    main()
