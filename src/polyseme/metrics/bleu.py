"""BLEU and chrF (Papineni et al. 2002, Popović 2015): texts beside their references, by sacrebleu, with its signature.

A text is a line, and the reference of each is the same line of another file; there may be several such files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from polyseme.errors import InputError
from polyseme.extras import require
from polyseme.files.rows import read_rows
from polyseme.metrics.evaluation_report import Figures, Line

COLUMNS = {
    "bleu": "BLEU, from 0 to 100",
    "chrf": "chrF, from 0 to 100",
    "brevity_penalty": "of BLEU: below 1 where texts are shorter than their references",
    "length_ratio": "words of the texts by words of the references",
}


@dataclass(frozen=True)
class Sides:
    """Texts and, for each of several references, that of every text."""

    texts: list[str]
    references: list[list[str]]

    @property
    def n_references(self) -> int:
        return len(self.references)


class BleuScores(NamedTuple):
    """What sacrebleu says of all texts, and of each."""

    figures: Mapping[str, float]
    items: list[dict[str, Any]]
    notes: list[str]


def read_sides(files: Sequence[Path]) -> Sides:
    """The texts, in the first file, and their references, in the others; sides of different length are refused."""
    texts = _lines(files[0])
    references = []
    for file in files[1:]:
        lines = _lines(file)
        if len(lines) != len(texts):
            longer, shorter = (file, files[0]) if len(lines) > len(texts) else (files[0], file)
            n_fewer = min(len(lines), len(texts))
            raise InputError(
                f"{longer}, line {n_fewer + 1}: it has no counterpart, since {shorter} has only {n_fewer:,} "
                f"line{'' if n_fewer == 1 else 's'}. A text and its reference are the same line of their files."
            )
        references.append(lines)
    return Sides(texts, references)


def _lines(file: Path) -> list[str]:
    with read_rows([str(file)], format="text") as rows:
        return [str(row.content) for row in rows]


def compare(sides: Sides) -> BleuScores:
    """What sacrebleu says, with its own settings, which its signature names."""
    metrics = require("sacrebleu.metrics", extra="bleu")
    bleu, chrf = metrics.BLEU(), metrics.CHRF()
    whole, by_character = (metric.corpus_score(sides.texts, sides.references) for metric in (bleu, chrf))
    of_one = metrics.BLEU(effective_order=True)
    items = []
    for number, (text, *references) in enumerate(zip(sides.texts, *sides.references, strict=True), start=1):
        items.append(
            {
                "line": number,
                "text": text,
                "references": references,
                "bleu": of_one.sentence_score(text, references).score,
                "chrf": chrf.sentence_score(text, references).score,
            }
        )
    figures = {
        "bleu": whole.score,
        "chrf": by_character.score,
        "brevity_penalty": whole.bp,
        "length_ratio": whole.ratio,
    }
    signatures = [f"{name}: {metric.get_signature()}" for name, metric in (("BLEU", bleu), ("chrF", chrf))]
    return BleuScores(figures, items, signatures)


def figures(sides: Sides, compared: BleuScores) -> Figures:
    """The figures of all texts together; BLEU is of a corpus, and no mean."""
    line = Line("all", "all", len(sides.texts), compared.figures)
    return Figures(columns=COLUMNS, lines=[line], shares=False, items=compared.items)
