"""Task models that answer together: the mean of what they say, and which models cannot."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import polyseme
from polyseme.errors import ModelError, OptionError, PolysemeError
from polyseme.tasks.items import Item
from polyseme.transfer.finetune_report import FinetuneReport
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.predict_files import Predictor
from polyseme.transfer.task_folder import save_task_model
from tiny_models import tiny_model
from transfer.small_tasks import small_task

TEXTS = [item.text for item in small_task("classify", n_train=30).splits["train"]]


def fitted(folder: Path, family: str, kind: str = "classify", **changes: object) -> str:
    settings = FinetuneSettings(epochs=1, batch_size=8, learning_rate=3e-3, seeds=(len(family),))
    task = small_task(kind, n_train=30, n_dev=10, **changes)
    save_task_model(finetune_task(task, tiny_model(family).bundle, settings).model, folder)
    return str(folder)


def test_the_mean_of_two_models(tmp_path: Path) -> None:
    one, other = fitted(tmp_path / "one", "lstm"), fitted(tmp_path / "other", "bert")
    by_one, by_other, by_both = (
        polyseme.predict(TEXTS, model=model, device="cpu").predictions for model in (one, other, f"{one},{other}")
    )
    for first, second, joined in zip(by_one, by_other, by_both, strict=True):
        mean = {label: (share + second.probabilities[label]) / 2 for label, share in first.probabilities.items()}
        assert joined.probabilities == pytest.approx(mean)
        assert joined.label == max(mean, key=mean.__getitem__)
    with (tmp_path / "test.csv").open("w", newline="") as file:
        rows = [(text, each.label) for text, each in zip(TEXTS, by_both, strict=True)]
        csv.writer(file).writerows([("text", "label"), *rows])
    report = polyseme.evaluate(str(tmp_path / "test.csv"), model=f"{one},{other}", device="cpu")
    assert report.lines[0].figures["accuracy"] == 1.0
    assert "the mean of 2 models" in report.method


@pytest.mark.slow
def test_numbers_choices_and_several_labels(tmp_path: Path) -> None:
    choose = [fitted(tmp_path / family, family, "choose") for family in ("lstm", "bert")]
    question = [("the crane broke", ["crane", "vase", "law"])]
    [found] = polyseme.predict(question, model=",".join(choose), device="cpu").predictions
    assert sum(found.probabilities.values()) == pytest.approx(1)
    item = Item(text="the crane broke")
    scored = small_task("classify", n_train=30, n_dev=10)
    numbers = {
        split: [Item(text=each.text, gold=float(each.gold == "good")) for each in items]
        for split, items in scored.splits.items()
    }
    several = {
        split: [Item(text=each.text, gold=(each.gold,)) for each in items] for split, items in scored.splits.items()
    }
    settings = FinetuneSettings(epochs=1, seeds=(3,))
    for changes in (
        {"splits": numbers, "labels": (), "regression": True, "metrics": ("pearson",)},
        {"splits": several, "multi": True, "metrics": ("micro_f1",)},
    ):
        task = small_task("classify", **changes)
        one, other = (finetune_task(task, tiny_model(family).bundle, settings).model for family in ("lstm", "bert"))
        [first], [second], [joined] = Predictor(one)([item]), Predictor(other)([item]), Predictor(one, [other])([item])
        if "regression" in changes:
            assert joined.label == pytest.approx((first.label + second.label) / 2)
        else:
            assert joined.probabilities["good"] == pytest.approx(
                (first.probabilities["good"] + second.probabilities["good"]) / 2
            )


def test_models_that_cannot_answer_together(tmp_path: Path) -> None:
    one, tagger = fitted(tmp_path / "one", "lstm"), fitted(tmp_path / "tag", "lstm", "tag")
    for models, message in (
        (f"{one},{tagger}", "the kind of their heads differ"),
        (f"{tagger},{one}", "answer together in classify, pair, choose, not in tag"),
        (f"{one},{one}", "listed twice"),
        (f"{one},", "names with commas between them"),
    ):
        with pytest.raises(OptionError, match=message):
            polyseme.predict(TEXTS, model=models, device="cpu")


# --- fitted together --------------------------------------------------------------------------------------------------


@pytest.fixture
def encoders(tmp_path: Path) -> str:
    """A forward and a backward language model."""
    folders = [tmp_path / reads for reads in ("forwards", "backwards")]
    for folder in folders:
        tiny_model("lstm", reads=folder.name).save(folder)
    return ",".join(map(str, folders))


def test_models_are_fitted_in_one_call(tmp_path: Path, encoders: str) -> None:
    """Each as by itself; the folder answers as both of its models do, named one by one."""
    task = small_task("classify", n_train=40, n_dev=12)
    settings = {"ulmfit": True, "batch_size": 8, "epochs": 4, "device": "cpu"}
    names, parts = encoders.split(","), []
    report = polyseme.finetune(
        task, model=encoders, output=tmp_path / "both", **settings, on_report=lambda step: parts.append(step.part)
    )
    assert list(dict.fromkeys(parts)) == names
    alone = [polyseme.finetune(task, model=name, **settings).best.dev for name in names]
    assert [report.ensemble[name]["dev"] for name in names] == alone
    assert list(report.ensemble) == [*names, "together"]
    both = tmp_path / "both"
    together = polyseme.predict([item.text for item in task.splits["dev"]], model=both, device="cpu").predictions
    by_name = polyseme.predict([item.text for item in task.splits["dev"]], model=f"{both}/1,{both}/2", device="cpu")
    assert [each.probabilities for each in together] == [each.probabilities for each in by_name.predictions]
    right = [each.label == item.gold for each, item in zip(together, task.splits["dev"], strict=True)]
    assert report.ensemble["together"]["dev"]["accuracy"] == pytest.approx(sum(right) / len(right))
    assert report.errors.n == right.count(False)
    with pytest.raises(ModelError, match=r"holds 2 task models that answer together.*name one of them: .*1, .*2"):
        polyseme.load(both)
    assert "together" in (both / "report.html").read_text()
    assert FinetuneReport.from_json(json.loads((both / "report.json").read_text())).ensemble == report.ensemble


@pytest.mark.parametrize("members", [3, ["../elsewhere"], ["/elsewhere"], [1]])
def test_models_elsewhere_are_not_members(members: object, tmp_path: Path) -> None:
    (tmp_path / "polyseme.json").write_text(json.dumps({"format": 1, "ensemble": members}))
    with pytest.raises(ModelError, match="must be a list of names of folders beside it"):
        polyseme.predict(["the crane"], model=tmp_path, device="cpu")


def test_what_is_not_fitted_together(tmp_path: Path, encoders: str) -> None:
    for kind, options, message in (
        ("tag", {}, "answer together in classify, pair, choose, not in tag"),
        ("classify", {"train_share": "50%"}, "A learning curve .* is that of one model"),
        ("classify", {"scratch": True}, "A learning curve .* is that of one model"),
        ("classify", {"model": f"{encoders},{tmp_path}/nowhere"}, "There is no model at"),
    ):
        with pytest.raises(PolysemeError, match=message):
            polyseme.finetune(small_task(kind), **{"model": encoders, "output": tmp_path / "both", **options})
    assert not (tmp_path / "both").exists()
    assert not (tmp_path / "both.unfinished").exists()
