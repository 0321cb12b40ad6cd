"""finetune with a model's vectors between the layers of the tagger (TagLM), or at its output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from polyseme.cli import main
from polyseme.errors import OptionError
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_folder import load_task_model, save_task_model
from tiny_models import tiny_model
from transfer.small_tasks import small_task


def fitted(**settings: Any) -> Any:
    given = {"epochs": 1, "learning_rate": 1e-2, "batch_size": 16, "inner_width": 8, **settings}
    return finetune_task(small_task("tag", n_train=16, n_dev=8), tiny_model("elmo").bundle, FinetuneSettings(**given))


@pytest.mark.parametrize("at", ["between", "output"])
def test_the_model_stays_frozen_and_its_vectors_come_in_late(at: str, tmp_path: Path) -> None:
    done = fitted(at=at)
    model, config = done.model.eval(), done.model.head.config
    assert config.late_at == at
    assert config.n_layers == (2 if at == "between" else 1)
    assert model.bundle is not None
    assert config.late_width == model.choice.width(model.bundle.config)
    assert config.width == config.late_width + model.inputs.width
    assert not any(name.startswith("bundle.") for name in model.learned())
    items = small_task("tag").splits["dev"][:3]
    prepared = prepare(model, items, learning=False)
    with torch.no_grad():
        features = model.features(prepared.source.batch(range(len(prepared.source.units))))
        before = model.head(features)
        features.words[..., : config.late_width] = 0  # the vectors are read
        assert not torch.allclose(model.head(features), before)
    save_task_model(model, tmp_path / "model")
    loaded = load_task_model(tmp_path / "model")
    for one, other in zip(judge(model, prepared), judge(loaded, prepare(loaded, items, learning=False)), strict=True):
        np.testing.assert_array_equal(np.array(one.probabilities), np.array(other.probabilities))


def test_between_is_short_for_a_place() -> None:
    settings = FinetuneSettings(between=True)
    assert (settings.at, settings.frozen, settings.inputs) == ("between", True, ("char-cnn",))
    assert FinetuneSettings(at="output", inputs="glove.txt").inputs == ("glove.txt",)
    assert FinetuneSettings().inputs is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"between": True, "head_layers": 1}, "it has one layer. Give it two"),
        ({"between": True, "at": "output"}, "Leave one of both out"),
        ({"between": True, "head": "linear"}, "Got the head 'linear'"),
        ({"at": "output", "reread_inputs": True}, "Leave one of both out"),
        ({"at": "somewhere"}, "somewhere"),
        ({"between": True, "gradual_unfreezing": True}, "does not learn"),
        ({"head_layers": 0}, "must be at least 1"),
    ],
)
def test_places_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        FinetuneSettings(**settings)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--between", "--head-layers", "1"], "it has one layer"),
        (["--between", "-m", "none"], "There is no model whose vectors could be read"),
        (["--at", "above"], "above"),
    ],
)
def test_the_command_line_refuses_in_one_paragraph(arguments: list[str], reason: str, tmp_path: Path) -> None:
    for name, word in (("train", "Dawn"), ("dev", "News")):
        (tmp_path / f"{name}.conll").write_text(f"{word} B-x\nbroke O\n\n" * 4, encoding="utf-8")
    files = [f"--{name}={tmp_path / name}.conll" for name in ("train", "dev")]
    tiny_model("elmo").save(tmp_path / "elmo")
    named = [] if "-m" in arguments else ["-m", str(tmp_path / "elmo")]
    result = CliRunner().invoke(main, ["finetune", "tag", *files, "-o", str(tmp_path / "out"), *named, *arguments])
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()
