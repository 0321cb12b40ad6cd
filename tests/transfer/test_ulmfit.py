"""ULMFiT: its steps as the paper has them, each an option, and its three stages one after another."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import polyseme
from polyseme.errors import ModelError, OptionError, PolysemeWarning
from polyseme.heads.bodies import BatchNorm
from polyseme.heads.head_config import HeadConfig, named_settings
from polyseme.recipes.recipe_table import RECIPES
from polyseme.tasks.kinds import build_head
from polyseme.training.optimizers import build_optimizer
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.chunked_reading import Chunks, chunked_states, read_places
from polyseme.transfer.default_settings import fill_settings
from polyseme.transfer.finetune_settings import FinetuneSettings, settings_of
from polyseme.transfer.finetune_task import FinetuneRun, finetune_task
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_folder import load_task_model, save_task_model
from polyseme.transfer.task_model import TaskConfig, TaskModel
from polyseme.transfer.train_seed import n_unfrozen, rates_of, unfreeze
from polyseme.types import Batch
from polyseme.verb_options.task_options import FinetuneOptions
from tiny_models import tiny_model
from training.kills import write_text
from transfer.small_tasks import small_task

STEPS = {
    "gradual_unfreezing": True,
    "layer_decay": 1 / 2.6,
    "schedule": "slanted-triangular",
    "betas": (0.7, 0.99),
    "readout": "concat",
    "head": "mlp-batchnorm",
    "inner_width": 50,
    "chunk_length": 70,
    "read_last": 1400,
    "max_pieces": 1 << 14,
    "batch_size": 64,
    "head_learning_rate": 0.01,
    "learning_rate": 0.01 / 2.6,
}


def filled(family: str = "lstm", kind: str = "classify", **options: Any) -> FinetuneSettings:
    settings = settings_of(FinetuneOptions(ulmfit=True, **options))
    config = tiny_model(family).bundle.config
    return fill_settings(settings, config, kind=kind, n_train=100, pooler=False, starts=False).settings


# --- its steps are options --------------------------------------------------------------------------------------------


def test_it_stands_for_options() -> None:
    settings = filled()
    assert {name: getattr(settings, name) for name in STEPS} == STEPS
    assert settings.epochs == tiny_model("lstm").bundle.config.depth + 5


@pytest.mark.parametrize(
    "removed",
    [
        {"gradual_unfreezing": False},
        {"layer_decay": 1.0},
        {"schedule": "linear"},
        {"betas": (0.9, 0.999)},
        {"readout": "last"},
        {"head": "linear"},
        {"chunk_length": 20},
    ],
)
def test_each_step_can_be_removed(removed: dict[str, Any]) -> None:
    """Also by what is the default without ULMFiT."""
    [(name, value)] = removed.items()
    settings = filled(**removed)
    assert getattr(settings, name) == value
    others = {other: getattr(settings, other) for other in STEPS if other not in (name, "inner_width")}
    assert others == {other: STEPS[other] for other in others}


def test_other_language_models_are_read_whole() -> None:
    assert filled("gpt2").chunk_length is None
    assert filled("bert").readout == "concat"


# --- rates and layers -------------------------------------------------------------------------------------------------


def new_model(**settings: Any) -> TaskModel:
    torch.manual_seed(0)
    reading = TaskConfig(**{"kind": "classify", "readout": "concat", **settings})
    bundle = tiny_model("lstm", n_layers=3).bundle
    return build_task_model(bundle, reading, "mlp-batchnorm", head_settings={"labels": ("a", "b"), "inner_width": 50})


def test_rates_fall_by_2_6_from_the_head_down() -> None:
    model, settings = new_model(), filled()
    optimizer = build_optimizer(model, settings.optimizer, device="cpu", rates=rates_of(model, settings))
    assert {group["betas"] for group in optimizer.param_groups} == {(0.7, 0.99)}
    rate = {parameter: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    groups = [*model.layer_groups(), list(model.head.parameters())]
    for below, group in enumerate(reversed(groups)):
        assert [rate[parameter] for parameter in group] == pytest.approx([0.01 / 2.6**below] * len(group))


def test_one_more_group_learns_each_epoch() -> None:
    model, settings = new_model(), filled()
    groups = model.layer_groups()
    assert [n_unfrozen(4, epoch, 8) for epoch in range(8)] == [0, 1, 2, 3, 4, 4, 4, 4]
    for epoch in range(8):
        unfreeze(model, settings, epoch, 8)
        learning = [all(parameter.requires_grad for parameter in group) for group in groups]
        assert learning == [number >= 4 - epoch for number in range(4)]
        assert all(parameter.requires_grad for parameter in model.head.parameters())


# --- the classifier ---------------------------------------------------------------------------------------------------


def test_two_blocks_over_three_pools() -> None:
    """[h_T; max; mean] → batch normalization, dropout, 50 ReLU units → batch normalization, dropout, labels."""
    model = new_model().double().eval()
    pieces, lengths = torch.randint(5, 40, (3, 9)), torch.tensor([9, 4, 1])
    [features] = [model._read(rows) for rows in [rows_of(pieces, lengths)]]
    states = model.bundle.encoder(Batch(pieces, lengths), layers=[-1])[-1]  # type: ignore[union-attr]
    for row, length in enumerate(lengths):
        real = states[row, :length]
        expected = torch.cat([real[-1], real.max(0).values, real.mean(0)])
        assert torch.allclose(features.whole[row], expected, atol=1e-12)  # type: ignore[index]
    first, dropout, layer, _, second, last_dropout, output = model.head.text.scores  # type: ignore[union-attr, misc]
    assert (dropout.p, last_dropout.p, layer.out_features) == (0.4, 0.1, 50)
    hidden = torch.relu(layer(normalized(features.whole, first)))  # type: ignore[arg-type]
    assert torch.allclose(model.head(features), output(normalized(hidden, second)), atol=1e-12)


def normalized(x: Tensor, norm: BatchNorm) -> Tensor:
    assert norm.running_mean is not None and norm.running_var is not None  # noqa: PT018
    return (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias


def rows_of(pieces: Tensor, lengths: Tensor | None) -> Any:
    from polyseme.transfer.unit_batches import ReadRows

    none = torch.zeros(len(pieces), 0, dtype=torch.long)
    return ReadRows(pieces, lengths, None, torch.zeros(len(pieces), dtype=torch.long), none, none, none.bool())


def test_a_batch_of_one_row_is_taken_as_in_inference() -> None:
    norm = BatchNorm(4).train()
    norm(torch.randn(8, 4))
    before = norm.running_mean.clone()  # type: ignore[union-attr]
    row = torch.randn(1, 4)
    assert torch.allclose(norm(row), normalized(row, norm))
    assert torch.equal(norm.running_mean, before)  # type: ignore[arg-type]


def test_what_normalization_counted_is_kept_with_the_best_weights(tmp_path: Path) -> None:
    data = small_task("classify", n_train=24, n_dev=10)
    done = finetune_task(
        data,
        tiny_model("lstm").bundle,
        filled().replace(epochs=4, batch_size=8, seeds=(0, 1)),
        FinetuneRun(folder=tmp_path / "work"),
    )
    save_task_model(done.model, tmp_path / "saved")
    judged = judge(done.model, prepare(done.model, data.splits["dev"], learning=False))
    right = [each.answer == item.gold for each, item in zip(judged, data.splits["dev"], strict=True)]
    assert sum(right) / 10 == pytest.approx(done.report.best.dev["accuracy"])
    again = load_task_model(tmp_path / "saved")
    assert judge(again, prepare(again, data.splits["dev"], learning=False)) == judged
    norm = next(each for each in again.modules() if isinstance(each, BatchNorm))
    assert norm.running_mean is not None
    assert norm.running_mean.abs().sum() > 0


# --- chunks -----------------------------------------------------------------------------------------------------------


def gradients(
    model: TaskModel, pieces: Tensor, lengths: Tensor, *, chunks: Chunks | None
) -> tuple[Tensor, list[Tensor]]:
    """What is read out, and the gradients of a function of it."""
    encoder, batch = model.bundle.encoder, Batch(pieces, lengths)  # type: ignore[union-attr]
    states = encoder(batch, layers=[-1])[-1] if chunks is None else chunked_states(encoder, batch, [-1], chunks)[-1]
    last = None if chunks is None else chunks.read_last
    read = torch.where(read_places(states, lengths, last)[:, :, None], states, 0).sum(1).tanh()
    return read, list(torch.autograd.grad(read.square().sum(), list(encoder.parameters())))


PIECES, LENGTHS = torch.randint(5, 40, (3, 11), generator=torch.Generator().manual_seed(1)), torch.tensor([11, 8, 2])


def test_states_in_chunks_are_those_of_the_whole() -> None:
    encoder = new_model().double().bundle.encoder  # type: ignore[union-attr]
    whole = encoder(Batch(PIECES, LENGTHS), layers=[0, 2, 3])
    for length in (1, 4, 11, 50):
        chunked = chunked_states(encoder, Batch(PIECES, LENGTHS), [0, 2, 3], Chunks(length))
        for layer in (0, 2, 3):
            for row, end in enumerate(LENGTHS):
                assert torch.allclose(chunked[layer][row, :end], whole[layer][row, :end], atol=1e-12)


def test_a_backward_encoder_begins_at_the_end() -> None:
    """Its last state is the one at a row's first piece, which has read all."""
    bundle = tiny_model("lstm", reads="backwards").bundle
    reading, labels = TaskConfig(kind="classify", readout="last"), {"labels": ("a", "b")}
    chunked_reading = reading.replace(chunk_length=4, read_last=6)
    in_chunks = build_task_model(bundle, chunked_reading, "linear", head_settings=labels).double()
    whole = bundle.encoder(Batch(PIECES, LENGTHS), layers=[-1])[-1]
    chunked = chunked_states(bundle.encoder, Batch(PIECES, LENGTHS), [-1], Chunks(4))[-1]
    for row, end in enumerate(LENGTHS):
        assert torch.allclose(chunked[row, :end], whole[row, :end], atol=1e-12)
    in_one = build_task_model(bundle, reading, "linear", head_settings=labels).double()
    for model in (in_chunks, in_one):
        assert torch.allclose(model._read(rows_of(PIECES, LENGTHS)).whole, whole[:, 0], atol=1e-12)  # type: ignore[arg-type]


