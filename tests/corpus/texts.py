"""Made-up text: documents of lines of sentences of words, the same for the same seed."""

from __future__ import annotations

import numpy as np

_SYLLABLES = ("ka", "lo", "mi", "ren", "tas", "po", "du", "vel", "shi", "nor", "bea", "qui")


def made_up(n_documents: int, seed: int) -> list[str]:
    """Documents of 1 to 4 lines of 1 to 8 sentences."""
    chance = np.random.default_rng(seed)
    words = ["".join(chance.choice(_SYLLABLES, chance.integers(1, 4))) for _ in range(400)]
    frequencies = 1 / np.arange(1, 401)
    frequencies /= frequencies.sum()

    def sentence() -> str:
        chosen = [str(word) for word in chance.choice(words, chance.integers(3, 15), p=frequencies)]
        return " ".join(chosen).capitalize() + str(chance.choice([".", "?", "!", ', "no."', " (3.5)."]))

    def line() -> str:
        return " ".join(sentence() for _ in range(chance.integers(1, 9)))

    return ["\n".join(line() for _ in range(chance.integers(1, 5))) for _ in range(n_documents)]
