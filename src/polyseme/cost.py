"""What a piece of work counts as it goes (`Tally`), and what it cost (`Cost`): pieces, seconds, FLOPs, memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from polyseme.config import EncoderConfig
from polyseme.result_tables import counted

if sys.platform != "win32":
    import resource


@dataclass(frozen=True, kw_only=True, repr=False)
class Cost:
    """The bill of one call; rule 6 puts one beside every result."""

    pieces: int
    """Pieces that went through the network, specials and window overlaps included."""
    words: int
    documents: int
    seconds: float
    flops: float
    """Analytic, forward: two for each multiply-add of a matrix product."""
    peak_memory: int
    """The process's largest resident memory so far, in bytes."""
    device: str

    def __repr__(self) -> str:
        return f"Cost({self.line()})"

    def line(self) -> str:
        """The closing line of a verb.

        >>> Cost(pieces=1300, words=1000, documents=50, seconds=2.0, flops=3e9, peak_memory=2**30, device="cpu").line()
        '50 texts, 1,000 words, 1,300 pieces in 2.0 s on cpu (650 pieces/s, 1.5 GFLOP/s, 1.0 GiB of memory at most)'
        """
        seconds = max(self.seconds, 1e-9)
        return (
            f"{counted(self.documents, 'text')}, {counted(self.words, 'word')}, {counted(self.pieces, 'piece')} "
            f"in {self.seconds:.1f} s on {self.device} ({self.pieces / seconds:,.0f} pieces/s, "
            f"{format_scaled(self.flops / seconds)}FLOP/s, {self.peak_memory / 2**30:.1f} GiB of memory at most)"
        )


def sum_of(costs: Sequence[Cost]) -> Cost | None:
    """What several pieces of work cost together, one after another; None of none."""
    if not costs:
        return None
    return Cost(
        pieces=sum(cost.pieces for cost in costs),
        words=sum(cost.words for cost in costs),
        documents=sum(cost.documents for cost in costs),
        seconds=sum(cost.seconds for cost in costs),
        flops=sum(cost.flops for cost in costs),
        peak_memory=max(cost.peak_memory for cost in costs),
        device=", ".join(dict.fromkeys(cost.device for cost in costs)),
    )


@dataclass
class Tally:
    """What has gone through so far. Every verb fills one; resumed work adds what earlier runs had counted."""

    documents: int = 0
    words: int = 0
    pieces: int = 0
    """Pieces read or written."""
    flops: float = 0.0
    seconds: float = 0.0
    """Seconds that earlier runs took of work that was resumed."""
    vanished: int = 0
    """Words that the tokenizer made nothing of; they were given the unknown piece."""
    unknown: int = 0
    """Other words that it has no piece for, or not for all of them; they were read or scored as the unknown piece."""
    wordless: int = 0
    """Documents without any word."""
    unscored: int = 0
    """Pieces without a score, since nothing precedes them."""
    sums: dict[str, float] = field(default_factory=dict)
    """Further numbers that add up, by name."""

    def add(self, more: Tally, times: int = 1) -> None:
        """Count in what another tally has."""
        for each in fields(self):
            if each.name != "sums":
                setattr(self, each.name, getattr(self, each.name) + times * getattr(more, each.name))
        for name, value in more.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + times * value

    def copy(self) -> Tally:
        """The same numbers, which no longer grow."""
        tally = Tally()
        tally.add(self)
        return tally

    def since(self, before: Tally) -> Tally:
        """What was counted since an earlier copy of this tally."""
        tally = self.copy()
        tally.add(before, -1)
        return tally

    def cost(self, seconds: float, device: object) -> Cost:
        """The bill of everything so far: `seconds` of this run, and those of earlier ones."""
        return Cost(
            pieces=self.pieces,
            words=self.words,
            documents=self.documents,
            seconds=seconds + self.seconds,
            flops=self.flops,
            peak_memory=peak_memory(),
            device=str(device),
        )


def forward_flops(config: EncoderConfig, row_lengths: Iterable[int]) -> float:
    """Floating-point operations of one forward pass over rows of these lengths, real pieces only."""
    pieces = 0
    pairs = 0
    for length in row_lengths:
        pieces += length
        pairs += length * length
    return 2.0 * pieces * config.matrix_weights + 4.0 * pairs * config.attention_widths


def decoder_flops(config: EncoderConfig, source_length: int, target_length: int) -> float:
    """The same of one row of a decoder, with what it reads of a source."""
    return forward_flops(config, [target_length]) + config.source_flops(source_length, target_length)


def peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def format_scaled(value: float) -> str:
    """A large number with the prefix of a unit.

    >>> format_scaled(1.5e9), format_scaled(20.0)
    ('1.5 G', '20 ')
    """
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.1f} {prefix}"
    return f"{value:.0f} "
