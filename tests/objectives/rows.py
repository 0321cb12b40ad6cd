"""Rows to corrupt, and small models to train on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus.joined_pairs import JoinedPairs, joined
from polyseme.corpus.random_keys import row_keys
from polyseme.corpus.sentence_pair_rows import SentencePairs
from polyseme.objectives.objective import BaseObjective
from polyseme.types import Example, Rows
from spread import SPREAD
from tiny_models import tiny_config, tiny_tokenizer

FAMILY_OF = {
    "masked": "bert",
    "causal": "gpt2",
    "replaced": "electra",
    "permuted": "xlnet",
    "denoising": "bart",
    "spans": "t5",
    "translation": "transformer",
    "distilled": "bert",
    "distilled-causal": "gpt2",
    "tlm": "bert",
}
"""The family each objective is tried on."""
PAIRED = ("transformer",)
"""Those whose rows are of pairs."""

NO_DROPOUT = {
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
    "inner_dropout_rate": 0.0,
    "embedding_dropout_rate": 0.0,
}


def some_rows(
    family: str = "bert",
    n_rows: int = 6,
    length: int = 24,
    *,
    seed: int = 0,
    epoch: int = 0,
    mask_documents: bool = False,
) -> Rows:
    """Rows of a family's small tokenizer: framed where it frames, with an end between documents here and there."""
    if family in PAIRED:
        return some_pairs(family, n_rows, length, seed)
    tokenizer = tiny_tokenizer(family)
    random = np.random.default_rng(seed)
    special_ones = [*tokenizer.specials.values(), *tokenizer.backend.get_added_tokens_decoder()]
    ordinary = np.setdiff1d(np.arange(tokenizer.n_pieces), special_ones)
    pieces = random.choice(ordinary, (n_rows, length))
    special = np.zeros(pieces.shape, dtype=np.bool_)
    if "end" in tokenizer.specials:
        special |= random.random(pieces.shape) < 0.06
        pieces[special] = tokenizer.specials["end"]
    frame = tokenizer.frame(np.zeros(0, np.int64))
    before, after = frame.ids[: frame.offset], frame.ids[frame.offset :]
    for places, around in ((slice(0, len(before)), before), (slice(length - len(after), length), after)):
        pieces[:, places] = around
        special[:, places] = True
    starts = (random.random(pieces.shape) < 0.6) & ~special
    documents = np.cumsum(np.pad(special[:, :-1], ((0, 0), (1, 0))), axis=1) if mask_documents else None
    positions = None
    if documents is not None:
        first = np.maximum.accumulate(
            np.where(np.diff(documents, axis=1, prepend=-1) != 0, np.arange(length), 0), axis=1
        )
        positions = np.arange(length) - first
    keys = row_keys(seed, epoch, np.arange(n_rows))
    return Rows(
        pieces=pieces,
        starts=starts,
        special=special,
        keys=keys,
        documents=documents,
        positions=positions,
        sentences=(random.random(pieces.shape) < 0.15) & ~special,
    )


