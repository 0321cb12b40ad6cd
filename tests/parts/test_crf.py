"""The chain equals the enumeration of all its paths."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from polyseme.errors import ModelError
from polyseme.parts.crf import FORBIDDEN, NO_TAG, LinearChain, allowed_transitions

TAGS = {
    None: ("NOUN", "VERB", "DET"),
    "BIO": ("O", "B-X", "I-X", "B-Y", "I-Y"),
    "IOB1": ("O", "B-X", "I-X", "I-Y"),
    "BIOES": ("O", "B-X", "I-X", "E-X", "S-X"),
}
LENGTHS = (4, 1, 3, 0, 2)
every_scheme = pytest.mark.parametrize("scheme", TAGS, ids=str)


def chain(scheme: str | None) -> LinearChain:
    made = LinearChain(TAGS[scheme], scheme).double()
    generator = torch.Generator().manual_seed(3)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=1.5, generator=generator)
    return made


def rows(scheme: str | None, n_words: int = max(LENGTHS)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    scores = 2 * torch.randn(len(LENGTHS), max(LENGTHS), len(TAGS[scheme]), dtype=torch.float64, generator=generator)
    padded = torch.full((len(LENGTHS), n_words, len(TAGS[scheme])), 99.0, dtype=torch.float64)
    padded[:, : max(LENGTHS)] = scores
    return padded, torch.arange(n_words) < torch.tensor(LENGTHS)[:, None]


def paths(made: LinearChain, scores: Tensor, length: int, scheme: str | None) -> dict[tuple[int, ...], Tensor]:
    """Every sequence that the scheme allows, with its score, by the equation."""
    tags = TAGS[scheme]
    found = {}
    for path in itertools.product(range(len(tags)), repeat=length):
        if scheme is not None and not valid([tags[tag] for tag in path], scheme):
            continue
        score = made.first[path[0]] + made.last[path[-1]] if path else torch.zeros((), dtype=torch.float64)
        score = score + sum(scores[word, tag] for word, tag in enumerate(path))
        found[path] = score + sum(made.between[a, b] for a, b in itertools.pairwise(path))
    return found


def valid(tags: list[str], scheme: str) -> bool:
    """Whether writing the spans of a sequence again gives the sequence: independent of any table of transitions."""
    spans, start = [], None
    for place, tag in enumerate([*tags, "O"]):
        mark, _, kind = tag.partition("-")
        before = tags[place - 1].partition("-") if place else ("O", "", "")
        fresh = mark in "BS" or (mark != "O" and (before[0] in "OES" or before[2] != kind))
        if start is not None and (fresh or mark == "O"):
            spans.append((start, place, tags[start].partition("-")[2]))
            start = None
        if fresh:
            start = place
    return written(spans, len(tags), scheme) == tags


def written(spans: list[tuple[int, int, str]], n_words: int, scheme: str) -> list[str]:
    tags = ["O"] * n_words
    for start, end, kind in spans:
        beside = start > 0 and tags[start - 1].endswith(f"-{kind}")
        for place in range(start, end):
            mark = "I" if scheme == "IOB1" and not (place == start and beside) else "B" if place == start else "I"
            tags[place] = f"{mark}-{kind}"
        if scheme == "BIOES":
            tags[end - 1] = f"S-{kind}" if end == start + 1 else f"E-{kind}"
    return tags


@every_scheme
@torch.no_grad()
def test_equals_the_enumeration_of_all_paths(scheme: str | None) -> None:
    made, (scores, mask) = chain(scheme), rows(scheme)
    partition = made.log_partition(scores, mask)
    tags, best = made.best_path(scores, mask)
    marginals = made.marginals(scores, mask)
    for row, length in enumerate(LENGTHS):
        every = paths(made, scores[row], length, scheme)
        values = torch.stack(list(every.values()))
        assert abs(partition[row] - torch.logsumexp(values, 0)) < 1e-10
        top = max(every, key=lambda path: float(every[path]))
        assert tags[row].tolist() == [*top, *[NO_TAG] * (mask.shape[1] - length)]
        assert abs(best[row] - every[top]) < 1e-10
        expected = torch.zeros_like(marginals[row])
        for path, share in zip(every, torch.softmax(values, 0), strict=True):
            for word, tag in enumerate(path):
                expected[word, tag] += share
        assert (marginals[row] - expected).abs().max() < 1e-10
        for path, score in every.items():
            gold = torch.zeros_like(mask[row], dtype=torch.long)
            gold[:length] = torch.tensor(path, dtype=torch.long)
            one = slice(row, row + 1)
            assert abs(made.path_score(scores[one], mask[one], gold[None])[0] - score) < 1e-10


@every_scheme
def test_gradients(scheme: str | None) -> None:
    made, (scores, mask) = chain(scheme), rows(scheme)
    gold, _ = made.best_path(torch.randn_like(scores), mask)

    def loss(scores: Tensor, *_: Tensor) -> Tensor:
        return made.loss(scores, mask, gold)

    assert torch.autograd.gradcheck(loss, (scores.requires_grad_(), made.first, made.between, made.last))
    partition = made.log_partition(scores, mask).sum()
    (gradient,) = torch.autograd.grad(partition, scores)
    assert (gradient - made.marginals(scores, mask)).abs().max() < 1e-10


@every_scheme
def test_padding_and_neighbors_change_nothing(scheme: str | None) -> None:
    made, (scores, mask) = chain(scheme), rows(scheme)
    wider, wider_mask = rows(scheme, n_words=9)
    order = torch.tensor([3, 0, 4, 2, 1])
    gold, _ = made.best_path(-scores, mask)
    wider_gold = torch.full(wider_mask.shape, -100)
    wider_gold[:, : gold.shape[1]] = gold
    assert torch.equal(
        made.loss(scores, mask, gold)[order], made.loss(wider[order], wider_mask[order], wider_gold[order])
    )
    assert torch.equal(made.best_path(scores, mask)[0], made.best_path(wider, wider_mask)[0][:, : scores.shape[1]])
    assert torch.equal(made.marginals(scores, mask), made.marginals(wider, wider_mask)[:, : scores.shape[1]])
    for row, length in enumerate(LENGTHS):
        alone = made.loss(scores[row, None, :length], mask[row, None, :length], gold[row, None, :length])
        assert abs(alone - made.loss(scores, mask, gold)[row]) < 1e-12


def test_broken_gold_costs_much_but_not_everything() -> None:
    made, (scores, mask) = chain("BIO"), rows("BIO")
    gold = torch.full(mask.shape, 2)  # I-X at the beginning
    loss = made.loss(scores, mask, gold)
    assert torch.isfinite(loss).all()
    assert (loss[torch.tensor(LENGTHS) > 0] > -FORBIDDEN / 2).all()


def test_something_is_decoded_where_nothing_is_allowed() -> None:
    made = LinearChain(["B-X"], "BIOES")
    tags, _ = made.best_path(torch.zeros(1, 2, 1), torch.ones(1, 2, dtype=torch.bool))
    assert tags.tolist() == [[0, 0]]


def test_half_precision_is_summed_in_full() -> None:
    made = LinearChain(TAGS[None])
    scores = torch.randn(2, 50, 3).bfloat16()
    mask = torch.ones(2, 50, dtype=torch.bool)
    assert torch.equal(made.log_partition(scores, mask), made.log_partition(scores.float(), mask))


# torch.compile itself makes an instance of every autograd function that it traces, and warns of that
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiles_whole() -> None:
    made, (scores, mask) = chain("BIO"), rows("BIO")
    gold, _ = made.best_path(scores, mask)
    for method, arguments in ((made.loss, (scores, mask, gold)), (made.best_path, (scores, mask))):
        compiled = torch.compile(method, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(*arguments), method(*arguments), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", [scheme for scheme in TAGS if scheme is not None])
def test_tables_agree_with_spans_written_out(scheme: str) -> None:
    between, first, last = allowed_transitions(TAGS[scheme], scheme)
    for length in (1, 2, 3, 4):
        for path in itertools.product(range(len(TAGS[scheme])), repeat=length):
            by_table = bool(
                first[path[0]] and last[path[-1]] and all(between[a, b] for a, b in itertools.pairwise(path))
            )
            assert by_table == valid([TAGS[scheme][tag] for tag in path], scheme)


@pytest.mark.parametrize("scheme", [scheme for scheme in TAGS if scheme is not None])
def test_tags_without_types_follow_each_other_as_those_of_one_type(scheme: str) -> None:
    of_one = sorted({"O", *(tag for tag in TAGS[scheme] if tag.endswith("-X"))})
    without = [tag.removesuffix("-X") for tag in of_one]
    for mine, theirs in zip(allowed_transitions(without, scheme), allowed_transitions(of_one, scheme), strict=True):
        assert torch.equal(mine, theirs)


def test_refuses_tags_of_no_scheme() -> None:
    with pytest.raises(ModelError, match="'NOUN' is not one of scheme BIO"):
        LinearChain(["O", "NOUN"], "BIO")
    with pytest.raises(ModelError, match="Did you mean 'BIOES'"):
        LinearChain(["O"], "BIOE")
