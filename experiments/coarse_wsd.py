"""CoarseWSD-20: the senses of twenty words, by the nearest labeled neighbor, and by clustering without labels.

Two questions. (1) With labels: does the nearest training use of a test use have the same sense? Layer by layer, beside
layer 0 and the most frequent sense. (2) Without labels: how many senses does `polyseme senses` find, how well do its
groups agree with the true senses (V-measure), and how often do the uses of a single sense yield one sense?

For (2) polyseme has two constants: how close near copies are, and how easily groups must separate. Here both are chosen
on the training uses of nineteen words and tested on the test uses of the twentieth, for each word in turn. The values
that all twenty words choose are printed too, beside polyseme's defaults.

    POLYSEME_DATA=... python experiments/coarse_wsd.py [-m MODEL] [--layer -1] [--keep vectors.npz]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.metrics import v_measure_score
from tables import data_folder, lines_of, machine, table

import polyseme
from polyseme.word_senses.clustering import MIN_EASE_IN_CONTEXT as MIN_EASE
from polyseme.word_senses.clustering import MIN_USES, count_senses, distinct_rows, number_by
from polyseme.word_senses.clustering import SAME_DISTANCE_IN_CONTEXT as SAME_DISTANCE
from polyseme.word_senses.context_vectors import REACH, with_context
from polyseme.word_senses.nearest_neighbors import unit
from polyseme.word_senses.sense_groups import group

CHUNK = 256
SEED = 0
SIZES = (40, 100, 300)
"""Uses in a set on which the constants are chosen: what users may have."""
SAMES = (0.0, 0.04, 0.06, 0.08, 0.1)
LEASTS = tuple(np.round(np.arange(1.2, 2.6, 0.05), 2).tolist())
FEW = 30
"""The smallest number of uses of a sense, or of a word, for a set."""
SECOND = 0.15
"""The share of a set's second sense from which the set counts as mixed."""


PARTS = ("vectors", "gold", "others")


@dataclass
class Half:
    """The training or the test uses of a word."""

    vectors: np.ndarray
    """[uses, layers, D]"""
    gold: np.ndarray
    others: np.ndarray
    """[uses, layers, D]: another word of each sentence, for the distance between words."""


@dataclass
class Case:
    """A set of uses of a word, their true senses, and how easily they separate for each threshold on near copies."""

    word: str
    gold: np.ndarray
    ease: dict[float, tuple[float, ...]]

    @property
    def n_true(self) -> int:
        return len(np.unique(self.gold))

    @property
    def is_mixed(self) -> bool:
        counts = np.sort(np.bincount(self.gold))[::-1]
        return len(counts) > 1 and counts[1] >= SECOND * counts.sum()


# --- reading and embedding -------------------------------------------------------------------------------------------


def embed_half(model: polyseme.Model, folder: Path, half: str, reach: int) -> Half:
    rows = [line.split("\t") for line in lines_of(folder / f"{half}.data.txt")]
    gold = np.array([int(line) for line in lines_of(folder / f"{half}.gold.txt")])
    vectors, others = [], []
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        for document, (at, _) in zip(model.embed([text.split() for _, text in chunk], layer="all"), chunk, strict=True):
            place = int(at)
            elsewhere = [each for each, word in enumerate(document.words) if word != document.words[place]]
            places = [place, elsewhere[len(document.text) % len(elsewhere)]]
            use, other = np.stack([with_context(layer, places, reach) for layer in document.vectors.swapaxes(0, 1)], 1)
            vectors.append(use)
            others.append(other)
    return Half(np.stack(vectors), gold, np.stack(others))


def embed_all(model: polyseme.Model, folder: Path, reach: int) -> dict[tuple[str, str], Half]:
    words = sorted(each.name for each in folder.iterdir() if each.is_dir())
    return {(word, half): embed_half(model, folder / word, half, reach) for word in words for half in ("train", "test")}


def save_vectors(path: Path, halves: dict[tuple[str, str], Half]) -> None:
    arrays = {f"{word}/{half}/{part}": getattr(uses, part) for (word, half), uses in halves.items() for part in PARTS}
    np.savez(path, **arrays)


def load_vectors(path: Path) -> dict[tuple[str, str], Half]:
    with np.load(path) as arrays:
        names = sorted({tuple(name.split("/")[:2]) for name in arrays.files})
        return {(word, half): Half(*(arrays[f"{word}/{half}/{part}"] for part in PARTS)) for word, half in names}


