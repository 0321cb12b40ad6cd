"""What a claim is: who made it, the rule that decides, and the smallest honest run of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from polyseme.claims.lab import Lab
from polyseme.claims.rule import Rule
from polyseme.sweeps.sweep_report import RunResult

Device = Literal["gpu", "cpu"]
Experiment = Callable[[Lab], Sequence[RunResult]]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the literature, as a paragraph: who made it, what is run, and what decides."""

    name: str
    text: str
    source: str
    """The paper and its year."""
    runs: str
    """What is run, in a sentence."""
    rule: Rule | str
    """What decides; a text where a script in experiments/ does, with a rule of its own."""
    run: Experiment | None = None
    """Carries it out, as far as there is time; None: `script` does."""
    script: str = ""
    """The script in experiments/ that runs it, and decides by the rule in its own words."""
    data: Sequence[str] = ()
    """Folders and files of the data that it reads, of `DATA`."""
    seeds: int = 3
    device: Device = "gpu"
    """The smallest device for the full size."""
    minutes: float = 0.0
    """Of one H200, or of two CPU cores, for all seeds together: the smallest honest budget."""
    scales: bool = True
    """Whether a larger budget makes its runs longer."""
    small_minutes: float | None = None
    """Of two CPU cores, for the small size; None: there is none."""
    small_lacks: str = ""
    """What the small size cannot show."""
    observed: str = ""
    """A table that was made before there was a rule: an observation, which decides nothing."""
    earlier_rules: Sequence[str] = ()
    """Texts of rules that results which are kept were decided by, before this one."""

    @property
    def rule_text(self) -> str:
        """The rule in words."""
        return self.rule if isinstance(self.rule, str) else self.rule.text


@dataclass(frozen=True, kw_only=True)
class ClaimNotTestable:
    """A claim that cannot be tried honestly at these sizes."""

    text: str
    source: str
    reason: str
