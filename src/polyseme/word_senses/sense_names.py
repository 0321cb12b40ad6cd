"""Names for groups of uses: the neighbors that tell most about a group, and the words that could replace its word.

Neighbors are counted: words around the uses of one group that are rare around those of the others, by their log-odds
with a prior (Monroe, Colaresi and Quinn 2008, "Fightin' words"). Replacements are predicted: a masked language model
fills the place of the word in the most typical uses of each group.

Shapes: V pieces of the vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.plots.word_uses import Use
from polyseme.text.documents import make_document
from polyseme.text.tokenizer import MASK_TEXT
from polyseme.text.word_forms import form
from polyseme.text.words import split_words
from polyseme.types import Batch

REACH = 10
"""Words on each side of a use that are its neighbors."""
MIN_TELLING = 1.96
"""Standard deviations by which a neighbor must be more frequent in one group than in the others."""
MOST_ELSEWHERE = 0.005
"""The share of a telling neighbor among the words elsewhere at most: commoner words (by, was) join others."""
MIN_LETTERS = 3
MIN_TIMES = 2
"""Uses of a group that must have the neighbor."""
PRIOR = 0.1
"""Uses that the prior counts for, as a share of those compared."""
N_FILLED = 10
"""Typical uses of a group whose word is replaced."""
CONTEXT = 120
"""Characters on each side of the word that the masked model reads."""
N_CANDIDATES = 60
"""Pieces that are looked at, of which some are parts of words."""
N_WORDS = 5
"""Neighbors and replacements of each group."""


def telling_neighbors(
    uses: Sequence[Use], labels: Sequence[int], background: Mapping[str, int] | None = None
) -> list[list[str]]:
    """The neighbors that distinguish each group from the others, the most telling first.

    Labels are counted from 0. With one group, its neighbors are compared with `background`: forms of words with their
    frequencies in texts without the word.
    """
    n_groups = max(labels) + 1
    counts: list[Counter[str]] = [Counter() for _ in range(n_groups)]
    for use, label in zip(uses, labels, strict=True):
        counts[label].update(set(_neighbors(use)))
    rest: list[Mapping[str, int]] = [
        sum((other for number, other in enumerate(counts) if number != label), Counter()) for label in range(n_groups)
    ]
    if n_groups == 1:
        rest = [background or {}]
    return [_distinctive_words(own, others) for own, others in zip(counts, rest, strict=True)]


def _distinctive_words(own: Mapping[str, int], others: Mapping[str, int]) -> list[str]:
    """The words with the highest log-odds ratio, in standard deviations."""
    n_own, n_others = sum(own.values()), sum(others.values())
    if not n_own or not n_others:
        return []
    strength = PRIOR * (n_own + n_others)
    scores: dict[str, float] = {}
    for word, times in own.items():
        elsewhere = others.get(word, 0)
        if times < MIN_TIMES or elsewhere > MOST_ELSEWHERE * n_others:
            continue
        prior = strength * (times + elsewhere) / (n_own + n_others)
        odds = (times + prior) / (n_own + strength - times - prior)
        odds_elsewhere = (elsewhere + prior) / (n_others + strength - elsewhere - prior)
        spread = np.sqrt(1 / (times + prior) + 1 / (elsewhere + prior))
        scores[word] = float(np.log(odds / odds_elsewhere) / spread)
    ranked = sorted(scores, key=lambda word: (-scores[word], word))
    return [word for word in ranked if scores[word] >= MIN_TELLING][:N_WORDS]


def _neighbors(use: Use) -> list[str]:
    """The forms of the words around a use, punctuation and numbers left out."""
    own = form(use.text[use.start : use.end])
    before = [form(word) for word in split_words(use.text[: use.start])][-REACH:]
    after = [form(word) for word in split_words(use.text[use.end :])][:REACH]
    return [word for word in [*before, *after] if word != own and len(word) >= MIN_LETTERS and word.isalpha()]


# --- replacements -----------------------------------------------------------------------------------------------------


def replacements(bundle: Bundle, word: str, uses: Sequence[Sequence[Use]]) -> list[list[str]]:
    """For each group the words that a masked model would put in the place of the word: likely here, and less elsewhere.

    `uses` are the typical uses of each group. Only words that are one piece of the model's are found.
    """
    likely = [_predict_replacements(bundle, group[:N_FILLED]) for group in uses]
    known = [each for each in likely if each is not None]
    return [[] if each is None else _words_of(bundle, word, _scores(each, known)) for each in likely]


def _scores(likely: NDArray[Any], groups: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """How much each piece adds to the divergence of a group from all; of a single group, its probability. [V]"""
    if len(groups) == 1:
        return likely
    result: NDArray[Any] = likely * np.log(likely / np.mean(groups, axis=0))
    return result


def _predict_replacements(bundle: Bundle, uses: Sequence[Use]) -> NDArray[np.float64] | None:
    """The probability of each piece in the place of the word; None if no use can be filled. [V]

    Over uses it is the geometric mean, so that what fits one use only counts little.
    """
    tokenizer: Any = bundle.tokenizer
    rows = []
    for use in uses:
        before, _, after = use.keyword(CONTEXT)
        encoded = tokenizer.encode_with_masks(f"{before}{MASK_TEXT}{after}")
        framed = tokenizer.frame(encoded.ids)
        window = bundle.config.window
        if len(encoded.words) != 1 or (window is not None and len(framed.ids) > window):
            continue  # the text has a mask of its own, or is too long
        batch = Batch(
            torch.from_numpy(framed.ids)[None].to(bundle.device),
            segments=torch.from_numpy(framed.segments)[None].to(bundle.device),
        )
        with torch.inference_mode():
            states = bundle.encoder(batch, layers=[-1])[-1][0]
            output: Any = bundle.outputs["masked"]
            log_probs = output.log_probs(states[int(encoded.words[0, 0]) + framed.offset][None])[0]
        rows.append(log_probs.double().cpu().numpy())
    return np.exp(np.mean(rows, axis=0)) if rows else None


def _words_of(bundle: Bundle, word: str, scores: NDArray[Any]) -> list[str]:
    """The pieces with the highest scores that are words of their own, and not the word itself."""
    tokenizer: Any = bundle.tokenizer
    best = np.argsort(-scores, kind="stable")[:N_CANDIDATES]
    words = [tokenizer.decode([piece]).strip() for piece in best.tolist()]
    candidates = [
        (piece, text) for piece, text in zip(best.tolist(), words, strict=True)
        if scores[piece] > 0 and len(text) > 1 and text.isalpha() and form(text) != form(word)
    ]  # fmt: skip
    by_form: dict[str, str] = {}
    for piece, text in candidates:
        encoded = tokenizer.encode(make_document(f"the {text}"))
        first, last = encoded.words[-1].tolist()
        if encoded.ids[first : last + 1].tolist() == [piece]:
            by_form.setdefault(form(text), text)
    return list(by_form.values())[:N_WORDS]


def name_of(replacing: Sequence[str], neighbors: Sequence[str]) -> str:
    """A short name for a group; empty where nothing tells it apart.

    >>> name_of(["smashed", "shattered", "split"], ["glass", "window", "pieces"])
    'smashed, shattered (glass, window)'
    """
    first, around = ", ".join(replacing[:2]), ", ".join(neighbors[:2])
    return f"{first} ({around})" if first and around else first or around
