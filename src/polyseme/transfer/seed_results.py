"""The results of each seed: its figures, and its weights as long as it is the best; kept in a folder to resume from."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from polyseme.convert.weight_files import read_weights, write_weights
from polyseme.errors import ModelError, PolysemeWarning
from polyseme.files.atomic import whole_folder
from polyseme.files.checksums import checksums_in, first_damaged, record_checksum
from polyseme.json_reading import load_json
from polyseme.training.checkpoint import last_step

RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class SeedFigures:
    """The result of one seed."""

    seed: int
    dev: Mapping[str, float]
    """Of the step that was best on dev."""
    others: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Of other splits with labels (test), scored once, with the weights of that step."""
    best_step: int
    n_steps: int
    """As planned."""
    n_taken: int = 0
    """Steps that were taken: fewer than planned if the loss became NaN or infinite."""
    curve: Sequence[Mapping[str, Any]]
    learned: bool
    """Whether it is better than knowing nothing (`Kind.baseline`)."""
    diverged: bool = False
    seconds: float = 0.0
    mix: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    """On figures that are not defined."""


@dataclass
class SeedResult:
    """A seed that is trained."""

    figures: SeedFigures
    score: float
    weights: Mapping[str, Tensor] | None
    head: Mapping[str, Any]
    """The head's config: some of it may be chosen on dev."""
    seconds_before: float = 0.0
    """What earlier sessions spent on it."""


class SeedResults:
    """The results of all seeds, of which the best keeps its weights; with a folder they outlast the session."""

    def __init__(self, seeds: Sequence[int], folder: Path | None) -> None:
        self.seeds = seeds
        self.folder = folder
        self.best: SeedResult | None = None

    def rank(self, result: SeedResult) -> tuple[bool, float, int]:
        """What the best seed is highest in; of two that are as good it is the first."""
        return result.figures.learned, result.score, -self.seeds.index(result.figures.seed)

    def add(self, result: SeedResult) -> SeedResult:
        """Drop the weights of all but the best."""
        before = self.best
        if before is None or self.rank(result) > self.rank(before):
            self.best, worse = result, before
        else:
            worse = result
        if worse is not None:
            worse.weights = None
            if self.folder is not None:
                shutil.rmtree(self.folder / f"seed-{worse.figures.seed}" / "weights", ignore_errors=True)
        return result

    def checkpoints(self, seed: int) -> Path | None:
        """The folder of a seed's checkpoints while it is trained."""
        return None if self.folder is None else self.folder / f"seed-{seed}.checkpoints"

    def keep(self, seed: int, result: SeedResult) -> None:
        """Write a result; its checkpoints are no longer needed."""
        if self.folder is None:
            return
        with whole_folder(self.folder / f"seed-{seed}", force=True) as unfinished:
            (unfinished / "weights").mkdir()
            write_weights(unfinished / "weights", {name: each.cpu() for name, each in (result.weights or {}).items()})
            content = {"figures": asdict(result.figures), "score": result.score, "head": result.head}
            content["checksums"] = checksums_in(unfinished / "weights")
            content = json.loads(json.dumps(content))
            written = {**content, "record": record_checksum(content)}
            (unfinished / RESULT).write_text(json.dumps(written), encoding="utf-8")
        shutil.rmtree(self.folder / f"seed-{seed}.checkpoints", ignore_errors=True)

    def earlier(self) -> str:
        """In words, what an earlier session had trained: `seeds 0 and 1, and seed 2 until step 300`; empty: nothing."""
        if self.folder is None:
            return ""
        trained = [seed for seed in self.seeds if (self.folder / f"seed-{seed}" / RESULT).is_file()]
        begun = {
            seed: step
            for seed in self.seeds
            if seed not in trained and (step := last_step(self.folder / f"seed-{seed}.checkpoints"))
        }
        parts = [f"{'seed' if len(trained) == 1 else 'seeds'} {', '.join(map(str, trained))}"] if trained else []
        parts += [f"seed {seed} until step {step:,}" for seed, step in begun.items()]
        return ", and ".join(parts)

    def read(self, seed: int) -> SeedResult | None:
        """The result of an earlier session; None: there is none, or it is damaged."""
        place = None if self.folder is None else self.folder / f"seed-{seed}"
        if place is None or not (place / RESULT).is_file():
            return None
        try:
            content = load_json(place / RESULT, kind=dict)
            if content.pop("record") != record_checksum(content):
                raise ValueError(f"the checksum of {RESULT} is another")
            weights = None
            if (place / "weights").is_dir():
                damaged = first_damaged(place / "weights", content["checksums"])
                if damaged is not None:
                    raise ValueError(f"{damaged} is not as it was written: its checksum is another")
                weights = read_weights(place / "weights")
            figures = SeedFigures(**content["figures"])
            return SeedResult(figures, content["score"], weights, content["head"], figures.seconds)
        except (ValueError, KeyError, TypeError, ModelError) as error:
            warnings.warn(
                f"What is kept of seed {seed} in {place} is damaged ({error}); it is trained again.",
                PolysemeWarning,
                stacklevel=2,
            )
            return None
