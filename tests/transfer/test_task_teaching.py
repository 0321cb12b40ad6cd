"""Task distillation: losses by their equations for every kind of task, students that learn, what is refused."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

import polyseme
from polyseme.cli import main
from polyseme.errors import InputError, OptionError
from polyseme.heads.head import Features
from polyseme.layer_subset import with_layers
from polyseme.model_folder import save_bundle
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import FinetuneRun, finetune_task
from polyseme.transfer.prepare_items import prepare
from polyseme.transfer.task_folder import load_task_model
from polyseme.transfer.task_model import TaskConfig, TaskModel
from polyseme.transfer.task_teaching import TaskTeaching
from polyseme.transfer.unit_batches import TaskBatch
from references import assert_close
from tiny_models import tiny_model
from transfer.small_tasks import small_task

T = 2.0


def teacher_of(kind: str, head: str = "linear", **settings: Any) -> TaskModel:
    """A teacher with random weights, in float64 and without dropout."""
    torch.manual_seed(1)
    task = small_task(kind, n_train=2, n_dev=0)
    labels = () if settings.get("regression") else task.labels
    bundle = tiny_model("bert").bundle.copied()
    pool = "first" if kind != "edge" else "mean"
    fields = {"labels": labels, "dropout_rate": 0.0, "init_std": 0.5, **settings}
    return build_task_model(bundle, TaskConfig(kind=kind, pool=pool), head, head_settings=fields).double().eval()


def taught(kind: str, head: str = "linear", teaching: dict[str, Any] | None = None, **settings: Any) -> tuple[Any, ...]:
    """Teaching, a student of two layers, and a ragged batch."""
    teacher = teacher_of(kind, head, **settings)
    lessons = TaskTeaching(teacher=teacher, name="teacher", **{"gold_weight": 0.0, **(teaching or {})})
    torch.manual_seed(2)
    student = lessons.new_student(with_layers(lessons.bundle, (1, 3))).double().eval()
    with torch.no_grad():
        for parameter in student.head.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    items = small_task(kind, n_train=6, n_dev=0).splits["train"]
    if settings.get("regression"):
        items = tuple(item.__class__(text=item.text, gold=float(len(item.text))) for item in items)
    batch = prepare(student, items, learning=True).source.batch(range(len(items)))
    return lessons, student, batch


def both(lessons: TaskTeaching, student: TaskModel, batch: TaskBatch) -> tuple[Tensor, Tensor, Features]:
    features = student.features(batch)
    return student.head(features), lessons.teacher.head(lessons.teacher.features(batch)), features


def divergence(mine: Tensor, theirs: Tensor) -> Tensor:
    """T² · KL of one distribution."""
    p, q = (theirs / T).softmax(-1), (mine / T).softmax(-1)
    return T**2 * (p * (p / q).log()).sum()


def test_distributions_over_labels_equal_their_equation_and_gold_counts_beside() -> None:
    lessons, student, batch = taught("classify", teaching={"gold_weight": 0.25})
    mine, theirs, _ = both(lessons, student, batch)
    soft = torch.stack([divergence(*pair) for pair in zip(mine, theirs, strict=True)]).mean()
    gold = -torch.stack([row.log_softmax(-1)[right] for row, right in zip(mine, batch.gold, strict=True)]).mean()
    assert_close(lessons.loss_of(student)(batch), 0.75 * soft + 0.25 * gold, 1e-10)


def test_numbers_are_compared_by_their_squared_difference() -> None:
    lessons, student, batch = taught("classify", regression=True)
    mine, theirs, _ = both(lessons, student, batch)
    assert_close(lessons.loss_of(student)(batch), ((mine - theirs) ** 2).mean(), 1e-10)


def test_several_labels_are_compared_one_by_one() -> None:
    lessons, student, batch = taught("classify", multi=True)
    mine, theirs, _ = both(lessons, student, batch)
    pairs = [torch.stack([each, torch.zeros_like(each)], dim=-1) for each in (mine, theirs)]
    expected = torch.stack([divergence(a, b) for a, b in zip(*(each.flatten(0, 1) for each in pairs), strict=True)])
    assert_close(lessons.loss_of(student)(batch), expected.mean(), 1e-10)


@pytest.mark.parametrize("head", ["linear", "crf"])
def test_tags_are_compared_word_by_word(head: str) -> None:
    """Those of a CRF by their probabilities over all sequences."""
    lessons, student, batch = taught("tag", head)
    mine, theirs, features = both(lessons, student, batch)
    assert len(set(features.mask.sum(1).tolist())) > 1
    if head == "crf":
        mine, theirs = (
            model.head.chain.marginals(scores, features.mask).clamp(min=1e-300).log()  # type: ignore[union-attr]
            for model, scores in ((student, mine), (lessons.teacher, theirs))
        )
    words = [divergence(mine[place], theirs[place]) for place in map(tuple, features.mask.nonzero().tolist())]
    assert_close(lessons.loss_of(student)(batch), torch.stack(words).mean(), 1e-10)


def test_choices_are_compared_by_item_and_spans_by_start_and_end() -> None:
    lessons, student, batch = taught("choose")
    mine, theirs, features = both(lessons, student, batch)
    items = [features.groups == number for number in range(int(features.groups.max()) + 1)]  # type: ignore[union-attr]
    assert len({int(item.sum()) for item in items}) > 1
    expected = torch.stack([divergence(mine[item], theirs[item]) for item in items])
    assert_close(lessons.loss_of(student)(batch), expected.mean(), 1e-10)
    lessons, student, batch = taught("span")
    mine, theirs, _ = both(lessons, student, batch)
    seen = mine[..., 0] > -1e3
    sides = [
        divergence(mine[row, seen[row], side], theirs[row, seen[row], side])
        for row in range(len(mine))
        for side in (0, 1)
    ]
    assert_close(lessons.loss_of(student)(batch), torch.stack(sides).mean(), 1e-10)


def states_of(model: TaskModel, batch: TaskBatch) -> list[list[Tensor]]:
    """Of each row the states of each layer, without padding."""
    rows: list[list[Tensor]] = []
    for number, length in enumerate(batch.rows.lengths.tolist()):  # type: ignore[union-attr]
        pieces = batch.rows.pieces[number : number + 1, :length]  # type: ignore[union-attr]
        states = model.bundle.encoder(polyseme.types.Batch(pieces))  # type: ignore[union-attr, attr-defined]
        rows.append([states[layer][0] for layer in range(states.depth + 1)])
    return rows


def test_states_and_relations_are_matched_beside_the_scores() -> None:
    plain, student, batch = taught("classify")
    base = plain.loss_of(student)(batch)
    assert batch.rows.lengths is not None  # ragged
    mine, theirs = states_of(student, batch), states_of(plain.teacher, batch)
    n_pieces = int(batch.rows.lengths.sum())
    squares = sum(
        (m[layer] - t[place]).square().mean(-1).sum() / 3
        for m, t in zip(mine, theirs, strict=True)
        for layer, place in ((0, 0), (1, 2), (2, 3))
    )
    lessons = TaskTeaching(teacher=plain.teacher, name="teacher", gold_weight=0.0, match="states", match_weight=3.0)
    assert_close(lessons.loss_of(student)(batch) - base, 3.0 * squares / n_pieces, 1e-10)
    total = torch.zeros((), dtype=torch.float64)
    for m, t in zip(mine, theirs, strict=True):
        of_both = []
        for model, states in ((student, m), (plain.teacher, t)):
            attention = model.bundle.encoder.layers[-1].attention  # type: ignore[union-attr, index]
            of_both.append((states[-2] @ attention.project.weight.T + attention.project.bias).chunk(3, dim=-1))
        for q, p in zip(*of_both, strict=True):
            for a, b in zip(q.chunk(4, dim=-1), p.chunk(4, dim=-1), strict=True):
                share, target = ((each @ each.T / each.shape[-1] ** 0.5).softmax(-1) for each in (a, b))
                total = total + (target * (target / share).log()).sum() / 12
    lessons = TaskTeaching(teacher=plain.teacher, name="teacher", gold_weight=0.0, match="relations")
    assert_close(lessons.loss_of(student)(batch) - base, total / n_pieces, 1e-9)


# --- by one call ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a task, and a teacher that was fitted to it."""
    place = tmp_path_factory.mktemp("taught")
    save_bundle(tiny_model("bert").bundle, place / "encoder")
    task = small_task("classify", n_train=120, n_dev=40)
    for split, items in task.splits.items():
        with (place / f"{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("review", "stars"), *((item.text, item.gold) for item in items)])
    unlabeled = small_task("classify", n_train=300, n_dev=0).splits["train"][200:]
    (place / "more.txt").write_text("".join(f"{item.text}\n" for item in unlabeled))
    polyseme.finetune(
        "classify", model=place / "encoder", train=place / "train.csv", dev=place / "dev.csv", text="review",
        label="stars", output=place / "teacher", epochs=6, learning_rate=5e-3, batch_size=16, device="cpu",
    )  # fmt: skip
    return place


QUICK: dict[str, Any] = {"epochs": 3, "batch_size": 16, "learning_rate": 5e-3, "device": "cpu"}


def test_a_student_learns_the_task_from_labels_and_from_texts_without(folder: Path, tmp_path: Path) -> None:
    """The teacher's columns are used, its score is in the notes, and the student predicts from its folder."""
    report = polyseme.distill(
        folder / "more.txt",
        model=folder / "teacher",
        layers=1,
        train=folder / "train.csv",
        dev=folder / "dev.csv",
        output=tmp_path / "small",
        **QUICK,
    )
    assert report.mode == "distilled"
    assert report.sizes["train"] == 120 + 100  # type: ignore[union-attr]
    assert any("The teacher teacher on dev: accuracy" in note for note in report.notes)  # type: ignore[union-attr]
    assert report.best.dev["accuracy"] > report.baseline["accuracy"] + 0.2  # type: ignore[union-attr]
    student = load_task_model(tmp_path / "small")
    assert student.bundle is not None
    assert student.bundle.config.depth == 1
    assert student.head.config.labels == ("bad", "good")
    assert polyseme.predict(["a crane broke"], model=tmp_path / "small").predictions[0].label in ("bad", "good")
    assert "Distilled for train.csv" in (tmp_path / "small/README.md").read_text()


@pytest.mark.slow
def test_texts_alone_are_enough_and_a_narrower_student_matches_states(folder: Path) -> None:
    report = polyseme.distill(
        folder / "more.txt",
        model=folder / "teacher",
        recipe="bert-tiny",
        shape={"n_layers": 2, "width": 16, "n_heads": 2, "inner_width": 32},
        match="states",
        **QUICK,
    )
    assert any("how often the student agrees" in note for note in report.notes)  # type: ignore[union-attr]
    assert report.sizes["train"] + report.sizes["dev"] == 100  # type: ignore[union-attr]


def test_a_student_that_was_interrupted_ends_as_if_it_had_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its maps, which are not saved with it, are in its checkpoints."""
    data = small_task("classify", n_train=64, n_dev=16)
    teacher = teacher_of("classify").float()
    narrow = tiny_model("bert", width=16, n_heads=2).bundle
    lessons = TaskTeaching(teacher=teacher, name="teacher", match="states")
    settings = FinetuneSettings(epochs=3, learning_rate=1e-3)
    whole = finetune_task(data, narrow, settings, FinetuneRun(teaching=lessons))
    reports: list[Any] = []

    def stop(report: Any) -> None:
        reports.append(report)
        if len(reports) == 2:
            raise KeyboardInterrupt

    run = FinetuneRun(teaching=lessons, folder=tmp_path, checkpoint_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        finetune_task(data, narrow, settings, replace(run, on_report=stop))
    with caplog.at_level("INFO"):
        resumed = finetune_task(data, narrow, settings, run)
    assert re.search(r"Resumed: an earlier run had trained seed 0 until step \d+\.", caplog.text)
    assert any(name.startswith("maps.") for name in whole.model.state())
    for name, weight in whole.model.state().items():
        assert torch.equal(resumed.model.state()[name], weight), name


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no data": ({"train": None}, OptionError, "There is nothing to learn 'classify' from"),
    "options of texts": ({"budget": "5min", "length": 32}, OptionError, "so budget, length would change nothing"),
    "more layers": ({"layers": 4}, OptionError, "no more layers than its teacher"),
    "no layer": ({"layers": 0}, OptionError, "of which 1 to 3 can be taken"),
    "another vocabulary": ({"student": "roberta"}, OptionError, "has another vocabulary"),
    "a wider student": ({"recipe": "bert-tiny"}, OptionError, "larger than its teacher"),
    "other labels": ({"train": "other.csv", "dev": None}, InputError, "does not know: 'ugly'"),
    "nothing to match": ({"match": "states and"}, OptionError, "no match 'states and'"),
    "gold alone": ({"gold_weight": 1.0}, OptionError, "nothing is learned from the teacher"),
    "no benchmark": ({"data": "x", "train": None, "dev": None}, OptionError, "no benchmark"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_nothing_is_left(case: str, folder: Path, tmp_path: Path) -> None:
    changes, kind, said = REFUSED[case]
    save_bundle(tiny_model("roberta").bundle, folder / "roberta", force=True)
    (folder / "other.csv").write_text("review,stars\n" + "a crane,ugly\na beam,good\n" * 4)
    call: dict[str, Any] = {"model": folder / "teacher", "train": "train.csv", "dev": "dev.csv", **QUICK, **changes}
    places = ("train", "dev", "student", "data")
    call |= {name: folder / call[name] for name in places if isinstance(call.get(name), str)}
    with pytest.raises(kind, match=said) as error:
        polyseme.distill(**call, output=tmp_path / "out")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_reports_and_a_language_model_takes_no_options_of_tasks(folder: Path, tmp_path: Path) -> None:
    files = ["--train", str(folder / "train.csv"), "--dev", str(folder / "dev.csv"), "--device", "cpu"]
    line = ["distill", "-m", str(folder / "teacher"), "--match", "relations", "--epochs", "1", *files]
    done = CliRunner().invoke(main, [*line, "-o", str(tmp_path / "small")])
    assert done.exit_code == 0, done.output
    assert "distilled" in done.output
    refused = CliRunner().invoke(main, ["distill", "-m", str(folder / "encoder"), "--epochs", "1", *files])
    assert refused.exit_code == 2
    assert "has no task, so dev, epochs, train would change nothing" in refused.output
