"""The structural probe: its equations by plain loops, its training against torch's, its measures against scipy's."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.stats import spearmanr

import polyseme
from polyseme.analysis import structural_probe as probe
from polyseme.analysis.dependency_trees import Tree, Treebank, read_treebank
from polyseme.analysis.structural_findings import StructuralFindings, probe_structure
from polyseme.analysis.structural_probe import (
    ParsedVectors,
    StructuralKind,
    StructuralSettings,
    predictions_of,
    squared_distances,
    squared_norms,
    structural_loss,
    train_maps,
    tree_depths,
    tree_distances,
)
from polyseme.analysis.tree_metrics import chain_predictions, rank_correlations, score, spanning_trees
from polyseme.errors import InputError, OptionError
from tiny_models import TEXT, tiny_model

LONGEST = 8
HOSTILE = "<script>alert(1)</script>"


def random_tree(rng: random.Random, n: int) -> Tree:
    order = rng.sample(range(1, n + 1), n)
    heads = {word: rng.choice(order[:place]) if place else 0 for place, word in enumerate(order)}
    words = tuple(rng.choice([word for word in TEXT.split() if len(word) < 5]) for _ in range(n))
    tags = tuple("PUNCT" if rng.random() < 0.2 and heads[word] else "X" for word in range(1, n + 1))
    return Tree(words, tuple(heads[word] for word in range(1, n + 1)), ("dep",) * n, tags)


def random_trees(n: int, seed: int = 0) -> list[Tree]:
    rng = random.Random(seed)
    return [random_tree(rng, rng.randint(1, LONGEST)) for _ in range(n)]


def path_vectors(trees: list[Tree]) -> np.ndarray:
    """[N, 1, LONGEST]: 1 for every arc between a word and the root, whose squared distances are those of the tree."""
    rows = []
    for tree in trees:
        for word in range(1, len(tree) + 1):
            row = np.zeros(LONGEST)
            while tree.heads[word - 1]:
                row[word - 1] = 1
                word = tree.heads[word - 1]
            rows.append(row)
    return np.array(rows)[:, None]


def test_the_equations_are_those_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    maps, vectors = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 2, 4, 5))
    lengths = [4, 3]
    trees = [random_tree(random.Random(seed), n) for seed, n in enumerate(lengths)]
    gold = {"distance": np.full((2, 4, 4), -1), "depth": np.full((2, 4), -1)}
    distances, norms = np.zeros((2, 2, 4, 4)), np.zeros((2, 2, 4))
    losses: dict[str, np.ndarray] = {"distance": np.zeros(2), "depth": np.zeros(2)}
    gradients = {"distance": np.zeros_like(maps), "depth": np.zeros_like(maps)}
    for row, (tree, n) in enumerate(zip(trees, lengths, strict=True)):
        gold["distance"][row, :n, :n], gold["depth"][row, :n] = tree_distances(tree), tree_depths(tree)
        for layer in range(2):
            for i in range(n):
                for j in range(n):
                    between = vectors[layer, row, i] - vectors[layer, row, j]
                    distances[layer, row, i, j] = ((between @ maps[layer]) ** 2).sum()
                    error = distances[layer, row, i, j] - gold["distance"][row, i, j]
                    losses["distance"][layer] += abs(error) / n**2 / 2
                    gradients["distance"][layer] += (
                        np.sign(error) * 2 * np.outer(between, between @ maps[layer]) / n**2 / 2
                    )
                own = vectors[layer, row, i]
                norms[layer, row, i] = ((own @ maps[layer]) ** 2).sum()
                error = norms[layer, row, i] - gold["depth"][row, i]
                losses["depth"][layer] += abs(error) / n / 2
                gradients["depth"][layer] += np.sign(error) * 2 * np.outer(own, own @ maps[layer]) / n / 2
    for kind, function, expected in (("distance", squared_distances, distances), ("depth", squared_norms, norms)):
        leaf = torch.from_numpy(maps).requires_grad_()
        predicted = function(leaf, torch.from_numpy(vectors))
        there = np.broadcast_to(gold[kind] >= 0, expected.shape)
        np.testing.assert_allclose(predicted.detach().numpy()[there], expected[there], atol=1e-12)
        loss = structural_loss(predicted, torch.from_numpy(gold[kind]), torch.tensor(lengths))
        np.testing.assert_allclose(loss.detach().numpy(), losses[kind], rtol=1e-12)
        [gradient] = torch.autograd.grad(loss.sum(), leaf)
        np.testing.assert_allclose(gradient.numpy(), gradients[kind], atol=1e-12)


def test_layers_side_by_side_train_as_torch_trains_each() -> None:
    torch.manual_seed(0)
    maps = torch.randn(2, 4, 3, dtype=torch.float64)
    ours, rates = maps.clone(), (0.01, 0.001)
    adam = probe._Adam(ours, rates[0])
    gradients = torch.randn(9, 2, 4, 3, dtype=torch.float64)
    theirs = [maps[layer].clone().requires_grad_() for layer in range(2)]
    optimizers = [torch.optim.Adam([each], rates[0]) for each in theirs]
    for step, gradient in enumerate(gradients):
        if step == 4:  # of the second layer the loss did not fall
            adam.restart(torch.tensor([False, True]))
            optimizers[1] = torch.optim.Adam([theirs[1]], rates[1])
        adam.step(gradient)
        for layer, each in enumerate(theirs):
            each.grad = gradient[layer]
            optimizers[layer].step()
    torch.testing.assert_close(ours, torch.stack([each.detach() for each in theirs]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", probe.STRUCTURAL_KINDS)
def test_a_tree_that_is_in_the_vectors_is_read_from_them(kind: StructuralKind) -> None:
    trees = random_trees(60)
    data = ParsedVectors(trees, path_vectors(trees))
    identity = predictions_of(torch.eye(LONGEST, dtype=torch.float64)[None], data, kind)
    exact = score(kind, trees, identity)
    assert (exact.share[0], exact.spearman[0]) == pytest.approx((1.0, 1.0))
    assert all(np.allclose(each[0], probe.gold_of(kind, tree)) for each, tree in zip(identity, trees, strict=True))
    trained = train_maps(data, StructuralSettings(kind=kind, rank=None, learning_rate=0.02))
    test = random_trees(40, 1)
    learned = score(kind, test, predictions_of(trained.maps, ParsedVectors(test, path_vectors(test)), kind))
    chain = score(kind, test, chain_predictions(kind, test))
    assert learned.share[0] > 0.9 > chain.share[0]
    assert learned.spearman[0] > chain.spearman[0]


def test_the_map_with_the_lowest_loss_is_kept() -> None:
    trees = random_trees(30)
    data = ParsedVectors(trees, path_vectors(trees))
    trained = train_maps(data, StructuralSettings(rank=4, epochs=6, learning_rate=0.5))
    held_out = [tree for number, tree in enumerate(trees) if number % 10 == 9]
    apart = ParsedVectors(held_out, path_vectors(held_out))
    losses = [
        np.abs(each[0] - tree_distances(tree)).sum() / len(tree) ** 2
        for each, tree in zip(predictions_of(trained.maps, apart, "distance"), held_out, strict=True)
    ]
    assert trained.losses[0] == pytest.approx(np.mean(losses))
    assert trained.maps.shape == (1, LONGEST, 4)
    again = train_maps(data, StructuralSettings(rank=4, epochs=6, learning_rate=0.5))
    assert torch.equal(again.maps, trained.maps)


def test_the_size_of_vectors_does_not_matter() -> None:
    trees = random_trees(40)
    vectors = np.concatenate([path_vectors(trees), 1024 * path_vectors(trees)], axis=1)
    settings = StructuralSettings(rank=4, epochs=3)
    single = train_maps(ParsedVectors(trees, vectors[:, :1]), settings)
    large = train_maps(ParsedVectors(trees, vectors[:, 1:]), settings)
    torch.testing.assert_close(large.maps * 1024, single.maps)
    assert large.losses == pytest.approx(single.losses)


def test_spanning_trees_and_rank_correlations_equal_scipys() -> None:
    rng = np.random.default_rng(2)
    points = rng.normal(size=(3, 9, 2))
    distances = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    for edges, matrix in zip(spanning_trees(distances), distances, strict=True):
        assert edges == sorted(
            tuple(sorted(edge)) for edge in zip(*minimum_spanning_tree(matrix).nonzero(), strict=True)
        )
    one, other = rng.normal(size=(4, 9)), rng.integers(0, 4, size=(4, 9))
    expected = [spearmanr(*pair).statistic for pair in zip(one, other, strict=True)]
    np.testing.assert_allclose(rank_correlations(one, other), expected)


def test_measures_are_those_of_the_paper_by_plain_loops() -> None:
    rng = random.Random(5)
    trees = [random_tree(rng, n) for n in (2, 4, 5, 5, 7, 51)]
    numbers = np.random.default_rng(1)
    distances = [numbers.random((1, len(tree), len(tree))) for tree in trees]
    distances = [each + each.transpose(0, 2, 1) for each in distances]
    depths = [numbers.random((1, len(tree))) for tree in trees]
    of_distances, of_depths = score("distance", trees, distances), score("depth", trees, depths)
    right = n_edges = roots = 0
    by_length: dict[int, list[float]] = {}
    of_sentences: dict[int, list[float]] = {}
    for tree, distance, depth in zip(trees, distances, depths, strict=True):
        words = [at for at, tag in enumerate(tree.parts_of_speech) if tag != "PUNCT"]
        among = np.ix_(words, words)
        pairs = [
            {tuple(sorted(edge)) for edge in zip(*minimum_spanning_tree(matrix[among]).nonzero(), strict=True)}
            for matrix in (tree_distances(tree), distance[0])
        ]
        [gold] = spanning_trees(tree_distances(tree)[among].astype(float)[None])
        right, n_edges = right + len(set(gold) & pairs[1]), n_edges + len(gold)
        roots += tree.heads[min(words, key=lambda at: depth[0, at])] == 0
        if 5 <= len(tree) <= 50:
            rows = zip(distance[0], tree_distances(tree), strict=True)
            by_length.setdefault(len(tree), []).extend(spearmanr(*row).statistic for row in rows)
            of_sentences.setdefault(len(tree), []).append(spearmanr(depth[0], tree_depths(tree)).statistic)
    assert (of_distances.n, of_distances.share[0]) == pytest.approx((n_edges, right / n_edges))
    assert (of_depths.n, of_depths.share[0]) == pytest.approx((len(trees), roots / len(trees)))
    assert of_distances.spearman[0] == pytest.approx(np.mean([np.mean(each) for each in by_length.values()]))
    assert of_depths.spearman[0] == pytest.approx(np.mean([np.mean(each) for each in of_sentences.values()]))


@pytest.fixture(scope="module")
def findings() -> StructuralFindings:
    marked = Tree((HOSTILE, *"abcdef"), (0, 1, 2, 3, 4, 5, 6), ("dep",) * 7, ("X",) * 7)
    treebank = Treebank(random_trees(20), [marked, *random_trees(8, 1)], "random trees: selected on 20")
    settings = StructuralSettings(rank=4, epochs=2)
    return probe_structure(
        tiny_model("bert").bundle, treebank, settings, model="tiny", layers=[0, 3], seeds=(0, 1), random=True
    )


def test_findings_have_layers_chain_and_random_weights(findings: StructuralFindings, tmp_path: Path) -> None:
    records = findings.records()
    assert [(each["weights"], each["layer"]) for each in records] == [
        ("chain", None),
        ("trained", 0),
        ("trained", 3),
        ("random", 0),
        ("random", 3),
    ]
    assert all(each["uuas_sd"] is not None for each in records[1:])
    assert records[1]["held_out_loss"] != records[3]["held_out_loss"]
    findings.save(tmp_path / "s.html")
    page = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert "&lt;script&gt;alert" in page
    assert page.count("<svg") == 1 + len(findings.drawn)
    single = dataclasses.replace(findings, layers=[each for each in findings.layers if each.layer in (None, 3)])
    assert single.html().count("<svg") == len(findings.drawn)  # a chart of one layer shows nothing


def conllu(trees: list[Tree]) -> str:
    lines = []
    for tree in trees:
        lines += [f"{at}\t{word}\t_\tX\t_\t_\t{tree.heads[at - 1]}\tdep\t_\t_" for at, word in enumerate(tree.words, 1)]
        lines.append("")
    return "\n".join(lines) + "\n"


def test_a_limit_takes_sentences_from_the_whole_of_a_treebank(tmp_path: Path) -> None:
    trees = random_trees(9)
    train, test = tmp_path / "train.conllu", tmp_path / "test.conllu"
    for file in (train, test):
        file.write_text(conllu(trees), encoding="utf-8")
    treebank = read_treebank(test, train=train, max_items=3)
    assert [tree.words for tree in treebank.train] == [trees[number].words for number in (0, 3, 6)]
    halves = read_treebank(test, max_items=2)
    assert [tree.words for tree in halves.test] == [trees[number].words for number in (1, 5)]


def test_probe_reads_trees_on_request(tmp_path: Path) -> None:
    train, test = tmp_path / "train.conllu", tmp_path / "test.conllu"
    train.write_text(conllu(random_trees(20)), encoding="utf-8")
    test.write_text(conllu(random_trees(8, 1)), encoding="utf-8")
    model = tiny_model("bert")
    options = {"model": model, "structural": "depth", "rank": 4, "layers": "0,-1"}
    found = polyseme.probe("tag", train=train, test=test, output=tmp_path / "trees.html", **options)
    assert [each["layer"] for each in found.records()] == [None, 0, 3]
    assert "root accuracy" in (tmp_path / "trees.html").read_text(encoding="utf-8")
    halves = polyseme.probe("tag", train=train, **options)
    assert "trained on 10 sentences, evaluated on 10 others" in halves.data
    for refused, problem in (
        ({"control": True}, "'control' is for probes of labels"),
        ({"layers": "mix"}, "single layers"),
        ({"structural": "width"}, "Did you mean 'depth'"),
        ({"structural": None}, "'rank' is for structural probes"),
        ({"train": None}, "--train FILE"),
    ):
        with pytest.raises(OptionError, match=problem):
            polyseme.probe("tag", **{"train": train, **options, **refused})
    with pytest.raises(OptionError, match="has its own files"):
        polyseme.probe("ud-ewt", train=train, **options)
    with pytest.raises(OptionError, match="no treebank"):
        polyseme.probe("wnut17", data=tmp_path, **options)


def test_what_cannot_be_probed_is_refused() -> None:
    trees = random_trees(9)
    with pytest.raises(InputError, match="at least 10 sentences"):
        train_maps(ParsedVectors(trees, path_vectors(trees)), StructuralSettings())
    with pytest.raises(InputError, match="one for each of the"):
        ParsedVectors(trees, path_vectors(trees)[1:])
    with pytest.raises(OptionError, match="distance or depth"):
        StructuralSettings(kind="width")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="'rank' must be at least 1"):
        StructuralSettings(rank=0)
