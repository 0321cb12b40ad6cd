"""What `pretrain` and `corpus` refuse, and what they leave as it was: inputs, old runs, models of others."""

from __future__ import annotations

import builtins
import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import polyseme
from polyseme.errors import InputError, MissingPackageError, OptionError, OutputError, PolysemeError, PolysemeWarning
from polyseme.files.workshops import only_process
from training.kills import write_text

SHAPE = {"n_layers": 1, "width": 16, "n_heads": 2, "inner_width": 32}
SMALL: dict[str, Any] = {
    "recipe": "bert-tiny",
    "budget": "2steps",
    "batch_size": 8,
    "length": 16,
    "shape": SHAPE,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, a corpus of them, and a run on that."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "texts").mkdir()
    write_text(folder / "all.txt")
    (folder / "all.txt").rename(folder / "texts" / "text.txt")
    for rest in folder.glob("all.*"):
        rest.unlink()
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.build_corpus(folder / "texts", output=folder / "corpus", vocab_size=300)
    polyseme.pretrain(folder / "corpus", output=folder / "run", **SMALL)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which a test may do as it likes."""
    shutil.copytree(made, tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    return tmp_path / "made"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "work",
    [
        lambda: polyseme.pretrain("texts", output=".", **SMALL, force=True),
        lambda: polyseme.pretrain("texts", output="texts", **SMALL, force=True),
        lambda: polyseme.pretrain("texts/*.txt", output="texts", **SMALL, force=True),
        lambda: polyseme.pretrain("corpus", output="corpus", **SMALL, force=True),
        lambda: polyseme.pretrain("corpus", output="run", model="run", **{**SMALL, "shape": None}, force=True),
        lambda: polyseme.pretrain("texts", output="run", tokenizer="run/model", **SMALL, force=True),
        lambda: polyseme.build_corpus("texts", output="texts", force=True),
        lambda: polyseme.build_corpus({"a": ("texts/text.txt", 1.0)}, output="texts", force=True),
        lambda: polyseme.build_corpus("texts", output="run", tokenizer="run/model", force=True),
        lambda: polyseme.convert_model(model="run", output="run", force=True),
        lambda: polyseme.embed("texts", model="run", output="texts", shard_rows=10, force=True),
        lambda: polyseme.embed("texts", model="run", output="run", shard_rows=10, force=True),
        lambda: polyseme.finetune("classify", train="texts/text.txt", model="run", output="texts", force=True),
        lambda: polyseme.finetune("rte", data="texts", model="run", output="run", force=True),
    ],
    ids=[
        *("texts-here", "texts", "pattern", "corpus", "model", "tokenizer", "corpus-texts", "corpus-weighted"),
        *("corpus-tokenizer", "convert", "embed", "embed-model", "finetune", "finetune-model"),
    ],
)
def test_what_is_read_is_never_replaced(work: Callable[[], Any], place: Path) -> None:
    before = tree(place)
    with pytest.raises(OutputError, match=r"input itself|to be read|never replaced"):
        work()
    assert tree(place) == before


def test_an_old_run_comes_back_if_the_new_one_cannot_be(place: Path) -> None:
    before = tree(place / "run")
    (place / "blank.txt").write_text("\n \n")
    with pytest.raises(InputError):
        polyseme.pretrain("blank.txt", output="run", **SMALL, force=True)
    with pytest.raises(InputError, match="smaller than a batch"):
        polyseme.pretrain("corpus", output="run", **{**SMALL, "batch_size": 10**6}, force=True)
    assert tree(place / "run") == before
    assert sorted(each.name for each in place.iterdir()) == ["blank.txt", "corpus", "run", "texts"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": {"size": 64}}, "no setting 'size'"),
        ({"shape": {**SHAPE, "width": "wide"}}, "'width' must be a whole number. Got 'wide'"),
        ({"length": 999, "shape": {**SHAPE, "max_positions": 128}}, "longer than the 128 positions"),
        (
            {"mask_documents": True, "recipe": "lstm-tiny", "shape": None},
            "mask_documents and reset_positions cannot be followed",
        ),
        ({"shape": {**SHAPE, "n_heads": 3}}, "heads"),
    ],
    ids=["setting", "type", "positions", "documents", "heads"],
)
def test_what_no_corpus_can_mend_is_refused_before_there_is_one(
    changes: dict[str, Any], said: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    plain = builtins.open
    monkeypatch.setattr(
        builtins, "open", lambda file, *rest, **more: opened.append(str(file)) or plain(file, *rest, **more)
    )
    with pytest.raises(PolysemeError, match=said):
        polyseme.pretrain("texts", output="new", **{**SMALL, **changes})
    assert not [name for name in opened if name.endswith("text.txt")]
    assert not (place / "new").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vocab_size": 30_000}, "corpus is made already, and vocab_size would"),
        ({"tokenizer": "bpe", "held_out": 0.5}, "tokenizer, held_out would"),
        ({"model": "run"}, "has its shape and its tokenizer, and shape would"),
        ({"model": "run", "shape": None, "vocab_size": 77}, "vocab_size would"),
    ],
    ids=["vocab_size", "tokenizer", "shape", "model-vocab"],
)
def test_options_that_would_change_nothing_are_refused(changes: dict[str, Any], said: str, place: Path) -> None:
    with pytest.raises(OptionError, match=said):
        polyseme.pretrain("corpus", output="new", **{**SMALL, **changes})
    assert not (place / "new").exists()


def test_a_model_is_not_trained_on_with_other_pieces(place: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.build_corpus("texts", output="other", vocab_size=40)
    with pytest.raises(OptionError, match=r"run.* has another tokenizer \(.* pieces\) than the corpus other \(40\)"):
        polyseme.pretrain("other", output="new", model="run", **{**SMALL, "shape": None})
    assert not (place / "new").exists()


def test_a_model_of_another_direction_is_refused_with_what_fits(place: Path) -> None:
    polyseme.pretrain("texts", output="gpt", vocab_size=300, **{**SMALL, "recipe": "gpt-tiny"})
    with pytest.raises(OptionError, match=r"'masked' needs an encoder that sees both sides.*For this encoder.*causal"):
        polyseme.pretrain("texts", output="new", model="gpt", **{**SMALL, "shape": None})
    assert not (place / "new").exists()


def test_tensorboard_is_asked_for_before_any_work(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"polyseme\[tensorboard\]"):
        polyseme.pretrain("texts", output="new", tensorboard=True, **SMALL)
    assert not (place / "new").exists()


# --- runs that are damaged, of another run, or at work ----------------------------------------------------------------


def damage_run(place: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change run.json of the run, which then looks unfinished."""
    path = place / "run" / "run.json"
    content = {**json.loads(path.read_text()), "finished": False}
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda run: run.update(n_steps=-1), "n_steps is -1"),
        (lambda run: run.update(n_steps=0), "n_steps is 0"),
        (lambda run: run.update(n_steps="2"), "n_steps is '2'"),
        (lambda run: run.update(n_steps=True), "n_steps is True"),
        (lambda run: run.update(n_steps=1), "n_steps is 1, and there is a checkpoint after step 2"),
        (lambda run: run.update(n_steps=3), "n_steps is 3, and the budget is one of 2 steps"),
        (lambda run: run.update(finished="no"), "finished is 'no'"),
        (lambda run: run.pop("n_steps"), "there is no 'n_steps'"),
        (lambda run: run.pop("settings"), "there is no 'settings'"),
        (lambda run: run.update(settings=[]), "settings is"),
        (lambda run: run.update(stopped=3), "stopped is 3"),
        (lambda run: run.update(unigram_entropy="low"), "unigram_entropy is 'low'"),
        (lambda run: run.update(model_step=-3), "model_step is -3"),
        (lambda run: run.update(timing={"steps": [-1.0], "evaluation": 0.1}), "the timing is"),
        (lambda run: run.update(timing=3), "is damaged"),
        (lambda run: run.update(corrections=[{"step": 5, "planned": 2, "slowdown": 1.0}]), "a correction is"),
        (lambda run: run["settings"].update(seed=3), "the settings have been altered"),
        (lambda run: run["settings"]["training"]["phases"][0].update(batch_size="8"), "have been altered"),
        (lambda run: (run.pop("checksum"), run["settings"].pop("training")), "there is no 'training'"),
        (lambda run: (run.pop("checksum"), run["settings"].update(speed=9)), "has no field 'speed'"),
    ],
)
def test_a_damaged_run_is_refused(place: Path, change: Callable[[dict[str, Any]], object], reason: str) -> None:
    damage_run(place, change)
    before = tree(place)
    with pytest.raises(InputError, match=r"run\.json is damaged \(.*so the run cannot be resumed") as refused:
        polyseme.pretrain(resume="run", device="cpu")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert tree(place) == before


