"""Which word vectors tell senses apart: by model, layer and centering, on CoarseWSD-20, WiC and UD-EWT.

- CoarseWSD-20, with labels: does the nearest training use have the sense of a test use? By cosines as they are, without
  the mean of all words of the sentences, and without the mean of the word's own uses (vectors at length 1 before it is
  taken away). The layer is chosen on the training uses (each by its nearest other one), the result is on the test uses.
- CoarseWSD-20, without labels: V-measure of as many groups as there are senses, of the word's vectors alone and with
  those of the words around it, as `polyseme senses` takes them.
- Short sentences, written for this: the share of the right sense among the 10 nearest training uses, of which there are
  equally many of each sense.
- WiC: accuracy of a threshold on the cosine, chosen on the training pairs, on the development pairs.
- UD-EWT: accuracy of a linear probe for parts of speech.

Of each word 250 training and 200 test uses are drawn, of UD-EWT 2,000 sentences to train and 1,000 to test.

    POLYSEME_DATA=... python experiments/word_vectors.py [-m MODEL] [--keep vectors.npz]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import v_measure_score
from tables import data_folder, lines_of, machine, table
from wic import best_threshold, read_pairs

import polyseme
from polyseme.word_senses.context_vectors import REACH, with_context
from polyseme.word_senses.nearest_neighbors import unit
from polyseme.word_senses.sense_groups import group

CHUNK = 256
N_TRAIN, N_TEST = 250, 200
N_SENTENCES = {"train": 2000, "test": 1000}
PROBE_STEPS = 40
TOP = 10
MOST_PER_SENSE = 25
SHORT = """
apple 0 [Apple] released a new phone.
apple 1 She ate an [apple].
apple 1 He picked an [apple] from the tree.
arm 0 The phone uses an [ARM] processor.
arm 1 He broke his [arm].
arm 1 She held the baby in one [arm].
bank 0 I got a loan from the [bank].
bank 0 The [bank] closed my account.
bank 1 We sat on the [bank] and fished.
bank 1 The river rose over its [bank].
bass 0 He plays [bass] in a rock band.
bass 1 The [bass] sang the aria.
bass 2 She bowed the double [bass] in the orchestra.
bow 0 The waves hit the [bow].
bow 1 He shot an arrow with his [bow].
bow 2 The violinist raised her [bow].
chair 0 The [chair] opened the meeting.
chair 0 She was elected [chair] of the committee.
chair 1 He sat down on a [chair].
chair 1 The cat slept on the [chair].
club 0 She joined the chess [club].
club 1 They danced all night at the [club].
club 2 He hit the thief with a [club].
crane 1 A [crane] caught a fish.
crane 0 A [crane] picked up the steel beam.
crane 1 The [crane] built a nest.
crane 0 The [crane] lifted the container.
deck 0 The sailors scrubbed the [deck].
deck 1 We had a barbecue on the [deck] behind the house.
digit 0 The last [digit] is seven.
digit 1 He lost a [digit] in the accident.
digit 1 The frog has five [digits] on each foot.
hood 1 He opened the [hood] to check the engine.
hood 2 She pulled her [hood] over her head.
java 0 We flew to [Java].
java 0 A volcano erupted on [Java].
java 1 I wrote the program in [Java].
mole 0 A [mole] dug a tunnel in our garden.
mole 1 The spy was a [mole].
mole 2 One [mole] of carbon weighs twelve grams.
mole 3 The chicken was served with [mole].
mole 4 The ship was tied to the [mole].
pitcher 0 The [pitcher] threw a strike.
pitcher 1 She filled the [pitcher] with water.
pound 0 It weighs one [pound].
pound 1 It costs one [pound].
seal 0 A [seal] swam under the ice.
seal 1 [Seal] sang his hit.
seal 2 The letter bears the king's [seal].
seal 3 The [seal] of the pump leaks.
spring 0 We drank from the [spring].
spring 1 The flowers bloom in [spring].
spring 2 The [spring] in the mattress broke.
square 0 A [square] has four equal sides.
square 2 People gathered in the [square].
square 3 Nine is a [square].
trunk 0 The [trunk] was covered with bark.
trunk 1 She put the bags in the [trunk].
trunk 2 He has a tattoo on his [trunk].
yard 0 The rope is one [yard] long.
yard 1 The sail hung from the [yard].
""".strip().splitlines()
"""Word, sense in CoarseWSD-20, sentence."""

Arrays = dict[str, np.ndarray]


# --- embedding --------------------------------------------------------------------------------------------------------


class Words:
    """Embeds sentences at all layers, and keeps the mean vector of all their words."""

    def __init__(self, model: polyseme.Model) -> None:
        self.model = model
        self.n_words = 0
        self.total: Any = 0.0

    def __call__(self, sentences: list[list[str]]) -> Iterator[np.ndarray]:
        for start in range(0, len(sentences), CHUNK):
            for document in self.model.embed(sentences[start : start + CHUNK], layer="all"):
                self.total = self.total + unit(document.vectors).sum(axis=0, dtype=np.float64)
                self.n_words += len(document.words)
                yield document.vectors


def embed_all(model: polyseme.Model, folder: Path) -> Arrays:
    rng = np.random.default_rng(0)
    arrays: Arrays = {}
    words = Words(model)
    for path in sorted(each for each in (folder / "coarsewsd20").iterdir() if each.is_dir()):
        for half, most in (("train", N_TRAIN), ("test", N_TEST)):
            rows = [line.split("\t") for line in lines_of(path / f"{half}.data.txt")]
            gold = np.array([int(line) for line in lines_of(path / f"{half}.gold.txt")])
            drawn = np.sort(rng.permutation(len(rows))[:most])
            places = [int(rows[row][0]) for row in drawn]
            texts = [rows[row][1].split() for row in drawn]
            pairs = [(vectors[at], _context(vectors, at)) for vectors, at in zip(words(texts), places, strict=True)]
            name = f"uses/{path.name}/{half}"
            arrays[name] = np.stack([own for own, _ in pairs])
            arrays[f"{name}/context"] = np.stack([mixed for _, mixed in pairs])
            arrays[f"{name}/gold"] = gold[drawn]
    arrays["mean"] = (words.total / words.n_words).astype(np.float32)
    sentences = [line.split(maxsplit=2)[2] for line in SHORT]
    given = [sentence.replace("[", " ").replace("]", " ").replace(".", " .").split() for sentence in sentences]
    marked = [sentence[sentence.index("[") + 1 : sentence.index("]")] for sentence in sentences]
    arrays["short"] = np.stack(
        [vectors[text.index(word)] for vectors, text, word in zip(words(given), given, marked, strict=True)]
    )
    for half in ("train", "dev"):
        uses, same = read_pairs(folder / "wic", half)
        places = [at for _, at in uses]
        embedded = words([text for text, _ in uses])
        arrays[f"wic/{half}"] = np.stack([vectors[at] for vectors, at in zip(embedded, places, strict=True)])
        arrays[f"wic/{half}/same"] = same
    for half, most in N_SENTENCES.items():
        tagged = list(_tagged(lines_of(folder / "ud-ewt" / f"en_ewt-ud-{half}.conllu")))
        drawn = np.sort(rng.permutation(len(tagged))[:most])
        chosen = [tagged[row] for row in drawn]
        arrays[f"ewt/{half}"] = np.concatenate(list(words([text for text, _ in chosen]))).astype(np.float16)
        arrays[f"ewt/{half}/tags"] = np.array([tag for _, tags in chosen for tag in tags])
    return arrays


def _context(vectors: np.ndarray, at: int) -> np.ndarray:
    """A use with the words around it, at every layer: [layers, D]."""
    return np.concatenate([with_context(layer, [at], REACH) for layer in vectors.swapaxes(0, 1)])


def _tagged(lines: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """The words of each sentence and their parts of speech."""
    words: list[str] = []
    tags: list[str] = []
    for line in [*lines, ""]:
        cells = line.split("\t")
        if not line and words:
            yield words, tags
            words, tags = [], []
        elif cells[0].isdecimal():
            words.append(cells[1])
            tags.append(cells[3])


# --- measures ---------------------------------------------------------------------------------------------------------


def centerings(arrays: Arrays, layer: int, train: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """By name, what is done to vectors before they are compared."""
    corpus, word = arrays["mean"][layer], unit(train).mean(axis=0)
    return {
        "as they are": unit,
        "without the corpus mean": lambda vectors: unit(unit(vectors) - corpus),
        "without the word's mean": lambda vectors: unit(unit(vectors) - word),
    }


def neighbors(arrays: Arrays, words: list[str], layer: int) -> dict[str, tuple[float, float]]:
    """By centering, accuracy of the nearest neighbor: on training uses by the others, and on test uses."""
    right: dict[str, list[tuple[float, float]]] = {}
    for word in words:
        train, test = arrays[f"uses/{word}/train"][:, layer], arrays[f"uses/{word}/test"][:, layer]
        gold, expected = arrays[f"uses/{word}/train/gold"], arrays[f"uses/{word}/test/gold"]
        for name, change in centerings(arrays, layer, train).items():
            among = change(train) @ change(train).T
            np.fill_diagonal(among, -np.inf)
            near = (change(test) @ change(train).T).argmax(axis=1)
            scores = ((gold[among.argmax(axis=1)] == gold).mean(), (gold[near] == expected).mean())
            right.setdefault(name, []).append(scores)
    return {name: tuple(100 * np.mean(scores, axis=0)) for name, scores in right.items()}


def short_sentences(arrays: Arrays, layer: int) -> dict[str, float]:
    """By centering, the share of the right sense among the nearest uses of as many of each sense."""
    shares: dict[str, list[float]] = {}
    for line, query in zip(SHORT, arrays["short"][:, layer], strict=True):
        word, sense, _ = line.split(maxsplit=2)
        gold = arrays[f"uses/{word}/train/gold"]
        n_each = min(int(np.bincount(gold)[np.unique(gold)].min()), MOST_PER_SENSE)
        rows = np.concatenate([np.flatnonzero(gold == each)[:n_each] for each in np.unique(gold)])
        train = arrays[f"uses/{word}/train"][rows, layer]
        for name, change in centerings(arrays, layer, train).items():
            near = np.argsort(-(change(train) @ change(query[None])[0]))[: min(TOP, 2 * n_each)]
            shares.setdefault(name, []).append(float((gold[rows][near] == int(sense)).mean()))
    return {name: 100 * float(np.mean(each)) for name, each in shares.items()}


def v_measure(arrays: Arrays, words: list[str], layer: int, part: str) -> float:
    """V-measure of as many groups as there are senses, the mean over words."""
    values = []
    for word in words:
        gold = arrays[f"uses/{word}/test/gold"]
        if (n_senses := len(np.unique(gold))) > 1:
            vectors = unit(arrays[f"uses/{word}/test{part}"][:, layer])
            values.append(v_measure_score(gold, group(vectors, n_senses).labels))
    return float(np.mean(values))


def wic_accuracy(arrays: Arrays, layer: int) -> tuple[float, float]:
    """Accuracy on training and development pairs."""
    units = {half: unit(arrays[f"wic/{half}"][:, layer]) for half in ("train", "dev")}
    cosines = {half: (each[::2] * each[1::2]).sum(axis=1) for half, each in units.items()}
    threshold = best_threshold(cosines["train"], arrays["wic/train/same"])
    train, dev = (100 * ((cosines[half] >= threshold) == arrays[f"wic/{half}/same"]).mean() for half in cosines)
    return float(train), float(dev)


def tag_accuracy(arrays: Arrays, layer: int) -> float:
    """Accuracy of a linear probe for parts of speech, on test words."""
    tags, gold = np.unique(arrays["ewt/train/tags"], return_inverse=True)
    train, test = (arrays[f"ewt/{half}"][:, layer].astype(np.float32) for half in N_SENTENCES)
    mean, spread = train.mean(axis=0), train.std(axis=0) + 1e-6
    inputs, labels = torch.from_numpy((train - mean) / spread), torch.from_numpy(gold)
    probe = torch.nn.Linear(inputs.shape[1], len(tags))
    torch.nn.init.zeros_(probe.weight)
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=PROBE_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Any:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(probe(inputs), labels) + 1e-4 * (probe.weight**2).sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        predicted = tags[probe(torch.from_numpy((test - mean) / spread)).argmax(dim=1).numpy()]
    return float(100 * (predicted == arrays["ewt/test/tags"]).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="minilm", help="a model (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="an .npz file to store the vectors in, or to read them from")
    settings = parser.parse_args()
    started = time.perf_counter()
    if settings.keep is not None and settings.keep.exists():
        arrays = dict(np.load(settings.keep))
    else:
        arrays = embed_all(polyseme.load(settings.model, device="cpu"), data_folder())
        if settings.keep is not None:
            np.savez(settings.keep, **arrays)
    words = sorted({name.split("/")[1] for name in arrays if name.startswith("uses/")})
    rows = []
    for layer in range(len(arrays["mean"])):
        near, short = neighbors(arrays, words, layer), short_sentences(arrays, layer)
        wic = wic_accuracy(arrays, layer)
        rows.append(
            [
                str(layer),
                *(" / ".join(f"{number:.1f}" for number in near[name]) for name in near),
                " / ".join(f"{short[name]:.1f}" for name in short),
                " / ".join(f"{v_measure(arrays, words, layer, part):.3f}" for part in ("", "/context")),
                " / ".join(f"{number:.1f}" for number in wic),
                f"{tag_accuracy(arrays, layer):.1f}",
            ]
        )
    print(f"{settings.model}\n")
    head = [f"nearest neighbor, vectors {name}: train / test, %" for name in near]
    short_head = f"short sentences, the three ways: right sense among the {TOP} nearest, %"
    head = ["layer", *head, short_head, "V-measure: word / with context", "WiC: train / dev, %", "parts of speech, %"]
    print(table(head, rows))
    print(f"\n{machine('torch', 'numpy', 'scikit-learn')}; {time.perf_counter() - started:.0f} s; seed 0.")


if __name__ == "__main__":
    main()
