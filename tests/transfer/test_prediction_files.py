"""What is said of a text, as a record."""

from __future__ import annotations

import torch

from polyseme.heads.head import Features
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.tag_head import TagHead
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.predictions import Judgment


def test_the_probability_of_a_tag_is_that_of_the_tag_which_is_given() -> None:
    """In a CRF the likeliest sequence need not have the likeliest tag at each word."""
    config = HeadConfig(kind="tag", labels=("A", "B", "C"), width=3, crf=True)
    head = TagHead(config).eval()
    assert head.chain is not None
    with torch.no_grad():  # A A is the best sequence, and at the first word B is likelier, which goes on in two ways
        for each in head.parameters():
            each.zero_()
        head.chain.first.copy_(torch.tensor([0.0, 0.0, -9.0]))
        head.chain.between.copy_(torch.tensor([[0.5, -9.0, -9.0], [-9.0, 0.2, 0.2], [0.0, 0.0, 0.0]]))
    said = head.predict(Features(words=torch.zeros(1, 2, 3), mask=torch.ones(1, 2, dtype=torch.bool)))
    assert said.probabilities is not None
    tags, shares = tuple(config.labels[number] for number in said.labels[0]), said.probabilities[0]
    assert tags == ("A", "A")
    assert shares[0].argmax() == 1
    found = KINDS["tag"].prediction(config, Item.of_words(["one", "two"]), Judgment(tags, list(shares)))
    assert found.probability == [float(share[0]) for share in shares]