def test_checkpoints_of_another_run_are_refused(place: Path) -> None:
    polyseme.pretrain("corpus", output="other", **{**SMALL, "shape": {**SHAPE, "width": 8}})
    damage_run(place, lambda run: None)
    shutil.rmtree("run/checkpoints")
    shutil.copytree("other/checkpoints", "run/checkpoints")
    before = tree(place)
    with pytest.raises(InputError, match=r"is of another run than run/run\.json: their settings differ"):
        polyseme.pretrain(resume="run", device="cpu")
    assert tree(place) == before


@pytest.mark.parametrize("how", [{"resume": "run"}, {"sources": "corpus", "output": "run", **SMALL}])
@pytest.mark.parametrize("force", [False, True])
def test_a_run_that_another_process_trains_is_refused(place: Path, how: dict[str, Any], force: bool) -> None:
    damage_run(place, lambda run: None)
    before = tree(place)
    with only_process(place / "run"), pytest.raises(OutputError, match="Another process is at work on this output"):
        polyseme.pretrain(**{"device": "cpu", **how, **({"force": True} if force and "output" in how else {})})
    assert tree(place) == before
    assert sorted(path.name for path in place.iterdir()) == ["corpus", "run", "texts"]


def test_a_run_that_was_building_its_corpus_can_be_replaced(place: Path) -> None:
    shutil.rmtree("run")
    Path("run/corpus.unfinished").mkdir(parents=True)
    Path("run/corpus.unfinished/settings.json").write_text('{"polyseme": "an unfinished corpus", "settings": {}}')
    polyseme.pretrain("corpus", output="run", **SMALL, force=True)
    assert Path("run/model").is_dir()
    assert not Path("run/corpus.unfinished").exists()


