"""XLM-R (Conneau et al. 2020): RoBERTa over a hundred languages, with a SentencePiece vocabulary."""

from __future__ import annotations

import dataclasses

from polyseme.convert import roberta
from polyseme.convert.family import Family

FAMILY: Family = dataclasses.replace(
    roberta.FAMILY,
    name="xlm-roberta",
    architectures=[("XLMRobertaForMaskedLM", frozenset({"masked"})), ("XLMRobertaModel", frozenset())],
    base=lambda: roberta.FAMILY.base().replace(n_pieces=250_002),
    reference="xlm_roberta",
)
