"""Probes: their optimum, code lengths, control tasks, baselines, what is probed, and findings of a whole run."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import polyseme
from damage import flip_bit
from polyseme.analysis.probing import linear_probes
from polyseme.analysis.probing.baselines import control_labels, majority, per_type
from polyseme.analysis.probing.code_length import block_ends, online_code_length, order_by_text
from polyseme.analysis.probing.linear_probes import Standard, fit_linear
from polyseme.analysis.probing.probe_layers import block_loss
from polyseme.analysis.probing.span_designs import PairDesign, SpanDesign
from polyseme.analysis.probing.span_vectors import span_vectors
from polyseme.analysis.probing.targets import Targets, targets_of
from polyseme.analysis.probing.trained_probes import ProbeNets, center_of_gravity, expected_layer, fit_by_steps
from polyseme.datasets.coarse_senses import read_coarse_senses
from polyseme.errors import PolysemeWarning
from polyseme.parts.scalar_mix import ScalarMix
from polyseme.tasks.own_data import read_own
from tiny_models import tiny_model

CPU = torch.device("cpu")
SENTENCE = """# text = {0} saw {1} dogs
1\t{0}\t{0}\tPROPN\tNNP\tNumber=Sing\t2\tnsubj\t_\t_
2\tsaw\tsee\tVERB\tVBD\tTense=Past\t0\troot\t_\t_
3\t{1}\t{1}\tDET\tDT\t_\t4\tdet\t_\t_
4\tdogs\tdog\tNOUN\tNNS\tNumber=Plur\t2\tobj\t_\t_

"""
NAMES = ("Ann", "Bob", "Cy", "Dee", "Eve", "Flo", "Gus", "Hal")


def treebank(path: Path, names: tuple[str, ...] = NAMES) -> Path:
    path.write_text("".join(SENTENCE.format(name, word) for name in names for word in ("the", "no")), encoding="utf-8")
    return path


def design_of(n: int = 240, n_labels: int = 3, layers: int = 2) -> tuple[SpanDesign, torch.Tensor]:
    """Features of unlike sizes, far from 0, and labels that partly depend on the first layer's."""
    torch.manual_seed(0)
    sizes = torch.logspace(-1, 1, 6, dtype=torch.float64)
    noise = torch.randn(layers, n, 6, dtype=torch.float64)
    labels = (noise[0] @ torch.randn(6, n_labels, dtype=torch.float64) + torch.randn(n, n_labels)).argmax(1)
    return SpanDesign(noise * sizes + 3, CPU), labels


def features(design: SpanDesign, layer: int, numbers: Any = slice(None)) -> np.ndarray[Any, Any]:
    rows = design.rows(slice(None))[layer].numpy()
    standardized = (rows - rows[numbers].mean(0)) / rows[numbers].std(0)
    return np.c_[standardized, np.ones(len(rows))]


def logistic(rows: Any, labels: Any, l2: float) -> LogisticRegression:
    return LogisticRegression(C=1 / l2, tol=1e-10, max_iter=5000, fit_intercept=False).fit(rows, labels)


# --- the optimum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_parts", [False, True])
def test_probes_are_logistic_regressions_at_their_optimum(monkeypatch: pytest.MonkeyPatch, in_parts: bool) -> None:
    """Whether all layers are fitted at once to all examples, or one after another to growing parts."""
    if in_parts:
        monkeypatch.setattr(linear_probes, "FIRST_PART", 15)
        monkeypatch.setattr(linear_probes, "LAYER_EXAMPLES", 1)
        monkeypatch.setattr(linear_probes, "CHUNK", 50)
    design, labels = design_of()
    probes = fit_linear(design, labels, torch.arange(240), n_labels=3, l2=2.0, tolerance=1e-9)
    assert probes.gradient.max() <= 1e-9
    for layer in range(2):
        rows = features(design, layer)
        reference = logistic(rows, labels.numpy(), 2.0)
        assert np.abs(reference.coef_.T - probes.weights[layer].numpy()).max() < 1e-6
    [(_, log_probs)] = probes.log_probs(design, torch.arange(240)[:50])
    assert np.abs(reference.predict_log_proba(rows[:50]) - log_probs[1].numpy()).max() < 1e-6


