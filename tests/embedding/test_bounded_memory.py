"""A document of any length in bounded memory: a real process, its peak measured by the system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import polyseme
from polyseme.api import Model
from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.encoders.transformer_config import TransformerConfig

MEGABYTE = 2**20
SENTENCE = "The burglar broke into the house. "
"""Seven words."""
A_WORD = 800
"""Bytes that a word may take besides its vector: the word itself, its pieces, their windows. To hold the states of all
windows, in which every piece occurs twice, would take twice its vector more."""

MEASURE = """
import json, resource, sys
import polyseme

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

model = polyseme.load(sys.argv[1], device="cpu")
model.embed(["Dawn broke. " * 2000])  # all that is laid out once is laid out
{prepare}
before = peak()
{work}
print(json.dumps({{"grown": peak() - before, "words": words, "size": size}}))
"""


def measure(folder: Path, prepare: str, work: str, *arguments: Path) -> dict[str, int]:
    script = MEASURE.format(prepare=prepare, work=work)
    command = [sys.executable, "-c", script, str(folder), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured: dict[str, int] = json.loads(done.stdout)
    return measured


def save_small_model(folder: Path, *, width: int) -> None:
    """MiniLM's tokenizer over a small random encoder."""
    tokenizer = polyseme.load("minilm", device="cpu").bundle.tokenizer
    assert tokenizer is not None
    config = TransformerConfig(
        n_pieces=tokenizer.n_pieces, width=width, n_layers=1, n_heads=2, inner_width=width, max_positions=128
    )
    Model(new_bundle(FAMILIES["bert"], config, [], tokenizer).eval()).save(folder)


def test_a_document_of_fifty_thousand_words(tmp_path: Path) -> None:
    save_small_model(tmp_path / "model", width=128)
    prepare = f"text = {SENTENCE!r} * 7_000"
    work = "[found] = model.embed([text])\nwords, size = len(found.words), found.vectors.nbytes"
    measured = measure(tmp_path / "model", prepare, work)
    assert measured["words"] == 49_000
    assert measured["size"] == 49_000 * 128 * 4
    assert measured["grown"] < measured["size"] + A_WORD * measured["words"]


@pytest.mark.slow
def test_a_line_of_ten_megabytes(tmp_path: Path) -> None:
    """From a file to a file; the line is one document, so that its words and vectors are held, once."""
    save_small_model(tmp_path / "model", width=16)
    source, output = tmp_path / "line.txt", tmp_path / "vectors.npz"
    n_sentences = 10 * MEGABYTE // len(SENTENCE) + 1
    source.write_text(SENTENCE * n_sentences)
    call = "polyseme.embed(sys.argv[2], output=sys.argv[3], model=sys.argv[1], device='cpu')"
    measured = measure(tmp_path / "model", "", f"words = {call}.words\nsize = words * 16 * 4", source, output)
    assert measured["words"] == 7 * n_sentences
    assert measured["grown"] < measured["size"] + A_WORD * measured["words"]
    [found] = polyseme.read_vectors(output)
    assert len(found.words) == measured["words"]
