"""Pieces that are single characters, looked up at once: the same as the library's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polyseme.corpus.tokenizer_training import train_tokenizer
from polyseme.text.cached_encoding import CachedEncoder

TEXTS = ["naïve, Zoë!\nab <s> <unk>", "日本 ☃ 👩‍👩‍👧"]
TOKENIZERS = [train_tokenizer("characters", TEXTS, vocab_size=18, frame=frame) for frame in ("flair", "lm")]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from([*TEXTS, "", "</s>", "<unk>"])


@given(st.lists(texts, max_size=4))
def test_characters_have_the_library_s_pieces(parts: list[str]) -> None:
    for tokenizer in TOKENIZERS:
        ids, spans, counts = CachedEncoder(tokenizer.backend, tokenizer.specials).encode(parts)
        assert ids.dtype == spans.dtype == counts.dtype == "int64"
        expected = [tokenizer.backend.encode(part, add_special_tokens=False) for part in parts]
        assert ids.tolist() == [id for each in expected for id in each.ids]
        assert spans.tolist() == [list(span) for each in expected for span in each.offsets]
        assert counts.tolist() == [len(each.ids) for each in expected]


def test_flair_s_dictionary_has_its_edges_first_and_its_markers_last() -> None:
    tokenizer = TOKENIZERS[0]
    pieces = tokenizer.pieces(range(tokenizer.n_pieces))
    assert (pieces[:3], pieces[-2:]) == (["<unk>", "\n", " "], ["<s>", "</s>"])
    assert len(pieces) <= 18
    assert tokenizer.specials == {"start": len(pieces) - 2, "end": len(pieces) - 1, "unknown": 0}
