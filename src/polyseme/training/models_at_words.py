"""The models that a run kept on its way: `at-words/N/` is the model after N words, with `seen.json` beside its files.

`seen.json` has the numbers of words, pieces and steps behind the model. Words are counted as often as they are read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from polyseme.config import Config
from polyseme.errors import InputError
from polyseme.training.run_folder import LEDGER, MODEL, RUN

AT_WORDS = "at-words"
SEEN = "seen.json"


@dataclass(frozen=True, kw_only=True)
class Seen(Config):
    """How much a model has read."""

    words: int
    pieces: int
    step: int


class KeptModel(NamedTuple):
    """A model's folder, and what it has read."""

    folder: Path
    seen: Seen


def kept_models(path: Path) -> list[KeptModel]:
    """The models of a run by words, the last one included; `path` is the run's folder, or that of one of its models.

    The words of the last model are those of its own `seen.json`; without one, they follow from its pieces by the words
    per piece of the model before.
    """
    run, part = (path.parent, path.name) if (path.parent / RUN).is_file() else (path, MODEL)
    if not (run / RUN).is_file():
        raise InputError(
            f"{path} is no run: it has no {RUN}. A curve is drawn over the models of one run: name the folder that "
            "polyseme pretrain has written."
        )
    folders = [folder for folder in (run / AT_WORDS).glob("*") if (folder / SEEN).is_file()]
    models = sorted(
        (KeptModel(_model_in(each, part), _seen(each)) for each in folders), key=lambda each: each.seen.words
    )
    if not models:
        raise InputError(
            f"{run} kept no model on its way: there is no {AT_WORDS}/N/{SEEN} in it. `polyseme pretrain` keeps models "
            "at the numbers of words that it is given, see its --help."
        )
    last = _last(run, part, models[-1].seen)
    return models if last is None else [*models, last]


def _last(run: Path, part: str, before: Seen) -> KeptModel | None:
    """The finished model; None where there is none, or where it is the one before."""
    folder = run / part
    if not folder.is_dir():
        return None
    seen = _seen(folder) if (folder / SEEN).is_file() else _by_ledger(run, before)
    return KeptModel(folder, seen) if seen.step > before.step else None


def _by_ledger(run: Path, before: Seen) -> Seen:
    pieces, steps = _numbers(run / LEDGER, "pieces", "steps")
    return Seen(words=round(pieces * before.words / max(before.pieces, 1)), pieces=pieces, step=steps)


def _model_in(folder: Path, part: str) -> Path:
    """The folder of one of several models that were kept together, or of the only one."""
    return folder / part if (folder / part).is_dir() else folder


def _seen(folder: Path) -> Seen:
    words, pieces, step = _numbers(folder / SEEN, "words", "pieces", "step")
    return Seen(words=words, pieces=pieces, step=step)


def _numbers(file: Path, *names: str) -> list[int]:
    """Whole numbers of a JSON file, by their names."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return [int(content[name]) for name in names]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} does not say how much a model has read: {', '.join(names)} are needed ({error!r})."
        ) from None
