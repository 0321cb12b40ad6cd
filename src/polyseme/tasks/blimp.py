"""BLiMP (Warstadt et al. 2020): 67 paradigms of 1,000 minimal pairs each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polyseme.tasks.pairs import MinimalPair, PairSet, checked, table_rows

FILES = ("*.jsonl",)
"""One file of all, or the official ones, a paradigm each."""
NEEDS = ("sentence_bad", "UID", "field")


def read_blimp(files: Sequence[Path]) -> list[PairSet]:
    """The pairs, each in its field and its paradigm. One paradigm spells its field otherwise than the rest."""
    pairs = [
        MinimalPair(
            good=checked(row, row.content, "sentence_good"),
            bad=(checked(row, row.fields["sentence_bad"], "sentence_bad"),),
            groups=(str(row.fields["field"]).replace("syntax/semantics", "syntax_semantics"), str(row.fields["UID"])),
            place=str(row.place),
        )
        for file in files
        for row in table_rows(file, "sentence_good", what="BLiMP", needs=NEEDS)
    ]
    return [PairSet("blimp", ("field", "paradigm"), pairs)]