# --- (1) the nearest neighbor ---------------------------------------------------------------------------------------


def nearest_neighbor(halves: dict[tuple[str, str], Half]) -> str:
    words = sorted({word for word, _ in halves})
    n_layers = next(iter(halves.values())).vectors.shape[1]
    right: dict[str, list[np.ndarray]] = {"most frequent sense": []}
    for word in words:
        train, test = halves[word, "train"], halves[word, "test"]
        right["most frequent sense"].append(test.gold == np.bincount(train.gold).argmax())
        for layer in range(n_layers):
            cosines = unit(test.vectors[:, layer]) @ unit(train.vectors[:, layer]).T
            name = f"1-nearest neighbor, layer {layer}"
            right.setdefault(name, []).append(test.gold == train.gold[cosines.argmax(axis=1)])
    rows = [
        [
            name,
            f"{100 * np.mean([each.mean() for each in by_word]):.1f}",
            f"{100 * np.concatenate(by_word).mean():.1f}",
            min((f"{100 * each.mean():.1f} ({word})" for each, word in zip(by_word, words, strict=True)), key=_number),
        ]
        for name, by_word in right.items()
    ]
    return table(["", "accuracy, mean over words, %", "pooled, %", "worst word"], rows)


def _number(cell: str) -> float:
    return float(cell.split(" ", maxsplit=1)[0])


# --- (2) senses without labels ---------------------------------------------------------------------------------------


def scale_of(half: Half, layer: int) -> float:
    """The typical distance between uses of different words, as in `polyseme senses`."""
    return float(np.median(1 - unit(half.vectors[:, layer]) @ unit(half.others[:, layer]).T))


