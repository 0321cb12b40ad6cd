"""Every option that published checkpoints use equals the reference under it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.cases import REFERENCED, family_name
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert import albert
from polyseme.convert.conversion_table import read
from polyseme.convert.families import FAMILIES
from polyseme.convert.family import Family
from polyseme.encoders.transformer_config import TransformerConfig
from polyseme.errors import ModelError
from polyseme.model_folder import put_weights
from references import ask, assert_close, by_stack, make_reference, our_stacks, ragged_batch, real

every_family = pytest.mark.parametrize("family", REFERENCED.values(), ids=family_name)


def assert_equals_the_reference(family: Family, config: Any, *, tied: bool = True, **options: Any) -> None:
    """Every layer and output of the class with most outputs, in float64; the config goes out and comes back.

    Where the output is untied, those of every class, since each has its own.
    """
    assert family.read_config({**family.write_config(config), **options}, "config.json") == config
    batch = ragged_batch(config)
    largest = max(family.architectures, key=lambda each: len(each[1]))
    for architecture, outputs in [largest] if tied else family.architectures:
        reference = make_reference(family, architecture, config, tie_word_embeddings=tied, **options)
        found = read(family.table(config, tied), reference.state_dict(), "the reference")
        with torch.device("meta"):
            ours = new_bundle(family, config, found.outputs, tied=tied)
        put_weights(ours, found.tensors, Path("reference"), torch.float64, "cpu")
        with torch.no_grad():
            theirs = ask(reference, batch, output_hidden_states=True)
            stacks = our_stacks(ours.eval(), batch)
            for states, layers in zip(stacks, by_stack(theirs, "hidden_states"), strict=True):
                assert states.depth == len(layers) - 1
                for number, layer in enumerate(layers):
                    assert_close(states[number][real(batch)], layer[real(batch)], 1e-10)
            assert_outputs_equal(ours, stacks[-1][-1][real(batch)], theirs, outputs, real(batch))


def assert_outputs_equal(ours: Bundle, states: Any, theirs: Any, outputs: frozenset[str], keep: torch.Tensor) -> None:
    for name in outputs & {"masked", "replaced", "causal", "permuted"}:
        logits = getattr(theirs, "prediction_logits", None)
        logits = theirs.logits if logits is None else logits
        assert_close(ours.outputs[name].logits(states), logits[keep], 1e-10)


@pytest.mark.parametrize(
    ("family", "activation"),
    [
        (family, activation)
        for number, family in enumerate(REFERENCED.values())
        for activation in (("relu", "gelu_new", "gelu", "silu") if number < 2 else ("relu", "gelu"))
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_activations(family: Family, activation: str) -> None:
    config = family.tiny().replace(activation=activation)
    if (family.name, activation) == ("openai-gpt", "gelu"):  # what it calls so is gelu_new
        with pytest.raises(ModelError, match="activation 'gelu' would become 'gelu_new'"):
            family.settings_of(config)
    else:
        assert_equals_the_reference(family, config)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-2])
@pytest.mark.parametrize(
    "family", [each for each in REFERENCED.values() if each.name not in ("distilbert", "bart")], ids=family_name
)
def test_norm_epsilons(family: Family, epsilon: float) -> None:
    """DistilBERT's and BART's are hard-wired."""
    assert_equals_the_reference(family, family.tiny().replace(norm_epsilon=epsilon))


@every_family
def test_untied_outputs(family: Family) -> None:
    """The table of pieces apart from the output's, whose bias then is the decoder's own."""
    assert_equals_the_reference(family, family.tiny(), tied=False)


def test_untied_outputs_of_older_files_have_one_bias() -> None:
    """They kept it beside the decoder; the decoder's own, where there is one, counts."""
    family = FAMILIES["bert"]
    weights = make_reference(family, "BertForMaskedLM", tie_word_embeddings=False).state_dict()
    table = family.table(family.tiny(), False)
    beside, own = weights["cls.predictions.bias"], weights["cls.predictions.decoder.bias"]
    assert not torch.equal(beside, own)
    assert read(table, weights, "new").tensors["outputs.masked.bias"] is own
    del weights["cls.predictions.decoder.bias"]
    assert read(table, weights, "old").tensors["outputs.masked.bias"] is beside


@pytest.mark.parametrize("n_segments", [1, 3])
@pytest.mark.parametrize("name", ["bert", "electra", "albert", "roberta"])
def test_numbers_of_segments(name: str, n_segments: int) -> None:
    assert_equals_the_reference(FAMILIES[name], FAMILIES[name].tiny().replace(n_segments=n_segments))


# --- ALBERT's groups -------------------------------------------------------------------------------------------------


def albert_config(rounds: int, n_groups: int, in_group: int) -> TransformerConfig:
    theirs = albert.write_config(albert.FAMILY.tiny())  # type: ignore[arg-type]
    shape = {"num_hidden_layers": rounds, "num_hidden_groups": n_groups, "inner_group_num": in_group}
    return albert.read_config({**theirs, **shape}, "config.json")


@pytest.mark.parametrize("in_group", [1, 2])
@pytest.mark.parametrize(("rounds", "n_groups"), [(1, 1), (3, 1), (4, 2), (5, 3), (3, 3), (2, 2)])
def test_albert_groups(rounds: int, n_groups: int, in_group: int) -> None:
    config = albert_config(rounds, n_groups, in_group)
    assert config.depth == rounds * in_group
    assert_equals_the_reference(albert.FAMILY, config)


def test_albert_goes_through_a_group_as_a_whole() -> None:
    assert albert_config(3, 1, 1).weight_sets == (0, 0, 0)
    assert albert_config(4, 2, 1).weight_sets == (0, 0, 1, 1)
    assert albert_config(3, 1, 2).weight_sets == (0, 1, 0, 1, 0, 1)
    assert albert_config(4, 2, 2).weight_sets == (0, 1, 0, 1, 2, 3, 2, 3)
    assert albert_config(2, 2, 2).weight_sets == (0, 1, 2, 3)


# --- ELECTRA's token layer -------------------------------------------------------------------------------------------


def test_electra_without_a_map_above_the_token_layer() -> None:
    """base and large: the token layer is as wide as the stack."""
    family = FAMILIES["electra"]
    config = family.tiny().replace(embedding_width=None)
    assert family.write_config(config)["embedding_size"] == config.width
    assert_equals_the_reference(family, config)


# --- positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta"])
def test_positions_begin_after_the_padding_piece(name: str) -> None:
    assert_equals_the_reference(FAMILIES[name], FAMILIES[name].tiny().replace(position_offset=4))


def test_distilbert_s_sinusoids_are_read_from_the_file() -> None:
    assert_equals_the_reference(FAMILIES["distilbert"], FAMILIES["distilbert"].tiny(), sinusoidal_pos_embds=True)


@every_family
def test_what_no_published_checkpoint_uses_is_refused(family: Family) -> None:
    theirs = family.write_config(family.tiny())
    with pytest.raises(ModelError, match="'relative_key'"):
        family.read_config({**theirs, "position_embedding_type": "relative_key"}, "config.json")
    with pytest.raises(ModelError, match="'is_decoder'"):
        family.read_config({**theirs, "is_decoder": True}, "config.json")
