"""Skip-gram, CBOW, fastText's n-grams and GloVe: their equations written out, and what is drawn for them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from damage import flip_bit
from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.corpus import cooccurrences
from polyseme.corpus.cooccurrences import Cooccurrences, pairs_of
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import RowOptions
from polyseme.corpus.random_keys import row_keys
from polyseme.encoders.static import StaticConfig
from polyseme.errors import OptionError, PolysemeWarning
from polyseme.objectives.cbow import Cbow
from polyseme.objectives.counted_words import CountedWords
from polyseme.objectives.glove import Glove
from polyseme.objectives.skip_gram import SkipGram
from polyseme.objectives.word_windows import NegativeSampling, n_contexts
from polyseme.text.character_ngrams import CharacterNgrams
from polyseme.types import Rows
from polyseme.verbs.corpus import build_corpus
from references import assert_close

WORDS = ("</s>", "<unk>", "the", "wheel", "heel", "eel", "other", "mother", "moth")
COUNTS = np.array([9, 3, 400, 90, 40, 30, 8, 5, 5])
VOCABULARY = CountedWords(
    n_pieces=len(WORDS),
    specials={"end": 0, "unknown": 1},
    words=WORDS,
    counts=np.where(np.arange(len(WORDS)) < 2, 0, COUNTS),
)
NGRAMS = {"min_ngram": 3, "max_ngram": 4, "n_buckets": 20}
OBJECTIVES = {"skip-gram": SkipGram, "cbow": Cbow}


def told(objective: Any) -> Any:
    return objective.replace(known_vocabulary=VOCABULARY)


def nets_for(objective: Any, ngrams: dict[str, int] | None = None) -> Any:
    """With tables that are far from zero, in float64."""
    torch.manual_seed(3)
    sizes = {"n_words": len(WORDS), "n_pieces": len(WORDS) + (ngrams or {}).get("n_buckets", 0) + 1}
    config = StaticConfig(width=5, **sizes, **(ngrams or {}))
    nets = objective.nets(new_bundle(FAMILIES["static"], config, ())).double()
    for parameter in nets.parameters():
        nn.init.normal_(parameter, std=0.6)
    return nets


def rows(n_rows: int = 3, length: int = 40, seed: int = 0) -> Rows:
    """Words, unknown ones and separators."""
    pieces = np.random.default_rng(seed).integers(0, len(WORDS), (n_rows, length))
    special = pieces == 0
    keys = row_keys(seed, 0, np.arange(n_rows))
    return Rows(pieces=pieces, starts=~special, special=special, keys=keys)


def tensors(objective: Any, read: Rows) -> tuple[dict[str, Tensor], dict[str, float]]:
    example = objective.corrupt(read)
    return {name: torch.from_numpy(each) for name, each in example.arrays.items()}, dict(example.counts)


def gradients(nets: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    nets.zero_grad()
    loss.backward()
    return {name: each.grad.to_dense().clone() for name, each in nets.named_parameters() if each.grad is not None}


def in_window(arrays: dict[str, Tensor], row: int, center: int) -> list[int]:
    """The places of the words around a word that its window reaches."""
    documents, reach = arrays["documents"][row].tolist(), int(arrays["reach"][row, center])
    near = range(max(center - reach, 0), min(center + reach + 1, len(documents)))
    return [place for place in near if place != center and documents[place] == documents[center]]


def written_out(objective: Any, arrays: dict[str, Tensor], inputs: Tensor, outputs: Tensor) -> tuple[Tensor, int]:
    """The loss of the papers, word by word: a noise word counts k / K times for each word that is predicted."""
    loss, n_targets = torch.zeros((), dtype=torch.float64), 0
    share = objective.negatives / objective.shared_negatives
    for row, words in enumerate(arrays["words"].tolist()):
        for place, word in enumerate(words):
            around = in_window(arrays, row, place) if arrays["documents"][row, place] >= 0 else []
            if isinstance(objective, SkipGram):
                pairs = [(inputs[word], words[other]) for other in around]
            else:
                context = [inputs[words[other]] for other in around]
                # The value is the mean and each word's gradient that of the sum.
                total = sum(context[1:], context[0]) if context else None
                pairs = [] if total is None else [(total - (total - total / len(context)).detach(), word)]
            for vector, target in pairs:
                n_targets += 1
                loss = loss - torch.log(torch.sigmoid(outputs[target] @ vector))
                for noise in arrays["noise"][row, place // objective.block].tolist():
                    if noise != target:
                        loss = loss - share * torch.log(torch.sigmoid(-(outputs[noise] @ vector)))
    return loss, n_targets


@pytest.mark.parametrize("name", OBJECTIVES)
def test_loss_and_gradients_are_those_of_the_equations(name: str) -> None:
    objective = told(OBJECTIVES[name](window=3, subsample=0.05, block=4, shared_negatives=6))
    nets = nets_for(objective)
    arrays, counts = tensors(objective, rows())
    loss = objective.loss(nets, arrays).parts[name]
    expected, n_targets = written_out(objective, arrays, nets.table, nets.predicted)
    assert counts == {name: n_targets}
    assert n_targets > 50
    assert_close(loss, expected, 1e-12)
    found, right = gradients(nets, loss), gradients(nets, expected)
    assert found.keys() == right.keys() == {"table", "predicted"}
    for parameter, gradient in right.items():
        assert_close(found[parameter], gradient, 1e-12)


def test_a_word_with_ngrams_is_the_mean_of_its_rows_and_each_gets_the_whole_gradient() -> None:
    """The rows are those that the reader of fastText's files takes."""
    nets = nets_for(told(SkipGram()), NGRAMS)
    words = torch.tensor([[3, 4], [3, 8]])
    ngrams = CharacterNgrams(**NGRAMS)
    weights = torch.randn(2, 2, 5, dtype=torch.float64)
    expected = torch.zeros_like(nets.table)
    found = nets.look_up(words)
    for place in np.ndindex(2, 2):
        word = int(words[place])
        its_rows = [word, *(len(WORDS) + row for row, _, _ in ngrams.of(WORDS[word]))]
        assert_close(found[place], nets.table[its_rows].mean(0), 1e-12)
        for row in its_rows:
            expected[row] += weights[place]
    assert_close(gradients(nets, (found * weights).sum())["table"], expected, 1e-12)


