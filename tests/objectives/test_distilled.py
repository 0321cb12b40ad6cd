"""Distillation: the losses of DistilBERT's code over the reference's models, layers that are taken, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectives.rows import bundle_for, rows_for, tensors, told, total
from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.errors import OptionError
from polyseme.layer_subset import with_layers
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.objectives.distilled import Distilled, DistilledCausal
from polyseme.objectives.objective_table import check_needs
from polyseme.parts.distillation_losses import relation_losses, soft_label_losses, soft_target_losses
from polyseme.types import Batch
from references import assert_close, make_pair
from tiny_models import tiny_config, tiny_tokenizer

MODELS = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel"}


def distilbert_loss(mine: Any, theirs: Any, at: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """As `distiller.py` of the published code computes it; `at` is where distributions are compared."""
    student, teacher = mine.logits[at], theirs.logits[at]
    soft = nn.KLDivLoss(reduction="batchmean")(
        F.log_softmax(student / temperature, dim=-1), F.softmax(teacher / temperature, dim=-1)
    )
    hard = nn.CrossEntropyLoss(ignore_index=-100)(mine.logits.flatten(0, 1), labels.flatten())
    states = [each.hidden_states[-1].flatten(0, 1) for each in (mine, theirs)]
    cosine = nn.CosineEmbeddingLoss(reduction="mean")(*states, states[0].new_ones(len(states[0])))
    loss: Tensor = 5.0 * soft * temperature**2 + 2.0 * hard + 1.0 * cosine
    return loss


@pytest.mark.parametrize(
    ("family", "objective"),
    [
        ("bert", Distilled()),
        ("bert", Distilled(soft_at="all", temperature=3.0, mask_rate=0.4)),
        ("gpt2", DistilledCausal(temperature=1.5)),
    ],
)
def test_the_loss_equals_the_reference(family: str, objective: Any) -> None:
    """In float64, with the gradient of the student's table of pieces; the teacher has none."""
    student, teacher = (
        make_pair(FAMILIES[family], MODELS[family], tiny_config(family, n_layers=depth)) for depth in (1, 3)
    )
    teacher.reference.get_input_embeddings().weight.data.mul_(1.5)
    teacher.ours.encoder.piece_table().data.mul_(1.5)  # type: ignore[union-attr]
    objective = told(objective).replace(known_teacher=teacher.ours)
    example = objective.corrupt(rows_for(objective, n_rows=5))
    arrays = tensors(example)
    pieces = arrays["pieces"].long()
    labels = torch.full(pieces.shape, -100)
    if family == "bert":
        real = arrays["weights"] > 0
        rows = torch.arange(len(labels))[:, None].expand_as(real)[real]
        labels[rows, arrays["places"][real].long()] = arrays["targets"][real].long()
    else:
        labels[:, :-1] = pieces[:, 1:]
    everywhere = getattr(objective, "soft_at", "") == "all"
    at = torch.ones_like(labels, dtype=torch.bool) if everywhere else labels != -100
    mine, theirs = (each.reference(input_ids=pieces, output_hidden_states=True) for each in (student, teacher))
    expected = distilbert_loss(mine, theirs, at, labels, objective.temperature)
    nets = objective.nets(student.ours)
    found = total(objective, objective.loss(nets, arrays).parts, example.counts)
    assert_close(found, expected, 1e-10)
    found.backward()
    expected.backward()
    table = student.ours.encoder.piece_table()
    assert table is not None
    assert_close(table.grad, student.reference.get_input_embeddings().weight.grad, 1e-10)
    assert all(each.grad is None for each in teacher.ours.parameters())


def test_a_student_learns_what_its_teacher_says() -> None:
    """And the teacher stays in evaluation and as it is, whatever is done to the networks."""
    objective = told(Distilled(piece_weight=0.0)).replace(known_teacher=bundle_for(Distilled(), n_layers=2))
    before = {name: each.clone() for name, each in objective.taught_by.named_parameters()}
    nets = objective.nets(bundle_for(objective, spread=None, n_layers=1)).train()
    assert not objective.taught_by.training
    example = objective.corrupt(rows_for(objective, n_rows=2, length=12))
    arrays, means = tensors(example), []
    optimizer = torch.optim.AdamW(nets.parameters(), lr=4e-3)
    for _ in range(80):
        parts = objective.loss(nets, arrays).parts
        means.append({name: float(part.detach()) / example.counts[name] for name, part in parts.items()})
        optimizer.zero_grad()
        total(objective, parts, example.counts).backward()
        optimizer.step()
    assert means[-1]["soft"] < 0.3 * means[0]["soft"]
    assert means[-1]["cosine"] < 0.5 * means[0]["cosine"]
    for name, each in objective.taught_by.named_parameters():
        assert torch.equal(each, before[name])
    assert len(list(nets.parameters())) == len(list(nets.bundle.parameters()))