def test_gradients_of_one_chunk_are_those_of_the_whole() -> None:
    model = new_model().double()
    expected, of_whole = gradients(model, PIECES, LENGTHS, chunks=None)
    found, of_chunk = gradients(model, PIECES, LENGTHS, chunks=Chunks(11))
    assert torch.allclose(found, expected, atol=1e-12)
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(of_chunk, of_whole, strict=True))


def test_gradients_end_where_a_chunk_begins() -> None:
    """They are those of a pass in which the state at the beginning of each chunk is a constant."""
    model = new_model().double()
    encoder = model.bundle.encoder  # type: ignore[union-attr]
    memory, parts = encoder.new_memory(3), []
    for start in (0, 4, 8):
        states = encoder(Batch(PIECES[:, start : start + 4]), layers=[-1], memory=memory)
        memory = type(memory)(
            *[part.detach() if isinstance(part, Tensor) else tuple(each.detach() for each in part)
              for part in vars(states.memory).values()]
        )  # fmt: skip
        parts.append(states[-1])
    states = torch.cat(parts, 1)
    read = torch.where(read_places(states, LENGTHS)[:, :, None], states, 0).sum(1).tanh()
    expected = torch.autograd.grad(read.square().sum(), list(encoder.parameters()))
    _, found = gradients(model, PIECES, LENGTHS, chunks=Chunks(4))
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(found, expected, strict=True))
    _, of_whole = gradients(model, PIECES, LENGTHS, chunks=None)
    assert not all(torch.allclose(one, other, atol=1e-6) for one, other in zip(found, of_whole, strict=True))


