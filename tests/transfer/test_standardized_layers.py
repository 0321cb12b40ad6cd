"""Frozen layers of stacks with norms before their parts: standardized by what train has, before they are mixed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from polyseme.bundle import Bundle
from polyseme.model_folder import save_bundle
from polyseme.parts.scalar_mix import ScalarMix
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.finetune_task import finetune_task
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.task_folder import load_task_model, save_task_model
from tiny_models import tiny_model
from transfer.small_tasks import small_task


def test_a_mix_standardizes_every_number_of_every_layer() -> None:
    vectors = torch.randn(40, 3, 5, dtype=torch.float64) * torch.tensor([1.0, 30.0, 500.0])[:, None] + 7
    vectors[:, 1, 2] = 4.0  # never changes, so it is only centered
    mix = ScalarMix(3, standard_width=5).double()
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.3, -1.0, 0.5]))
        mix.gamma.fill_(1.7)
    mix.standardize(vectors)
    spread = vectors.std(dim=0, correction=0)
    spread[1, 2] = 1.0
    standard = (vectors - vectors.mean(dim=0)) / spread
    expected = 1.7 * torch.einsum("l,nld->nd", torch.softmax(mix.weights, 0), standard)
    torch.testing.assert_close(mix.of_stacked(vectors), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(mix([layer[None] for layer in vectors.unbind(1)])[0], expected, rtol=0, atol=1e-12)


def test_without_it_a_mix_has_nothing_more() -> None:
    assert set(ScalarMix(3).state_dict()) == {"weights", "gamma"}
    with pytest.raises(ValueError, match="nothing to standardize"):
        ScalarMix(3).standardize(torch.ones(2, 3, 4))


def growing(family: str) -> Bundle:
    """A model whose upper layers are far larger than the lower ones, as those of trained ones are."""
    bundle = tiny_model(family).bundle.copied()
    with torch.no_grad():
        for name, each in bundle.encoder.named_parameters():
            if each.dim() > 1 and ".0." in name:
                each.mul_(20)
    return bundle


@pytest.mark.parametrize(("kind", "head"), [("tag", "bilstm"), ("pair", "bilstm-attention"), ("classify", "linear")])
def test_train_decides_saved_and_loaded_says_the_same(kind: str, head: str, tmp_path: Path) -> None:
    bundle = growing("modernbert")
    settings = FinetuneSettings(frozen=True, head=head, layer="mix", epochs=1, batch_size=16, inner_width=8, seeds=(0,))
    data = small_task(kind, n_train=32, n_dev=12)
    model = finetune_task(data, bundle, settings).model.eval()
    assert model.config.standardized
    assert model.mix is not None
    train = prepare(model, data.splits["train"], learning=True).source
    vectors = train.store.vectors.double()  # type: ignore[union-attr]
    torch.testing.assert_close(model.mix.center, vectors.mean(dim=0).float())
    torch.testing.assert_close(model.mix.spread, vectors.std(dim=0, correction=0).float())
    batch = train.batch(range(len(train.units)))
    features = model.features(batch)
    if features.words.shape[1]:
        assert not features.words[~features.mask].any()
    items = data.splits["dev"]
    save_task_model(model, tmp_path / "saved")
    again = load_task_model(tmp_path / "saved")
    before, after = (judge(each, prepare(each, items, learning=False)) for each in (model, again))
    assert [each.answer for each in before] == [each.answer for each in after]
    assert torch.equal(again.mix.center, model.mix.center)  # type: ignore[union-attr,arg-type]


def test_norms_after_the_sums_need_none() -> None:
    model = finetune_task(
        small_task("tag", n_train=16, n_dev=8),
        tiny_model("bert").bundle,
        FinetuneSettings(frozen=True, layer="mix", epochs=1, seeds=(0,)),
    ).model
    assert not model.config.standardized
    assert model.standards() == {}


def test_an_input_beside_others_is_standardized_too(tmp_path: Path) -> None:
    save_bundle(growing("gpt2"), tmp_path / "gpt2")
    settings = FinetuneSettings(
        inputs=(str(tmp_path / "gpt2"), "char-cnn"), head="bilstm", epochs=1, inner_width=8, seeds=(0,)
    )
    model = finetune_task(small_task("tag", n_train=16, n_dev=8), None, settings).model
    assert set(model.standards()) == {"stacked.0.mix.center", "stacked.0.mix.spread"}
    save_task_model(model, tmp_path / "saved")
    again = load_task_model(tmp_path / "saved")
    for name, each in model.standards().items():
        assert torch.equal(again.standards()[name], each)
