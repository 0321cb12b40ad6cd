"""No hostile file does harm: each is refused in one paragraph, soon, in little memory, with nothing done or written."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hostile import models, other_files
from hostile.attempt import attempt
from hostile.cases import Hostile
from hostile.commands import COMMANDS
from hostile.sound import EVERY_FAMILY, Sound

SAMPLE = 12
CHEAP = ("family/bert", "family/gpt2", "sharded", "vocabulary", "vectors", "static", "arpa")
"""What the sample is of: sound things that are quickly made."""


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """Sound things, made as they are asked for."""
    return Sound(tmp_path_factory.mktemp("sound"))


def every_case(sound: Sound, families: Sequence[str] = EVERY_FAMILY) -> list[Hostile]:
    """All hostile files, by their names; sizes are enlarged in settings of these families."""
    models.find_sizes(sound.path, families)
    found = [*models.cases(), *other_files.cases()]
    assert len({case.name for case in found}) == len(found)
    return found


def faults(case: Hostile, sound: Sound, place: Path, only: str | None = None) -> Iterator[str]:
    """What went wrong with a file, for each command that reads it."""
    for number, command in enumerate(case.commands if only is None else [only]):
        folder = place / str(number)
        (folder / "out").mkdir(parents=True)
        sound.path("family/bert")
        read = case.make(sound, folder)
        ended = attempt(
            COMMANDS[command](read, sound.text, folder / "out"), kept=folder, proof=models.PROOF, may_work=case.may_work
        )
        models.PROOF.unlink(missing_ok=True)
        if ended.fault:
            yield f"{case.name} | {command} | {ended.fault}"


def test_a_sample_of_hostile_files(sound: Sound, tmp_path: Path) -> None:
    cheap = [case for case in every_case(sound, ["bert"]) if case.sound.startswith(CHEAP)]
    drawn = random.Random(0).sample(cheap, SAMPLE)
    found = [
        fault
        for number, case in enumerate(drawn)
        for fault in faults(case, sound, tmp_path / str(number), case.commands[0])
    ]
    assert not found


@pytest.mark.slow
def test_every_hostile_file(sound: Sound, tmp_path: Path) -> None:
    every = every_case(sound)
    assert len(every) >= 200
    found = [fault for number, case in enumerate(every) for fault in faults(case, sound, tmp_path / str(number))]
    assert not found, "\n".join(found)
