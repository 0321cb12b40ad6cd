"""Writing from a source: equal to the reference, piece for piece, together and one at a time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyseme
from generating.two_sides import FIRST, for_the_reference, pair, sources, writer
from generating.writing import before
from polyseme.errors import ModelError
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel, language_model
from polyseme.generating.sequences import GeneratedText
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.text.documents import to_documents
from polyseme.types import Batch, Pieces
from references import assert_close
from tiny_models import tiny_model

MAX_NEW = 12
ENDS = {"bart": (16, 10, 32), "t5": (47, 66, 3)}
"""Pieces that the small models write often: each as the piece that ends a text."""
both = pytest.mark.parametrize("family", ["bart", "t5"])


def written(model: LanguageModel, rows: list[list[int]], decoding: Decoding) -> list[list[GeneratedText]]:
    return write_on(model, [[] for _ in rows], decoding, sources=rows)


def reference(family: str, rows: list[list[int]], end: int | None, dtype: Any = torch.float64, **more: Any) -> Any:
    return pair(family, dtype).reference.generate(
        **for_the_reference(rows),
        **{
            "max_new_tokens": MAX_NEW,
            "decoder_start_token_id": FIRST[family],
            "eos_token_id": end,
            "pad_token_id": 1,
            "do_sample": False,
            "return_dict_in_generate": True,
            "output_scores": True,
            **more,
        },
    )


def until(row: list[int], end: int | None) -> list[int]:
    """Without the piece that the decoder starts with, up to the end."""
    return row[1:] if end is None else before(row[1:], end)


@both
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
def test_the_likeliest_pieces_equal_the_reference(family: str, fast: bool) -> None:
    rows = sources()
    theirs = reference(family, rows, None)
    ours = written(writer(family, fast=fast), rows, Decoding(max_new=MAX_NEW))
    assert [texts[0].pieces for texts in ours] == [until(row, None) for row in theirs.sequences.tolist()]
    assert len({tuple(texts[0].pieces) for texts in ours}) > 1, "the source has a say"


@both
def test_log_probabilities_equal_the_reference_step_by_step(family: str) -> None:
    rows = sources()
    theirs = reference(family, rows, None)
    with torch.no_grad():
        logits = pair(family).reference(**for_the_reference(rows), decoder_input_ids=theirs.sequences).logits
    expected = logits.log_softmax(-1)
    model = writer(family)
    start = torch.full((len(rows), 1), FIRST[family])
    found, memory = model.next_piece.start(Batch(start, source=model.read_source(rows)), 20)
    for step in range(MAX_NEW):
        assert_close(found.log_softmax(-1), expected[:, step], 1e-10)
        found, memory = model.next_piece.step(Batch(theirs.sequences[:, step + 1, None]), memory)


@both
@pytest.mark.parametrize("length_penalty", [0.6, 2.0])
@pytest.mark.parametrize("beam", [2, 4])
def test_beams_equal_the_reference(family: str, beam: int, length_penalty: float) -> None:
    rows = sources()
    endings: Counter[str | None] = Counter()
    for end in ENDS[family]:
        theirs = reference(family, rows, end, num_beams=beam, num_return_sequences=beam, length_penalty=length_penalty)
        decoding = Decoding(max_new=MAX_NEW, beam=beam, n=beam, length_penalty=length_penalty)
        ours = [text for texts in written(writer(family, end=end), rows, decoding) for text in texts]
        assert [text.pieces for text in ours] == [until(row, end) for row in theirs.sequences.tolist()]
        assert [text.score for text in ours] == pytest.approx(theirs.sequences_scores.tolist(), abs=1e-4)
        endings.update(text.ending for text in ours)
    assert endings["length"]
    assert endings["end"] or length_penalty > 1


@both
@pytest.mark.parametrize("beam", [1, 3])
def test_pieces_that_a_text_must_begin_and_end_with(family: str, beam: int) -> None:
    rows = sources()
    theirs = reference(
        family, rows, 36, num_beams=beam, forced_bos_token_id=17, forced_eos_token_id=36, max_new_tokens=6
    )
    ours = written(writer(family, end=36, first=17, last=36), rows, Decoding(max_new=6, beam=beam))
    assert [texts[0].pieces for texts in ours] == [until(row, 36) for row in theirs.sequences.tolist()]
    assert all(texts[0].pieces[0] == 17 for texts in ours)
    assert {texts[0].ending for texts in ours} == {"end"}
    if beam > 1:
        assert [texts[0].score for texts in ours] == pytest.approx(theirs.sequences_scores.tolist(), abs=1e-4)


@both
@pytest.mark.parametrize("decoding", [{}, {"temperature": 1.3, "top_p": 0.9, "n": 2}, {"beam": 3}], ids=str)
def test_a_source_by_itself_and_among_others(family: str, decoding: dict[str, Any]) -> None:
    rows = sources((9, 3, 14, 1, 6))
    chosen = Decoding(max_new=MAX_NEW, seed=5, **decoding)
    model = writer(family, end=36)
    together = written(model, rows, chosen)
    for number, row in enumerate(rows):
        [alone] = write_on(model, [[]], chosen, sources=[row], numbers=[number])
        assert [text.pieces for text in alone] == [text.pieces for text in together[number]]


@both
def test_drawn_pieces_come_as_often_as_the_model_says(family: str) -> None:
    """Of many draws of a first piece, against the reference's distribution."""
    [row] = sources((6,))
    expected = reference(family, [row], None, max_new_tokens=1).scores[0][0].softmax(-1)
    n = 3000
    [texts] = written(writer(family), [row], Decoding(max_new=1, temperature=1.0, n=n))
    counts = torch.bincount(torch.tensor([text.pieces[0] for text in texts]), minlength=99) / n
    assert float((counts - expected).abs().max()) < 0.035


