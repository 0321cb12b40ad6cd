"""Which head follows which relation: against a plain loop over the reference's attention, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertModel

import polyseme
from cli.commands import Refuse
from cli.conftest import refuse, run  # noqa: F401 - fixtures
from polyseme.analysis.attention_heads import AttentionHeads, find_heads, paired_error
from polyseme.analysis.dependency_trees import Tree, Treebank, read_trees
from polyseme.analysis.head_counts import HeadTarget, relation_counts
from polyseme.analysis.word_attention import SentenceAttention, from_words, piece_membership, to_words
from polyseme.api import Model
from polyseme.pruning.head_removal import AttentionPlace, HeadPlace, without_heads
from tiny_models import TEXT, tiny_model

RELATIONS = ("obj", "det", "obl", "obl:tmod", "punct")
SPECIALS = ("[CLS]", "[SEP]")


def random_trees(n: int, seed: int) -> list[Tree]:
    """Sentences with any short words, and any trees."""
    rng = random.Random(seed)
    words = [word for word in TEXT.split() if len(word) < 6]
    trees = []
    for number in range(n):
        length = rng.randint(1, 7)
        order = rng.sample(range(1, length + 1), length)  # the root first, every other below one before it
        heads = {word: rng.choice(order[:place]) if place else 0 for place, word in enumerate(order)}
        relations = ["root" if not heads[word] else rng.choice(RELATIONS) for word in range(1, length + 1)]
        chosen = tuple(rng.choice(words) for _ in range(length))
        tree = Tree(chosen, tuple(heads[word] for word in range(1, length + 1)), tuple(relations), chosen, str(number))
        trees.append(tree)
    return trees


def conllu(trees: Sequence[Tree]) -> str:
    """The trees as a file."""
    sentences = []
    for tree in trees:
        columns = zip(tree.words, tree.heads, tree.relations, strict=True)
        lines = [
            f"{at}\t{w}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_" for at, (w, head, relation) in enumerate(columns, 1)
        ]
        sentences.append("\n".join(lines) + "\n\n")
    return "".join(sentences)


@pytest.fixture(scope="module")
def bert() -> Model:
    model = tiny_model("bert")
    model.bundle.double()
    return model


@pytest.fixture(scope="module")
def treebank() -> Treebank:
    return Treebank(random_trees(40, 1), random_trees(30, 2), "random trees")


@pytest.fixture(scope="module")
def found(bert: Model, treebank: Treebank) -> AttentionHeads:
    return find_heads(bert.bundle, treebank, model="tiny", relations=["obj", "obl", "obl:tmod", "punct", "all"])


# --- a plain loop over the reference's attention ----------------------------------------------------------------------


class Plain:
    """The same in plain loops, over the attention of `transformers`."""

    def __init__(self, model: Model, folder: Path) -> None:
        model.save(folder)
        self.reference = BertModel.from_pretrained(folder, attn_implementation="eager").double().eval()
        self.tokenizer = model.bundle.text_tokenizer

    def words(self, tree: Tree) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[heads, W, W] between words, [heads, W, 2] to the specials, [heads, W] entropies."""
        pieces = self.tokenizer.encode(tree.document())
        ids = self.tokenizer.frame(pieces.ids).ids
        with torch.no_grad():
            output = self.reference(torch.from_numpy(ids)[None], output_attentions=True)
        layers = torch.cat([each[0] for each in output.attentions]).numpy()
        n, spans = len(tree), pieces.words + 1
        between, special, entropy = (
            np.zeros((len(layers), n, n)),
            np.zeros((len(layers), n, 2)),
            np.zeros((len(layers), n)),
        )
        for place, weights in enumerate(layers):
            for i, (first, last) in enumerate(spans):
                rows = [weights[piece] for piece in range(first, last + 1)]
                for j, (start, end) in enumerate(spans):
                    between[place, i, j] = np.mean([sum(row[start : end + 1]) for row in rows])
                special[place, i] = np.mean([[row[0], row[-1]] for row in rows], axis=0)
                entropy[place, i] = np.mean([-sum(w * np.log(w) for w in row if w > 0) for row in rows])
        return between, special, entropy

    def answers(self, trees: Sequence[Tree], key: HeadTarget) -> Iterator[tuple[int, set[int], list[int]]]:
        """A word, those that the relation leads to, and the most attended word of each head."""
        for tree in trees:
            targets: dict[int, set[int]] = {}
            for dependent, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
                fits = relation == key.relation or relation.split(":")[0] == key.relation
                fits = fits or (key.relation == "all" and relation != "punct")
                if head and fits:
                    source, target = (dependent, head - 1) if key.direction == "to head word" else (head - 1, dependent)
                    targets.setdefault(source, set()).add(target)
            if not targets:
                continue
            between, _, _ = self.words(tree)
            for source, right in targets.items():
                others = [place for place in range(len(tree)) if place != source]
                yield source, right, [max(others, key=lambda place: head[source, place]) for head in between]


