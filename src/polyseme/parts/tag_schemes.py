"""Which tags may follow which, where tags mark spans: BIO, BIOES and IOB1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from polyseme.errors import ModelError, nearest

Marked = tuple[str, str]
"""A tag's mark and the type of its span: `B-PER` is ("B", "PER"), `O` is ("O", "")."""


def _goes_on(before: Marked, tag: Marked, *, inside: str) -> bool:
    return before[0] in inside and before[1] == tag[1]


def _bio(before: Marked, tag: Marked) -> bool:
    """An `I` goes on with a span of its type."""
    return tag[0] != "I" or _goes_on(before, tag, inside="BI")


def _iob1(before: Marked, tag: Marked) -> bool:
    """An `I` may begin a span; a `B` only parts two neighbours of one type."""
    return tag[0] != "B" or _goes_on(before, tag, inside="BI")


def _bioes(before: Marked, tag: Marked) -> bool:
    """A span of several words runs B, I …, E without a break; one of a single word is an `S`."""
    if tag[0] in "IE":
        return _goes_on(before, tag, inside="BI")
    return before[0] not in "BI"


OUTSIDE: Marked = ("O", "")
"""What stands before the first word and after the last: in each scheme a row begins and ends as if among `O`s."""

SCHEMES: Mapping[str, tuple[str, Callable[[Marked, Marked], bool]]] = {
    "BIO": ("BIO", _bio),
    "BIOES": ("BIOES", _bioes),
    "IOB1": ("BIO", _iob1),
}
"""By name: the marks that tags begin with, and whether one tag may follow another."""


def allowed_transitions(tags: Sequence[str], scheme: str | None) -> tuple[Tensor, Tensor, Tensor]:
    """Whether tag j may follow tag i, [L, L] at [i, j]; whether a row may begin, and end, with each tag: [L], [L]."""
    if scheme is None:
        everything = torch.ones(len(tags), dtype=torch.bool)
        return torch.ones(len(tags), len(tags), dtype=torch.bool), everything, everything.clone()
    if scheme not in SCHEMES:
        raise ModelError(f"There is no tag scheme {scheme!r}. {nearest(scheme, SCHEMES)}")
    marks, follows = SCHEMES[scheme]
    marked = [_marked(tag, marks, scheme) for tag in tags]
    between = torch.tensor([[follows(before, tag) for tag in marked] for before in marked])
    first = torch.tensor([follows(OUTSIDE, tag) for tag in marked])
    last = torch.tensor([follows(tag, OUTSIDE) for tag in marked])
    return between, first, last


def _marked(tag: str, marks: str, scheme: str) -> Marked:
    mark, _, span = tag.partition("-")
    if tag == "O" or (mark in marks.replace("O", "") and span):
        return mark, span
    raise ModelError(
        f"Tag {tag!r} is not one of scheme {scheme}, whose tags are O and "
        f"{', '.join(f'{known}-TYPE' for known in marks if known != 'O')}. Leave the scheme out if tags are not spans."
    )