def test_the_source_is_read_once() -> None:
    """Its keys stay in the memory, and the encoder is not asked again."""
    model = writer("bart")
    calls: list[int] = []
    hook = model.source.register_forward_hook(lambda *given: calls.append(1))  # type: ignore[union-attr]
    written(model, sources(), Decoding(max_new=8))
    hook.remove()
    assert len(calls) == 1


def test_a_source_where_there_is_none_to_read() -> None:
    with pytest.raises(ModelError, match="needs one for every prompt"):
        write_on(writer("bart"), [[]], Decoding())


# --- from folders -----------------------------------------------------------------------------------------------------


def test_a_folder_says_what_texts_begin_and_end_with(tmp_path: Path) -> None:
    """In the file in which today's folders keep it, and after a round trip in config.json."""
    model = tiny_model("bart")
    specials = model.bundle.tokenizer.specials  # type: ignore[union-attr]
    assert language_model(model.bundle).before == (specials["end"],)
    model.save(tmp_path / "bart")
    said = {"decoder_start_token_id": 7, "forced_bos_token_id": 9, "forced_eos_token_id": 2, "num_beams": 4}
    (tmp_path / "bart" / "generation_config.json").write_text(json.dumps(said), encoding="utf-8")
    for folder in ("bart", "again"):
        loaded = polyseme.load(tmp_path / folder, device="cpu")
        language = language_model(loaded.bundle)
        assert (language.before, language.first, language.last) == ((7,), 9, 2)
        if folder == "bart":
            loaded.save(tmp_path / "again")


@pytest.mark.parametrize("setting", ["decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"])
def test_pieces_that_texts_cannot_begin_or_end_with_are_refused(setting: str) -> None:
    """Instead of being left out, or taken from the end of the table."""
    bundle = tiny_model("bart").bundle
    for id in (bundle.config.n_pieces, -1, True, "two", [2, 3]):
        bundle.foreign[setting] = id
        with pytest.raises(ModelError, match=f"'{setting}' must be the id of one piece"):
            language_model(bundle)
    bundle.foreign[setting] = [7]
    language = language_model(bundle)
    assert 7 in (*language.before, language.first, language.last)


@pytest.mark.parametrize("family", ["bart", "t5", "transformer", "seq2seq"])
def test_texts_in_texts_out(family: str) -> None:
    model = tiny_model(family)
    model.bundle.double()
    texts = ["The vase broke.", "", "Sandy broke the law; they throw a party!"]
    assert {"generate", "score"} <= set(model.show().can)
    for settings in ({}, {"beam": 3, "n": 2}, {"temperature": 1.0, "seed": 3}):
        together = model.generate(texts, max_new=7, **settings)  # type: ignore[arg-type]
        assert together == [model.generate(texts[: n + 1], max_new=7, **settings)[n] for n in range(3)]  # type: ignore[arg-type]
    [scored] = model.score(["Dawn broke."], source=["The vase broke."])
    assert scored.totals.unscored == 0
    assert scored.totals.log_prob < 0


def test_what_is_likely_to_be_written_is_likely_to_score() -> None:
    """The log-probability of a text that was written is that of its pieces, the end piece left out."""
    model = tiny_model("t5")
    model.bundle.double()
    source = "Sandy broke the law."
    generator = model.generator(Decoding(max_new=5))
    [[written]] = generator([source])
    language = language_model(model.bundle)
    assert language.prompts is not None
    read = language.prompts.read(source, "it").source
    [[pieces]] = write_on(language, [[]], Decoding(max_new=5), sources=[read or []])
    framed = np.array(pieces.pieces)
    given = Pieces(framed, np.zeros((len(framed), 2), np.int64), np.zeros((0, 2), np.int64))
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    [found] = scorer_of(model.bundle).pieces([given], sources=tokenizer.encode_many(to_documents([source])))
    ended = pieces.ending == "end"
    assert ended or float(found.log_probs.sum()) == pytest.approx(written.log_probability, abs=1e-9)
