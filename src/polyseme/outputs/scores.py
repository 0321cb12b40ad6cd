"""The scores of pieces, as writing reads them."""

from __future__ import annotations

from torch import Tensor

from polyseme.outputs.output import Output
from polyseme.outputs.pieces import CausalOutput, MaskedOutput, TableOutput, single_precision
from polyseme.outputs.softmaxes import SoftmaxOutput

WITH_LOGITS = (CausalOutput, MaskedOutput, SoftmaxOutput, TableOutput)
"""Outputs that give numbers before they are made into log-probabilities."""


def scores_of(output: Output, states: Tensor) -> Tensor:
    """[R, D] → [R, V]: the output's logits, where it has any, else its log-probabilities.

    Never in half precision: there, many pieces would be exactly as likely.
    """
    return single_precision(output.logits(states)) if isinstance(output, WITH_LOGITS) else output.log_probs(states)