def test_a_run_that_was_killed_before_its_first_record_begins_anew(place: Path) -> None:
    shutil.rmtree("run")
    Path("run/.run.json.4711-0123abcd.part").mkdir(parents=True)
    polyseme.pretrain("corpus", output="run", **SMALL)
    assert sorted(path.name for path in Path("run").glob(".*")) == []
    Path("run/.ledger.json.4711-0123abcd.part").mkdir()
    with pytest.raises(OutputError, match="finished"):
        polyseme.pretrain("corpus", output="run", **SMALL)
    assert sorted(path.name for path in Path("run").glob(".*")) == []


def test_a_corpus_of_other_text_that_a_refused_run_left_is_named(place: Path) -> None:
    shutil.rmtree("run")
    Path("run").mkdir()
    Path("corpus").rename("run/corpus")
    Path("other.txt").write_text("The vase fell. It broke.\n")
    before = tree(place / "run")
    with pytest.raises(OutputError, match="a corpus of other text, or with another tokenizer, of a run that did not"):
        polyseme.pretrain("other.txt", output="run", **SMALL)
    assert tree(place / "run") == before


def test_an_old_run_comes_back_if_a_kill_came_before_the_new_one(place: Path) -> None:
    damage_run(place, lambda run: None)
    old, workshop = tree(place / "run"), place / ".run.4711-0123abcd.part"
    workshop.mkdir()
    (place / "run").rename(workshop / "replaced")
    with pytest.raises(OutputError, match="holds a run with other settings"):
        polyseme.pretrain("corpus", output="run", **SMALL)
    assert tree(place / "run") == old
    assert not workshop.exists()