@pytest.mark.parametrize("ngrams", [None, NGRAMS], ids=["words", "ngrams"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_update_in_place_is_one_by_the_gradient_row_after_row(name: str, ngrams: dict[str, int] | None) -> None:
    objective = told(OBJECTIVES[name](window=3, subsample=0.05, block=4, shared_negatives=6))
    moved, stepped = nets_for(objective, ngrams), nets_for(objective, ngrams)
    arrays, _ = tensors(objective, rows())
    rate = 1e-4  # so low that a row is one update
    loss = objective.update(moved, arrays, rate)[name]
    expected = torch.zeros((), dtype=torch.float64)
    for row in range(len(arrays["words"])):
        of_row = objective.loss(stepped, {key: each[row : row + 1] for key, each in arrays.items()}).parts[name]
        for parameter, gradient in gradients(stepped, of_row).items():
            stepped.get_parameter(parameter).data.sub_(rate * gradient)
        expected = expected + of_row.detach()
    assert_close(loss, expected, 1e-12)
    for parameter, each in stepped.named_parameters():
        assert_close(moved.get_parameter(parameter), each, 1e-12)
    assert not torch.equal(moved.table, nets_for(objective, ngrams).table)


@pytest.mark.parametrize(
    ("name", "n_words", "rate", "ngrams"),
    [
        ("skip-gram", 2, 0.1, None),
        ("skip-gram", 60, 0.1, None),
        ("skip-gram", 20, 1.0, None),
        ("cbow", 20, 0.2, None),
        ("skip-gram", 20, 0.2, NGRAMS),
    ],
)
def test_texts_of_few_words_do_not_diverge(name: str, n_words: int, rate: float, ngrams: dict[str, int] | None) -> None:
    """Words come in pairs of neighbors; summed over a row at these rates, the vectors of most of these are infinite."""
    rng = np.random.default_rng(0)
    pieces = 2 + (2 * rng.integers(n_words // 2, size=(30, 128)).repeat(2, 1) + np.arange(256) % 2)
    words = ("</s>", "<unk>", *(f"word{n}" for n in range(n_words)))
    vocabulary = CountedWords(
        n_pieces=len(words),
        specials={"end": 0, "unknown": 1},
        words=words,
        counts=np.bincount(pieces.ravel(), minlength=len(words)),
    )
    objective = OBJECTIVES[name](window=1, subsample=0.0).replace(known_vocabulary=vocabulary)
    n_buckets = (ngrams or {}).get("n_buckets", 0)
    config = StaticConfig(width=20, n_words=len(words), n_pieces=len(words) + n_buckets + 1, **(ngrams or {}))
    nets = objective.nets(new_bundle(FAMILIES["static"], config, ()))
    losses = []
    for row in range(len(pieces)):
        keys = row_keys(0, 0, np.array([row]))
        there = np.zeros((1, 256), np.bool_)
        arrays, counts = tensors(objective, Rows(pieces=pieces[row : row + 1], starts=~there, special=there, keys=keys))
        losses.append(float(objective.update(nets, arrays, rate)[name]) / counts[name])
    assert losses[-1] < losses[0] - 0.2
    assert max(float(each.detach().norm(dim=1).max()) for each in nets.parameters()) < 30


def test_subsampling_and_noise_are_word2vec_s() -> None:
    """word2vec.c: (√(f/t) + 1) · t/f, not the paper's √(t/f); noise by the counts to the power of 0.75."""
    shares = VOCABULARY.counts / 578
    for word in range(2, len(WORDS)):
        f, t = shares[word], 1e-2
        assert VOCABULARY.selection(t)[word] == pytest.approx(min(1.0, (math.sqrt(f / t) + 1) * t / f), rel=1e-12)
        power = sum(float(each) ** 0.75 for each in VOCABULARY.counts[2:])
        assert VOCABULARY.noise(0.75)[word] == pytest.approx(float(VOCABULARY.counts[word]) ** 0.75 / power, rel=1e-12)
    assert VOCABULARY.selection(0.0).tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert not VOCABULARY.noise(0.75)[:2].any()


def test_words_and_noise_are_drawn_by_these_probabilities() -> None:
    objective = told(SkipGram(subsample=0.05, block=8, shared_negatives=200))
    read = rows(200, 256)
    arrays, _ = tensors(objective, read)
    kept = np.bincount(arrays["words"].numpy()[arrays["documents"].numpy() >= 0], minlength=len(WORDS))
    there = np.bincount(read.pieces.ravel(), minlength=len(WORDS))
    assert np.abs(kept / there - VOCABULARY.selection(0.05)).max() < 0.03
    drawn = np.bincount(arrays["noise"].numpy().ravel(), minlength=len(WORDS)) / arrays["noise"].numel()
    assert np.abs(drawn - VOCABULARY.noise(0.75)).max() < 0.01
    reach = arrays["reach"].numpy()[arrays["documents"].numpy() >= 0]
    assert np.abs(np.bincount(reach)[1:] / len(reach) - 0.2).max() < 0.02, "windows shrink at random"


def test_windows_reach_over_what_is_left_out_and_not_over_the_end_of_a_document() -> None:
    pieces = np.array([[3, 1, 4, 0, 5, 6, 1, 7]])
    read = Rows(pieces=pieces, starts=pieces > 0, special=pieces == 0, keys=row_keys(0, 0, np.arange(1)))
    arrays, _ = tensors(told(SkipGram(window=1, subsample=0.0, block=4)), read)
    assert arrays["words"][0].tolist() == [3, 4, 5, 6, 7, 0, 0, 0], "moved together"
    assert [in_window(arrays, 0, place) for place in range(5)] == [[1], [0], [3], [2, 4], [3]]
    assert n_contexts(arrays["documents"].numpy(), arrays["reach"].numpy(), 1).tolist() == [[1, 1, 1, 2, 1, 0, 0, 0]]


def test_a_row_s_draws_depend_on_its_key_alone() -> None:
    objective, read = told(SkipGram(subsample=0.0, block=4)), rows(4)
    arrays, _ = tensors(objective, read)
    alone, _ = tensors(
        objective,
        Rows(pieces=read.pieces[2:3], starts=read.starts[2:3], special=read.special[2:3], keys=read.keys[2:3]),
    )
    for name, array in arrays.items():
        assert torch.equal(array[2], alone[name][0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SkipGram(window=0), "window of 'skip-gram' must be at least 1 word. Got 0"),
        (lambda: Glove(window=0), "window of 'glove' must be at least 1 word. Got 0"),
        (lambda: Cbow(negatives=0), "negatives of 'cbow' must be at least 1. Got 0"),
        (lambda: SkipGram(subsample=-1.0), "subsampling must be 0 or more"),
        (lambda: Glove(x_max=0.0), "x_max must be above 0"),
        (lambda: SkipGram().for_tokenizer(CORPUS_WORDS).words, "needs the counts of a corpus"),
    ],
)
def test_settings_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


class _Words:
    """The least that a vocabulary is read of."""

    n_pieces, specials = 3, {"unknown": 0}

    def frame(self, ids: Any) -> Any:
        return type("FramedRow", (), {"segments": np.zeros(0, np.int64), "offset": 0})


CORPUS_WORDS: Any = _Words()


# --- over a corpus ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    words = np.random.default_rng(1).choice(
        ["a", "b", "c", "dd", "e", "rare1"], (12, 30), p=[0.4, 0.3, 0.1, 0.1, 0.09, 0.01]
    )
    folder.joinpath("text.txt").write_text("\n\n".join(" ".join(document) for document in words), encoding="utf-8")
    options = {"tokenizer": "words", "frame": "lm", "lowercase": True, "min_count": 5, "held_out": 0.2}
    return build_corpus(folder / "text.txt", output=folder / "corpus", **options)


def words_of(corpus: Corpus, split: str) -> list[list[int]]:
    """The words of each document, without unknown ones."""
    shard = corpus.shards(split)[0]
    documents = np.split(np.asarray(shard.pieces, np.int64), shard.ends[:-1])
    return [[int(piece) for piece in each if piece > 1] for each in documents]


def test_cooccurrences_are_those_of_counting_one_by_one(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrences, "BLOCK", 7)
    monkeypatch.setattr(cooccurrences, "PART", 100)
    expected: dict[tuple[int, int], float] = {}
    for document in words_of(corpus, "train"):
        for place, word in enumerate(document):
            for distance in range(1, min(4, place) + 1):
                other = document[place - distance]
                for pair in ((word, other), (other, word)):
                    expected[pair] = expected.get(pair, 0.0) + 1 / distance
    pairs = pairs_of(corpus, 4)
    found = {(int(i), int(j)): float(x) for i, j, x in zip(pairs.first, pairs.second, pairs.weight, strict=True)}
    assert found.keys() == {pair for pair in expected if pair[0] <= pair[1]}
    assert found == pytest.approx({pair: expected[pair] for pair in found}, rel=1e-6)
    assert all(expected[pair] == pytest.approx(expected[pair[::-1]]) for pair in expected)
    weights = np.array(pairs.weight)
    flip_bit(corpus.folder / "cooccurrences" / "window-4" / "weight")
    with pytest.warns(PolysemeWarning, match="damaged .*weight is not as it was written.* counted again"):
        assert (pairs_of(corpus, 4).weight == weights).all()


def test_every_pair_comes_once_in_an_epoch_and_one_in_a_hundred_is_held_out(corpus: Corpus) -> None:
    pairs = cooccurrences.Pairs(*(np.arange(1234, dtype=kind) for kind in ("u4", "u4", "f4")))
    train, held = (pairs.places(split, np.arange(pairs.n_of(split))) for split in ("train", "held"))
    assert sorted([*train, *held]) == list(range(1234))
    assert len(held) == 12
    source = Cooccurrences(window=2).rows(corpus, RowOptions(length=2))
    seen = source.rows(np.arange(source.n_rows))
    assert seen.target is not None
    met = {*zip(seen.pieces.ravel().tolist(), seen.target.pieces.ravel().tolist(), strict=True)}
    assert len(met) == source.n_rows * 2


def test_glove_s_loss_and_gradients_are_those_of_the_equation(corpus: Corpus) -> None:
    objective = Glove(window=3, x_max=20.0).for_corpus(corpus)
    nets = nets_for(objective)
    source = objective.needs.layout.rows(corpus, RowOptions(length=3, split="train"))
    read = source.rows(np.arange(3))
    arrays, counts = tensors(objective, read)
    arrays = {name: torch.from_numpy(np.log(read.weights)) if name == "logs" else each for name, each in arrays.items()}
    assert read.target is not None
    assert read.weights is not None
    expected, n_pairs = torch.zeros((), dtype=torch.float64), 0
    for place in np.ndindex(3, 3):
        i, j, x = int(read.pieces[place]), int(read.target.pieces[place]), float(read.weights[place])
        for one, other in {(i, j), (j, i)}:
            score = nets.table[one] @ nets.context[other] + nets.biases[one, 0] + nets.biases[other, 1]
            expected = expected + 0.5 * min(1.0, (x / 20.0) ** 0.75) * (score - math.log(x)) ** 2
            n_pairs += 1
    loss = objective.loss(nets, arrays).parts["glove"]
    assert counts == {"glove": n_pairs}
    assert_close(loss, expected, 1e-6)  # what a step reads of f(x) is in single precision
    found, right = gradients(nets, loss), gradients(nets, expected)
    for name, gradient in right.items():
        assert_close(found[name], gradient, 1e-6)


@pytest.mark.parametrize("objective", [SkipGram(subsample=0.05), Cbow(subsample=0.05)], ids=["skip-gram", "cbow"])
def test_the_baseline_is_the_loss_of_scores_by_frequency(objective: NegativeSampling, corpus: Corpus) -> None:
    """The expected loss of s(w) = log p(w) / (k q(w) (1 - p(w))), summed up word by word."""
    bound = objective.for_corpus(corpus)
    words = bound.words
    keep, q = words.selection(0.05), words.noise(0.75)
    train = [(corpus.piece_counts("train")[word] * keep[word] + 0.5) for word in range(2, corpus.tokenizer.n_pieces)]
    held = [corpus.piece_counts("held")[word] * keep[word] for word in range(2, corpus.tokenizer.n_pieces)]
    expected = 0.0
    p = [each / sum(train) for each in train]
    scores = [math.log(p[w] / (5 * q[2 + w] * (1 - p[w]))) for w in range(len(p))]
    for target, share in enumerate(each / sum(held) for each in held):
        noise = sum(5 * q[2 + w] * math.log1p(math.exp(scores[w])) for w in range(len(p)) if w != target)
        expected += share * (math.log1p(math.exp(-scores[target])) + noise)
    assert bound.baseline(nets_for(bound), corpus, 10**9) == pytest.approx(expected, rel=1e-9)


def test_a_vocabulary_of_one_word_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("text.txt").write_text("word word word\n\nword word", encoding="utf-8")
    corpus = build_corpus(tmp_path / "text.txt", output=tmp_path / "corpus", tokenizer="words", frame="lm", held_out=0)
    bundle: Any = Bundle
    with pytest.raises(OptionError, match="The vocabulary has 1 word, and"):
        SkipGram().for_corpus(corpus).refuse(bundle)
