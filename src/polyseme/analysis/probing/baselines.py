"""What a label could be guessed from without a model: the most frequent one, and that of the words themselves.

And the control task (Hewitt and Liang 2019): each word type has a label that was drawn once, by the frequencies of the
real ones. A probe that learns it has memorized words; how much better the real labels are learned is its selectivity.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from polyseme.analysis.probing.targets import Targets

Ints = NDArray[np.int64]


def majority(targets: Targets, numbers: Ints) -> float:
    """The accuracy of train's most frequent label."""
    counts = np.bincount(targets.labels[targets.splits["train"]], minlength=len(targets.label_names))
    return float((targets.labels[numbers] == counts.argmax()).mean())


def per_type(targets: Targets, numbers: Ints) -> float:
    """The accuracy of the label that is most frequent in train for the same words.

    Pairs that train lacks are judged by their first span, and what is not there, either, has the most frequent label.
    """
    train = targets.splits["train"]
    wholes = _most_frequent((targets.types[n] for n in train), targets.labels[train])
    firsts = _most_frequent((targets.types[n][:1] for n in train), targets.labels[train])
    other = int(np.bincount(targets.labels[train]).argmax())
    answers = [
        wholes.get(words, firsts.get(words[:1], other)) for words in (targets.types[number] for number in numbers)
    ]
    return float((targets.labels[numbers] == np.array(answers)).mean())


def _most_frequent(types: Iterable[tuple[str, ...]], labels: Ints) -> dict[tuple[str, ...], int]:
    counts: dict[tuple[str, ...], Counter[int]] = {}
    for words, label in zip(types, labels.tolist(), strict=True):
        counts.setdefault(words, Counter())[label] += 1
    return {words: min(each, key=lambda label: (-each[label], label)) for words, each in counts.items()}


def control_labels(targets: Targets, seed: int) -> Ints:
    """[N]: of each example the label that was drawn for its type: the words of its first span.

    It depends on the words, the seed and the frequencies of the labels in train; not on the context, nor on which other
    words there are.
    """
    counts = np.bincount(targets.labels[targets.splits["train"]], minlength=len(targets.label_names))
    bounds = np.cumsum(counts) / counts.sum()
    types = [words[0] for words in targets.types]
    drawn = {word: _drawn(word, seed) for word in set(types)}
    return np.minimum(np.searchsorted(bounds, [drawn[word] for word in types], side="right"), len(counts) - 1)


def _drawn(word: str, seed: int) -> float:
    """A number from 0 to 1, by a hash."""
    digest = hashlib.blake2b(f"{seed}\n{word}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def n_types(types: Sequence[tuple[str, ...]]) -> int:
    """How many different types have a control label."""
    return len({words[0] for words in types})
