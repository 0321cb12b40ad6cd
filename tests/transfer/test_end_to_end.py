"""BART, T5 and XLNet learn a small cut of a real task, each read as in its paper, and predict from the saved folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import polyseme
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.tasks.items import Item, TaskData
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_folder import load_task_model, save_task_model
from transfer.small_stacks import small_model
from transfer.small_tasks import small_task

READ = {
    "bart": {"head": "linear", "stack": "decoder", "readout": "last"},
    "t5": {"head": "text", "stack": None, "readout": None},
    "xlnet": {"head": "linear", "stack": "encoder", "readout": "first"},
}
N_TRAIN, N_DEV = 500, 150


@pytest.mark.slow
@pytest.mark.parametrize("family", READ)
def test_a_cut_of_trec(family: str, data: Path, tmp_path: Path) -> None:
    """What kind of thing a question asks for: six labels, of which the commonest is right of about a quarter."""
    task = read_benchmark("trec", data / "tasks")
    cut = {"trec.csv": task.splits["train"][:N_TRAIN], "dev.csv": task.splits["dev"][:N_DEV]}
    for name, items in cut.items():
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([("question", "kind"), *((item.text, item.gold) for item in items)])
    texts = [item.text for item in cut["trec.csv"]] + [f"trec sentence: {label}" for label in task.labels]
    spread = {} if family == "t5" else {"init_std": 0.05}  # T5 draws by the width
    save_bundle(small_model(family, texts, **spread), tmp_path / "small")
    report = polyseme.finetune(
        "classify",
        model=tmp_path / "small",
        train=tmp_path / "trec.csv",
        dev=tmp_path / "dev.csv",
        text="question",
        label="kind",
        output=tmp_path / "fitted",
        epochs=2,
        batch_size=8,
        learning_rate=3e-3,
        device="cpu",
    )
    assert {name: report.settings[name] for name in READ[family]} == READ[family]
    accuracy, majority = report.best.dev["accuracy"], report.baseline["accuracy"]
    assert majority < 0.35
    assert accuracy > majority + 0.2
    found = polyseme.predict(
        tmp_path / "dev.csv", model=tmp_path / "fitted", field="question", device="cpu"
    ).predictions
    right = sum(each.label == item.gold for each, item in zip(found, cut["dev.csv"], strict=True))
    assert right / N_DEV == pytest.approx(accuracy, abs=1e-9)
    assert all(sum(each.probabilities.values()) == pytest.approx(1) for each in found)


# --- labels as text ---------------------------------------------------------------------------------------------------


def scored_task() -> TaskData:
    plain = small_task("classify", n_train=60, n_dev=20)
    splits = {
        split: tuple(Item(text=item.text, gold=3.06 if item.gold == "good" else 2.26) for item in items)
        for split, items in plain.splits.items()
    }
    return small_task("classify", splits=splits, labels=(), regression=True, metrics=("pearson",))


def test_numbers_are_written_to_the_nearest_fifth(tmp_path: Path) -> None:
    task = scored_task()
    items = [item for some in task.splits.values() for item in some]
    bundle = small_model("t5", [f"classify sentence: 2.2 2.4 2.6 2.8 3.0 {item.text}" for item in items])
    done = finetune_task(task, bundle, FinetuneSettings(epochs=12, batch_size=10, learning_rate=5e-3))
    assert done.report.settings["head"] == "text"
    assert (
        done.model.head.config.numbers
        == ("2.2", "2.4", "2.6", "2.8", "3.0", "3.2")[: len(done.model.head.config.numbers)]
    )
    judged = judge(done.model, prepare(done.model, items, learning=False))
    assert {each.answer for each in judged} == {2.2, 3.0}
    assert done.report.best.dev["pearson"] > 0.9


def test_what_is_saved_says_the_same(tmp_path: Path) -> None:
    task = small_task("pair", n_train=48, n_dev=16)
    texts = [f"pair sentence1: {item.text} sentence2: {item.second} yes no" for item in task.splits["train"]]
    done = finetune_task(task, small_model("t5", texts), FinetuneSettings(epochs=2, learning_rate=5e-3))
    save_task_model(done.model, tmp_path / "saved")
    loaded = load_task_model(tmp_path / "saved")
    assert loaded.config == done.model.config
    assert loaded.config.prompt == ("pair sentence1: ", "sentence2: ")
    items = task.splits["dev"]
    before, after = (judge(model, prepare(model, items, learning=False)) for model in (done.model, loaded))
    assert before == after
    card = json.loads((tmp_path / "saved" / "polyseme.json").read_text())
    assert card["task"]["head"]["body"] == "text"
    assert load_bundle(tmp_path / "saved").decoder is not None
