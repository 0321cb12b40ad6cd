"""Rates, unfreezing and fresh layers act where they should; defaults go with the encoder and are said."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.errors import OptionError
from polyseme.training.optimizers import OptimizerSettings, build_optimizer
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.default_settings import fill_settings
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.task_model import TaskConfig, TaskModel
from polyseme.transfer.train_seed import rates_of, reinit_top, unfreeze
from tiny_models import tiny_model

FAMILIES = ["bert", "elmo", "gpt2", "albert"]


def new_model(family: str = "bert", **settings: Any) -> TaskModel:
    reading = TaskConfig(kind="classify", max_pieces=40, **settings)
    return build_task_model(tiny_model(family).bundle, reading, "linear", head_settings={"labels": ("a", "b")})


@pytest.mark.parametrize("family", FAMILIES)
def test_rates_fall_from_layer_to_layer(family: str) -> None:
    model = new_model(family)
    settings = FinetuneSettings(learning_rate=1e-3, head_learning_rate=5e-3, layer_decay=0.5, weight_decay=0.1)
    optimizer = build_optimizer(
        model, OptimizerSettings(lr=1e-3, weight_decay=0.1), device="cpu", rates=rates_of(model, settings)
    )
    rate = {parameter: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    decay = {parameter: group["weight_decay"] for group in optimizer.param_groups for parameter in group["params"]}
    groups = model.layer_groups()
    for below, group in enumerate(reversed(groups)):
        assert {round(rate[parameter] / 1e-3, 9) for parameter in group} == {0.5**below}
    assert {rate[parameter] for parameter in model.head.parameters()} == {5e-3}
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            assert decay[parameter] == 0, name


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_let_loose_from_the_top(family: str) -> None:
    model = new_model(family)
    groups = model.layer_groups()
    settings = FinetuneSettings(gradual_unfreezing=True)
    seen = []
    for epoch in range(3):
        unfreeze(model, settings, epoch, 3)
        loose = [all(parameter.requires_grad for parameter in group) for group in groups]
        assert loose == sorted(loose)  # the top ones
        assert all(parameter.requires_grad for parameter in model.head.parameters())
        seen.append(sum(loose))
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert seen[-1] == len(groups)


def test_fresh_layers_are_the_top_ones() -> None:
    model = new_model()
    before = [[parameter.detach().clone() for parameter in group] for group in model.layer_groups()]
    assert model.bundle is not None
    reinit_top(model, build_encoder(model.bundle.config).layer_groups(), 2)
    changed = [
        any(not torch.equal(one, other) for one, other in zip(group, then, strict=True))
        for group, then in zip(model.layer_groups(), before, strict=True)
    ]
    assert changed == [False, False, True, True]
    with pytest.raises(OptionError, match="choose 3 or fewer"):
        reinit_top(model, build_encoder(model.bundle.config).layer_groups(), 4)


@pytest.mark.parametrize(
    ("family", "frozen", "expected"),
    [
        ("bert", False, {"learning_rate": 1e-4, "readout": "pooled", "pool": "first", "layer": "-1", "head": "linear"}),
        ("bert", True, {"learning_rate": 1e-3, "readout": "mean", "pool": "mean", "layer": "mix"}),
        ("gpt2", False, {"readout": "last"}),
        ("elmo", False, {"learning_rate": 1e-3, "readout": "max", "pool": "mean"}),
        ("lstm", False, {"readout": "concat"}),
        ("seq2seq", False, {"learning_rate": 1e-3, "pool": "mean", "epochs": 5}),
    ],
)
def test_defaults_go_with_the_encoder(family: str, frozen: bool, expected: dict[str, Any]) -> None:
    bundle = tiny_model(family).bundle
    found = fill_settings(
        FinetuneSettings(frozen=frozen), bundle.config, kind="classify", n_train=500, pooler=True, starts=True
    )
    assert {name: getattr(found.settings, name) for name in expected} == expected
    assert any(note.startswith("learning rate") for note in found.notes)
    given = fill_settings(
        FinetuneSettings(frozen=frozen, learning_rate=0.5, epochs=2),
        bundle.config,
        kind="classify",
        n_train=9,
        pooler=True,
        starts=True,
    )
    assert given.settings.learning_rate == 0.5
    assert not any(note.startswith("learning rate") for note in given.notes)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"head": "linaer"}, "linear"),
        ({"readout": "cls"}, "first"),
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"layer_decay": 2.0}, "layer_decay"),
        ({"betas": (0.7,)}, "two numbers"),
        ({"betas": (0.7, 1.0)}, "two numbers"),
        ({"frozen": True, "gradual_unfreezing": True}, "gradual_unfreezing"),
        ({"seeds": (1, 1)}, "seeds"),
        ({"seeds": (0, -1)}, "seeds"),
        ({"inputs": "char-cnn,char-cnn"}, "twice"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        FinetuneSettings(**settings)


def test_a_head_that_reads_out_by_itself_takes_no_readout() -> None:
    config = tiny_model("seq2seq").bundle.config
    settings = FinetuneSettings(frozen=True, head="bcn", readout="max")
    with pytest.raises(OptionError, match="'bcn' reads texts out in ways of its own"):
        fill_settings(settings, config, kind="classify", n_train=9, pooler=False, starts=False)


@pytest.mark.parametrize(
    ("family", "settings", "words"),
    [
        ("gpt2", {"readout": "first"}, "start special"),
        ("elmo", {"readout": "pooled"}, "start special"),
        ("xlnet", {"readout": "pooled"}, "pooler"),
        ("bert", {"layer": "all"}, "one vector"),
        ("bert", {"layer": "9"}, "not there"),
        ("bert", {"pool": "ends"}, "two-way"),
    ],
)
def test_readouts_that_the_model_has_nothing_for(family: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        new_model(family, **settings)


def test_settings_come_back_from_json() -> None:
    settings = FinetuneSettings(frozen=True, learning_rate=1e-3, seeds=(3, 4))
    assert FinetuneSettings.from_json(settings.to_json()) == settings