def test_a_free_bias_is_that_of_scikit_learn() -> None:
    design, labels = design_of()
    probes = fit_linear(design, labels, torch.arange(240), n_labels=3, l2=2.0, tolerance=1e-9, bias_l2=0.0)
    reference = LogisticRegression(C=0.5, tol=1e-10, max_iter=5000).fit(features(design, 0)[:, :-1], labels.numpy())
    assert np.abs(reference.coef_.T - probes.weights[0, :-1].numpy()).max() < 1e-6


def test_in_single_precision_the_optimum_is_reached_to_what_it_says() -> None:
    design, labels = design_of()
    single = SpanDesign(design.vectors.float(), CPU)
    probes = fit_linear(single, labels, torch.arange(240), n_labels=3, l2=2.0)
    assert probes.gradient.max() <= linear_probes.TOLERANCE
    exact = fit_linear(design, labels, torch.arange(240), n_labels=3, l2=2.0, tolerance=1e-9)
    assert (probes.weights - exact.weights).abs().max() < 0.05 * exact.weights.abs().max()


def test_pairs_are_both_vectors_and_their_product() -> None:
    vectors = torch.randn(2, 5, 3, dtype=torch.float64)
    first, second = torch.tensor([0, 1, 2]), torch.tensor([3, 4, 0])
    pairs = PairDesign(vectors, first, second, torch.arange(3), CPU)
    standard = (vectors - vectors.mean(1, keepdim=True)) / vectors.std(1, correction=0, keepdim=True)
    expected = torch.cat([standard[:, first], standard[:, second], standard[:, first] * standard[:, second]], -1)
    torch.testing.assert_close(pairs.rows(torch.arange(3)), expected)
    torch.testing.assert_close(pairs.of_layers(slice(1, 2)).rows(slice(0, 2)), expected[1:, :2])


# --- code length ------------------------------------------------------------------------------------------------------


