"""Words in context (WiC): do two uses of a word have the same meaning? By a threshold on the cosine of their vectors.

For each layer the threshold is the one with the highest accuracy on the training pairs; the result is its accuracy on
the development pairs.

    POLYSEME_DATA=... python experiments/wic.py [-m MODEL]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from tables import data_folder, lines_of, machine, table

import polyseme

CHUNK = 256


def read_pairs(folder: Path, half: str) -> tuple[list[tuple[list[str], int]], np.ndarray]:
    """The uses, two consecutive ones per pair, each as words and a position; and whether pairs mean the same."""
    uses = []
    for line in lines_of(folder / f"{half}.data.txt"):
        _, _, places, *sentences = line.split("\t")
        uses += [(text.split(), int(at)) for text, at in zip(sentences, places.split("-"), strict=True)]
    return uses, np.array([label == "T" for label in lines_of(folder / f"{half}.gold.txt")])


def cosines(model: polyseme.Model, uses: list[tuple[list[str], int]]) -> np.ndarray:
    """Cosine of the two uses of each pair, at every layer: [pairs, layers]."""
    vectors = []
    for start in range(0, len(uses), CHUNK):
        chunk = uses[start : start + CHUNK]
        documents = model.embed([words for words, _ in chunk], layer="all")
        vectors += [document.vectors[at] for document, (_, at) in zip(documents, chunk, strict=True)]
    unit = np.stack(vectors)
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    return (unit[::2] * unit[1::2]).sum(axis=-1)


def best_threshold(scores: np.ndarray, same: np.ndarray) -> float:
    """The threshold with the highest accuracy; of equally good ones the lowest."""
    order = np.sort(scores)
    between = np.concatenate([[-1.0], (order[1:] + order[:-1]) / 2])
    right = [((scores >= threshold) == same).mean() for threshold in between]
    return float(between[int(np.argmax(right))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a model folder (default: MiniLM, from the extra 'demo')")
    settings = parser.parse_args()
    started = time.perf_counter()
    model = polyseme.load(settings.model, device="cpu")
    folder = data_folder() / "wic"
    train_uses, train_same = read_pairs(folder, "train")
    dev_uses, dev_same = read_pairs(folder, "dev")
    train, dev = cosines(model, train_uses), cosines(model, dev_uses)
    rows = []
    for layer in range(train.shape[1]):
        threshold = best_threshold(train[:, layer], train_same)
        accuracies = [
            f"{100 * ((scores[:, layer] >= threshold) == same).mean():.1f}"
            for scores, same in ((train, train_same), (dev, dev_same))
        ]
        rows.append([str(layer), f"{threshold:.3f}", *accuracies])
    print(f"WiC, {len(train_same):,} training and {len(dev_same):,} development pairs, half of each mean the same.\n")
    print(table(["layer", "threshold", "accuracy on train, %", "accuracy on dev, %"], rows))
    print(f"\n{machine('torch', 'numpy')}; {time.perf_counter() - started:.0f} s. Nothing is random.")


if __name__ == "__main__":
    main()
