"""Beam search: equal to the reference's, in pieces and scores, and each prompt by itself."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from generating.writing import before, for_the_reference, gpt2, language, prompts, rereading, step_by_step
from polyseme.errors import OptionError
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.sequences import GeneratedText
from polyseme.verb_options.text_options import EarlyStopping

MAX_NEW = 12
ENDS = (17, 36, 95)
"""Pieces that the small model writes often: each as the piece that ends a text."""


def found(decoding: Decoding, end: int | None, rows: list[list[int]] | None = None) -> list[list[GeneratedText]]:
    model = language(step_by_step(gpt2(torch.float32).ours), end=end)
    return write_on(model, prompts() if rows is None else rows, decoding)


@pytest.mark.parametrize(
    ("beam", "length_penalty", "early_stopping"),
    [  # each value with each of the others
        (2, 0.6, True),
        (4, 0.6, False),
        (2, 0.6, "never"),
        (4, 1.0, True),
        (2, 1.0, False),
        (4, 1.0, "never"),
        (2, 2.0, True),
        (4, 2.0, False),
        (4, 2.0, "never"),
    ],
)
def test_beams_equal_the_reference(beam: int, length_penalty: float, early_stopping: EarlyStopping) -> None:
    """All texts of the beam, for prompts of different lengths, up to the first end piece."""
    decoding = Decoding(
        max_new=MAX_NEW, beam=beam, n=beam, length_penalty=length_penalty, early_stopping=early_stopping
    )
    rows = prompts()
    endings: Counter[str | None] = Counter()
    for end in ENDS:
        inputs = for_the_reference(rows)
        theirs = gpt2(torch.float32).reference.generate(
            **inputs,
            max_new_tokens=MAX_NEW,
            num_beams=beam,
            num_return_sequences=beam,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            eos_token_id=end,
            pad_token_id=end,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
        expected = [before(row, end) for row in theirs.sequences[:, inputs["input_ids"].shape[1] :].tolist()]
        ours = [text for texts in found(decoding, end) for text in texts]
        assert [text.pieces for text in ours] == expected
        assert [text.score for text in ours] == pytest.approx(theirs.sequences_scores.tolist(), abs=1e-4)
        endings.update(text.ending for text in ours)
    assert endings["end"]
    assert endings["length"]


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_a_prompt_by_itself_and_among_others(early_stopping: EarlyStopping) -> None:
    decoding = Decoding(max_new=MAX_NEW, beam=3, n=2, early_stopping=early_stopping)
    rows = prompts((4, 9, 1, 2, 6))
    model = language(step_by_step(gpt2().ours), end=36)
    together = write_on(model, rows, decoding)
    alone = [write_on(model, [row], decoding)[0] for row in rows]
    assert [[text.pieces for text in texts] for texts in together] == [[text.pieces for text in each] for each in alone]
    assert len({len(text.pieces) for texts in together for text in texts}) > 1


def test_a_wide_beam_finds_what_is_likeliest_of_all() -> None:
    """With as many texts as there are pieces, and two steps, nothing can be missed."""
    model = language(rereading(gpt2().ours), n_pieces=N_SMALL)
    row = prompts()[0]
    decoding = Decoding(max_new=2, beam=N_SMALL // 2, n=5)
    texts = write_on(model, [row], decoding)[0]
    with torch.no_grad():
        first = _log_probs([row])[0]
        second = _log_probs([[*row, piece] for piece in range(99)])
    whole = (first[:, None] + second).flatten().topk(5)
    assert [text.log_probability for text in texts] == pytest.approx(whole.values.tolist(), abs=1e-9)
    assert [text.pieces for text in texts] == [list(divmod(place, 99)) for place in whole.indices.tolist()]


N_SMALL = 98


def _log_probs(rows: list[list[int]]) -> torch.Tensor:
    pair = gpt2()
    return pair.reference(torch.tensor(rows)).logits[:, -1].log_softmax(-1)


def test_the_best_come_first_and_scores_are_by_length() -> None:
    for length_penalty in (0.0, 1.0, -1.0):
        for text in found(Decoding(max_new=8, beam=4, n=4, length_penalty=length_penalty), 36)[0]:
            n_new = len(text.pieces) + (text.ending == "end")
            assert text.score == pytest.approx(text.log_probability / n_new**length_penalty)
    for texts in found(Decoding(max_new=8, beam=4, n=4), 36):
        assert [text.score for text in texts] == sorted((text.score for text in texts), reverse=True)


def test_no_text_ends_before_its_time() -> None:
    texts = found(Decoding(max_new=9, min_new=6, beam=4, n=4), 36)
    assert min(len(text.pieces) for each in texts for text in each) >= 6
    assert min(len(text.pieces) for each in found(Decoding(max_new=9, beam=4, n=4), 36) for text in each) < 6


def test_repetition_is_kept_out_of_every_text_of_a_beam() -> None:
    for texts in found(Decoding(max_new=20, beam=3, n=3, no_repeat_ngram=2), None):
        for text in texts:
            pairs = list(zip(text.pieces, text.pieces[1:], strict=False))
            assert len(pairs) == len(set(pairs))


def test_a_beam_ends_where_every_piece_is_forbidden() -> None:
    """No piece twice: then a text of all pieces cannot go on."""
    model = language(step_by_step(gpt2().ours), forbidden=tuple(range(12, 99)))
    [texts] = write_on(model, [[3, 4]], Decoding(max_new=30, beam=2, n=2, no_repeat_ngram=1))
    assert [text.ending for text in texts] == ["forbidden", "forbidden"]
    assert [sorted(text.pieces) for text in texts] == [[0, 1, 2, 5, 6, 7, 8, 9, 10, 11]] * 2


def test_a_beam_wider_than_the_vocabulary() -> None:
    with pytest.raises(OptionError, match="A beam of 50 compares 100 pieces, and the model has 99"):
        found(Decoding(beam=50), None)
