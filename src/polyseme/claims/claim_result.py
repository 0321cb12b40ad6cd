"""The result of a claim: the figures of its rows, the rule as it stood, and the verdict; as JSON that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from polyseme import __version__
from polyseme.claims.claim import Claim
from polyseme.claims.rule import Verdict, fingerprint, outcome_to_json
from polyseme.errors import InputError
from polyseme.json_reading import load_json
from polyseme.sweeps.sweep_report import RunResult, Sweep

Size = Literal["full", "small"]
RESULTS = Path(__file__).with_name("results")
"""Results that the package brings."""
MADE_BY = "polyseme claim"


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """One run of a claim."""

    claim: str
    size: Size
    rule: str
    """Its text when the run began."""
    fingerprint: str
    """Of that text."""
    verdict: Verdict
    outcomes: Sequence[Mapping[str, Any]]
    """Of each condition: its text, value, error and state."""
    sweep: Sweep
    """The rows with their figures, and what they cost."""
    device: str
    budget: str
    """How many times the smallest honest one."""
    version: str = __version__
    note: str = ""

    @classmethod
    def of(cls, claim: Claim, runs: Sequence[RunResult], *, size: Size, device: str, factor: float) -> ClaimResult:
        """What the rule says of finished runs."""
        assert not isinstance(claim.rule, str)  # those are decided by their scripts
        sweep = Sweep(verb="claim", title=claim.text, runs=tuple(runs))
        versions = {run.version for run in runs if run.version}
        pairs = zip(claim.rule.conditions, claim.rule.outcomes(sweep), strict=True)
        return cls(
            claim=claim.name,
            size=size,
            rule=claim.rule.text,
            fingerprint=claim.rule.fingerprint,
            verdict=claim.rule.verdict(sweep),
            outcomes=[outcome_to_json(condition, outcome) for condition, outcome in pairs],
            sweep=sweep,
            device=device,
            budget=f"{factor:g} × the smallest",
            version=versions.pop() if len(versions) == 1 else __version__,
            note=claim.small_lacks if size == "small" else "",
        )

    @property
    def minutes(self) -> float:
        """Of computing, by all runs together."""
        return self.sweep.cost.seconds / 60

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        names = ("size", "rule", "fingerprint", "verdict", "device", "budget", "version", "note")
        plain = {name: getattr(self, name) for name in names}
        return {MADE_BY: self.claim, **plain, "outcomes": list(self.outcomes), "sweep": self.sweep.to_json()}

    @classmethod
    def read(cls, path: Path) -> ClaimResult:
        """The result in a file; one whose rule is not the text that it was made with is refused."""
        try:
            content = load_json(path, kind=dict)
            content["claim"] = content.pop(MADE_BY)
            result = cls(**{**content, "sweep": Sweep.from_json(content["sweep"])})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no result of a claim ({type(error).__name__}: {error}).") from None
        if fingerprint(result.rule) != result.fingerprint:
            raise InputError(
                f"{path}: the rule was changed after its result was known. Restore it, or remove the file."
            )
        return result


def packaged_results(name: str, folder: Path = RESULTS) -> list[ClaimResult]:
    """What the package knows of a claim: the full size first, later files of the same size last."""
    files = sorted(folder.glob(f"{name}.*.json"), key=lambda file: (file.name.split(".")[1] != "full", file.name))
    return [ClaimResult.read(file) for file in files]
