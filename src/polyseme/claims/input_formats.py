"""BERT's, RoBERTa's and ALBERT's input formats: the table of experiments/input_formats.py, with its rules."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.script_rules import script_claim

SCRIPT = "experiments/input_formats.py"


def _claim(name: str, text: str, source: str, rows: str) -> Claim:
    """A claim that compares two rows of the table."""
    runs = f"The rows {rows} of the table, 12 layers of 256."
    return script_claim(SCRIPT, name=name, text=text, source=source, runs=runs, minutes=20, seeds=2)


CLAIMS = (
    _claim(
        "next-sentence-helps",
        "Predicting the next sentence helps.",
        "Devlin et al. 2019, Table 5",
        "segment-pair with and without the next sentence",
    ),
    _claim(
        "single-sentences-hurt",
        "Pairs of single sentences are worse inputs than pairs of segments.",
        "Liu et al. 2019, Table 2",
        "sentence-pair and segment-pair with the next sentence",
    ),
    _claim(
        "full-sentences-no-worse",
        "Full sentences without the next sentence are no worse than BERT's pairs of segments.",
        "Liu et al. 2019, Table 2",
        "full-sentences and segment-pair with the next sentence",
    ),
    _claim(
        "documents-no-worse",
        "Rows that keep to one document are no worse than rows that cross documents.",
        "Liu et al. 2019, Table 2",
        "doc-sentences and full-sentences",
    ),
    _claim(
        "sentence-order-better",
        "Predicting the order of sentences is better than predicting the next one.",
        "Lan et al. 2020, Table 5",
        "segment-pair with sentence order and with the next sentence",
    ),
)
