"""What a student is compared with its teacher by: predictions, states, and relations between pieces.

Every function gives one loss per position, so that sums over positions can be divided by the positions of all devices.

Shapes: N positions, V choices, D width of the student, E width of the teacher, R rows, T pieces, A relation heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from polyseme.parts.precision import single_precision


def soft_target_losses(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """[N, V] and [N, V], logits → [N]: T² · KL(softmax(teacher / T) ‖ softmax(student / T)) (Hinton et al. 2015).

    T² keeps gradients as large as those of gold labels, whatever the temperature. Of tables with unequally many spare
    rows, the rows that both have are compared.
    """
    n_choices = min(student.shape[-1], teacher.shape[-1])
    mine, theirs = (
        (single_precision(each[..., :n_choices]) / temperature).log_softmax(dim=-1) for each in (student, teacher)
    )
    return temperature**2 * (theirs.exp() * (theirs - mine)).sum(dim=-1)


def soft_label_losses(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """[N, L] and [N, L], logits of labels of which several may hold → [N]: the same for each label, and their mean."""
    mine, theirs = (single_precision(each) / temperature for each in (student, teacher))
    share = torch.sigmoid(theirs)
    cross_entropy = F.binary_cross_entropy_with_logits(mine, share, reduction="none")
    entropy = F.binary_cross_entropy_with_logits(theirs, share, reduction="none")
    return temperature**2 * (cross_entropy - entropy).mean(dim=-1)


def cosine_losses(student: Tensor, teacher: Tensor) -> Tensor:
    """[…, E] and […, E] → […]: 1 − cosine, as of DistilBERT's last states."""
    return 1 - F.cosine_similarity(single_precision(student), single_precision(teacher), dim=-1)


def square_losses(student: Tensor, teacher: Tensor) -> Tensor:
    """[…, E] and […, E] → […]: the mean squared difference, as of TinyBERT's states."""
    return (single_precision(student) - single_precision(teacher)).square().mean(dim=-1)


def relation_losses(
    student: Sequence[Tensor], teacher: Sequence[Tensor], n_heads: int, real: Tensor | None = None
) -> Tensor:
    """Queries, keys and values of one layer each, [R, T, width] → [R, T]: KL(teacher's relations ‖ student's).

    The relations of a piece in one head of queries (keys, values) are softmax(q · qᵀ / √width of the head): which other
    pieces have similar queries (Wang et al. 2021, MiniLMv2). Heads are those of the relations, which both models have
    equally many of, whatever their own. Losses are means over heads, and over queries, keys and values. `real` [R, T]
    says which pieces are no padding.
    """
    of_kinds = []
    for mine, theirs in zip(student, teacher, strict=True):
        log_mine, log_theirs = (_relations(single_precision(each), n_heads, real) for each in (mine, theirs))
        differing = log_theirs.exp() * (log_theirs - log_mine)
        if real is not None:
            differing = differing.masked_fill(~real[:, None, None, :], 0.0)
        of_kinds.append(differing.sum(dim=-1).mean(dim=1))
    return torch.stack(of_kinds).mean(dim=0)


def _relations(vectors: Tensor, n_heads: int, real: Tensor | None) -> Tensor:
    """[R, T, width] → [R, A, T, T]: log-softmax of the scaled products of all pairs of pieces."""
    heads: Tensor = vectors.unflatten(-1, (n_heads, -1)).transpose(1, 2)
    scores: Tensor = heads @ heads.transpose(-1, -2) / math.sqrt(heads.shape[-1])
    if real is not None:
        scores = scores.masked_fill(~real[:, None, None, :], torch.finfo(scores.dtype).min)
    return scores.log_softmax(dim=-1)
