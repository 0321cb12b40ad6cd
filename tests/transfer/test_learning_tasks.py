"""Every kind of task is learned end to end, frozen and fine-tuned, by encoders of every direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from polyseme.bundle import Bundle
from polyseme.tasks.items import Item
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import FinetuneResult, finetune_task
from polyseme.transfer.prepare_items import judge, prepare
from tiny_models import tiny_model
from transfer.small_tasks import MAKERS, small_task

LEARNT = {"classify": 0.85, "pair": 0.85, "tag": 0.8, "span": 0.7, "choose": 0.85, "edge": 0.85, "edge-pair": 0.85}
"""The first figure on dev from which a small task counts as learned; the baseline is near a half, or nothing."""


EPOCHS = {"tag": 12, "span": 6, "choose": 3}


def fitted(kind: str, bundle: Bundle | None, *, frozen: bool, n_train: int = 160, **settings: Any) -> FinetuneResult:
    chosen = {
        "epochs": 8,
        "batch_size": 16,
        "learning_rate": 1e-2 if frozen else 3e-3,
        "head_learning_rate": 1e-2,
        "frozen": frozen,
    }
    return finetune_task(small_task(kind, n_train=n_train), bundle, FinetuneSettings(**{**chosen, **settings}))


FROZEN_BY_DEFAULT = ("classify", "pair", "choose", "edge", "edge-pair")
"""Kinds that are learned over a frozen encoder by default, and tuned among the slow tests; the others the reverse."""


@pytest.mark.parametrize(
    ("kind", "frozen"),
    [
        pytest.param(
            kind,
            frozen,
            id=f"{kind}-{'frozen' if frozen else 'tuned'}",
            marks=() if frozen == (kind in FROZEN_BY_DEFAULT) else pytest.mark.slow,
        )
        for kind in MAKERS
        for frozen in (False, True)
    ],
)
def test_every_kind_is_learnt(kind: str, frozen: bool) -> None:
    bundle = tiny_model("t5", n_layers=3 if frozen else 1).bundle
    slow = kind == "pair" if frozen else kind in ("edge", "edge-pair")
    epochs = 20 if slow else EPOCHS.get(kind, 8)
    done = fitted(kind, bundle, frozen=frozen, epochs=epochs, stack="encoder")
    [figures] = done.report.seeds
    assert figures.dev[done.report.metrics[0]] >= LEARNT[kind]
    assert figures.learned or kind == "tag"
    assert figures.curve[-1]["loss"] < figures.curve[0]["loss"]


@pytest.mark.parametrize(
    ("family", "kind"),
    [("bert", "choose"), ("gpt2", "classify"), ("xlnet", "classify"), ("elmo", "choose"), ("lstm", "classify")],
)
def test_encoders_of_every_direction_learn(family: str, kind: str) -> None:
    done = fitted(kind, tiny_model(family, n_layers=1).bundle, frozen=False, epochs=4 if kind == "choose" else 8)
    assert done.report.seeds[0].dev["accuracy"] >= 0.8


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_a_head_without_any_model(kind: str) -> None:
    done = fitted(kind, None, frozen=False, inputs="char-cnn", inner_width=16, epochs=6)
    assert done.report.seeds[0].dev[done.report.metrics[0]] >= 0.95
    assert done.report.mode == "frozen"


def test_learnt_inputs_beside_frozen_ones() -> None:
    bundle = tiny_model("bert").bundle
    done = fitted("tag", bundle, frozen=True, inputs="char-cnn", head="bilstm-crf", inner_width=8, epochs=3)
    width = done.model.head.config.width
    assert width == bundle.config.widths[-1] + done.model.inputs.width  # type: ignore[union-attr]
    assert done.report.seeds[0].dev["word_accuracy"] >= 0.9


@pytest.mark.parametrize(
    "settings",
    [{"readout": "first"}, {"readout": "pooled"}, pytest.param({"head": "bilstm"}, marks=pytest.mark.slow)],
    ids=str,
)
def test_frozen_readouts_of_the_start(settings: dict[str, Any]) -> None:
    done = fitted("pair", tiny_model("bert").bundle, frozen=True, **settings)
    assert done.report.seeds[0].curve[-1]["loss"] < done.report.seeds[0].curve[0]["loss"]


# --- frozen is frozen, tuned is tuned ---------------------------------------------------------------------------------


def test_what_is_given_stays_as_it_is() -> None:
    bundle = tiny_model("bert").bundle
    before = {name: each.detach().clone() for name, each in bundle.named_parameters()}
    fitted("classify", bundle, frozen=False, epochs=1, n_train=32)
    fitted("classify", bundle, frozen=True, epochs=1, n_train=32)
    assert all(torch.equal(each, before[name]) for name, each in bundle.named_parameters())


def test_the_encoder_drops_out_from_the_first_step_on() -> None:
    """A loaded encoder comes ready for inference, and must not stay so."""
    bundle = tiny_model("bert", dropout_rate=0.5).bundle
    losses = [
        fitted(
            "classify", tiny_model("bert", dropout_rate=rate).bundle, frozen=False, epochs=1, n_train=16, dropout=0.0
        )
        .report.seeds[0]
        .curve[0]["loss"]
        for rate in (0.0, 0.5)
    ]
    assert not bundle.training
    assert losses[0] != losses[1]


def test_the_mix_is_learnt_and_told() -> None:
    done = fitted("classify", tiny_model("bert").bundle, frozen=True, layer="mix")
    mix = done.report.seeds[0].mix
    assert mix is not None
    shares = list(mix["shares"].values())
    assert len(shares) == 4
    assert sum(shares) == pytest.approx(1)
    assert max(shares) - min(shares) > 1e-3


def test_regression_and_several_labels() -> None:
    numbers = small_task("classify")
    scored = {
        split: tuple(Item(text=item.text, gold=3.0 if item.gold == "good" else 1.0) for item in items)
        for split, items in numbers.splits.items()
    }
    regression = small_task("classify", splits=scored, labels=(), regression=True, metrics=("spearman", "pearson"))
    settings = FinetuneSettings(epochs=5, batch_size=16, learning_rate=5e-3, readout="mean")
    bundle = tiny_model("t5").bundle
    assert finetune_task(regression, bundle, settings).report.seeds[0].dev["pearson"] > 0.7
    several = {
        split: tuple(Item(text=item.text, gold=("any", item.gold)) for item in items)
        for split, items in numbers.splits.items()
    }
    multi = small_task("classify", splits=several, labels=("any", "bad", "good"), multi=True, metrics=("micro_f1",))
    done = finetune_task(multi, bundle, settings)
    assert done.report.seeds[0].dev["micro_f1"] > 0.85


# --- batches change nothing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "kind", "frozen"),
    [
        *(("bert", kind, frozen) for kind in MAKERS for frozen in (False, True)),
        ("elmo", "pair", True),
        ("gpt2", "tag", False),
        ("xlnet", "span", False),
        ("bart", "span", False),
        ("t5", "pair", True),
    ],
)
def test_together_as_one_at_a_time(family: str, kind: str, frozen: bool) -> None:
    done = fitted(kind, tiny_model(family).bundle, frozen=frozen, epochs=1, n_train=16)
    items = small_task(kind).splits["dev"][:6]
    together = judge(done.model, prepare(done.model, items, learning=False))
    for item, one in zip(items, together, strict=True):
        [alone] = judge(done.model, prepare(done.model, [item], learning=False))
        assert alone.answer == one.answer
        np.testing.assert_allclose(np.array(alone.probabilities), np.array(one.probabilities), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *(("bert", kind) for kind in MAKERS),
        ("gpt2", "classify"),
        ("elmo", "pair"),
        ("bart", "choose"),
        ("bart", "span"),
        ("t5", "classify"),
    ],
)
def test_padding_to_a_length_changes_no_loss(family: str, kind: str) -> None:
    """What is recorded on a GPU are rows padded to a few lengths."""
    model = fitted(kind, tiny_model(family).bundle, frozen=False, epochs=1, n_train=16).model
    source = prepare(model, small_task(kind).splits["dev"], learning=True).source
    numbers = [3, 1, 7, 12]
    plain, padded = source.batch(numbers), source.batch(numbers, 32)
    assert padded.rows is not None
    assert padded.rows.pieces.shape[1] == 32
    with torch.no_grad():
        torch.testing.assert_close(model(padded), model(plain), rtol=1e-5, atol=1e-6)
