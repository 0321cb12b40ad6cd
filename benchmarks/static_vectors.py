"""The first load of a file of word vectors, beside gensim's: GloVe's text, or word2vec's text or binary format.

python benchmarks/static_vectors.py glove.6B.50d.txt [--rounds 3]

Seconds are those of the call alone, with both libraries imported and the file in the system's cache; polyseme's are of
`load`, with the tokenizer. The vectors are compared to the bit.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from gensim.models import KeyedVectors
from measure import alternate, machine, table

from polyseme.api import load
from polyseme.convert.families import FAMILIES
from polyseme.convert.word_vector_files import HEAD, recognize


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    settings = parser.parse_args()
    with settings.file.open("rb") as opened:
        found = recognize(opened.read(HEAD))
    if found is None:
        parser.error("the file holds no word vectors of GloVe or word2vec")
    FAMILIES["static"]  # loads what reads such files
    options = {"binary": found.kind == "binary", "no_header": found.n_words is None}
    loaded: dict[str, object] = {}
    cpu: dict[str, float] = {}

    def timed(name: str, read: object) -> None:
        started = time.process_time()
        loaded[name] = read()  # type: ignore[operator]
        cpu[name] = time.process_time() - started

    seconds = alternate(
        {
            "polyseme": lambda: timed("polyseme", lambda: load(settings.file, device="cpu")),
            "gensim": lambda: timed("gensim", lambda: KeyedVectors.load_word2vec_format(str(settings.file), **options)),
        },
        settings.rounds,
        warm_ups=0,
    )
    ours, theirs = loaded["polyseme"].bundle.encoder.table.detach().numpy(), loaded["gensim"].vectors  # type: ignore[attr-defined]
    print(machine("gensim", "pyarrow", "numpy"))
    print(f"{settings.file.name}: {len(ours):,} words of width {ours.shape[1]}, medians of {settings.rounds}\n")
    rows = [
        [name, f"{taken:.2f}", f"{cpu[name]:.2f}", f"{seconds['gensim'] / taken:.1f}"]
        for name, taken in seconds.items()
    ]
    print(table(["library", "seconds", "CPU seconds of the last", "times gensim's speed"], rows))
    print(f"\nequal to the bit: {np.array_equal(ours, theirs)}")


if __name__ == "__main__":
    main()
