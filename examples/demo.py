"""One word, many vectors: *broke* in eight sentences has several meanings, and layer 0 does not tell them apart.

Prints a table of cosines for each word and writes `senses.png` and `senses.svg`: on the left the word in its context,
on the right the same word at layer 0, before any context. Then the packaged English models fill a mask, continue a text
and score two sentences, word by word.

    python examples/demo.py -o demo
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import polyseme
from polyseme.errors import MissingPackageError
from polyseme.plots.colors import ink, ramp, to_hex
from polyseme.plots.similarity_heatmaps import figure_bytes, similarity_figure
from polyseme.plots.similarity_terminal import similarity_tables
from polyseme.plots.word_uses import Use, WordUses

SENTENCES = {
    "broke": [
        "The vase broke.",
        "Dawn broke.",
        "The news broke.",
        "Sandy broke the world record.",
        "Sandy broke the law.",
        "The burglar broke into the house.",
        "The newscaster broke into the movie broadcast.",
        "We broke even.",
    ],
    "crane": ["A crane caught a fish.", "A crane picked up the steel beam.", "I saw a crane."],
    "flat": ["We had a flat tire.", "We drank flat beer.", "We heard a flat note.", "We stood on a flat surface."],
    "throw": ["They throw a party.", "They throw a fight.", "They throw a ball.", "They throw a fit."],
    "balls": ["they dance at balls", "they hit the balls"],
    "any": [
        "Are there typos? I didn't see any.",
        "Are there bookstores downtown? I didn't see any.",
    ],
}

MASKED = "The vase [MASK] into pieces."
PROMPT = "In a shocking finding, scientists"
SCORED = ["The burglar broke into the house.", "The burglar broke into the banana."]
MOST_BITS = 20.0
"""The surprisal of the darkest shade."""

HEADINGS = ("in context", "layer 0: the word and its position, no context")


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Cosine of each pair of vectors."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def uses_of(word: str, sentences: list[str], model: polyseme.Model, layer: str) -> WordUses:
    """One word in its sentences: its positions, and the cosines of its vectors."""

    def vectors(layer: str) -> np.ndarray:
        documents = model.embed(sentences, layer=layer)
        return np.stack([document.vectors[list(document.words).index(word)] for document in documents])

    places = [re.search(rf"\b{word}\b", sentence) for sentence in sentences]
    uses = [Use(place.string, place.start(), place.end()) for place in places if place is not None]
    return WordUses(word=word, uses=uses, in_context=cosines(vectors(layer)), alone=cosines(vectors("0")))


def fill_mask(console: Console) -> None:
    """The likeliest pieces at a mask, with bars for their probabilities."""
    [filled] = polyseme.fill(MASKED)
    table = Table.grid(padding=(0, 2, 0, 0))
    for piece, probability in zip(filled.pieces, filled.probabilities, strict=True):
        table.add_row(f"  {piece}", f"{probability:.3f}", "█" * round(40 * probability))
    console.print(Text("A mask, filled by english-encoder", style="bold"), MASKED, table, "", sep="\n")


def write_and_score(console: Console) -> None:
    """A prompt and what follows it; and sentences with the surprisal of each word under it, in bits."""
    model = polyseme.load("english-decoder")
    [continuation] = model.generate(PROMPT, max_new=40, top_p=0.9, stop="\n")
    console.print(Text("A text, continued by english-decoder", style="bold"))
    console.print(Text.assemble((PROMPT, "dim"), str(continuation)), "", sep="\n")
    console.print(Text("Surprisal in bits, by english-decoder", style="bold"))
    for scored in model.score(SCORED):
        bits = -scored.word_log_probs / np.log(2)
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_row(*(shaded(str(word), each) for word, each in zip(scored.words, bits, strict=True)))
        table.add_row(*(Text(f"{each:.1f}", style="dim") for each in bits))
        console.print(table, "", sep="\n")


def shaded(word: str, bits: float) -> Text:
    """A word on a background as dark as it is surprising."""
    shade = ramp(min(bits / MOST_BITS, 1.0))
    return Text(word, style=f"{ink(shade)} on {to_hex(shade)}")


def main() -> None:
    """Embed, print the tables, draw the pictures; fill, write and score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a model folder (default: MiniLM, from the extra 'demo')")
    parser.add_argument("--layer", default="-1", help="the layer to show (default: the top)")
    parser.add_argument("--words", nargs="+", choices=SENTENCES, default=list(SENTENCES), help="the words to show")
    parser.add_argument("-o", "--output", type=Path, default=Path("demo"), help="the folder for the pictures")
    settings = parser.parse_args()

    chosen = {word: SENTENCES[word] for word in settings.words}
    started = time.perf_counter()
    model = polyseme.load(settings.model)
    words = [uses_of(word, sentences, model, settings.layer) for word, sentences in chosen.items()]
    console = Console()
    console.print(similarity_tables(words, headings=HEADINGS))

    settings.output.mkdir(parents=True, exist_ok=True)
    figure = similarity_figure(words, headings=HEADINGS, title="A word has as many vectors as it has contexts")
    for format in ("png", "svg"):
        (settings.output / f"senses.{format}").write_bytes(figure_bytes(figure, format))
    card = model.show()
    if settings.model is None:
        console.print(
            "The model is all-MiniLM-L6-v2: a BERT with 6 layers, trained further as a sentence model on pairs of "
            "similar sentences; it has no masked output.",
            style="dim",
        )
    console.print(
        f"{card.family}, {card.layers} layers, {card.parameters:,} parameters; "
        f"{sum(map(len, chosen.values()))} sentences in {time.perf_counter() - started:.1f} s.\n"
        f"Pictures: {settings.output / 'senses.png'}, {settings.output / 'senses.svg'}\n",
        style="dim",
    )
    try:
        fill_mask(console)
        write_and_score(console)
    except MissingPackageError as error:
        console.print(str(error), style="dim")


if __name__ == "__main__":
    main()
