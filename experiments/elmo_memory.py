"""Memory and time of ELMo of the original size for 100,000 words in one call on a CPU.

    python experiments/elmo_memory.py TEXT [--words 100000] [--size elmo-original] [--layer -1]

Random weights of a published size, since memory and time do not depend on their values; real text, since they depend on
its words and sentence lengths. All vectors of the call are in memory at the end.
"""

from __future__ import annotations

import argparse
import lzma
import resource
import time
from pathlib import Path

import torch
from tables import machine

from polyseme.api import Model
from polyseme.bundle import new_bundle
from polyseme.convert.elmo import SIZES
from polyseme.convert.families import FAMILIES
from polyseme.text.character_tokenizer import CharacterTokenizer
from polyseme.text.documents import string_to_document
from polyseme.text.sentences import split_sentences

GIBIBYTE = 2**30


def sentences_of(path: Path, n_words: int) -> list[list[str]]:
    """The first sentences of a text, with `n_words` words in all."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        sentences: list[list[str]] = []
        left = n_words
        for line in file:
            for start, end in split_sentences(line.strip()):
                words = [str(word) for word in string_to_document(line.strip()[start:end]).words][:left]
                if words:
                    sentences.append(words)
                    left -= len(words)
                if not left:
                    return sentences
    raise SystemExit(f"{path} has fewer than {n_words:,} words.")


def main() -> None:
    """Embed, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--size", default="elmo-original", choices=SIZES)
    parser.add_argument("--layer", default="-1")
    options = parser.parse_args()
    sentences = sentences_of(options.text, options.words)
    torch.manual_seed(0)
    config = SIZES[options.size]
    bundle = new_bundle(FAMILIES["elmo"], config, [], CharacterTokenizer(config.max_characters)).eval()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    started = time.perf_counter()
    embedded = Model(bundle).embed(sentences, layer=options.layer)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    n_words = sum(len(document.words) for document in embedded)
    print(
        f"{machine('torch')}; {options.size}, layer {options.layer}: {n_words:,} words of {len(sentences):,} sentences "
        f"in {seconds:.0f} s ({n_words / seconds:,.0f} words/s); at most {peak / GIBIBYTE:.2f} GiB, of which "
        f"{before / GIBIBYTE:.2f} GiB were in use before the call (Python, torch, the model's weights)"
    )


if __name__ == "__main__":
    main()
