"""Repetition control: equal to the reference in texts (greedy, beams) and in the numbers that texts are drawn by."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from generating import two_sides, writing
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel
from polyseme.generating.sampling import ScoreConstraints, narrowed
from polyseme.generating.sequences import Lines

MAX_NEW = 10
END = {"gpt2": 36, "bart": two_sides.FIRST["bart"], "t5": 47}
"""BART's texts end with the piece that its decoder starts with, so that a penalty for that one moves the end."""
CONTROLS: dict[str, dict[str, Any]] = {
    "penalty": {"repetition_penalty": 1.4},
    "reward": {"repetition_penalty": 0.7},
    "both": {"repetition_penalty": 2.0, "no_repeat_ngram": 2},
    "no piece twice": {"no_repeat_ngram": 1},
}
families = pytest.mark.parametrize("family", ["gpt2", "bart", "t5"])


def of(family: str) -> tuple[LanguageModel, Any, list[list[int]]]:
    """Ours, the reference's, and rows to read."""
    if family == "gpt2":
        pair = writing.gpt2()
        model = writing.language(writing.step_by_step(pair.ours), end=END[family])
        return model, pair.reference, writing.prompts((5, 3, 7, 1, 2, 9))
    pair = two_sides.pair(family)
    return two_sides.writer(family, end=END[family]), pair.reference, two_sides.sources((9, 3, 14, 1, 6, 7))


def reference(family: str, row: list[int], control: dict[str, Any], **more: Any) -> Any:
    _, model, _ = of(family)
    theirs: dict[str, Any] = {"repetition_penalty": control.get("repetition_penalty", 1.0)}
    if "no_repeat_ngram" in control:
        theirs["no_repeat_ngram_size"] = control["no_repeat_ngram"]
    start = {} if family == "gpt2" else {"decoder_start_token_id": two_sides.FIRST[family]}
    return model.generate(
        input_ids=torch.tensor([row]),
        attention_mask=torch.ones(1, len(row), dtype=torch.long),
        **{"max_new_tokens": MAX_NEW, "eos_token_id": END[family], "pad_token_id": 1, "do_sample": False}
        | theirs
        | start
        | more,
    )


@families
@pytest.mark.parametrize(
    ("control", "beam", "n_texts"),
    [
        ("penalty", 1, 4),
        ("both", 3, 2),
        *(pytest.param(control, beam, 6, marks=pytest.mark.slow) for control in CONTROLS for beam in (1, 3)),
    ],
)
def test_texts_equal_the_reference(family: str, control: str, beam: int, n_texts: int) -> None:
    model, _, rows = of(family)
    rows = rows[:n_texts]
    decoding = Decoding(max_new=MAX_NEW, beam=beam, **CONTROLS[control])
    sources = None if family == "gpt2" else rows
    ours = write_on(model, rows if sources is None else [[] for _ in rows], decoding, sources=sources)
    for row, [text, *_] in zip(rows, ours, strict=True):
        [theirs] = reference(family, row, CONTROLS[control], num_beams=beam).tolist()
        theirs = theirs[len(row) if family == "gpt2" else 1 :]
        assert text.pieces == writing.before(theirs, END[family])


@families
def test_pieces_are_drawn_by_the_numbers_of_the_reference(family: str) -> None:
    model, _, rows = of(family)
    row = rows[0]
    control = CONTROLS["both"]
    torch.manual_seed(3)
    theirs = reference(
        family,
        row,
        control,
        do_sample=True,
        temperature=0.8,
        top_k=20,
        return_dict_in_generate=True,
        output_scores=True,
    )
    lines = Lines(
        model,
        [row] if family == "gpt2" else [[]],
        MAX_NEW,
        sources=None if family == "gpt2" else [row],
    )
    shaping = ScoreConstraints(model, Decoding(max_new=MAX_NEW, temperature=0.8, top_k=20, **control))
    scores = lines.start()
    for step, expected in enumerate(theirs.scores):
        found = narrowed(shaping(scores, lines, step) / 0.8, 20, None)
        torch.testing.assert_close(found, expected.to(found), rtol=1e-5, atol=1e-5)
        scores = lines.advance(theirs.sequences[:, step - len(theirs.scores)])