def test_heads_and_offsets_equal_a_plain_loop(
    bert: Model, treebank: Treebank, found: AttentionHeads, tmp_path: Path
) -> None:
    plain = Plain(bert, tmp_path / "model")
    assert len(found.relations) == 10
    for each in found.relations:
        key = HeadTarget(each.relation, each.direction)
        train = list(plain.answers(treebank.train, key))
        right = np.array([[word in targets for word in most] for _, targets, most in train]).mean(0)
        best = int(right.argmax())
        offsets = Counter(target - source for source, targets, _ in train for target in targets)
        assert offsets[each.offset] == max(offsets.values())
        assert found.places[best] == (each.layer, each.head)
        assert each.train_accuracy == pytest.approx(right[best])
        test = list(plain.answers(treebank.test, key))
        by_head = np.array([most[best] in targets for _, targets, most in test])
        by_offset = np.array([source + each.offset in targets for source, targets, _ in test])
        assert (each.n, each.accuracy, each.offset_accuracy) == pytest.approx(
            (len(test), by_head.mean(), by_offset.mean())
        )
        spread = (by_head.astype(float) - by_offset).std() / np.sqrt(len(test))
        assert each.difference_error == pytest.approx(spread)
        assert each.error == pytest.approx(by_head.std() / np.sqrt(len(test)))
        everywhere = np.array([[word in targets for word in most] for _, targets, most in test]).mean(0)
        np.testing.assert_allclose(found.accuracies[key], everywhere)


def test_habits_equal_a_plain_loop(bert: Model, treebank: Treebank, found: AttentionHeads, tmp_path: Path) -> None:
    plain = Plain(bert, tmp_path / "model")
    values: dict[str, list[Any]] = {name: [] for name in found.habits}
    for tree in treebank.test:
        between, special, entropy = plain.words(tree)
        for word in range(len(tree)):
            values["itself"].append(between[:, word, word])
            values["entropy"].append(entropy[:, word])
            for number, name in enumerate(SPECIALS):
                values[name].append(special[:, word, number])
            others = between[:, word].copy()
            others[:, word] = -1
            if word > 0:
                values["first word"].append(between[:, word, 0])
                values["previous"].append(others.argmax(-1) == word - 1)
            if word + 1 < len(tree):
                values["next"].append(others.argmax(-1) == word + 1)
    for name, each in found.habits.items():
        np.testing.assert_allclose(each, np.mean(values[name], axis=0), atol=1e-12, err_msg=name)


@pytest.mark.parametrize("family", ["gpt2", "t5", "xlnet", "modernbert", "albert"])
def test_what_words_give_to_words_and_to_pieces_of_none_is_one(family: str) -> None:
    reader = SentenceAttention(tiny_model(family).bundle)
    trees = random_trees(6, 3)
    for batch in reader([tree.document() for tree in trees]):
        there = batch.spans[..., 0] >= 0
        outside = ~piece_membership(batch.spans, batch.specials.shape[1]).any(1)
        assert outside[batch.specials >= 0].all()
        for weights in batch.weights:
            beside = from_words(weights @ outside.to(weights.dtype)[:, None, :, None], batch.spans)[..., 0]
            given = (to_words(weights, batch.spans).sum(-1) + beside).transpose(1, 2)[there]
            torch.testing.assert_close(given, torch.ones_like(given))
    assert reader.tally.words == sum(map(len, trees))


def test_a_causal_model_follows_nothing_to_the_right(treebank: Treebank) -> None:
    found = find_heads(tiny_model("gpt2").bundle, treebank, model="tiny", relations=["det"])
    assert not any(found.habits["next"])
    assert any("from left to right" in note for note in found.notes)
    rightward = Tree(("The", "vase"), (2, 0), ("det", "root"), ("X", "X"))
    only = find_heads(tiny_model("gpt2").bundle, Treebank([rightward], [rightward], ""), model="", relations=["det"])
    assert [(each.direction, each.accuracy) for each in only.relations] == [
        ("to head word", 0.0),
        ("to dependent", 1.0),
    ]


def test_a_pruned_model_keeps_the_numbers_of_its_heads(treebank: Treebank) -> None:
    whole = tiny_model("bert").bundle
    pruned = without_heads(whole, [HeadPlace(AttentionPlace("encoder", 0), 0)])
    found = find_heads(pruned, treebank, model="tiny", relations=["obj"])
    assert (1, 0) not in found.places
    assert (1, 1) in found.places
    first, other = (SentenceAttention(each) for each in (whole, pruned))
    assert [place for place in first.heads if place != (1, 0)] == other.heads


def test_sentences_beyond_the_window_are_counted(bert: Model, treebank: Treebank) -> None:
    long = Tree(("broke",) * 60, (0, *range(1, 60)), ("root", *["obj"] * 59), ("X",) * 60)
    found = find_heads(bert.bundle, Treebank([*treebank.train, long], treebank.test, ""), model="", relations=["obj"])
    assert any("1 of 71 sentences" in note for note in found.notes)


def test_relations_are_those_that_are_frequent_enough(bert: Model, treebank: Treebank) -> None:
    found = find_heads(bert.bundle, treebank, model="tiny", min_count=20)
    names = list(dict.fromkeys(each.relation for each in found.relations))
    counts = [relation_counts(trees) for trees in (treebank.train, treebank.test)]
    assert names[:2] == ["all", "obl"]
    assert {*names} == {n for n in ("all", "obl", "obj", "det") if min(each[n] for each in counts) >= 20}
    assert len(names) < 4