def test_what_is_not_read_out_takes_no_gradient() -> None:
    """The last three pieces of each row; before them the row's state is made, and nothing is held for gradients."""
    model = new_model().double()
    [read], [of_table, *_] = gradients(model, PIECES[:1], LENGTHS[:1], chunks=Chunks(4, 3))
    in_last_chunk = set(PIECES[0, 8:].tolist())
    assert set(of_table.abs().sum(1).nonzero().flatten().tolist()) == in_last_chunk
    states = model.bundle.encoder(Batch(PIECES[:1]), layers=[-1])[-1]  # type: ignore[union-attr]
    assert torch.allclose(read, states[0, -3:].sum(0).tanh(), atol=1e-12)
    assert read_places(states, torch.tensor([7]), 3)[0].nonzero().flatten().tolist() == [4, 5, 6]


def test_what_is_between_the_states_is_computed_again() -> None:
    """With the same dropout; nothing but states is held for gradients, however long the text is."""
    encoder = tiny_model("awd-lstm").bundle.encoder.train()
    weights = list(encoder.parameters())
    torch.manual_seed(3)
    memory, parts = encoder.new_memory(3), []
    for start in (0, 4, 8):
        states = encoder(Batch(PIECES[:, start : start + 4]), layers=[-1], memory=memory)
        memory = states.memory.detach()  # type: ignore[union-attr]
        parts.append(states[-1])
    expected = torch.autograd.grad(torch.cat(parts, 1).square().sum(), weights)
    held: list[int] = []
    torch.manual_seed(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda each: held.append(each.numel()) or each, lambda each: each):
        states = chunked_states(encoder, Batch(PIECES), [-1], Chunks(4))
    assert sum(held) <= 2 * states[-1].numel()
    found = torch.autograd.grad(states[-1].square().sum(), weights)
    assert all(torch.allclose(one, other, atol=1e-7) for one, other in zip(found, expected, strict=True))


