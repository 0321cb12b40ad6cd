"""Samples of training items: nested, stratified, with every class, other ones for each seed; bad shares are refused."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import InputError, OptionError
from polyseme.tasks.items import Item, labels_in
from polyseme.tasks.train_samples import TrainSamples, TrainShare, train_shares

REVIEWS = [Item(text=str(number), gold="good" if number % 4 else "bad") for number in range(400)]


def samples(shares: str, items: list[Item], seeds: tuple[int, ...] = (0,)) -> TrainSamples:
    return TrainSamples.of(train_shares(shares), items, seeds, "reviews")


def test_small_samples_are_in_large_ones_and_each_seed_has_its_own() -> None:
    drawn = samples("10%,1%,100,100%", REVIEWS, (0, 1))
    assert drawn.sizes == {"1%": 4, "10%": 40, "100": 100, "100%": 400}
    for seed in (0, 1):
        nested = [{item.text for item in drawn.items(REVIEWS, share, seed)} for share in drawn.sizes]
        assert all(small < large for small, large in itertools.pairwise(nested))
        assert drawn.items(REVIEWS, "100%", seed) == tuple(REVIEWS), "all, in the order of the data"
    assert drawn.items(REVIEWS, "10%", 0) != drawn.items(REVIEWS, "10%", 1)
    assert drawn == samples("10%,1%,100,100%", REVIEWS, (0, 1))


@given(st.lists(st.sampled_from("aaaaaabbbc"), min_size=12, max_size=80), st.integers(0, 99), st.data())
def test_every_class_has_its_share_and_one_item_at_least(labels: list[str], seed: int, data: st.DataObject) -> None:
    items = [Item(text=str(number), gold=label) for number, label in enumerate(labels)]
    counts = Counter(labels)
    size = data.draw(st.integers(len(counts), len(items)))
    drawn = samples(str(size), items, (seed,)).items(items, str(size), seed)
    found = Counter(item.gold for item in drawn)
    assert len(drawn) == size
    for label, count in counts.items():
        assert found[label] >= 1
        assert abs(found[label] - size * count / len(items)) <= len(counts)


def test_every_tag_is_in_the_smallest_sample() -> None:
    tagged = [Item.of_words(["a", "b"], gold=("O", "X" if number == 7 else "O")) for number in range(50)]
    tagged += [Item.of_words(["a"], gold=("Y",))]
    drawn = samples("2", tagged).items(tagged, "2", 0)
    assert {label for item in drawn for label in labels_in(item)} == {"O", "X", "Y"}
    with pytest.raises(InputError, match=r"takes 2\. The smallest that works is 2 \(3\.93%\)"):
        samples("1", tagged)


def test_scores_are_taken_from_all_of_their_range() -> None:
    scored = [Item(text=str(number), gold=number / 100) for number in range(100)]
    drawn = samples("10", scored).items(scored, "10", 0)
    assert sorted(int(10 * item.gold) for item in drawn) == list(range(10))


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ("1%,many", "a share of the training items with a percent sign, or a whole number of them.*Got 'many'"),
        ("0.5", "Got '0.5'"),
        ("1%,,2%", "Got ''"),
        ("120%", "at most 100%.*Got '120%'"),
        ("0", "above 0. Got '0'"),
        ("nan%", "above 0. Got 'nan%'"),
        ("-3%", "above 0. Got '-3%'"),
        ("1%,1%", "'1%' is listed twice"),
        ((), "is empty"),
    ],
)
def test_shares_that_are_none(shares: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        train_shares(shares)


def test_shares_that_do_not_fit_the_data() -> None:
    with pytest.raises(InputError, match=r"401 is more items than reviews has to train with: 400\. Name at most 400"):
        samples("401", REVIEWS)
    with pytest.raises(InputError, match=r"0\.3% is 1 of the 400 .* takes 2\. The smallest that works is 2 \(0\.5%\)"):
        samples("0.3%", REVIEWS)
    assert samples("0.5%,2", REVIEWS).sizes == {"0.5%": 2}, "the same items are not learned twice"
    assert TrainShare.parse("33.3%").size(10) == 3
