"""A start with attention to what is near: what it draws, and what it leaves alone."""

from __future__ import annotations

import copy

import pytest
import torch

from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.encoders.local_start import start_locally
from polyseme.types import Batch

LENGTH = 32


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_pieces_see_what_is_near_most(family: str) -> None:
    torch.manual_seed(0)
    config = FAMILIES[family].tiny().replace(width=64, n_heads=2, inner_width=64, n_layers=2, max_positions=LENGTH)
    encoder = new_bundle(FAMILIES[family], config, []).encoder.eval()
    pieces = torch.randint(5, config.n_pieces, (16, LENGTH))

    def weight_within(reach: int) -> float:
        attentions = encoder(Batch(pieces), attentions=True).attentions["self"][0]  # [R, H, T, T]
        places = torch.arange(LENGTH)
        near = (places[:, None] - places[None]).abs() <= reach
        return float((attentions * near).sum(-1)[..., LENGTH // 2].mean().detach())

    before = weight_within(2)
    start_locally(encoder, LENGTH)
    assert weight_within(2) > 2 * before


def test_only_positions_queries_and_keys_are_drawn_anew() -> None:
    encoder = new_bundle(FAMILIES["bert"], FAMILIES["bert"].tiny(), []).encoder
    before = copy.deepcopy(encoder.state_dict())
    start_locally(encoder, LENGTH)
    changed = {name for name, each in encoder.state_dict().items() if not torch.equal(each, before[name])}
    assert changed == {name for name in before if "positions" in name or name.endswith("project.weight")}
    for name in changed:
        if name.endswith("project.weight"):
            assert torch.equal(encoder.state_dict()[name].chunk(3)[2], before[name].chunk(3)[2])


@pytest.mark.parametrize("family", ["modernbert", "t5", "xlnet"])
def test_other_positions_are_left_alone(family: str) -> None:
    encoder = new_bundle(FAMILIES[family], FAMILIES[family].tiny(), []).encoder
    before = copy.deepcopy(encoder.state_dict())
    start_locally(encoder, LENGTH)
    assert all(torch.equal(each, before[name]) for name, each in encoder.state_dict().items())