def test_the_code_length_is_the_sum_of_the_losses_of_blocks() -> None:
    """By hand: a uniform code, then a logistic regression refitted before each block."""
    design, labels = design_of(n=400, layers=1)
    order = torch.from_numpy(np.random.default_rng(0).permutation(400))

    def loss(learned: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
        probes = fit_linear(design, labels, learned.sort().values, n_labels=3, l2=2.0, tolerance=1e-9)
        return block_loss(probes, design, labels, sent)

    bits = online_code_length(order, 3, loss)
    ends = block_ends(400)
    assert ends == [1, 3, 6, 12, 25, 50, 100, 200, 400]
    by_hand = math.log2(3)
    for start, end in itertools.pairwise(ends):
        learned, sent = order[:start].numpy(), order[start:end].numpy()
        rows = design.rows(slice(None))[0].numpy()
        spread = rows[learned].std(0)
        center = rows[learned].mean(0)
        standardized = np.c_[(rows - center) / np.where(spread > 1e-6, spread, 1), np.ones(400)]
        weights = minimized(torch.tensor(standardized[learned]), labels[learned])
        log_probs = torch.log_softmax(torch.tensor(standardized[sent]) @ weights, -1)
        by_hand += float(-log_probs.gather(1, labels[sent][:, None]).sum()) / math.log(2)
    assert float(bits) == pytest.approx(by_hand, rel=1e-5)


def minimized(rows: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    """The weights that minimize the summed cross-entropy and ‖weights‖², by torch's own L-BFGS."""
    weights = torch.zeros(7, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=2000, tolerance_grad=1e-10, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(rows @ weights, gold, reduction="sum") + weights.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weights.detach()


def test_texts_stay_together_in_the_order_of_a_code() -> None:
    texts = np.repeat(np.arange(20), 3)
    order = order_by_text(texts, np.arange(60), seed=1)
    assert sorted(order) == list(range(60))
    assert (np.diff(texts[order].reshape(20, 3), axis=1) == 0).all()
    assert list(order) != list(range(60))
    assert list(order) != list(order_by_text(texts, np.arange(60), seed=2))


# --- what is probed, and baselines ------------------------------------------------------------------------------------


def words_of(tmp_path: Path, **options: Any) -> Targets:
    unit = options.pop("unit", None)
    files = {
        "train": treebank(tmp_path / "train.conllu"),
        "dev": treebank(tmp_path / "dev.conllu", ("Ann",)),
        "test": treebank(tmp_path / "test.conllu", ("Ann", "Zoe")),
    }
    return targets_of(read_own("tag", files, unseen="keep", **options), unit=unit, splits=("train", "test"))


def test_words_features_and_arcs_of_a_treebank(tmp_path: Path) -> None:
    words = words_of(tmp_path)
    assert words.label_names == ("DET", "NOUN", "PROPN", "VERB")
    assert (len(words.splits["train"]), len(words.splits["test"])) == (64, 16)
    assert list(words.first) == list(range(80))
    numbers = words_of(tmp_path, label="Number")
    assert numbers.label_names == ("Plur", "Sing")
    assert {words for words, *_ in numbers.types} == {*NAMES, "Zoe", "dogs"}
    assert any("were left out" in note for note in numbers.notes)
    arcs = words_of(tmp_path, label="deprel", marks="head", unit="arcs")
    assert arcs.label_names == ("det", "nsubj", "obj")
    assert arcs.types[:3] == [("Ann", "saw"), ("the", "dogs"), ("dogs", "saw")]
    assert arcs.second is not None
    assert arcs.spans[arcs.second[1]].tolist() == [0, 3, 4]


def test_spans_of_tags_and_their_predicates(tmp_path: Path) -> None:
    rows = [{"words": ["Ann", "saw", "big", "dogs"], "tags": ["B-A0", "B-V", "B-A1", "I-A1"], "m": [0, 1, 0, 0]}] * 2
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    files = {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "dev")}
    roles = targets_of(read_own("tag", files, marks="m"), unit=None, splits=("train", "dev"))
    assert roles.label_names == ("A0", "A1", "V")
    assert roles.types[2] == ("saw", "big dogs")


def test_baselines_are_those_of_tagging(tmp_path: Path) -> None:
    words = words_of(tmp_path)
    judged = words.splits["test"]
    assert majority(words, judged) == 0.25
    assert per_type(words, judged) == 14 / 16  # of Zoe nothing is known, and all labels are as frequent: DET


def test_control_labels_depend_on_the_word_and_the_seed_alone(tmp_path: Path) -> None:
    words = words_of(tmp_path)
    labels = control_labels(words, seed=3)
    by_word: dict[str, set[int]] = {}
    for (word,), label in zip(words.types, labels.tolist(), strict=True):
        by_word.setdefault(word, set()).add(label)
    assert all(len(each) == 1 for each in by_word.values())
    assert list(control_labels(words, seed=3)) == list(labels)
    assert list(control_labels(words, seed=4)) != list(labels)
    fewer = targets_of(
        read_own("tag", {"train": treebank(tmp_path / "few.conllu", NAMES[:4])}), unit=None, splits=("train", "dev")
    )  # equally frequent labels, other words
    again = dict(zip((word for (word,) in fewer.types), control_labels(fewer, seed=3).tolist(), strict=True))
    assert all(by_word[word] == {label} for word, label in again.items())


def test_coarse_senses_are_words_in_context(tmp_path: Path) -> None:
    folder = tmp_path / "coarsewsd20" / "bank"
    folder.mkdir(parents=True)
    (folder / "classes_map.txt").write_text('{"0": "bank_river", "1": "bank_money"}', encoding="utf-8")
    for split in ("train", "test"):
        (folder / f"{split}.data.txt").write_text("1\tthe bank flooded\n0\tbank loans grew\n", encoding="utf-8")
        (folder / f"{split}.gold.txt").write_text("0\n1\n", encoding="utf-8")
    senses = targets_of(read_coarse_senses(tmp_path), unit=None, splits=("train", "test"))
    assert senses.label_names == ("bank_money", "bank_river")
    assert senses.spans[:2].tolist() == [[0, 1, 2], [1, 0, 1]]


# --- vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "awd-lstm"])
def test_one_pass_gives_every_layer_as_embed_does(tmp_path: Path, family: str) -> None:
    """Also where layers differ in width; less a constant vector; and the same from the cache."""
    model = tiny_model(family)
    words = words_of(tmp_path)
    documents, spans = words.documents, np.array([[0, 0, 1], [0, 1, 3], [2, 3, 4]])
    vectors = span_vectors(model.bundle, documents, spans)
    for group in vectors.groups:
        for place, layer in enumerate(group.layers):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PolysemeWarning)  # a tiny vocabulary
                whole = [each.vectors for each in model.embed(documents, layer=layer)]
            means = np.stack([whole[0][0], whole[0][1:3].mean(0), whole[2][3]])
            shift = means - group.vectors[place].numpy()
            assert np.abs(shift - shift[0]).max() < 1e-5
    assert sorted(layer for group in vectors.groups for layer in group.layers) == list(
        range(model.bundle.config.depth + 1)
    )
    for _ in range(2):
        kept = span_vectors(model.bundle, documents, spans, cache=tmp_path / "cache")
        assert all(torch.equal(one.vectors, two.vectors) for one, two in zip(kept.groups, vectors.groups, strict=True))
    assert kept.tally.words == 0
    [file] = (tmp_path / "cache").glob("*/group-0.npy")
    flip_bit(file, 0.9)
    with pytest.warns(PolysemeWarning, match=r"damaged \(group-0.npy .* are computed again"):
        kept = span_vectors(model.bundle, documents, spans, cache=tmp_path / "cache")
    assert all(torch.equal(one.vectors, two.vectors) for one, two in zip(kept.groups, vectors.groups, strict=True))


# --- mixes ------------------------------------------------------------------------------------------------------------


def test_a_mix_is_a_scalar_mix() -> None:
    nets = ProbeNets((3, 5, 4), 2, hidden=None, mix=True).double()
    with torch.no_grad():
        nets.mixing.copy_(torch.randn(3, 3))  # type: ignore[union-attr]
        nets.weights[0].normal_()
        nets.gamma.copy_(torch.randn(3))  # type: ignore[union-attr]
    features = torch.randn(3, 5, 4, dtype=torch.float64)
    mix = ScalarMix(2).double()
    mix.weights.data, mix.gamma.data = nets.mixing.data[1, :2], nets.gamma.data[1]  # type: ignore[union-attr]
    expected = mix(features[:2].unbind()) @ nets.weights[0][1]
    torch.testing.assert_close(nets(features)[1], expected)
    assert nets.shares()[0].tolist() == [1.0, 0.0, 0.0]


def test_a_mix_finds_the_layer_that_knows() -> None:
    design, labels = design_of(n=300, layers=3)  # the labels come from layer 0
    swapped = SpanDesign(design.vectors[[1, 0, 2]], CPU)
    numbers = torch.arange(300)
    probes = fit_by_steps(swapped, labels, numbers, numbers, n_labels=3, l2=1.0, mix=True, epochs=20,
                          standard=Standard.of(swapped, numbers))  # fmt: skip
    shares = probes.shares()[-1].tolist()
    assert shares[1] == max(shares) > 0.5
    assert 0.7 < center_of_gravity(shares) < 1.3
    assert expected_layer([0.2, 0.2, 0.8, 0.9]) == pytest.approx((2 * 0.6 + 3 * 0.1) / 0.7)
    assert expected_layer([0.5, 0.4]) is None


def test_a_hidden_layer_learns_what_no_linear_probe_can() -> None:
    torch.manual_seed(0)
    rows = torch.randn(1, 400, 2)
    labels = (rows[0, :, 0] * rows[0, :, 1] > 0).long()
    design, numbers = SpanDesign(rows, CPU), torch.arange(400)
    standard = Standard.of(design, numbers)
    hidden = fit_by_steps(design, labels, numbers, numbers, n_labels=2, l2=0.1, hidden=16, epochs=15, standard=standard)
    linear = fit_linear(design, labels, numbers, n_labels=2, l2=0.1)
    right = []
    for probes in (hidden, linear):
        [(_, log_probs)] = probes.log_probs(design, numbers)
        right.append(float((log_probs[0].argmax(-1) == labels).float().mean()))
    assert right[0] > 0.9
    assert right[1] < 0.65


# --- a whole run ------------------------------------------------------------------------------------------------------


def test_findings_have_a_row_for_each_layer_and_the_mix(tmp_path: Path) -> None:
    train, test = treebank(tmp_path / "train.conllu"), treebank(tmp_path / "test.conllu", ("Ann", "Zoe"))
    found = polyseme.probe(
        "tag", train=str(train), test=str(test), model=tiny_model("bert"), layers="0,-1,mix", control=True,
        code_length=True, random=True, seeds=2, output=tmp_path / "probe.html",
    )  # fmt: skip
    records = found.records()
    assert [each["layer"] for each in records] == ["0", "3", "mix"]
    top = records[1]
    assert top["selectivity"] == pytest.approx(top["accuracy"] - top["control"])
    assert top["compression"] == pytest.approx(56 * 2 / top["code_length"])
    assert (top["majority"], top["per_type"]) == (0.25, 14 / 16)
    assert top["control_sd"] is not None
    assert found.to_json()["by_seed"]["3"]["random"][0] <= 1
    assert sum(found.mix.shares[0]) == pytest.approx(1, abs=1e-5)  # type: ignore[union-attr]
    assert records[-1]["center_of_gravity"] == pytest.approx(sum(found.mix.centers) / 2)  # type: ignore[union-attr]
    assert records[0]["expected_layer"] is None
    page = (tmp_path / "probe.html").read_text(encoding="utf-8")
    assert all(text in page for text in ("control task", "per type", "Center of gravity", "<svg"))
    again = polyseme.probe("tag", train=str(train), test=str(test), model=tiny_model("bert"), layers="3")
    assert again.records()[0]["accuracy"] == top["accuracy"]


def test_edges_as_edge_probing_has_them_and_texts_longer_than_the_window(tmp_path: Path) -> None:
    line = {
        "text": " ".join([*["Dawn broke"] * 20, "early"]),
        "targets": [
            {"span1": [number, number + 1], "span2": [number + 1, number + 2], "label": "ab"[number % 2]}
            for number in range(20)
        ],
        "info": {"id": 1},
    }
    plain = {"text": "the vase broke", "span1": [4, 8], "span2": "broke", "label": "a"}
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps(each) + "\n" for each in (line, plain)), encoding="utf-8")
    test = tmp_path / "test.jsonl"
    test.write_text(json.dumps({**line, "targets": line["targets"][:4]}) + "\n", encoding="utf-8")
    found = polyseme.probe("edges", train=str(train), test=str(test), model=tiny_model("bert"), probe="mlp", hidden=8)
    assert len(found.records()) == 4
    assert "21 pairs of spans of train and 4 of test, 2 labels" in found.data
    assert any("longer than the model's window of 40 pieces" in note for note in found.notes)
