"""The memory of `polyseme embed` against the length of its input.

    python experiments/flat_memory.py --words 5000000 --plot docs/assets/flat_memory.svg

A small random model over MiniLM's tokenizer embeds lines of English from a file, in a process of its own; every tenth
of a second the system is asked how much memory that process holds, and how much of the input it has read is taken from
the chunks it has finished. Chunks are those of the program. Prints a table and the largest growth after the first
tenth, draws a plot, and removes what it made.
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
    """Bytes of memory that a process holds, or None if it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * 4096


def measure(source: Path, output: Path, model: Path, n_words: int) -> list[tuple[float, float]]:
    """Words read, in millions, and MiB held, at each moment."""
    size = source.stat().st_size
    said = output.with_name("progress")
    points = []
    with said.open("w") as told:
        command = [sys.executable, "-c", EMBED, str(source), str(output), str(model)]
        with subprocess.Popen(command, stdout=told) as process:
            while process.poll() is None:
                held = resident(process.pid)
                lines = said.read_text().splitlines()
                if held and lines and lines[-1].isdigit():
                    points.append((int(lines[-1]) / size * n_words / 1e6, held / MEBIBYTE))
                time.sleep(0.1)
            if process.returncode:
                raise SystemExit(process.returncode)
    embedded = int(said.read_text().split()[-1])
    if embedded != n_words:
        raise SystemExit(f"{embedded} of {n_words} words were embedded.")
    return points


def table(points: list[tuple[float, float]]) -> str:
    last = points[-1][0]
    lines = ["| words read | memory, MiB, at most so far |", "|---|---|"]
    for tenth in range(1, 11):
        held = [held for words, held in points if words <= last * tenth / 10]
        if held:
            lines.append(f"| {last * tenth / 10:.2f} M | {max(held):.0f} |")
    return "\n".join(lines)


def plot(points: list[tuple[float, float]], path: Path, output_mib: float) -> None:
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "polyseme"
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    words, held = zip(*points, strict=True)
    axes.plot(words, held, color="#20639b", linewidth=1.2)
    axes.set_ylim(0, max(held) * 1.3)
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
    parser.add_argument("--json", type=Path, help="keep the points")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, output, model = folder / "in.txt", folder / f"out{given.suffix}", folder / "model"
        write_input(source, given.words)
        subprocess.run([sys.executable, "-c", MAKE_MODEL, str(model)], check=True)
        started = time.perf_counter()
        points = measure(source, output, model, given.words)
        seconds = time.perf_counter() - started
        written = output.stat().st_size / MEBIBYTE
    last = points[-1][0]
    early = max(held for words, held in points if words <= last / 10)
    print(f"{given.words:,} words, {given.suffix}, {seconds:.0f} s, {written:,.0f} MiB written")
    print(f"{platform.machine()}, Python {platform.python_version()}, seed {SEED}\n")
    print(table(points))
    most = max(held for _, held in points)
    print(
        f"\nmemory of the first tenth of the input {early:.0f} MiB, of all of it {most:.0f} MiB: {most / early:.2f} ×"
    )
    if given.plot:
        plot(points, given.plot, written)
    if given.json:
        given.json.write_text(json.dumps(points))


if __name__ == "__main__":
    main()