# --- from texts to labels ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_three_stages(tmp_path: Path) -> None:
    data = small_task("classify", n_train=60, n_dev=20)
    write_text(tmp_path / "texts.txt")
    (tmp_path / "target.txt").write_text("\n\n".join(item.text for item in data.splits["train"]))
    small = {"device": "cpu", "batch_size": 4, "length": 12}
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        polyseme.pretrain(
            [tmp_path / "texts.txt", tmp_path / "target.txt"],
            recipe="awd-lstm-tiny",
            budget="5steps",
            shape={"width": 16, "token_width": 16, "top_width": 16},
            output=tmp_path / "general",
            **small,
        )
        polyseme.pretrain(
            tmp_path / "target.txt",
            model=tmp_path / "general",
            recipe="ulmfit-target",
            budget="5steps",
            output=tmp_path / "target",
            **small,
        )
    report = polyseme.finetune(
        data, model=tmp_path / "target", ulmfit=True, batch_size=8, chunk_length=3, train_share="20,100%", device="cpu",
        epochs=6, output=tmp_path / "fitted",
    )  # fmt: skip
    assert report.settings["schedule"] == "slanted-triangular"
    assert [point.n_items for point in report.curve] == [20, 60]
    assert polyseme.predict(["the crane broke ."], model=tmp_path / "fitted", device="cpu").predictions


def test_the_target_recipe() -> None:
    training = RECIPES["ulmfit-target"].training
    assert training.layer_decay == 1 / 2.6
    assert (training.schedule.kind, training.schedule.cut_share, training.schedule.ratio) == (
        "slanted-triangular",
        0.1,
        32,
    )


def test_what_is_refused(tmp_path: Path) -> None:
    data = small_task("classify", n_train=24, n_dev=8)
    no_language_model = tiny_model("lstm").bundle.copied()
    no_language_model.outputs.clear()
    with pytest.raises(OptionError, match=r"this model predicts no words.*Name a model that pretrain has made"):
        finetune_task(data, no_language_model, settings_of(FinetuneOptions(ulmfit=True)))
    with pytest.raises(OptionError, match="a frozen one does not learn"):
        filled(frozen=True)
    with pytest.raises(OptionError, match="tag is a task of words"):
        filled(kind="tag")
    with pytest.raises(OptionError, match=r"carry a recurrent state.*Leave chunk_length out"):
        filled("bert", chunk_length=70)
    with pytest.raises(OptionError, match="chunk_length of a fine-tuning must be at least 1"):
        filled(chunk_length=0)
    for kind, labels in (("tag", ("a", "b")), ("span", ())):
        head = HeadConfig(kind=kind, labels=labels, width=4, **named_settings("mlp-batchnorm"))
        with pytest.raises(ModelError, match="'mlp-batchnorm' scores whole texts"):
            build_head(head)
    with pytest.raises(OptionError, match=r"ulmfit-target trains a language model further.*Name one with -m"):
        polyseme.pretrain(["the crane broke"] * 3, recipe="ulmfit-target", output=tmp_path / "run", device="cpu")
    assert not list(tmp_path.iterdir())
