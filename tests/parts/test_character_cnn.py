"""Words from characters, and the mix of layers, by their equations."""

from __future__ import annotations

import pytest
import torch

from golden_elmo import WITHIN, arrays, golden_bundle
from polyseme.parts.character_cnn import CharacterTokens, Highway
from polyseme.parts.scalar_mix import ScalarMix
from references import assert_close


def small() -> CharacterTokens:
    torch.manual_seed(0)
    return CharacterTokens(
        20, 3, filter_widths=(1, 3), filter_counts=(4, 5), n_highways=2, width=6, activation="tanh"
    ).double()


def test_the_equations() -> None:
    made = small()
    ids = torch.randint(0, 20, (2, 4, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = made(ids)
        assert found.shape == (2, 4, 6)
        for row, piece in ((0, 0), (1, 3)):
            characters = torch.stack(
                [made.table[id - 1] if id else torch.zeros(3).double() for id in ids[row, piece].tolist()]
            )
            values = []
            for filters in made.filters:
                span = filters.kernel_size[0]
                each = [
                    torch.einsum("oic,ci->o", filters.weight, characters[at : at + span]) + filters.bias
                    for at in range(7 - span + 1)
                ]
                values.append(torch.tanh(torch.stack(each).amax(0)))
            x = torch.cat(values)
            for highway in made.highways:
                gate = torch.sigmoid(highway.gate.weight @ x + highway.gate.bias)
                changed = torch.relu(highway.transform.weight @ x + highway.transform.bias)
                x = gate * changed + (1 - gate) * x
            assert_close(found[row, piece], made.projection.weight @ x + made.projection.bias, 1e-12)


def test_a_gate_of_one_takes_the_transform() -> None:
    highway = Highway(4)
    x = torch.randn(3, 4)
    with torch.no_grad():
        highway.gate.bias.fill_(100.0)
        assert_close(highway(x), torch.relu(highway.transform(x)), 1e-6)
        highway.gate.bias.fill_(-100.0)
        assert_close(highway(x), x, 1e-6)


def test_what_is_no_character_counts_as_zero_and_learns_nothing() -> None:
    made = small()
    made(torch.tensor([[5, 0, 0, 0, 0, 0, 0]])).square().sum().backward()
    assert made.table.grad is not None
    assert made.table.grad[4].any()
    assert not made.table.grad[torch.arange(19) != 4].any()


# --- the mix ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False], ids=["markers kept", "markers removed"])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "normed"])
def test_the_golden_mixes(layer_norm: bool, kept: bool) -> None:
    """Made of batch 0 with fresh state; the norm's statistics count the markers, whether or not they are kept."""
    golden = arrays("activations/reset")
    name = f"layer_norm_{'on' if layer_norm else 'off'}.boundaries_{'kept' if kept else 'removed'}"
    expected, mask = (arrays("activations/scalar_mix")[f"{name}.{part}"] for part in ("representation", "mask"))
    mix = ScalarMix(3, layer_norm=layer_norm)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.3, -0.7, 1.1]))
        mix.gamma.fill_(1.7)
        real = golden["batch0.mask"].bool()
        found = mix([golden[f"batch0.layer{number}"] for number in range(3)], real)
    for row in range(3):
        length = int(mask[row].sum())
        ours = found[row, :length] if kept else found[row, 1 : 1 + length]
        assert float((ours - expected[row, :length]).abs().max()) < WITHIN


def test_a_new_mix_is_the_mean() -> None:
    layers = [torch.randn(2, 3, 4) for _ in range(3)]
    mix = ScalarMix(3)
    assert_close(mix(layers), torch.stack(layers).mean(0), 1e-6)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([3.0, 0.0, -4.0]))
    assert mix.penalty().item() == 25.0
    with pytest.raises(ValueError, match="mix of 3 layers was given 2"):
        mix(layers[:2])


def test_a_mix_drops_out_in_training_only() -> None:
    layers = [torch.ones(2, 3, 50)] * 3
    mix = ScalarMix(3, dropout_rate=0.5)
    assert (mix(layers) == 0).any()
    assert not (mix.eval()(layers) == 0).any()


def test_every_parameter_learns() -> None:
    bundle = golden_bundle("allennlp")
    tokens = CharacterTokens(20, 3, filter_widths=(1, 3), filter_counts=(4, 5), n_highways=1, width=6)
    assert bundle.config.spelled  # type: ignore[attr-defined]
    tokens(torch.randint(1, 20, (30, 7))).square().sum().backward()
    for name, parameter in tokens.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
