"""How special pieces are added around one sequence of pieces, or around a pair.

A frame is data: the piece of each role, and a template for a single sequence and for a pair. A template names, in
order, roles and the sequences `a` and `b`, each with its segment after a colon if that is not 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from polyseme.config import Config
from polyseme.errors import ModelError, nearest

ROLES = ("start", "end", "pad", "unknown", "mask")


class Slot(NamedTuple):
    """One slot of a template: a role, or a sequence (`a` or `b`)."""

    name: str
    segment: int


@cache
def _slots(template: str) -> tuple[Slot, ...]:
    parts = (part.partition(":") for part in template.split())
    return tuple(Slot(name, int(segment or 0)) for name, _, segment in parts)


@dataclass(frozen=True, kw_only=True)
class Frame(Config):
    """The special pieces by role, and the templates that place them.

    >>> Frame(single="start a end", pair="start a end b:1 end:1", specials={"start": "[CLS]", "end": "[SEP]"}).slots(2)
    (Slot(name='start', segment=0), Slot(name='a', segment=0), Slot(name='end', segment=0), \
Slot(name='b', segment=1), Slot(name='end', segment=1))
    """

    single: str = "a"
    pair: str = "a b"
    specials: Mapping[str, str] = field(default_factory=dict)
    """Role to piece; roles without a piece are absent."""

    def __post_init__(self) -> None:
        for role in self.specials:
            if role not in ROLES:
                raise ModelError(f"A frame has no role {role!r}. {nearest(role, ROLES)}")
        for n_sequences, template in ((1, self.single), (2, self.pair)):
            names = [slot.name for slot in self.slots(n_sequences)]
            sequences = [name for name in names if name in ("a", "b")]
            expected = ["a", "b"][:n_sequences]
            if sequences != expected:
                raise ModelError(f"The template {template!r} must name {' and then '.join(expected)}, once.")
            for name in names:
                if name not in ("a", "b", *ROLES):
                    raise ModelError(f"The template {template!r} names {name!r}. {nearest(name, ('a', 'b', *ROLES))}")

    def slots(self, n_sequences: int) -> tuple[Slot, ...]:
        """The slots of the template for one sequence or for two."""
        return _slots(self.single if n_sequences == 1 else self.pair)

    @property
    def needed(self) -> frozenset[str]:
        """The roles that the templates use."""
        return frozenset(slot.name for n in (1, 2) for slot in self.slots(n)) - {"a", "b"}

    @property
    def n_segments(self) -> int:
        """One more than the largest segment."""
        return 1 + max(slot.segment for n in (1, 2) for slot in self.slots(n))

    def without_segments(self) -> Frame:
        """The same pieces, all in one segment."""
        single, pair = (" ".join(slot.name for slot in self.slots(n)) for n in (1, 2))
        return self.replace(single=single, pair=pair)


_BRACKETS = {"start": "[CLS]", "end": "[SEP]", "pad": "[PAD]", "unknown": "[UNK]", "mask": "[MASK]"}
_ANGLES = {"start": "<s>", "end": "</s>", "pad": "<pad>", "unknown": "<unk>", "mask": "<mask>"}
_ROBERTA = Frame(single="start a end", pair="start a end end b end", specials=_ANGLES)

FRAMES: Mapping[str, Frame] = {
    "bert": Frame(single="start a end", pair="start a end b:1 end:1", specials=_BRACKETS),
    "albert": Frame(
        single="start a end", pair="start a end b:1 end:1", specials=_BRACKETS | {"pad": "<pad>", "unknown": "<unk>"}
    ),
    "roberta": _ROBERTA,
    "bart": _ROBERTA,
    "xlnet": Frame(
        single="a end start:2", pair="a end b:1 end:1 start:2", specials=_ANGLES | {"start": "<cls>", "end": "<sep>"}
    ),
    "transformer": Frame(
        single="a end", pair="a end b end", specials={role: piece for role, piece in _ANGLES.items() if role != "mask"}
    ),
    "t5": Frame(single="a end", pair="a end b end", specials={"end": "</s>", "pad": "<pad>", "unknown": "<unk>"}),
    "gpt": Frame(specials={"unknown": "<unk>"}),
    "gpt2": Frame(specials={"start": "<|endoftext|>", "end": "<|endoftext|>"}),
    "lm": Frame(specials={"end": "</s>", "unknown": "<unk>"}),
    "elmo": Frame(specials={"start": "<S>", "end": "</S>", "unknown": "<UNK>"}),
    "flair": Frame(
        single="start a end",
        pair="start a end b end",
        specials={"start": "<s>", "end": "</s>", "unknown": "<unk>"},
    ),
    "none": Frame(),
}
"""The frames of the families, with the usual names of their special pieces."""


def get_frame(name: str) -> Frame:
    """A frame of the table by its name."""
    if name not in FRAMES:
        raise ModelError(f"There is no frame {name!r}. {nearest(name, FRAMES)}")
    return FRAMES[name]