def sets_of(gold: np.ndarray, sizes: Sequence[int], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Rows of sets of uses: of each sense alone, and of all senses; a size is at most that of the pool."""
    pools = [np.flatnonzero(gold == sense) for sense in np.unique(gold)] + [np.arange(len(gold))]
    for pool in pools:
        if len(pool) < FEW:
            continue
        for size in sorted({min(size, len(pool)) for size in sizes}):
            yield np.sort(rng.permutation(pool)[:size])


def cases_of(word: str, half: Half, layer: int, sames: Sequence[float], sizes: Sequence[int]) -> list[Case]:
    rng = np.random.default_rng(SEED)
    scale = scale_of(half, layer)
    cases = []
    for rows in sets_of(half.gold, sizes, rng):
        vectors = unit(half.vectors[rows, layer])
        ease = {same: count_senses(vectors[distinct_rows(vectors, scale, same=same)], rng).ease for same in sames}
        cases.append(Case(word, half.gold[rows], ease))
    return cases


def choose(cases: Sequence[Case]) -> tuple[float, float]:
    """The constants with the highest mean accuracy on sets of one sense and on mixed sets."""
    one = [case for case in cases if case.n_true == 1]
    several = [case for case in cases if case.is_mixed]

    def score(settings: tuple[float, float]) -> float:
        same, least = settings
        return float(
            np.mean([number_by(case.ease[same], least) == 1 for case in one])
            + np.mean([number_by(case.ease[same], least) > 1 for case in several])
        )

    return max(((same, least) for same in SAMES for least in LEASTS), key=score)


def senses_tables(halves: dict[tuple[str, str], Half], layer: int) -> str:
    words = sorted({word for word, _ in halves})
    train = [case for word in words for case in cases_of(word, halves[word, "train"], layer, SAMES, SIZES)]
    rows, single, agreement, numbers = [], [], [], []
    for word in words:
        same, least = choose([case for case in train if case.word != word])
        half = halves[word, "test"]
        everything = len(half.gold)
        cases = cases_of(word, half, layer, [same, SAME_DISTANCE], [100, everything])
        alone = [case for case in cases if case.n_true == 1]
        single += [
            (number_by(case.ease[same], least) == 1, number_by(case.ease[SAME_DISTANCE], MIN_EASE) == 1)
            for case in alone
        ]
        whole = max((case for case in cases if case.n_true > 1), key=lambda case: len(case.gold), default=None)
        if whole is None:
            continue
        vectors, scale = unit(half.vectors[:, layer]), scale_of(half, layer)
        chosen = number_by(whole.ease[same], least)
        by_chosen = v_measure_score(half.gold, group(vectors, chosen, scale=scale).labels)
        by_true = v_measure_score(half.gold, group(vectors, whole.n_true, scale=scale).labels)
        counts = np.sort(np.bincount(half.gold))[::-1]
        frequent = int((counts >= 0.05 * counts.sum()).sum())
        agreement.append((by_chosen, by_true))
        numbers.append((chosen, whole.n_true, frequent))
        rows.append(
            [
                word,
                " + ".join(map(str, counts[counts > 0])),
                f"{whole.n_true} ({frequent})",
                str(chosen),
                f"{by_chosen:.2f}",
                f"{by_true:.2f}",
                f"{sum(number_by(case.ease[same], least) == 1 for case in alone)} of {len(alone)}",
                f"{same:g}, {least:g}",
            ]
        )
    parts = [
        table(
            [
                "word",
                "test uses by sense",
                "true number (with 5%)",
                "chosen",
                "V, chosen number",
                "V, true number",
                "sets of one sense that yield one",
                "copies, ease",
            ],
            rows,
        ),
        "",
        _summary(numbers, agreement, single),
        "",
        _shipped(train),
    ]
    return "\n".join(parts)


def _shipped(train: Sequence[Case]) -> str:
    """What all words together choose, beside the defaults."""
    same, least = choose(train)
    one, several = [case for case in train if case.n_true == 1], [case for case in train if case.is_mixed]
    return (
        f"All twenty words together choose copies {same:g}, ease {least:g}. polyseme's defaults are {SAME_DISTANCE:g} "
        f"and {MIN_EASE:g}; they are right on {_share(one)} of {len(one)} one-sense and {_share(several)} of "
        f"{len(several)} mixed training sets ({', '.join(map(str, SIZES))} uses)."
    )


def _share(cases: Iterable[Case]) -> str:
    right = [(number_by(case.ease[SAME_DISTANCE], MIN_EASE) == 1) == (case.n_true == 1) for case in cases]
    return f"{100 * np.mean(right):.0f}%"


def _summary(
    numbers: Sequence[tuple[int, int, int]],
    agreement: Sequence[tuple[float, float]],
    single: Sequence[tuple[bool, bool]],
) -> str:
    chosen, true, frequent = np.array(numbers).T
    by_word, shipped = np.array(single).T
    return table(
        ["measure, on test uses of words left out of the choice of constants", ""],
        [
            ["chosen number equals the true one", f"{(chosen == true).sum()} of {len(true)} words"],
            [
                "… equals the number of senses with 5% of the uses or more",
                f"{(chosen == frequent).sum()} of {len(true)} words",
            ],
            ["… is at most one off the true one", f"{(abs(chosen - true) <= 1).sum()} of {len(true)} words"],
            ["mean of chosen / true numbers", f"{chosen.mean():.2f} / {true.mean():.2f}"],
            ["V-measure, mean over words, with the chosen number", f"{np.mean([v for v, _ in agreement]):.3f}"],
            ["V-measure, mean over words, with the true number given", f"{np.mean([v for _, v in agreement]):.3f}"],
            ["sets of uses of a single sense that yield one", f"{by_word.sum()} of {len(by_word)}"],
            ["… with polyseme's defaults", f"{shipped.sum()} of {len(shipped)}"],
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a model folder (default: MiniLM, from the extra 'demo')")
    parser.add_argument("--layer", type=int, default=-1, help="the layer for senses without labels (default: the top)")
    parser.add_argument(
        "--context", type=int, default=REACH, help="words on each side that count (default: %(default)s)"
    )
    parser.add_argument("--keep", type=Path, help="an .npz file to store the vectors in, or to read them from")
    settings = parser.parse_args()
    started = time.perf_counter()
    if settings.keep is not None and settings.keep.exists():
        halves = load_vectors(settings.keep)
    else:
        model = polyseme.load(settings.model, device="cpu")
        halves = embed_all(model, data_folder() / "coarsewsd20", settings.context)
        if settings.keep is not None:
            save_vectors(settings.keep, halves)
    n_train, n_test = (
        sum(len(uses.gold) for (_, half), uses in halves.items() if half == each) for each in ("train", "test")
    )
    print(f"CoarseWSD-20, {n_train:,} training and {n_test:,} test uses of 20 words.\n")
    print(nearest_neighbor(halves))
    print()
    print(senses_tables(halves, settings.layer))
    print(
        f"\n{machine('torch', 'numpy', 'scikit-learn')}; {time.perf_counter() - started:.0f} s; seed {SEED}; "
        f"sets of at least {FEW} uses, numbers of senses from {MIN_USES} distinct uses on."
    )


if __name__ == "__main__":
    main()
