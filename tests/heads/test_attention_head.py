"""The head `attention` equals its equations: κ = Σ softmax(h · hⱼ) hⱼ and h̃ = tanh(W [κ; h]), word by word."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from polyseme.heads.head import Features
from polyseme.heads.head_config import HeadConfig, named_settings
from polyseme.tasks.kinds import build_head

WIDTH, INNER, LENGTHS, OTHERS = 5, 3, (4, 6), (2, 5)


def combined(head: Any, h: Tensor, keys: list[Tensor]) -> Tensor:
    """h̃ of one word, by a loop over what it sees."""
    body = head.text.body.body
    scores = torch.tensor([float(h @ key) for key in keys], dtype=torch.float64)
    alphas = torch.exp(scores) / torch.exp(scores).sum()
    kappa = torch.zeros_like(h)
    for alpha, key in zip(alphas, keys, strict=True):
        kappa = kappa + alpha * key
    return torch.tanh(body.combine.weight @ torch.cat([kappa, h]))


def made(kind: str, readout: str, *, two_texts: bool) -> Any:
    torch.manual_seed(3)
    config = HeadConfig(
        kind=kind, labels=("a", "b", "c"), width=WIDTH, inner_width=INNER, readout=readout,  # type: ignore[arg-type]
        separate_rows=two_texts, **named_settings("attention"),
    )  # fmt: skip
    head = build_head(config).double().eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return head


def drawn(lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Words, with numbers at the padding too, and their mask."""
    words = torch.randn(len(lengths), max(lengths) + 1, WIDTH, dtype=torch.float64)
    return words, torch.arange(words.shape[1]) < torch.tensor(lengths)[:, None]


def test_the_last_word_attends_to_the_others() -> None:
    """y = W' h̃ + b of the last word, the classifier of the lecture."""
    head = made("classify", "last", two_texts=False)
    words, mask = drawn(LENGTHS)
    scores = head(Features(words=words, mask=mask))
    last = head.text.scores[-1]
    for row, length in enumerate(LENGTHS):
        *others, h = words[row, :length]
        expected = last.weight @ combined(head, h, others) + last.bias
        torch.testing.assert_close(scores[row], expected, rtol=1e-10, atol=1e-12)


def test_the_words_of_two_texts_attend_to_each_other() -> None:
    head = made("pair", "mean", two_texts=True)
    (words, mask), (second, second_mask) = drawn(LENGTHS), drawn(OTHERS)
    scores = head(Features(words=words, mask=mask, second=second, second_mask=second_mask))
    last = head.text.scores[-1]
    for row, (length, other_length) in enumerate(zip(LENGTHS, OTHERS, strict=True)):
        one, other = list(words[row, :length]), list(second[row, :other_length])
        u = torch.stack([combined(head, h, other) for h in one]).mean(0)
        v = torch.stack([combined(head, h, one) for h in other]).mean(0)
        expected = last.weight @ torch.cat([u, v, (u - v).abs(), u * v]) + last.bias
        torch.testing.assert_close(scores[row], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_a_word_alone_attends_to_nothing(readout: str) -> None:
    head = made("classify", readout, two_texts=False)
    words, mask = drawn((1,))
    h = words[0, 0]
    expected = torch.tanh(head.text.body.body.combine.weight @ torch.cat([torch.zeros_like(h), h]))
    last = head.text.scores[-1]
    scores = head(Features(words=words, mask=mask))[0]
    torch.testing.assert_close(scores, last.weight @ expected + last.bias, rtol=1e-10, atol=1e-12)
