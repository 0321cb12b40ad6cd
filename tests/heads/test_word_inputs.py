"""Words without a language model."""

from __future__ import annotations

import json

import pytest
import torch

from polyseme.heads import word_inputs
from polyseme.heads.head import Features
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.word_inputs import UNKNOWN, WordInputs, WordInputsConfig, learn_word_inputs
from polyseme.tasks.kinds import build_head

ROWS = [["The", "cat", "saw", "the", "dog"], ["A", "dog", "saw", "Berlin", "in", "1999"], ["ß"]]


def inputs() -> WordInputs:
    torch.manual_seed(0)
    return WordInputs(learn_word_inputs(ROWS, word_width=8, character_width=4, n_filters=6)).double()


def test_a_word_has_one_vector_wherever_it_stands() -> None:
    made = inputs().eval()
    batch = made(made.read(ROWS))
    assert batch.shape == (3, 6, made.width)
    for row, words in enumerate(ROWS):
        alone = made(made.read([words]))
        torch.testing.assert_close(batch[row, : len(words)], alone[0], rtol=0, atol=1e-12)
        assert not batch[row, len(words) :].any()
    longer = made(made.read([["cat"], ["Donaudampfschifffahrt"]]))
    torch.testing.assert_close(longer[0, 0], batch[0, 1], rtol=0, atol=1e-12)


def test_case_is_in_the_characters_and_digits_are_alike_in_the_table() -> None:
    made = inputs().eval()
    numbers = made.read([["The", "the", "1999", "2024", "Madrid"]])
    the, small, year, other, unknown = numbers.words[0].tolist()
    assert the == small and year == other and unknown == UNKNOWN  # noqa: PT018
    vectors = made(numbers)[0]
    assert torch.equal(vectors[0, :8], vectors[1, :8])
    assert not torch.equal(vectors[0, 8:], vectors[1, 8:])


def test_kept_spellings_are_bounded_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = inputs().read(ROWS, longest=7)
    monkeypatch.setattr(word_inputs, "MAX_CACHED_WORDS", 2)
    made = inputs()
    for _ in range(2):
        numbers = vars(made.read(ROWS, longest=7))
        assert all(torch.equal(numbers[name], expected) for name, expected in vars(first).items())
        assert len(made._spellings) <= 2


def test_rare_words_teach_the_unknown_one() -> None:
    made = inputs().train()
    made(made.read(ROWS)).sum().backward()
    assert made.words.weight.grad is not None
    assert made.words.weight.grad[UNKNOWN].any()
    assert not made.words.weight.grad[0].any()


def test_config_comes_back() -> None:
    config = inputs().config
    assert WordInputsConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_baseline_learns_to_tag() -> None:
    torch.manual_seed(0)
    made = WordInputs(learn_word_inputs(ROWS, word_width=20, unknown_rate=0.0, dropout_rate=0.0))
    tags = ("O", "B-LOC", "I-LOC", "B-DATE")
    head = build_head(
        HeadConfig(kind="tag", labels=tags, width=made.width, body="bilstm", crf=True, scheme="BIO", inner_width=10)
    )
    gold = torch.tensor([[0] * 5 + [-100], [0, 0, 0, 1, 0, 3], [0] + [-100] * 5])
    numbers = made.read(ROWS)
    optimizer = torch.optim.Adam([*made.parameters(), *head.parameters()], lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        head.mean_loss(Features(words=made(numbers), mask=numbers.mask), gold).backward()
        optimizer.step()
    head.eval()
    assert head.predict(Features(words=made.eval()(numbers), mask=numbers.mask)).labels[1] == [0, 0, 0, 1, 0, 3]
