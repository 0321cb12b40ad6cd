"""The linear-chain conditional random field (Lafferty et al. 2001): tags scored as a sequence.

    score(tags) = first[tag_1] + Σ_t scores[t, tag_t] + Σ_t between[tag_t-1, tag_t] + last[tag_W]
    log p(tags) = score(tags) − log Σ exp score(any tags)

Everything runs over the whole batch at once, one step per word (on a GPU in kernels that go through all words,
`crf_kernels.py`); bounds come from shapes, never from data. Sums are in 32-bit floats at least. What a tag scheme rules
out costs `FORBIDDEN`, in training and in decoding alike: no such sequence is worth anything, yet a gold one that breaks
the rules has a finite loss, and something is decoded even where nothing is allowed.

Below stand the schemes by which tags mark spans (BIO, BIOES, IOB1): which tags may follow which.

Shapes: R rows, W words of the longest row, L tags. Rows are padded on the right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from polyseme.errors import ModelError, nearest
from polyseme.parts.kernel_trials import KernelModule
from polyseme.parts.precision import single_precision
from polyseme.text.tag_schemes import OUTSIDE, may_end, may_follow, may_start, parts_of

FORBIDDEN = -10_000.0
NO_TAG = -1
"""What stands past the end of a decoded row."""
KERNELS = KernelModule("A CRF", "polyseme.parts.crf_kernels")
MOST_TAGS = 64
"""Tags up to which a table of transitions fits into the registers of a kernel."""
MOST_DIFFERENT = 1e-3
"""Of sums of some 10, on trial."""


class LinearChain(nn.Module):
    """The scores of tags that follow one another, and of the first and last tag of a row; learned, zero at first."""

    forbidden_between: Tensor
    forbidden_first: Tensor
    forbidden_last: Tensor

    def __init__(self, tags: Sequence[str], scheme: str | None = None) -> None:
        super().__init__()
        self.between = nn.Parameter(torch.zeros(len(tags), len(tags)))
        self.first = nn.Parameter(torch.zeros(len(tags)))
        self.last = nn.Parameter(torch.zeros(len(tags)))
        names = ("forbidden_between", "forbidden_first", "forbidden_last")
        for name, allowed in zip(names, allowed_transitions(tags, scheme), strict=True):
            # derived from the tags, therefore not saved
            self.register_buffer(name, torch.zeros(allowed.shape).masked_fill(~allowed, FORBIDDEN), persistent=False)

    def path_score(self, scores: Tensor, mask: Tensor, tags: Tensor) -> Tensor:
        """The score of one sequence a row: [R, W, L], [R, W], [R, W] → [R]. Tags at padding may be anything."""
        scores, (first, between, last) = single_precision(scores), self._transitions(scores)
        if not scores.shape[1]:
            return scores.new_zeros(scores.shape[0])
        tags = tags.masked_fill(~mask, 0)
        here = scores.gather(2, tags[:, :, None]).squeeze(2) * mask  # [R, W]
        steps = between[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]  # [R, W-1]
        at_end = (mask.sum(1) - 1).clamp(min=0)[:, None]
        ends = first[tags[:, 0]] + last[tags.gather(1, at_end).squeeze(1)]
        return here.sum(1) + steps.sum(1) + ends * mask[:, 0]

    def log_partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The log of Σ exp score over all sequences of each row's length: [R]; 0 for a row of no words."""
        scores = single_precision(scores)
        if not scores.shape[1]:
            return scores.new_zeros(scores.shape[0])
        summed: Tensor = _LogPartition.apply(scores, mask, *self._transitions(scores))  # type: ignore[no-untyped-call]
        return summed

    def loss(self, scores: Tensor, mask: Tensor, tags: Tensor) -> Tensor:
        """−log p of the gold tags, one per row: [R]."""
        return self.log_partition(scores, mask) - self.path_score(scores, mask, tags)

    def marginals(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The probability of each tag at each word, over all sequences: [R, W, L]; zeros at padding."""
        scores = single_precision(scores)
        if not scores.shape[1]:
            return scores
        first, between, last = self._transitions(scores)
        together = _forwards(scores, mask, first, between) + _backwards(scores, mask, between, last)
        return torch.softmax(together, dim=-1) * mask[:, :, None]

    def best_path(self, scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The best sequence of each row and its score, by Viterbi: tags [R, W], `NO_TAG` at padding, and [R]."""
        scores, (first, between, last) = single_precision(scores), self._transitions(scores)
        n_rows, n_words, n_tags = scores.shape
        if not n_words:
            return mask.long(), scores.new_zeros(n_rows)
        best = first + scores[:, 0]
        stay = torch.arange(n_tags, device=scores.device).expand(n_rows, n_tags)
        came_from = []
        for word in range(1, n_words):
            value, tag = (best[:, :, None] + between).max(dim=1)
            is_real = mask[:, word, None]
            best = torch.where(is_real, value + scores[:, word], best)
            came_from.append(torch.where(is_real, tag, stay))  # padding is passed through
        score, tag = (best + last).max(dim=1)
        tags = [tag]
        for pointers in reversed(came_from):
            tag = pointers.gather(1, tag[:, None]).squeeze(1)
            tags.append(tag)
        path = torch.stack(tags[::-1], dim=1)
        return path.masked_fill(~mask, NO_TAG), score * mask[:, 0]

    def _transitions(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """First, between and last, with what is forbidden, as precise as the sums."""
        dtype = torch.promote_types(scores.dtype, torch.float32)
        return (
            self.first.to(dtype) + self.forbidden_first.to(dtype),
            self.between.to(dtype) + self.forbidden_between.to(dtype),
            self.last.to(dtype) + self.forbidden_last.to(dtype),
        )


class _LogPartition(torch.autograd.Function):
    """The sum over all sequences, whose gradient is what the sum is made of: the probabilities of tags and of steps.

    So the way back is one more pass over the words, instead of one through everything that the first pass computed.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, first: Tensor, between: Tensor, last: Tensor) -> Tensor:
        before = _forwards(scores, mask, first, between)
        summed = torch.logsumexp(before[:, -1] + last, dim=1)
        ctx.save_for_backward(scores, mask, between, last, before, summed)
        return summed * mask[:, 0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scores, mask, between, last, before, summed = ctx.saved_tensors
        after = _backwards(scores, mask, between, last)
        whole = summed[:, None, None]
        share = (gradient * mask[:, 0])[:, None, None]
        here = torch.exp(before + after - whole) * mask[:, :, None] * share  # [R, W, L]
        ends = torch.exp(before[:, -1] + last - summed[:, None]) * share[:, 0]  # [R, L]
        coming = (scores + after)[:, 1:, None, :] - whole[..., None]  # [R, W-1, 1, L]
        steps = torch.exp(before[:, :-1, :, None] + between + coming) * (mask[:, 1:, None] * share)[..., None]
        return here, None, here[:, 0].sum(0), steps.sum((0, 1)), ends.sum(0)


def _forwards(scores: Tensor, mask: Tensor, first: Tensor, between: Tensor) -> Tensor:
    """At each word and tag, log Σ exp of all that leads up to it, the word's own score included: [R, W, L]."""
    kernels = _kernels_for(scores)
    if kernels is not None:
        summed: Tensor = kernels.forwards(scores, mask, first, between)
        return summed
    return _forwards_by_word(scores, mask, first, between)


def _backwards(scores: Tensor, mask: Tensor, between: Tensor, last: Tensor) -> Tensor:
    """At each word and tag, log Σ exp of all that may come after: [R, W, L]."""
    kernels = _kernels_for(scores)
    if kernels is not None:
        summed: Tensor = kernels.backwards(scores, mask, between, last)
        return summed
    return _backwards_by_word(scores, mask, between, last)


def _forwards_by_word(scores: Tensor, mask: Tensor, first: Tensor, between: Tensor) -> Tensor:
    so_far = [first + scores[:, 0]]
    for word in range(1, scores.shape[1]):
        new = torch.logsumexp(so_far[-1][:, :, None] + between, dim=1) + scores[:, word]
        so_far.append(torch.where(mask[:, word, None], new, so_far[-1]))
    return torch.stack(so_far, dim=1)


def _backwards_by_word(scores: Tensor, mask: Tensor, between: Tensor, last: Tensor) -> Tensor:
    to_come = [last.expand(scores.shape[0], -1)]
    for word in range(scores.shape[1] - 1, 0, -1):
        new = torch.logsumexp(between + (scores[:, word] + to_come[-1])[:, None, :], dim=2)
        to_come.append(torch.where(mask[:, word, None], new, to_come[-1]))
    return torch.stack(to_come[::-1], dim=1)


def _kernels_for(scores: Tensor) -> ModuleType | None:
    """On a GPU in single precision, kernels that go through all words at once, after a trial (`crf_kernels`)."""
    device, n_tags = scores.device, scores.shape[2]
    if scores.dtype != torch.float32 or n_tags > MOST_TAGS or torch.compiler.is_compiling():
        return None
    return KERNELS.try_once(device, n_tags, lambda kernels: _difference(kernels, device, n_tags), MOST_DIFFERENT)


def _difference(kernels: ModuleType, device: torch.device, n_tags: int) -> float:
    """How far the kernels are from the loop over words, in sums of random scores."""
    generator = torch.Generator(device).manual_seed(0)
    shapes = ((3, 5, n_tags), (n_tags,), (n_tags, n_tags), (n_tags,))
    scores, first, between, last = (torch.randn(each, generator=generator, device=device) for each in shapes)
    mask = torch.arange(5, device=device) < torch.tensor([5, 3, 1], device=device)[:, None]
    ours = kernels.forwards(scores, mask, first, between), kernels.backwards(scores, mask, between, last)
    theirs = _forwards_by_word(scores, mask, first, between), _backwards_by_word(scores, mask, between, last)
    return max(float((one - other).abs().max()) for one, other in zip(ours, theirs, strict=True))


# --- tag schemes ------------------------------------------------------------------------------------------------------

SCHEMES: Mapping[str, str] = {"BIO": "BI", "BIOES": "BIES", "IOB1": "BI"}
"""By name: the letters that tags begin with, besides `O`; `text.tag_schemes` has the rules."""


def allowed_transitions(tags: Sequence[str], scheme: str | None) -> tuple[Tensor, Tensor, Tensor]:
    """Whether tag j may follow tag i, [L, L] at [i, j]; whether a row may begin, and end, with each tag: [L], [L]."""
    if scheme is None:
        everything = torch.ones(len(tags), dtype=torch.bool)
        return torch.ones(len(tags), len(tags), dtype=torch.bool), everything, everything.clone()
    if scheme not in SCHEMES:
        raise ModelError(f"There is no tag scheme {scheme!r}. {nearest(scheme, SCHEMES)}")
    for tag in tags:
        letter, _ = parts_of(tag)
        if tag != OUTSIDE and letter not in tuple(SCHEMES[scheme]):
            known = ", ".join(f"{each}-TYPE" for each in SCHEMES[scheme])
            raise ModelError(
                f"Tag {tag!r} is not one of scheme {scheme}, whose tags are O and {known}, or the letters alone where "
                "there is one type. Leave the scheme out if tags are not spans."
            )
    between = torch.tensor([[may_follow(before, tag, scheme) for tag in tags] for before in tags])
    first = torch.tensor([may_start(tag, scheme) for tag in tags])
    last = torch.tensor([may_end(tag, scheme) for tag in tags])
    return between, first, last
