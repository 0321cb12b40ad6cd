"""Spans: the best of all pairs; windows joined; no answer."""

from __future__ import annotations

import math

import pytest
import torch

from polyseme.heads.head import Features
from polyseme.heads.head_config import HeadConfig
from polyseme.heads.span_head import Span, Spans, join_windows
from polyseme.tasks.kinds import build_head


@pytest.mark.parametrize("longest", [1, 3, 30])
@torch.no_grad()
def test_finds_the_best_of_all_allowed_pairs(longest: int) -> None:
    torch.manual_seed(1)
    config = HeadConfig(kind="span", width=4, init_std=1.0, longest_answer=longest, n_best=5)
    head = build_head(config).double().eval()
    mask = torch.arange(8) < torch.tensor([8, 5, 3])[:, None]
    passage = torch.arange(8).expand(3, 8) >= torch.tensor([2, 0, 3])[:, None]
    given = Features(words=torch.randn(3, 8, 4).double(), mask=mask, passage=passage)
    scores = head(given)[:, 1:]
    for row, spans in enumerate(head.predict(given).labels):
        allowed = [word for word in range(8) if mask[row, word] and passage[row, word]]
        every = [
            (float(scores[row, start, 0] + scores[row, end, 1]), start, end)
            for start in allowed
            for end in allowed
            if start <= end < start + longest
        ]
        expected = sorted(every, reverse=True)[:5]
        assert [(span.start, span.end) for span in spans.best] == [(start, end) for _, start, end in expected]
        assert spans.none == pytest.approx(float(head(given)[row, 0].sum()))
        answer = spans.answer(no_answer=False)
        assert (answer is None) == (not expected)


def test_windows_are_joined_by_their_places_in_the_passage() -> None:
    first = Spans(best=(Span(3, 4, 5.0), Span(1, 1, 1.0)), none=2.0)
    second = Spans(best=(Span(2, 2, 9.0), Span(0, 1, 4.0)), none=-3.0)
    joined = join_windows([first, second], [-1, 2])  # both hold words 2 to 3
    assert joined == Spans(best=(Span(4, 4, 9.0), Span(2, 3, 5.0), Span(0, 0, 1.0)), none=-3.0)
    assert join_windows([first, second], [-1, 2], n_best=1).best == (Span(4, 4, 9.0),)


def test_no_answer_is_said_above_its_threshold() -> None:
    found = Spans(best=(Span(1, 2, 3.0),), none=4.0)
    assert found.answer(no_answer=False) == Span(1, 2, 3.0)
    assert found.answer(no_answer=True) is None
    assert found.answer(no_answer=True, threshold=1.5) == Span(1, 2, 3.0)
    assert Spans(best=(), none=0.0).answer(no_answer=False) is None
    shares = found.probabilities(no_answer=True)
    assert shares == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)])
    assert found.probabilities(no_answer=False) == [1.0]
