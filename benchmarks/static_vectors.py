"""The first load of a file of word vectors, beside gensim's: GloVe's text, or word2vec's text or binary format.

python benchmarks/static_vectors.py [FILE] [--rounds 3] [--words 400000] [--figures FILE]

FILE is, for example, glove.6B.50d.txt. Without it, a file of that format is written with random numbers, of `--words`
words of width 50. Seconds are those of the call alone, with both libraries imported and the file in the system's cache;
polyseme's are of `load`, with the tokenizer. The vectors are compared to the bit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import add_figures_option, alternate, machine, need, publish, ratio, table

from polyseme.api import load
from polyseme.convert.families import FAMILIES
from polyseme.convert.word_vector_files import HEAD, recognize

WIDTH = 50


def write_vectors(path: Path, n_words: int) -> None:
    """Random vectors in GloVe's format, with its number of digits."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for number, vector in enumerate(rng.standard_normal((n_words, WIDTH))):
            file.write(f"word{number} {' '.join(f'{value:.5g}' for value in vector)}\n")


def main() -> None:
    """Read the options, and measure the file or one that is written for the purpose."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=400_000, help="of the file that is written if none is named")
    add_figures_option(parser)
    settings = parser.parse_args()
    need("gensim")
    if settings.file is not None:
        measure(settings)
        return
    with tempfile.TemporaryDirectory() as folder:
        settings.file = Path(folder, "random.txt")
        write_vectors(settings.file, settings.words)
        measure(settings)


def measure(settings: argparse.Namespace) -> None:
    """Load the file by both libraries in turn, and print the table."""
    from gensim.models import KeyedVectors

    with settings.file.open("rb") as opened:
        found = recognize(opened.read(HEAD))
    if found is None:
        raise SystemExit(f"{settings.file} holds no word vectors of GloVe or word2vec.")
    FAMILIES["static"]  # loads what reads such files
    options = {"binary": found.kind == "binary", "no_header": found.n_words is None}
    loaded: dict[str, object] = {}
    cpu: dict[str, float] = {}

    def timed(name: str, read: object) -> None:
        started = time.process_time()
        loaded[name] = read()  # type: ignore[operator]
        cpu[name] = time.process_time() - started

    every: dict[str, list[float]] = {}
    seconds = alternate(
        {
            "polyseme": lambda: timed("polyseme", lambda: load(settings.file, device="cpu")),
            "gensim": lambda: timed("gensim", lambda: KeyedVectors.load_word2vec_format(str(settings.file), **options)),
        },
        settings.rounds,
        warm_ups=0,
        every=every,
    )
    ours, theirs = loaded["polyseme"].bundle.encoder.table.detach().numpy(), loaded["gensim"].vectors  # type: ignore[attr-defined]
    print(machine("gensim", "pyarrow", "numpy"))
    print(f"{settings.file.name}: {len(ours):,} words of width {ours.shape[1]}, medians of {settings.rounds}\n")
    rows = [
        [name, f"{taken:.2f}", f"{cpu[name]:.2f}", f"{seconds['gensim'] / taken:.1f}"]
        for name, taken in seconds.items()
    ]
    print(table(["library", "seconds", "CPU seconds of the last", "times gensim's speed"], rows))
    print()
    note = f"equal to the bit: {'yes' if np.array_equal(ours, theirs) else 'no'}"
    what = f"load {len(ours):,} word vectors"
    publish([ratio(every, "gensim", "polyseme", what=what, peer="gensim", note=note)], settings.figures)


if __name__ == "__main__":
    main()