def some_pairs(family: str, n_rows: int, length: int, seed: int) -> Rows:
    """Two pairs and some padding in each row, each side with ends of its own."""
    tokenizer = tiny_tokenizer(family)
    random = np.random.default_rng(seed)
    ordinary = np.setdiff1d(np.arange(tokenizer.n_pieces), list(tokenizer.specials.values()))
    keys = row_keys(seed, 0, np.arange(n_rows))
    sides = []
    for _ in range(2):
        pieces = random.choice(ordinary, (n_rows, length))
        first = random.integers(3, length // 2, n_rows)[:, None]
        last = random.integers(length // 2 + 2, length + 1, n_rows)[:, None]
        places = np.arange(length)[None]
        documents = np.where(places < first, 0, np.where(places < last, 1, -1))
        positions = np.where(places < first, places, np.where(places < last, places - first, 0))
        special = (documents < 0) | (places == first - 1) | (places == last - 1)
        pieces[special] = tokenizer.specials["end"]
        pieces[documents < 0] = tokenizer.specials["pad"]
        sides.append(
            Rows(pieces=pieces, starts=~special, special=special, keys=keys, documents=documents, positions=positions)
        )
    return dataclasses.replace(sides[0], target=sides[1])


def rows_for(objective: BaseObjective, n_rows: int = 6, length: int = 24, *, seed: int = 0) -> Rows:
    """Rows of the objective's family in the layout that it names."""
    family = FAMILY_OF[objective.name]
    layout = objective.needs.layout
    if isinstance(layout, JoinedPairs):
        return joined(some_pairs(family, n_rows, length // 2, seed))
    if isinstance(layout, SentencePairs):
        return sentence_pairs(family, n_rows, length, seed, several=layout.unit == "sentence")
    return some_rows(family, n_rows, length, seed=seed)


def sentence_pairs(family: str, n_rows: int, length: int, seed: int, *, several: bool = False) -> Rows:
    """Two segments and some padding in each row, framed as pairs are; or several such pairs, apart from each other."""
    tokenizer = tiny_tokenizer(family)
    random = np.random.default_rng(seed)
    ordinary = np.setdiff1d(np.arange(tokenizer.n_pieces), list(tokenizer.specials.values()))
    n_pairs = 2 if several else 1
    longest = (length - 3 * n_pairs) // (2 * n_pairs)
    pieces = np.full((n_rows, length), tokenizer.specials["pad"])
    segments, positions, lengths = (
        np.zeros(pieces.shape, np.int64),
        np.zeros(pieces.shape, np.int64),
        np.zeros(n_rows, int),
    )
    documents, special = np.full(pieces.shape, -1), np.ones(pieces.shape, np.bool_)
    labels, firsts = np.full((n_rows, n_pairs + several), -1), np.zeros((n_rows, n_pairs + several), np.int64)
    for row in range(n_rows):
        for number in range(n_pairs - (several and row % 3 == 0)):
            stretches = [random.choice(ordinary, random.integers(2, longest + 1)) for _ in range(2)]
            framed = tokenizer.frame(*stretches)
            begin, lengths[row] = lengths[row], lengths[row] + len(framed.ids)
            here = slice(begin, lengths[row])
            pieces[row, here], segments[row, here] = framed.ids, framed.segments
            documents[row, here], positions[row, here] = number, np.arange(len(framed.ids))
            for first, stretch in zip((framed.offset, framed.pair_offset), stretches, strict=True):
                special[row, begin + first : begin + first + len(stretch)] = False
            labels[row, number], firsts[row, number] = (row + number) % 2, begin
    return Rows(
        pieces=pieces,
        starts=(random.random(pieces.shape) < 0.6) & ~special,
        special=special,
        keys=row_keys(seed, 0, np.arange(n_rows)),
        segments=segments,
        lengths=lengths,
        documents=documents if several else None,
        positions=positions if several else None,
        next_labels=labels,
        next_places=firsts,
    )


def some_of(rows: Rows, which: list[int]) -> Rows:
    """Some of the rows, in this order."""
    return Rows(
        pieces=rows.pieces[which],
        starts=rows.starts[which],
        special=rows.special[which],
        keys=rows.keys[which],
        documents=None if rows.documents is None else rows.documents[which],
        positions=None if rows.positions is None else rows.positions[which],
        sentences=None if rows.sentences is None else rows.sentences[which],
        segments=None if rows.segments is None else rows.segments[which],
        lengths=None if rows.lengths is None else rows.lengths[which],
        next_labels=None if rows.next_labels is None else rows.next_labels[which],
        next_places=None if rows.next_places is None else rows.next_places[which],
        target=None if rows.target is None else some_of(rows.target, which),
    )


def told(objective: BaseObjective, family: str | None = None) -> Any:
    """An objective that knows the small tokenizer of its family, and a teacher where it needs one."""
    return taught(objective).for_tokenizer(tiny_tokenizer(family or FAMILY_OF[objective.name]))


def taught(objective: Any) -> Any:
    """An objective with a small teacher, where it needs one."""
    if not objective.needs_teacher or objective.known_teacher is not None:
        return objective
    return objective.replace(known_teacher=bundle_for(objective, n_layers=3))


def bundle_for(objective: BaseObjective, *, spread: float | None = SPREAD, **changes: Any) -> Bundle:
    """A small bundle with what the objective needs, without dropout; weights redrawn with `spread`."""
    family = FAMILY_OF[objective.name]
    torch.manual_seed(2)
    config = tiny_config(family, **{**NO_DROPOUT, **changes})
    return redrawn(new_bundle(FAMILIES[family], config, objective.needs.outputs, tiny_tokenizer(family)), spread)


def redrawn(module: Any, spread: float | None) -> Any:
    """Weights spread so widely that a wrong mask shows; norms around one."""
    if spread is not None:
        generator = torch.Generator().manual_seed(7)
        for name, parameter in module.named_parameters():
            nn.init.normal_(parameter, std=spread, generator=generator)
            if name.endswith("norm.weight"):
                parameter.data += 1
    return module


def tensors(example: Example) -> dict[str, Tensor]:
    """What a step reads."""
    return {name: torch.from_numpy(array) for name, array in example.arrays.items()}


def total(objective: BaseObjective, parts: Mapping[str, Tensor], counts: Mapping[str, float]) -> Tensor:
    """What is minimized: the weighted sum of the parts' means."""
    assert parts.keys() == objective.weights.keys() == counts.keys()
    return torch.stack([parts[name] / counts[name] * weight for name, weight in objective.weights.items()]).sum()