def test_a_narrower_student_of_another_family_is_compared_through_a_map() -> None:
    """The map is learned, and no part of the model; spare rows of a table are left out of the comparison."""
    teacher = bundle_for(Distilled(), n_layers=3, n_pieces=tiny_tokenizer("bert").n_pieces + 7).double()
    objective = told(Distilled()).replace(known_teacher=teacher)
    config = tiny_config("distilbert", width=16, n_heads=2, inner_width=24, n_layers=2)
    student = new_bundle(FAMILIES["distilbert"], config, ["masked"], tiny_tokenizer("bert")).double().eval()
    check_needs(objective, student, tiny_tokenizer("bert"))
    nets = objective.nets(student).double()
    example = objective.corrupt(rows_for(objective))
    arrays = tensors(example)
    parts = nets(arrays)[0]
    with torch.no_grad():
        batch = Batch(arrays["pieces"].long())
        states, taught = student.encoder(batch)[-1], teacher.encoder(batch)[-1]
        cosine = (1 - F.cosine_similarity(states @ nets.map.weight.T, taught, dim=-1)).sum()
    assert_close(parts["cosine"], cosine, 1e-12)
    parts["soft"].backward()
    assert not any(name.startswith("map") for name, _ in objective.result(nets)["model"].named_parameters())


def test_soft_labels_and_relations_equal_their_equations() -> None:
    """Of labels that hold independently of each other, and MiniLM's relations, ragged; in float64, row by row."""
    torch.manual_seed(0)
    mine, theirs = torch.randn(2, 4, 3, dtype=torch.float64)
    for share, other, found in zip(mine / 2, theirs / 2, soft_label_losses(mine, theirs, 2.0), strict=True):
        p, q = other.sigmoid(), share.sigmoid()
        expected = 4 * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).mean()
        assert_close(found, expected, 1e-10)
    assert_close(soft_target_losses(mine, mine, 2.0), torch.zeros(4, dtype=torch.float64), 1e-12, 1.0)
    student = torch.randn(3, 2, 5, 8, dtype=torch.float64)
    teacher = torch.randn(3, 2, 5, 12, dtype=torch.float64)
    lengths = torch.tensor([5, 3])
    real = torch.arange(5)[None] < lengths[:, None]
    found = relation_losses(list(student), list(teacher), 2, real)
    for row, length in enumerate(lengths.tolist()):
        expected = torch.zeros(length, dtype=torch.float64)
        for kind in range(3):
            for head in range(2):
                s = student[kind, row, :length, 4 * head : 4 * head + 4]
                t = teacher[kind, row, :length, 6 * head : 6 * head + 6]
                q, p = (s @ s.T / 2).softmax(-1), (t @ t.T / 6**0.5).softmax(-1)
                expected += (p * (p / q).log()).sum(-1) / 6
        assert_close(found[row, :length], expected, 1e-10)


@pytest.mark.parametrize("family", ["bert", "modernbert", "albert", "gpt2"])
def test_taken_layers_are_the_teachers(family: str, tmp_path: Any) -> None:
    """The first layer is as it was; with all layers the model is the same; and the folder holds what was taken."""
    bundle = bundle_of(family)
    batch = Batch(torch.randint(5, 60, (2, 9)))
    with torch.no_grad():
        whole = bundle.encoder(batch)
        same = with_layers(bundle, (1, 2, 3)).encoder(batch)
        assert_close(same[-1], whole[-1], 1e-6)
        small = with_layers(bundle, (1, 3))
        assert_close(small.encoder(batch)[1], whole[1], 1e-6)
        layer = bundle.encoder.layers[bundle.config.weight_sets[2]]  # type: ignore[attr-defined]
        top: Any = small.encoder.layers[-1]  # type: ignore[index]
        assert_close(top.feed_forward.down.weight, layer.feed_forward.down.weight, 0.0)
        small.encoder.piece_table().add_(1.0)  # type: ignore[union-attr]
        assert_close(bundle.encoder(batch)[-1], whole[-1], 0.0)
    save_bundle(small, tmp_path / "small")
    assert load_bundle(tmp_path / "small").config.depth == 2


