"""Where words begin and end among pieces, against how the tokenizers cut words themselves."""

from __future__ import annotations

import pytest

from polyseme.errors import ModelError
from polyseme.text.documents import make_document
from polyseme.text.piece_texts import find_masks, over_rows, piece_texts
from tiny_models import BACKENDS, tiny_tokenizer

WORDS = ["the", "burglar", "misunderstandings", "broke", "typos", "downtown", "4", "Zoë"]
FAMILIES = [name for name, backend in BACKENDS.items() if backend is not None and name not in ("lstm", "transfo-xl")]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("before", ["Dawn ", "", "("])
def test_words_begin_continue_and_end_with_pieces_that_may(family: str, before: str) -> None:
    texts = piece_texts(tiny_tokenizer(family))
    unknown = texts.tokenizer.specials.get("unknown")
    for word in WORDS:
        ids = texts.encode_after(before, word)
        if unknown in ids or (word == "Zoë" and not texts.has_blank[ids].any() and len(ids) > 4):  # bytes of a letter
            continue
        for place, id in enumerate(ids):
            last = place == len(ids) - 1
            if "\ufffd" not in texts.texts[id]:
                assert texts.allowed(before, later=place > 0, last=last)[id], (word, place, texts.texts[id])
                if texts.marks_ends:
                    assert not texts.allowed(before, later=place > 0, last=not last)[id]
        assert texts.text_of(ids).lower() == word.lower() or "ë" in word


@pytest.mark.parametrize("family", ["bert", "gpt2", "xlm-roberta"])
def test_a_second_word_does_not_continue_the_first(family: str) -> None:
    texts = piece_texts(tiny_tokenizer(family))
    for word in WORDS[:4]:
        [first, *_] = texts.encode_after("Dawn ", word)
        assert not texts.continues[first]
        assert not texts.begins("typo")[first]


def test_marks_and_specials_are_no_words() -> None:
    texts = piece_texts(tiny_tokenizer("bert"))
    for piece in ("[MASK]", "[CLS]", ".", "$"):
        assert not texts.begins("Dawn ")[texts.tokenizer.backend.token_to_id(piece)]


def test_pieces_over_more_rows_than_there_are() -> None:
    texts = piece_texts(tiny_tokenizer("bert"))
    wide = over_rows(texts.of_word, len(texts.of_word) + 3)
    assert wide[:-3].tolist() == texts.of_word.tolist()
    assert not wide[-3:].any()


def test_a_tokenizer_of_characters_has_no_pieces_of_words() -> None:
    with pytest.raises(ModelError, match="reads words by their characters"):
        piece_texts(tiny_tokenizer("elmo"))


def test_encoding_in_place_is_encoding_in_the_text() -> None:
    tokenizer = tiny_tokenizer("gpt2")
    texts = piece_texts(tokenizer)
    whole = tokenizer.encode(make_document("The law broke")).ids.tolist()
    assert whole[-len(texts.encode_after("The law ", "broke")) :] == texts.encode_after("The law ", "broke")
    assert find_masks("<mask> or [MASK]", ("[MASK]", "<mask>")) == [(0, 6), (10, 16)]
