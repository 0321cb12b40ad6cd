"""Words into one vector, by the definitions."""

from __future__ import annotations

import torch

from polyseme.heads.head import read_out

LENGTHS = (3, 1, 0)
MASK = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
WORDS = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))  # padding is full of numbers


def test_readouts_are_what_they_say() -> None:
    for row, length in enumerate(LENGTHS):
        real = WORDS[row, :length] if length else torch.zeros(1, 6)
        expected = {"mean": real.mean(0), "max": real.amax(0), "last": real[-1], "first": real[0]}
        expected["concat"] = torch.cat([expected["last"], expected["max"], expected["mean"]])
        for how, vector in expected.items():
            torch.testing.assert_close(read_out(WORDS, MASK, how)[row], vector)  # type: ignore[arg-type]


def test_each_half_of_two_way_states_ends_where_it_has_read_everything() -> None:
    found = read_out(WORDS, MASK, "last", two_way=True)[0]
    assert torch.equal(found, torch.cat([WORDS[0, 2, :3], WORDS[0, 0, 3:]]))


def test_a_batch_of_no_words() -> None:
    assert read_out(torch.zeros(2, 0, 6), torch.zeros(2, 0, dtype=torch.bool), "concat").shape == (2, 18)
