"""Workers of Ray killed at random moments: is anything lost, doubled or different?

    python experiments/ray_kills.py --tries 10 [-m minilm]

In each try `polyseme embed … --ray local:3` runs in a process of its own, over rows of random words, and after a random
number of stored chunks one of its workers is killed (SIGKILL), chosen at random. The output is compared byte for byte
with that of one process. Prints a line for each try, and how many failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = ("dawn", "broke", "a", "vase", "and", "the", "news", "of", "it", "into", "every", "house", "bread")


def write_input(path: Path, n_rows: int, draw: random.Random) -> None:
    """Rows with many blanks, so that a chunk is quickly done; one in fifty is null."""
    with path.open("w") as file:
        for row in range(n_rows):
            text = " ".join(draw.choices(WORDS, k=draw.randint(0, 30))) + " " * 4000
            file.write(f'{{"id": "{row}", "text": {"null" if row % 50 == 7 else chr(34) + text + chr(34)}}}\n')


def command(source: Path, output: Path, model: str, *more: str) -> list[str]:
    own = ["--field", "text", "--id-field", "id", "-m", model, "-o", str(output)]
    return [sys.executable, "-m", "polyseme", "embed", str(source), *own, *more]


def workers_of(driver: int) -> list[int]:
    """The workers that a process has started."""
    parents, workers = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(b"ray::ChunkWorker"):
                workers.append(int(folder.name))

    def is_ours(pid: int) -> bool:
        return pid == driver or (pid in parents and is_ours(parents[pid]))

    return [pid for pid in workers if is_ours(pid)]


def one_try(source: Path, output: Path, model: str, draw: random.Random) -> str:
    """What was done to a run."""
    n_chunks = draw.randint(1, 6)
    with subprocess.Popen(
        command(source, output, model, "--ray", "local:3"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        unfinished = output.with_name(f"{output.name}.unfinished")
        while process.poll() is None and len(list(unfinished.glob("[0-9]*.json"))) < n_chunks:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.3)
        workers = workers_of(process.pid)
        killed = None
        if workers:
            killed = draw.choice(workers)
            with contextlib.suppress(ProcessLookupError):
                os.kill(killed, signal.SIGKILL)
        _, report = process.communicate()
    if process.returncode:
        print(report, file=sys.stderr)
    noticed = "noticed" if "has ended; others" in report else "after its last chunk"
    return f"killed after {n_chunks} chunks, {noticed}, exit code {process.returncode}" if killed else "killed nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-m", "--model", default="minilm")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        source, whole = Path(folder) / "in.jsonl", Path(folder) / "whole.parquet"
        write_input(source, options.rows, draw)
        one = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command(source, whole, options.model), check=True, env=one, stderr=subprocess.DEVNULL)
        expected = whole.read_bytes()
        for number in range(1, options.tries + 1):
            output = Path(folder) / f"{number}.parquet"
            done = one_try(source, output, options.model, draw)
            left = [path.name for path in Path(folder).iterdir() if path.name.startswith(f"{number}.parquet.")]
            same = output.exists() and output.read_bytes() == expected and not left
            failures += not same or done == "killed nothing"
            print(f"try {number}: {done}: {'the same bytes' if same else 'DIFFERENT'}", flush=True)
            output.unlink(missing_ok=True)
    print(f"{options.tries} tries, {failures} failures")


if __name__ == "__main__":
    main()
