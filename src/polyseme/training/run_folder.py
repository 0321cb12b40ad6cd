"""The folder of a run: `run.json`, which holds everything that decides it, and what is beside it.

run.json        settings, number of steps, versions, whether it is finished
corpus/         where the run built its own
log.jsonl       one line per logged step
curve.svg       the same as a picture
checkpoints/    the last few, and that with the lowest held-out loss
at-words/       models that were kept on the way, on request
ledger.json     what it cost
model/          what came out, once it is finished, with its card (and generator/, for ELECTRA)
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from polyseme import __version__
from polyseme.errors import InputError, ModelError, OutputError, add_note
from polyseme.files.atomic import AnyPath, check_output, note_finished, whole_file
from polyseme.files.checksums import record_checksum
from polyseme.json_reading import is_count, is_number, load_json
from polyseme.training.checkpoint import Checkpoint, last_step
from polyseme.training.effects import CHECKPOINTS
from polyseme.training.pretraining_job import MOST_EVALUATIONS
from polyseme.training.time_budget import Correction, Timing

RUN = "run.json"
LEDGER = "ledger.json"
MODEL = "model"

Result = TypeVar("Result")


@dataclass
class Run:
    """A run's folder and the content of its run.json."""

    folder: Path
    settings: dict[str, Any]
    """What decides the run, as JSON."""
    n_steps: int | None = None
    """None: the budget has not been turned into steps yet."""
    finished: bool = False
    stopped: str | None = None
    """Why it stopped before its end, if it did by itself."""
    timing: Timing | None = None
    """What the steps of a budget of time were counted by."""
    corrections: list[Correction] = field(default_factory=list)
    """How the run's own steps corrected their number, where the budget is one of time."""
    unigram_entropy: float | None = None
    """Of the held-out text, by the counts of the training text; None: it was not counted, or cannot be compared."""
    model_step: int | None = None
    """The step whose weights the model has; None: the last one."""

    @property
    def most_evaluations(self) -> int:
        """How often it is evaluated, unless the user has chosen that: as was decided before its first step."""
        return MOST_EVALUATIONS if self.timing is None else self.timing.most_evaluations

    @classmethod
    def create(cls, folder: AnyPath, settings: Mapping[str, Any]) -> Run:
        """A new run, or the unfinished one of equal settings that is there.

        The settings must be what `json` gives back unchanged.
        """
        path = Path(folder)
        if (path / RUN).is_file():
            run = cls.open(path)
            run.refuse_others(settings)
            if run.finished:
                raise OutputError(
                    f"{path} holds this very run, finished. Use its model, choose another name, or repeat it with "
                    "--force (force=True)."
                )
            return run
        if not is_beginning(path):
            check_output(path, kind="folder")
        run = cls(path, dict(settings))
        run.write()
        return run

    @classmethod
    def open(cls, folder: AnyPath) -> Run:
        """The run in a folder."""
        path = Path(folder)
        if not (path / RUN).is_file():
            reason = "has no run.json" if path.is_dir() else "is no folder"
            raise InputError(
                f"{path} is no run: it {reason}. Name the folder that `polyseme pretrain … -o FOLDER` has written."
            )
        with _in_order(path):
            content = load_json(path / RUN, kind=dict)
            timing, corrections = content.get("timing"), content.get("corrections", [])
            if not isinstance(corrections, list):
                raise ValueError(f"corrections is {corrections!r}")
            run = cls(
                path,
                content["settings"],
                content["n_steps"],
                content["finished"],
                content.get("stopped"),
                None if timing is None else Timing.from_json(timing),
                [Correction.from_json(each) for each in corrections],
                content.get("unigram_entropy"),
                content.get("model_step"),
            )
            run._check()
            if content.get("checksum") not in (None, run.checksum):
                raise ValueError("the settings have been altered: their checksum is another")
        return run

    @property
    def checksum(self) -> str:
        """Of the settings: of equal runs it is equal."""
        return record_checksum(self.settings)

    def read(self, read: Callable[[Mapping[str, Any]], Result]) -> Result:
        """What `read` makes of the settings; a run that it cannot read is refused as damaged."""
        with _in_order(self.folder):
            return read(self.settings)

    def check_resumed(self, checkpoint: Checkpoint | None, counted: int | None) -> None:
        """Refuse a checkpoint of another run, and a number of steps that cannot be; `counted`: the budget in steps,
        where it is not one of time.
        """
        step = 0 if checkpoint is None else checkpoint.step
        if checkpoint is not None and checkpoint.record.get("settings") not in (None, self.checksum):
            raise InputError(
                f"The checkpoint {checkpoint.path} is of another run than {self.folder / RUN}: their settings differ. "
                "Put back the run.json that it was written with, or start a new run."
            )
        with _in_order(self.folder):
            if self.n_steps is not None and step > self.n_steps:
                raise ValueError(f"n_steps is {self.n_steps:,}, and there is a checkpoint after step {step:,}")
            if None not in (self.n_steps, counted) and self.n_steps != counted:
                raise ValueError(f"n_steps is {self.n_steps:,}, and the budget is one of {counted:,} steps")

    def _check(self) -> None:
        """Raise a ValueError where run.json holds what no run has written."""
        for name, right in (
            ("settings", isinstance(self.settings, dict)),
            ("n_steps", self.n_steps is None or is_count(self.n_steps, 0 if self.finished else 1)),
            ("finished", isinstance(self.finished, bool)),
            ("stopped", self.stopped is None or isinstance(self.stopped, str)),
            ("unigram_entropy", self.unigram_entropy is None or is_number(self.unigram_entropy)),
            ("model_step", self.model_step is None or is_count(self.model_step, 0)),
        ):
            if not right:
                raise ValueError(f"{name} is {getattr(self, name)!r}")
        if self.timing is not None:
            self.timing.check()
        for each in self.corrections:
            each.check()

    def write(self) -> None:
        """Put run.json in its place, whole."""
        content = {
            "settings": self.settings,
            "n_steps": self.n_steps,
            "finished": self.finished,
            "stopped": self.stopped,
            "timing": None if self.timing is None else self.timing.to_json(),
            "corrections": [each.to_json() for each in self.corrections],
            "unigram_entropy": self.unigram_entropy,
            "model_step": self.model_step,
            "checksum": self.checksum,
            "versions": {"polyseme": __version__, "torch": torch.__version__, "python": platform.python_version()},
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / RUN, content)

    @contextlib.contextmanager
    def kept_if_stopped(self) -> Iterator[None]:
        """Whoever stops the block, by a signal, learns that the run can be resumed, or that it is finished."""
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            if self.finished and Run.open(self.folder).finished:
                note_finished(self.folder)
            else:
                step = last_step(self.folder / CHECKPOINTS)
                checkpoint = f", with a checkpoint of step {step:,}" if step else ""
                add_note(error, f"The run is kept in {self.folder}{checkpoint}: the same command resumes it.")
            raise

    def refuse_others(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings that are not the run's, naming those that differ."""
        mine, theirs = dict(_flatten("", self.settings)), dict(_flatten("", settings))
        different = [
            f"{name} is {json.dumps(mine.get(name))} there and {json.dumps(theirs.get(name))} here"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]
        if different:
            more = f" (and {len(different) - 4} more)" if len(different) > 4 else ""
            raise OutputError(
                f"{self.folder} holds a run with other settings: {'; '.join(different[:4])}{more}. Resume it as it is "
                f"with `polyseme pretrain --resume {self.folder}`, choose another name, or replace it with --force."
            )


@contextlib.contextmanager
def _in_order(folder: Path) -> Iterator[None]:
    """Say in words that run.json is not what a run has written, where reading it fails."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, ModelError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise InputError(
            f"{folder / RUN} is damaged ({reason}), so the run cannot be resumed. Put back a good copy, or start a new "
            "run."
        ) from None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A file of JSON, whole or as it was."""
    with whole_file(path, force=True) as new:
        new.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def is_beginning(path: Path) -> bool:
    """Whether a folder holds nothing, or nothing but a corpus that a run was building when it was stopped."""
    return path.is_dir() and all(each.name.lstrip(".").startswith("corpus") for each in path.iterdir())


def _flatten(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [pair for key, each in value.items() for pair in _flatten(f"{name}.{key}".lstrip("."), each)]
    return [(name, value)]
