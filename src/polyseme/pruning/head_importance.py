"""How much each head matters, and which go first (Michel et al. 2019, Are Sixteen Heads Really Better than One?).

A head's importance is the expected size of the gradient of the loss by a gate on its output:

    I_h = E_x |∂L(x) / ∂g_h|

where the gates are 1. It is computed for each example by itself, so that effects of opposite signs do not cancel out,
and then divided by the norm of its layer's, as the paper's program does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from polyseme.bundle import Bundle
from polyseme.errors import OptionError
from polyseme.pruning.head_gates import RowGates, apply_gates
from polyseme.pruning.head_removal import AttentionPlace, Attentions, HeadPlace, attentions_of, heads_of
from polyseme.pruning.pruning_subject import Subject
from polyseme.types import Progress

Importance = Mapping[HeadPlace, float]


def gradient_importance(subject: Subject, bundle: Bundle, progress: Progress | None = None) -> dict[HeadPlace, float]:
    """E |∂L / ∂g| of every head on `dev`, before layers are made comparable."""
    attentions = attentions_of(bundle, subject.parts)
    sums = {at: torch.zeros(each.n_heads, dtype=torch.float64) for at, each in attentions.items()}
    n_examples = 0
    batches = subject.batches("dev")
    for number, batch in enumerate(batches):
        if progress is not None:
            progress(number, len(batches))
        gates = RowGates(attentions)
        with apply_gates(attentions, gates):
            loss = subject.loss(bundle, batch)
        n_examples += loss.n_examples
        for at, gradients in gates.gradients(loss.total).items():
            for gradient in gradients:
                sums[at] += _by_example(gradient.double(), loss.groups).abs().sum(0).cpu()
    return {
        HeadPlace(at, head): float(value) / max(n_examples, 1)
        for at, attention in attentions.items()
        for head, value in zip(heads_of(attention), sums[at], strict=True)
    }


def _by_example(gradient: Tensor, groups: Tensor | None) -> Tensor:
    """[R, H] → [examples, H]: rows of one example are summed."""
    if groups is None or len(groups) != len(gradient):
        return gradient
    return gradient.new_zeros(int(groups.max()) + 1, gradient.shape[1]).index_add_(0, groups, gradient)


def normalize_by_layer(importance: Importance) -> dict[HeadPlace, float]:
    """Each by the l2 norm of its layer's, so that heads of different layers can be compared."""
    squares: dict[AttentionPlace, float] = {}
    for place, value in importance.items():
        squares[place.at] = squares.get(place.at, 0.0) + value * value
    return {place: value / (squares[place.at] ** 0.5 + 1e-20) for place, value in importance.items()}


def least_important(importance: Importance, n: int, attentions: Attentions, *, at_least: int) -> list[HeadPlace]:
    """The `n` heads that matter least, the least one first; each layer keeps `at_least`, each part of a model one."""
    left = {at: each.n_heads for at, each in attentions.items()}
    chosen: list[HeadPlace] = []
    for place in sorted(importance, key=lambda each: importance[each]):
        of_part = sum(count for at, count in left.items() if at.part == place.at.part)
        if len(chosen) < n and left[place.at] > at_least and of_part > 1:
            left[place.at] -= 1
            chosen.append(place)
    return chosen


def most_removable(attentions: Attentions, at_least: int) -> int:
    """How many heads can be removed at most."""
    counts = [max(each.n_heads - at_least, 0) for each in attentions.values()]
    spared = len({at.part for at in attentions}) if at_least == 0 else 0
    return sum(counts) - spared


def number_of_heads(heads: str | float | int, attentions: Attentions, *, at_least: int) -> int:
    """How many heads are to go: a share (50%, 0.5) of those that there are, or a number."""
    total = sum(each.n_heads for each in attentions.values())
    n = _number(heads, total)
    if not 0 < n < total:
        raise OptionError(
            f"The heads to remove must be a share over 0% and under 100%, or a number from 1 to {total - 1} (the "
            f"model has {total} heads). Got {heads!r} instead."
        )
    most = most_removable(attentions, at_least)
    if n > most:
        raise OptionError(
            f"Of the model's {total} heads at most {most} can be removed if every layer keeps {at_least}, and {n} were "
            "requested. Remove fewer, or let layers lose all of their heads (at_least=0): states then pass them by."
        )
    return n


def _number(heads: str | float | int, total: int) -> int:
    text = str(heads).strip()
    try:
        if text.endswith("%"):
            return round(float(text[:-1]) / 100 * total)
        is_number = not isinstance(heads, float) and text.lstrip("-").isdecimal()
        return int(text) if is_number else round(float(text) * total)
    except (ValueError, OverflowError):
        raise OptionError(
            f"The heads to remove are a share, such as 50%, or a number, such as 36. Got {heads!r} instead."
        ) from None


def shares_of(n_points: int, total: int, most: int) -> Sequence[int]:
    """Numbers of heads for a curve: equal steps, at least of one head, up to what can be removed.

    >>> shares_of(3, 8, 7), shares_of(10**9, 4, 3)
    ([2, 4, 6], [1, 2, 3])
    """
    n_points = min(n_points, total - 1)
    return [n for step in range(1, n_points + 1) if 0 < (n := round(step / (n_points + 1) * total)) <= most]
