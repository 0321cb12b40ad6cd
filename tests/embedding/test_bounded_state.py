"""A long text goes through a recurrent encoder in bounded memory: a real process, its peak measured by the system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from polyseme.api import Model
from polyseme.bundle import new_bundle
from polyseme.convert.elmo import FAMILY
from polyseme.text.character_tokenizer import CharacterTokenizer

N_WORDS = 7_000
SPREAD_OF_ALLOCATORS = 64 * 2**20

MEASURE = f"""
import json, resource, sys
import polyseme

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

model = polyseme.load(sys.argv[1], device="cpu")
words = [f"word{{number % 500}}" for number in range({N_WORDS})]
model.embed([words[:1500]], layer=sys.argv[2])
before = peak()
[found] = model.embed([words], layer=sys.argv[2])
print(json.dumps({{"grown": peak() - before, "size": found.vectors.nbytes}}))
"""


def test_only_the_layers_asked_for_are_held_for_the_whole_text(tmp_path: Path) -> None:
    """Besides the vectors: the layers, once more where several are put together, and the characters of words.

    What a layer reads for all its gates would be 32 times a layer here, and is held for a stretch only.
    """
    config = FAMILY.tiny().replace(token_width=64, width=64, inner_width=1024, n_layers=1)
    Model(new_bundle(FAMILY, config, [], CharacterTokenizer()).eval()).save(tmp_path / "model")
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "model"), "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["size"] == N_WORDS * 2 * 128 * 4
    characters = 3 * N_WORDS * 50 * 8
    bound = 3 * measured["size"] + characters + SPREAD_OF_ALLOCATORS
    assert measured["grown"] < bound < N_WORDS * 4 * 1024 * 4  # what the gates of all words would take
