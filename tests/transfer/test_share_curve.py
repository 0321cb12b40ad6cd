"""Learning curves: every kind of task, each sample by itself, from scratch beside, resumed; table and picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import polyseme
from polyseme.errors import InputError, OptionError
from polyseme.tasks.train_samples import TrainSamples, train_shares
from polyseme.transfer import share_curve as share_curve_module
from polyseme.transfer.finetune_report import FinetuneReport, curve_picture, page_of
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.share_curve import finetune_shares
from polyseme.transfer.share_points import PRETRAINED, SCRATCH
from tiny_models import tiny_model
from transfer.small_tasks import MAKERS, small_task

QUICK = FinetuneSettings(epochs=1, batch_size=8, learning_rate=3e-3, seeds=(0, 1))


@pytest.mark.parametrize(
    "kind", [kind if kind in ("classify", "tag") else pytest.param(kind, marks=pytest.mark.slow) for kind in MAKERS]
)
def test_any_kind_of_task(kind: str) -> None:
    data = small_task(kind, n_train=24, n_dev=8, n_test=8)
    frozen = {"frozen": True, "seeds": (0,)} if kind == "tag" else {}
    done = finetune_shares(data, tiny_model("bert").bundle, QUICK.replace(**frozen), train_shares("8,100%"))
    assert [(point.share, point.n_items) for point in done.report.curve] == [("8", 8), ("100%", 24)]
    assert all(len(point.seeds) == len(done.report.seeds) for point in done.report.curve)
    assert done.report.curve[-1].seeds == done.report.seeds, "the report is of the largest share"


def test_a_share_is_what_its_items_alone_teach() -> None:
    data, bundle = small_task("classify", n_train=40, n_dev=20), tiny_model("bert").bundle
    report = finetune_shares(data, bundle, QUICK, train_shares("16,100%")).report
    samples = TrainSamples.of(train_shares("16"), data.splits["train"], (1,), "")
    splits = {**data.splits, "train": samples.items(data.splits["train"], "16", 1)}
    alone = finetune_task(small_task("classify", splits=splits), bundle, QUICK.replace(seeds=(1,))).report
    whole = finetune_task(data, bundle, QUICK).report
    assert report.curve[0].seeds[1].dev == alone.seeds[0].dev
    assert report.curve[0].seeds[1].curve == alone.seeds[0].curve
    assert [each.curve for each in report.curve[1].seeds] == [each.curve for each in whole.seeds]


def test_few_items_are_learned_in_enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_curve_module, "MIN_STEPS", 40)
    data = small_task("classify", n_train=64, n_dev=8)
    settings = FinetuneSettings(batch_size=2, learning_rate=1e-3)
    [few] = finetune_shares(data, tiny_model("bert").bundle, settings, train_shares("4")).report.curve
    assert few.seeds[0].n_steps == few.settings["epochs"] * 2 == 40
    assert len(few.seeds[0].curve) == 10, "dev is not scored after every two steps"


@pytest.mark.parametrize(("evaluations", "steps"), [(None, [12, 24, 30]), (1, list(range(3, 31, 3)))])
def test_a_dev_larger_than_train_is_scored_after_as_many_training_items(
    evaluations: int | None, steps: list[int]
) -> None:
    """6 items make 3 steps of an epoch, and 20 are read in 10; the last step is always scored."""
    data = small_task("classify", n_train=6, n_dev=20)
    settings = FinetuneSettings(batch_size=2, epochs=10, learning_rate=1e-3, evaluations=evaluations)
    [seed] = finetune_task(data, tiny_model("bert").bundle, settings).report.seeds
    assert [point["step"] for point in seed.curve] == steps


def test_from_scratch() -> None:
    """The same architecture, other weights for each seed, and all of it learns at once."""
    data = small_task("classify", n_train=24, n_dev=8)
    settings = QUICK.replace(layer_decay=0.5, gradual_unfreezing=True, epochs=2)
    report = finetune_shares(data, tiny_model("bert").bundle, settings, train_shares("100%"), scratch=True).report
    pretrained, scratch = report.curve
    assert (pretrained.start, scratch.start) == (PRETRAINED, SCRATCH)
    assert [each.settings["gradual_unfreezing"] for each in report.curve] == [True, False]
    assert scratch.settings["layer_decay"] == 1
    losses = [each.curve[0]["loss"] for point in report.curve for each in point.seeds]
    assert len(set(losses)) == 4
    with pytest.raises(OptionError, match="frozen encoder with random weights"):
        finetune_shares(data, tiny_model("bert").bundle, QUICK.replace(frozen=True), train_shares("100%"), scratch=True)


def test_table_page_and_picture(tmp_path: Path) -> None:
    data = small_task("classify", n_train=24, n_dev=8, n_test=8)
    report = polyseme.finetune(
        data,
        model=tiny_model("bert"),
        train_share="8,24",
        scratch=True,
        seeds=2,
        epochs=1,
        device="cpu",
        output=tmp_path / "curve",
    )
    written = json.loads((tmp_path / "curve" / "report.json").read_text())
    assert json.loads(json.dumps(FinetuneReport.from_json(written).to_json())) == written
    picture = ElementTree.fromstring((tmp_path / "curve" / "curve.svg").read_text())
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == 4
    assert {"pretrained", "from scratch", "accuracy on test"} <= {each.text for each in picture.iter()}
    lines = [line.split() for line in report.lines()]
    header = next(line for line in lines if line[:2] == ["share", "items"])
    assert " ".join(header) == "share items pretrained, dev pretrained, test from scratch, dev from scratch, test"
    assert next(line for line in lines if line[:2] == ["8", "8"])
    page = (tmp_path / "curve" / "report.html").read_text()
    assert "<h2>Learning curve</h2>" in page
    assert "<td>24</td>" in page
    assert "Learning curve" not in page_of(FinetuneReport.from_json({**written, "curve": []}))
    assert polyseme.predict(["a fine crane"], model=tmp_path / "curve", device="cpu").predictions
    assert curve_picture(report) == (tmp_path / "curve" / "curve.svg").read_text()


def test_an_interrupted_curve_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data, settings = small_task("classify", n_train=24, n_dev=8), QUICK.values()
    settings |= {"device": "cpu", "train_share": ["8", "16"], "model": tiny_model("bert")}
    whole = polyseme.finetune(data, **settings)
    runs = []

    def counted(*arguments: Any) -> object:
        runs.append(arguments[-1].folder)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return finetune_task(*arguments)

    monkeypatch.setattr(share_curve_module, "finetune_task", counted)
    with pytest.raises(KeyboardInterrupt):
        polyseme.finetune(data, **settings, output=tmp_path / "curve")
    assert not (tmp_path / "curve").exists()
    with caplog.at_level("INFO"):
        resumed = polyseme.finetune(data, **settings, output=tmp_path / "curve")
    assert caplog.messages[0] == "Resumed: an earlier run had finished 2 of the curve's 4 runs."
    assert len(runs) == 5, "the two runs of the small share are kept"
    assert [[each.dev for each in point.seeds] for point in resumed.curve] == [
        [each.dev for each in point.seeds] for point in whole.curve
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["curve"]


def test_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = small_task("classify", n_train=24, n_dev=8)
    for shares, message in {"1": "smallest that works is 2", "25": "more items than classify has"}.items():
        with pytest.raises(InputError, match=message):
            polyseme.finetune(
                data, model=tiny_model("bert"), train_share=shares, output=tmp_path / "curve", device="cpu"
            )
    with pytest.raises(OptionError, match="nothing but training from scratch"):
        polyseme.finetune(data, model="none", inputs="char-cnn", scratch=True, output=tmp_path / "curve", device="cpu")
    assert not list(tmp_path.iterdir())
