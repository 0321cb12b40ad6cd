"""A command that is killed at any moment, and made again, ends as if it had never been stopped, and leaves nothing."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from cli.commands import Run
from cli.test_finetune import QUICK, write_rte, write_table
from every_moment import every_moment
from polyseme.files import chunks

CHUNK = 200
"""Characters of a chunk, instead of the many it has by default."""
OF_COST = (".json", ".html", ".md")
"""Endings of files that say how long something took."""
LABELS = ["entailment", "not_entailment"] * 4


@pytest.fixture
def commands(tiny: Path, causal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[object]]:
    """Commands that write place/out…, of several chunks."""
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", CHUNK)
    text, data, place = tmp_path / "in.txt", tmp_path / "data", tmp_path / "place"
    text.write_text("The vase broke. Dawn broke. The news broke.\n" * 18)
    train = write_table(tmp_path / "train.csv", 32)
    write_rte(data / "rte", LABELS)
    shutil.copytree(tiny, tmp_path / "other")
    classify = ["--train", train, "--text", "review", "--label", "stars", "--frozen", "--seeds", "2", *QUICK]
    glue = ["benchmark", "glue", "-m", tiny, "--data", data, "--frozen", *QUICK]
    return {
        "finetune": ["finetune", "classify", "-m", tiny, *classify, "-o", place / "out"],
        "finetune, two": ["finetune", "classify", "-m", f"{tiny},{tmp_path / 'other'}", *classify, "-o", place / "out"],
        "distill": [
            "distill",
            "-m",
            tmp_path / "teacher",
            "--layers",
            "1",
            "--train",
            train,
            *QUICK,
            "-o",
            place / "out",
        ],
        "benchmark": [*glue, "-o", place / "out.json"],
        "benchmark, folder": [*glue, "-o", place / "out"],
        "embed": ["embed", text, "-m", tiny, "-o", place / "out.parquet"],
        "embed, shards": ["embed", text, "-m", tiny, "--shard-rows", "7", "-o", place / "out"],
        "score": ["score", text, "-m", causal, "-o", place / "out.jsonl"],
        "convert": ["convert", "-m", tiny, "--to", "word2vec", "--in", text, "-o", place / "out.vec"],
        "corpus": ["corpus", text, "--vocab-size", "60", "-o", place / "out"],
    }


def contents(place: Path) -> dict[str, str]:
    """Every file and folder, and what is in it; of a report with costs the name alone."""
    return {
        str(each.relative_to(place)): hashlib.sha256(each.read_bytes()).hexdigest()
        if each.is_file() and each.suffix not in OF_COST
        else ""
        for each in place.rglob("*")
    }


def try_every_moment(
    run: Run, command: list[object], place: Path, *, since: str = "", before: Path | None = None
) -> int:
    """Kill a command at every moment since a name is met, and make it again; how many moments there are.

    It begins with a copy of the folder `before`, or with none.
    """

    def command_ends_well() -> None:
        assert run(*command).code == 0

    place.mkdir()
    command_ends_well()
    expected, n_moments = contents(place), 0
    shutil.rmtree(place)
    if before is None:
        place.mkdir()
    else:
        shutil.copytree(before, place)
    for _ in every_moment(place, command_ends_well, since=since):
        n_moments += 1
        again = run(*command)
        assert again.code == 0 or "already there" in again.err, again.err
        assert contents(place) == expected, f"moment {n_moments}"
    return n_moments


def test_a_finetuning_that_is_killed_as_it_ends(run: Run, commands: dict[str, list[object]], tmp_path: Path) -> None:
    assert try_every_moment(run, commands["finetune"], tmp_path / "place", since="finishing") >= 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb",
    [
        *("finetune", "finetune, two", "distill", "benchmark", "benchmark, folder"),
        *("embed", "embed, shards", "score", "convert", "corpus"),
    ],
)
def test_a_kill_at_any_moment(run: Run, commands: dict[str, list[object]], tmp_path: Path, verb: str) -> None:
    if verb == "distill":
        assert run(*commands["finetune"][:-1], tmp_path / "teacher").code == 0
    assert try_every_moment(run, commands[verb], tmp_path / "place") >= 20


def test_the_input_became_short(run: Run, commands: dict[str, list[object]], tmp_path: Path) -> None:
    """A folder of chunks that is no longer needed goes, too, whenever the command is killed."""
    command, place = commands["embed"], tmp_path / "place"
    place.mkdir()
    next(every_moment(place, lambda: run(*command), since="000001"))
    before = place.rename(tmp_path / "before")
    assert [each.name for each in before.iterdir()] == ["out.parquet.unfinished"]
    Path(str(command[1])).write_text("The vase broke.\n")
    assert try_every_moment(run, command, place, before=before) >= 8
