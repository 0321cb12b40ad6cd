"""Replaced pieces: what is drawn and where it goes, the losses of the reference, what generator and model share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from objectives.rows import bundle_for, redrawn, some_of, some_rows, tensors, told
from polyseme.bundle import named_tensors, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.errors import OptionError
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.objectives.generator import put, sample
from polyseme.objectives.objective_table import objective_from
from polyseme.objectives.replaced import Replaced
from polyseme.parts.initialization import skip_initialization
from polyseme.recipes.published_sizes import SIZES
from polyseme.types import Batch
from references import assert_close, make_pair
from tiny_models import tiny_config, tiny_tokenizer

SHARINGS = ["none", "embeddings", "all"]
sharings = pytest.mark.parametrize("sharing", SHARINGS)
ELECTRA = tiny_tokenizer("electra")


def nets_for(sharing: str, **settings: Any) -> tuple[Any, Any]:
    """An objective and its nets in float64, with weights that make a difference."""
    objective = told(Replaced(sharing=sharing, **settings))
    return objective, redrawn(objective.nets(bundle_for(objective)), 0.3).double()


# --- corruption ------------------------------------------------------------------------------------------------------


def test_every_target_is_masked_and_nothing_else_changes() -> None:
    rows = some_rows("electra", n_rows=500)
    example = told(Replaced(mask_rate=0.2)).corrupt(rows)
    arrays = example.arrays
    real = arrays["weights"] > 0
    at = np.nonzero(real)[0]
    changed = np.zeros(rows.pieces.shape, dtype=np.bool_)
    changed[at, arrays["places"][real]] = True
    assert not (changed & rows.special).any()
    assert (arrays["pieces"] == np.where(changed, ELECTRA.specials["mask"], rows.pieces)).all()
    assert (arrays["targets"][real] == rows.pieces[changed]).all()
    assert (arrays["judged"] == ~rows.special).all()
    n_ordinary = (~rows.special).sum()
    assert example.counts == {"masked": real.sum(), "replaced": n_ordinary, "replaced_share": n_ordinary}
    wanted = np.rint(0.2 * (~rows.special).sum(axis=1)).sum()
    assert real.sum() == wanted
    assert arrays["random_numbers"].dtype == np.float32
    assert ((arrays["random_numbers"] >= 0) & (arrays["random_numbers"] < 1)).all()
    assert abs(arrays["random_numbers"].mean() - 0.5) < 5 * np.sqrt(1 / 12 / arrays["random_numbers"].size)


def test_a_row_is_corrupted_alike_in_any_company() -> None:
    rows = some_rows("electra")
    together, apart = (told(Replaced()).corrupt(each).arrays for each in (rows, some_of(rows, [3, 1])))
    for name, array in together.items():
        assert (apart[name] == array[[3, 1]]).all(), name


def test_pieces_are_put_where_they_have_weight() -> None:
    rows = torch.tensor([[1, 2, 3], [4, 5, 6]])
    places, pieces = torch.tensor([[2, 0], [0, 0]]), torch.tensor([[7, 8], [9, 10]])
    weights = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert put(rows, places, pieces, weights).tolist() == [[1, 2, 7], [9, 5, 6]]


# --- losses ----------------------------------------------------------------------------------------------------------


def test_the_losses_equal_the_references() -> None:
    """ElectraForMaskedLM and ElectraForPreTraining by hand, one after the other, in float64; gradients too."""
    objective = told(Replaced(sharing="none", generator_share=1 / 2))
    family = FAMILIES["electra"]
    model = make_pair(family, "ElectraForPreTraining", tiny_config("electra"))
    nets = objective.nets(model.ours)
    theirs = make_pair(family, "ElectraForMaskedLM", nets.generator_bundle.config)
    own = dict(theirs.ours.named_parameters())
    for name, parameter in nets.generator_bundle.named_parameters():
        parameter.data = own[name].data.clone()
    nets.eval()
    rows = some_rows("electra")
    example = objective.corrupt(rows)
    arrays = tensors(example)

    real = arrays["weights"] > 0
    at = torch.arange(len(real))[:, None].expand_as(real)[real]
    places, targets = arrays["places"][real].long(), arrays["targets"][real].long()
    logits = theirs.reference(input_ids=arrays["pieces"].long()).logits[at, places]
    masked = F.cross_entropy(logits, targets)
    drawn = sample(logits, arrays["random_numbers"][real])
    filled = torch.from_numpy(rows.pieces).clone()
    filled[at, places] = drawn
    labels = (filled != torch.from_numpy(rows.pieces)).double()
    assert 0 < labels.sum() <= len(drawn)
    ordinary = torch.from_numpy(~rows.special)
    said = model.reference(input_ids=filled).logits
    replaced = F.binary_cross_entropy_with_logits(said[ordinary], labels[ordinary])

    parts = objective.loss(nets, arrays).parts
    assert_close(parts["masked"] / example.counts["masked"], masked, 1e-10)
    assert_close(parts["replaced"] / example.counts["replaced"], replaced, 1e-10)
    found = sum(parts[name] / example.counts[name] * weight for name, weight in objective.weights.items())
    expected = masked + 50 * replaced
    found.backward()
    expected.backward()
    for ours, reference in (
        (model.ours, model.reference),
        (nets.generator_bundle, theirs.reference),
    ):
        table = ours.encoder.piece_table()
        expected_gradient = reference.electra.embeddings.word_embeddings.weight.grad
        assert_close(table.grad, expected_gradient, 1e-10)


@pytest.mark.parametrize("learn", ["masked", "replace", "all-tokens"])
def test_the_ablations_equal_the_paper_s_equations(learn: str) -> None:
    """Over ElectraForMaskedLM twice and one more output, in float64; the gradient of every parameter too."""
    objective = told(Replaced(learn=learn, sharing="none", generator_share=1 / 2, weight=7.0))
    family = FAMILIES["electra"]
    model = make_pair(family, "ElectraForMaskedLM", tiny_config("electra"))
    detector = redrawn(family.outputs["replaced"](model.ours.config, True), 0.3).double()
    model.ours.outputs["replaced"] = detector
    nets = objective.nets(model.ours)
    theirs = make_pair(family, "ElectraForMaskedLM", nets.generator_bundle.config)
    for name, parameter in nets.generator_bundle.named_parameters():
        parameter.data = dict(theirs.ours.named_parameters())[name].data.clone()
    nets.eval()
    rows = some_rows("electra")
    example = objective.corrupt(rows)
    arrays = tensors(example)
    parts = objective.loss(nets, arrays).parts
    found = sum(parts[name] / example.counts[name] * weight for name, weight in objective.weights.items())
    trained = dict(nets.named_parameters())
    ours = dict(zip(trained, torch.autograd.grad(found, list(trained.values())), strict=True))

    original = torch.from_numpy(rows.pieces)
    masked = arrays["pieces"].long() == ELECTRA.specials["mask"]
    logits = theirs.reference(input_ids=arrays["pieces"].long()).logits[masked]
    expected = F.cross_entropy(logits, original[masked])
    read = original.clone()
    read[masked] = sample(logits, arrays["random_numbers"][arrays["weights"] > 0])
    states = model.reference.electra(input_ids=read).last_hidden_state
    hidden = F.gelu(states @ detector.dense.weight.T + detector.dense.bias)
    replaced = torch.sigmoid(hidden @ detector.predict.weight[0] + detector.predict.bias)
    softmax = model.reference(input_ids=read).logits.softmax(-1).gather(-1, original[..., None])[..., 0]
    ordinary = torch.from_numpy(~rows.special)
    assert 0 < (read != original).sum() < masked.sum() < ordinary.sum()
    if learn == "masked":
        probabilities = torch.where(read == original, 1 - replaced, replaced)[masked]
        expected = expected - 7 * probabilities.log().mean()
    elif learn == "replace":
        expected = expected - softmax[masked].log().mean()
    else:
        copy = 1 - replaced
        expected = expected - (copy * (read == original) + (1 - copy) * softmax)[ordinary].log().mean()
    assert_close(found, expected, 1e-10)

    references = {
        "encoder.embeddings.pieces.weight": model.reference.electra.embeddings.word_embeddings.weight,
        "encoder.layers.0.feed_forward.up.weight": model.reference.electra.encoder.layer[0].intermediate.dense.weight,
        "generator.embeddings.pieces.weight": theirs.reference.electra.embeddings.word_embeddings.weight,
        "generator_output.dense.weight": theirs.reference.generator_predictions.dense.weight,
    }
    if learn != "masked":
        references["output.dense.weight"] = model.reference.generator_predictions.dense.weight
    if learn != "replace":
        references[f"{'output' if learn == 'masked' else 'replaced'}.dense.weight"] = detector.dense.weight
    gradients = torch.autograd.grad(expected, list(references.values()))
    largest = max(float(each.abs().max()) for each in gradients)
    for name, gradient in zip(references, gradients, strict=True):
        assert_close(ours[name], gradient, 1e-10, largest)
    assert {name.split(".")[0] for name in ours} == {
        *("encoder", "output", "generator", "generator_output"),
        *(["replaced"] if learn == "all-tokens" else []),
    }


@torch.no_grad()
def test_a_piece_that_was_drawn_right_counts_as_real() -> None:
    """A generator that always draws the target leaves nothing to be found."""
    objective, nets = nets_for("none")
    arrays = tensors(objective.corrupt(some_rows("electra")))
    states = nets.encoder(Batch(original(arrays)), layers=[-1])[-1]
    never = F.softplus(nets.output.logits(states))[arrays["judged"]].sum()  # the loss where nothing was replaced
    right = F.one_hot(arrays["targets"].long().flatten(), ELECTRA.n_pieces) * 1e4
    nets.generator_output.logits = lambda states: right.double()
    assert_close(nets(arrays)[0]["replaced"], never, 1e-10)
    assert nets(arrays)[0]["replaced_share"] == 0
    nets.generator_output.logits = lambda states: right.double().roll(1, dims=1)
    assert abs(float(nets(arrays)[0]["replaced"]) - float(never)) > 1
    assert nets(arrays)[0]["replaced_share"] == arrays["weights"].sum()


def original(arrays: dict[str, Tensor]) -> Tensor:
    """The rows as they were before."""
    return put(arrays["pieces"].long(), arrays["places"].long(), arrays["targets"].long(), arrays["weights"])


def test_nothing_flows_back_through_the_drawing() -> None:
    objective, nets = nets_for("none")
    nets(tensors(objective.corrupt(some_rows("electra"))))[0]["replaced"].backward()
    moved = {name.split(".")[0] for name, each in nets.named_parameters() if each.grad is not None}
    assert moved == {"encoder", "output"}


# --- sharing ---------------------------------------------------------------------------------------------------------


@sharings
def test_what_is_shared_is_one_parameter(sharing: str) -> None:
    _, nets = nets_for(sharing)
    ours, theirs = nets.encoder.embeddings, nets.generator.embeddings
    shared = sharing != "none"
    assert (ours.pieces.weight is theirs.pieces.weight) == shared
    assert (ours.positions.table.weight is theirs.positions.table.weight) == shared
    assert (ours.segments.weight is theirs.segments.weight) == shared
    assert (ours.norm.weight is theirs.norm.weight) == (sharing == "all")
    assert (nets.encoder is nets.generator) == (sharing == "all")
    assert nets.generator_output.table is theirs.pieces.weight
    counted = sum(each.numel() for each in nets.parameters())
    apart = sum(sum(each.numel() for each in bundle.parameters()) for bundle in (nets.bundle, nets.generator_bundle))
    assert (counted < apart) == shared


@sharings
def test_both_losses_together_reach_every_parameter(sharing: str) -> None:
    objective, nets = nets_for(sharing)
    parts = nets(tensors(objective.corrupt(some_rows("electra"))))[0]
    (parts["masked"] + parts["replaced"]).backward()
    for name, parameter in nets.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_the_gradient_of_a_shared_table_is_the_sum_of_both() -> None:
    objective, nets = nets_for("embeddings")
    arrays = tensors(objective.corrupt(some_rows("electra")))
    table = nets.encoder.embeddings.pieces.weight
    one, other = (torch.autograd.grad(nets(arrays)[0][part], table)[0] for part in ("masked", "replaced"))
    assert one.any()
    assert other.any()
    parts = nets(arrays)[0]
    assert_close(torch.autograd.grad(parts["masked"] + parts["replaced"], table)[0], one + other, 1e-10)


@pytest.mark.parametrize("embedding_width", [None, 16])
@pytest.mark.parametrize("sharing", ["none", "embeddings"])
def test_the_generator_is_narrower_with_a_map_where_widths_differ(sharing: str, embedding_width: int | None) -> None:
    objective = told(Replaced(sharing=sharing, generator_share=1 / 2))
    nets = objective.nets(bundle_for(objective, embedding_width=embedding_width))
    config, whole = nets.generator.config, nets.encoder.config
    assert (config.width, config.n_heads, config.inner_width) == (16, 2, 32)
    assert config.n_layers == whole.n_layers
    expected = whole.width_of_embeddings if sharing == "embeddings" else 16
    assert config.width_of_embeddings == expected
    assert (config.embedding_width is None) == (expected == 16)


def test_published_generators() -> None:
    """ELECTRA-small's and -base's: a quarter and a third."""
    for name, share, count in (
        ("electra-small", 1 / 4, (64, 1, 256, 128)),
        ("electra-base", 1 / 3, (256, 4, 1024, 768)),
    ):
        size = SIZES[name]
        objective = told(Replaced(generator_share=share))
        with skip_initialization():
            nets = objective.nets(new_bundle(FAMILIES["electra"], size.config, ["replaced"]))
        found = nets.generator.config
        assert (found.width, found.n_heads, found.inner_width, found.embedding_width) == count


# --- results ---------------------------------------------------------------------------------------------------------


@sharings
def test_model_and_generator_are_saved_whole(sharing: str, tmp_path: Path) -> None:
    _, nets = nets_for(sharing)
    objective = told(Replaced(sharing=sharing))
    kept = objective.result(nets)
    assert {name: list(bundle.outputs) for name, bundle in kept.items()} == {
        "model": ["replaced"],
        "generator": ["masked"],
    }
    batch = Batch(original(tensors(objective.corrupt(some_rows("electra")))))
    for name, bundle in kept.items():
        save_bundle(bundle, tmp_path / name)
        loaded = load_bundle(tmp_path / name, dtype=torch.float64)
        assert loaded.config == bundle.config
        assert named_tensors(loaded).keys() == named_tensors(bundle).keys()
        with torch.no_grad():
            found, expected = (each.eval().encoder(batch, layers=[-1])[-1] for each in (loaded, bundle))
            assert torch.equal(found, expected)
            [output] = bundle.outputs
            assert torch.equal(loaded.outputs[output].logits(found), bundle.outputs[output].logits(expected))
        assert loaded.tokenizer is not None
        assert loaded.tokenizer.fingerprint == ELECTRA.fingerprint


@pytest.mark.parametrize(("learn", "outputs"), [("replace", ["masked"]), ("all-tokens", ["masked", "replaced"])])
def test_a_model_that_predicts_pieces_fills_masks(learn: str, outputs: list[str], tmp_path: Path) -> None:
    objective = told(Replaced(learn=learn))
    kept = objective.result(objective.nets(bundle_for(objective)))
    save_bundle(kept["model"], tmp_path / "model")
    loaded = load_bundle(tmp_path / "model")
    assert list(kept["model"].outputs) == outputs
    assert set(loaded.outputs) == set(outputs)
    theirs = transformers.ElectraForMaskedLM.from_pretrained(tmp_path / "model").eval()
    pieces = torch.from_numpy(some_rows("electra").pieces)
    with torch.no_grad():
        ours = loaded.outputs["masked"].logits(loaded.encoder(Batch(pieces), layers=[-1])[-1])
        assert_close(ours, theirs(input_ids=pieces).logits, 1e-4)


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"sharing": "embedding"},
            "must be none, embeddings or all. Got 'embedding' instead. Did you mean 'embeddings'",
        ),
        ({"learn": "all-token"}, "learn of the objective 'replaced' cannot be 'all-token'. Did you mean 'all-tokens'"),
        ({"generator_share": 0.0}, "over 0 and up to 1. Got 0.0"),
        ({"generator_share": 2.0}, "Got 2.0"),
        ({"sharing": "all", "generator_share": 0.25}, "generator_share and the generator_depth are 1. Got 0.25"),
        ({"generator_depth": 0.0}, "generator_depth must be over 0"),
        ({"temperature": 0.0}, "must be over 0"),
        ({"weight": -1.0}, "must be over 0"),
        ({"discriminator_rate": 0.0}, "discriminator_rate must be over 0"),
        ({"mask_rate": 0.0}, "The mask_rate"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        objective_from("replaced", settings)
    assert Replaced().share == 1 / 4
    assert Replaced(sharing="all").share == 1


def test_a_shallower_generator_has_fewer_layers_of_the_same_kind() -> None:
    objective = told(Replaced(generator_share=1 / 2, generator_depth=1 / 3))
    nets: Any = objective.nets(bundle_for(objective, n_layers=6))
    assert (nets.generator.config.n_layers, nets.encoder.config.n_layers) == (2, 6)
    losses, _ = nets(tensors(objective.corrupt(some_rows())))
    assert all(torch.isfinite(each) for each in losses.values())


def test_what_only_the_discriminator_has_may_learn_more_slowly() -> None:
    objective, nets = nets_for("embeddings", discriminator_rate=0.25)
    factors = {name: objective.rate_factors(nets).get(each, 1.0) for name, each in nets.named_parameters()}
    shared = {id(each) for each in nets.generator.parameters()}
    for name, each in nets.named_parameters():
        own = name.startswith(("encoder.", "output.")) and id(each) not in shared
        assert factors[name] == (0.25 if own else 1.0), name
    assert set(factors.values()) == {0.25, 1.0}
    assert not Replaced().rate_factors(nets)
    for learn in ("replace", "all-tokens"):  # one that predicts pieces learns as the generator does
        assert not Replaced(learn=learn, discriminator_rate=0.25).rate_factors(nets)


def test_knowing_how_often_pieces_are_replaced_is_worth_the_entropy_of_that() -> None:
    half = Replaced().label_entropies({"replaced_share": 0.5})
    assert half == pytest.approx({"replaced": np.log(2)})
    assert Replaced().label_entropies({"replaced_share": 0.1})["replaced"] == pytest.approx(0.3251, abs=1e-4)
    assert Replaced().label_entropies({"replaced_share": 0.0})["replaced"] == pytest.approx(0.0, abs=1e-6)