def test_the_error_of_a_difference_is_that_of_pairs() -> None:
    first, second = np.array([1, 1, 0, 1, 0, 0, 1.0]), np.array([0, 1, 0, 0, 1, 0, 0.0])
    assert paired_error(3, 1, 7) == pytest.approx((first - second).std() / np.sqrt(7))
    assert paired_error(1, 0, 1) is None


# --- the verb ---------------------------------------------------------------------------------------------------------


def test_the_verb_writes_a_page_with_inert_text(bert: Model, treebank: Treebank, tmp_path: Path) -> None:
    hostile = Tree(("a", "b"), (0, 1), ("root", "<script>x"), ("X", "X"))
    file, texts = tmp_path / "mine.conllu", tmp_path / "held.txt"
    file.write_text(conllu([*treebank.test, hostile, hostile]), encoding="utf-8")
    texts.write_text(TEXT, encoding="utf-8")
    assert read_trees(file)[0].heads == treebank.test[0].heads
    names = ["obj", "<script>x"]
    model = tiny_model("bert")
    found = polyseme.attention_heads(file, model=model, relations=names, importance=texts, output=tmp_path / "h.html")
    page = (tmp_path / "h.html").read_text(encoding="utf-8")
    assert "<script>x" not in page
    assert "&lt;script&gt;x" in page
    assert "Importance" in page
    assert all(value >= 0 for value in found.habits["importance"])
    squares = [
        sum(v**2 for v, (at, _) in zip(found.habits["importance"], found.places, strict=True) if at == layer)
        for layer in (1, 2, 3)
    ]
    assert squares == pytest.approx([1.0] * 3)
    assert [record["layer"] for record in found.head_records()] == [layer for layer, _ in found.places]
    assert found.to_json()["heads"] == found.head_records()
    assert "16 sentences" in found.data


GOOD = "1\tDawn\t_\tX\t_\t_\t2\tnsubj\t_\t_\n2\tbroke\t_\tX\t_\t_\t0\troot\t_\t_\n\n"
BAD: dict[str, tuple[str, list[str], list[str]]] = {
    "a relation that does not occur": (GOOD * 2, ["--relations", "nsbj"], ["'nsbj'", "nsubj"]),
    "the root": (GOOD * 2, ["--relations", "root"], ["leads to no word"]),
    "a relation in one half only": (
        GOOD + GOOD.replace("nsubj", "obj"),
        ["--relations", "obj"],
        ["0 times in the sentences for selection", "1 times in"],
    ),
    "one sentence": (GOOD, [], ["one sentence", "--train"]),
    "too rare": (GOOD * 2, [], ["--min-count", "nsubj"]),
    "no head words": (GOOD.replace("\t2\tnsubj", "\t_\tnsubj"), [], ["'Dawn'", "line 1", "HEAD"]),
    "a head word beyond the sentence": (GOOD.replace("\t2\tnsubj", "\t3\tnsubj"), [], ["from 1 to 2"]),
    "a circle": (GOOD.replace("\t0\troot", "\t1\troot"), [], ["form a cycle"]),
    "only long sentences": (
        "".join(f"{n}\tbroke\t_\tX\t_\t_\t{n - 1}\tobj\t_\t_\n" for n in range(1, 61)) * 1 + "\n",
        ["--relations", "obj", "--train", "TREES"],
        ["longer than the 40 pieces"],
    ),
    "another output": (GOOD * 2, ["-o", "heads.png"], [".html"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(refuse: Refuse, tmp_path_factory: pytest.TempPathFactory, tiny: Path, case: str) -> None:  # noqa: F811
    content, options, said = BAD[case]
    folder = tmp_path_factory.mktemp("heads")
    file = folder / "trees.conllu"
    file.write_text(content, encoding="utf-8")
    output = [] if "-o" in options else ["-o", folder / "heads.html"]
    message = refuse("heads", file, "-m", tiny, *(file if o == "TREES" else o for o in options), *output, folder=folder)
    assert all(words in message for words in said), message


def test_a_task_without_trees_and_a_model_without_attention_are_refused(
    refuse: Refuse,  # noqa: F811
    tmp_path: Path,
    tiny: Path,
) -> None:
    file = tmp_path / "trees.conllu"
    file.write_text(GOOD * 2, encoding="utf-8")
    elmo = tmp_path / "elmo"
    tiny_model("elmo").save(elmo)
    assert "cells" in refuse("heads", file, "-m", elmo, folder=tmp_path)
    assert "no treebank" in refuse("heads", "rte", "--data", tmp_path, "-m", tiny, folder=tmp_path)
    assert "'ud-ewt'" in refuse("heads", "ud-etw", "--data", tmp_path, "-m", tiny, folder=tmp_path)
    assert "needs its data" in refuse("heads", "ud-ewt", "-m", tiny, folder=tmp_path)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tiny_model("bert").save(folder)
    return folder