@pytest.mark.parametrize("layers", [(1,), (1, 2), (1, 4), (1, 4, 5), (1, 3, 4, 6), (1, 2, 3, 4)])
def test_taken_layers_see_what_they_saw(layers: tuple[int, ...], tmp_path: Any) -> None:
    """Each keeps its own mask, and the base of its positions, which follows from that."""
    bundle = bundle_of("modernbert", n_layers=7)
    small = with_layers(bundle, layers)
    masks = bundle.config.layer_masks  # type: ignore[attr-defined]
    assert small.config.layer_masks == tuple(masks[number - 1] for number in layers)  # type: ignore[attr-defined]
    save_bundle(small, tmp_path / "small")
    assert load_bundle(tmp_path / "small").config == small.config


def test_heads_that_were_pruned_stay_gone() -> None:
    bundle = bundle_of("bert", heads_left=((0, 1), (2,), (0, 3)))
    small = with_layers(bundle, (1, 3))
    assert small.config.heads_left == ((0, 1), (0, 3))  # type: ignore[attr-defined]
    batch = Batch(torch.randint(5, 60, (2, 9)))
    assert_close(small.encoder(batch)[1], bundle.encoder(batch)[1], 1e-6)


def bundle_of(family: str, **changes: Any) -> Any:
    torch.manual_seed(3)
    output = "causal" if family == "gpt2" else "masked"
    shared = {"layer_map": (0, 1, 0), "sets_in_group": 1} if family == "albert" else {}
    config = tiny_config(family, **{"n_layers": 3, **shared, **changes})
    return new_bundle(FAMILIES[family], config, [output], tiny_tokenizer(family)).eval()


@pytest.mark.parametrize(
    ("teacher", "said"),
    [
        ({"outputs": ["pooled"]}, r"the teacher has no output 'masked' \(it has: pooled\)"),
        ({"n_layers": 1}, r"larger than its teacher: 2 layers against the 1 of the teacher"),
        ({"width": 16, "n_heads": 2}, r"larger than its teacher: 32 wide against the 16"),
        ({"tokenizer": "roberta"}, r"the teacher has another vocabulary"),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(teacher: dict[str, Any], said: str) -> None:
    outputs, tokenizer = teacher.pop("outputs", ["masked"]), tiny_tokenizer(teacher.pop("tokenizer", "bert"))
    config = tiny_config("bert", **{"n_layers": 3, **teacher})
    known = new_bundle(FAMILIES["bert"], config, outputs, tokenizer)
    objective = told(Distilled(teacher="the teacher")).replace(known_teacher=known)
    with pytest.raises(OptionError, match=said.replace("the teacher", "[Tt]he teacher( the teacher)?")):
        check_needs(objective, bundle_for(Distilled(), n_layers=2), tiny_tokenizer("bert"))


def test_states_alone_need_no_output() -> None:
    known = new_bundle(FAMILIES["bert"], tiny_config("bert", n_layers=3), ["pooled"], tiny_tokenizer("bert"))
    objective = told(Distilled(soft_weight=0.0)).replace(known_teacher=known)
    bundle = bundle_for(Distilled(), n_layers=2)
    check_needs(objective, bundle, tiny_tokenizer("bert"))
    example = objective.corrupt(rows_for(objective))
    assert objective.nets(bundle)(tensors(example))[0].keys() == example.counts.keys() == {"masked", "cosine"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": 0.0}, "The temperature must be above 0"),
        ({"soft_weight": 0.0, "cosine_weight": 0.0}, "nothing is learned from the teacher"),
        ({"piece_weight": -1.0}, "must be 0 or more"),
        ({"soft_at": "some"}, "soft_at must be targets or all"),
        ({"next": "nsp"}, "Leave out next"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Distilled(**settings)


def test_a_number_of_layers_that_cannot_be_taken_is_refused() -> None:
    bundle = bundle_of("bert")
    for layers, said in (((), "of which 1 to 3 can be taken. Got 0"), ((1, 1, 2, 3), "no more layers than")):
        with pytest.raises(OptionError, match=said):
            with_layers(bundle, layers)
    two = new_bundle(FAMILIES["bart"], tiny_config("bart"), ["causal"], tiny_tokenizer("bart"))
    with pytest.raises(OptionError, match="has two stacks"):
        with_layers(two, (1,))
