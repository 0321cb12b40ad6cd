"""ARPA files in and out: equal scores here and in KenLM, and files that no model could be right with are refused."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from polyseme.api import load
from polyseme.errors import InputError, ModelError, PolysemeWarning
from polyseme.ngrams.arpa import read_arpa, write_arpa
from polyseme.ngrams.model_folder import NGramModel, load_ngrams, save_ngrams
from polyseme.ngrams.recognition import is_arpa
from polyseme.ngrams.tables import NGramTables
from polyseme.text.documents import string_to_document

GOLDEN = Path(__file__).parents[1] / "golden" / "ngrams"
ARPA = GOLDEN / "kn3.arpa"


def log_probs_of(model: NGramModel, line: str) -> list[float]:
    """Natural, of the words of a line and of its end."""
    pieces = model.tokenizer.encode(string_to_document(line)).ids
    pieces = np.append(pieces, model.tokenizer.specials["end"])
    scores: list[float] = model.tables.log_probs_of(model.states_before(pieces, np.array([0])), pieces).tolist()
    return scores


def test_scores_are_those_of_kenlm() -> None:
    model = read_arpa(ARPA)
    for line, expected in json.loads((GOLDEN / "kenlm.json").read_text()):
        ours = [each / math.log(10) for each in log_probs_of(model, line)]
        np.testing.assert_allclose(ours, expected, atol=2e-6)  # theirs are in single precision


def test_probabilities_of_a_file_sum_to_one() -> None:
    tables = read_arpa(ARPA).tables
    everything = tables.all_log_probs(tables.states_of(np.arange(tables.n_pieces), np.zeros(tables.n_pieces, np.bool_)))
    np.testing.assert_allclose(np.exp(everything).sum(axis=1), 1, atol=1e-7)  # nine digits


@pytest.mark.parametrize("name", ["again.arpa", "again.arpa.gz"])
def test_written_and_read_again_a_model_is_the_same(name: str, tmp_path: Path) -> None:
    model = read_arpa(ARPA)
    write_arpa(model, tmp_path / name)
    assert is_arpa(tmp_path / name)
    again = read_arpa(tmp_path / name)
    assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
    assert again.tables.n_ngrams == model.tables.n_ngrams
    for one, other in zip(again.tables.keys, model.tables.keys, strict=True):
        np.testing.assert_array_equal(one, other)
    for name_of_all in ("log_probs", "backoffs"):
        for one, other in zip(getattr(again.tables, name_of_all), getattr(model.tables, name_of_all), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8)


def test_a_folder_holds_the_same_tables(tmp_path: Path) -> None:
    model = read_arpa(ARPA)
    save_ngrams(model, tmp_path / "model")
    again = load_ngrams(tmp_path / "model")
    assert again.fingerprint == model.fingerprint
    assert log_probs_of(again, "the dog broke the ship") == log_probs_of(model, "the dog broke the ship")


def test_a_folder_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    save_ngrams(read_arpa(ARPA), tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cut short or damaged"):
        load(tmp_path / "model")


def test_a_model_where_a_piece_begins_texts_and_another_ends_them(tmp_path: Path) -> None:
    model = read_arpa(ARPA)
    with_start = model.tokenizer.with_special("start", "sleep")  # any word will do
    other = NGramModel(model.tables, with_start)
    assert other.lead != model.lead
    write_arpa(other, tmp_path / "other.arpa")
    lines = (tmp_path / "other.arpa").read_text().splitlines()
    assert sum(line.split("\t")[1:2] == ["<s>"] for line in lines) == 1


# --- bad files --------------------------------------------------------------------------------------------------------

Change = Callable[[str], str]


def without(part: str) -> Change:
    return lambda text: _changed(text, part, "")


def _changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


SMALL = r"""\data\
ngram 1=5
ngram 2=3

\1-grams:
-99	<s>	-0.5
-1.2	</s>
-1	<unk>
-0.6	a	-0.3
-0.4	b	-0.2

\2-grams:
-0.3	<s> a
-0.5	a b
-0.2	b </s>

\end\
"""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: _changed(text, "-0.5\ta b", "0.5\ta b"), r"line 14: .* probability would be above 1"),
        (lambda text: _changed(text, "-0.4\tb\t-0.2", "-0.4\tb"), r"have no back-off weight; the first is 'b'"),
        (lambda text: _changed(text, "-0.6\ta\t-0.3", "-0.6\ta\tnan"), r"line 9: .* must be a finite number"),
        (lambda text: text[: text.index("-0.2\tb")], r"is cut short: one of the 3 2-grams"),
        (without("\\end\\"), r"is cut short: \\end\\ is missing"),
        (without("-0.5\ta b\n"), r"line 16: There are fewer 2-grams than the 3"),
        (lambda text: _changed(text, "ngram 2=3", "ngram 2=2"), r"line 15: There are more 2-grams than the 2"),
        (lambda text: _changed(text, "ngram 2=3", "ngram 3=3"), r"number of 2-grams should come here"),
        (lambda text: _changed(text, "-0.5\ta b", "-0.5\ta c"), r"line 14: The word 'c' is not among the unigrams"),
        (lambda text: _changed(text, "-0.5\ta b", "-0.5\t<s> a"), r"line 14: This n-gram is listed a second time"),
        (lambda text: _changed(text, "-0.5\ta b", "-0.5\ta"), r"line 14: A line of a 2-gram has a logarithm, 2 words"),
        (lambda text: _changed(text, "-0.5\ta b", "-0.5\t</s> b"), r"line 14: .* no text goes on after its end"),
        (lambda text: _changed(text, "-0.5\ta b", "half\ta b"), r"line 14: A logarithm must be a number"),
        (lambda text: _changed(text, "-0.4\tb\t", "-0.4\ta\t"), r"line 10: The word 'a' is listed a second time"),
        (lambda text: _changed(text, "ngram 1=5", "ngram 1=0"), r"names no unigrams"),
        (lambda text: _changed(text, "\\2-grams:", "\\3-grams:"), r"line 12: \\2-grams: should come here"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_with_its_line(change: Change, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.arpa"
    path.write_text(change(SMALL))
    with pytest.raises(ModelError, match=reason):
        load(path)


def test_an_ngram_whose_beginning_is_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.arpa"
    text = _changed(
        _changed(SMALL, "ngram 2=3", "ngram 2=3\nngram 3=1"), "\\end\\", "\\3-grams:\n-0.1\tb a b\n\n\\end\\"
    )
    path.write_text(text)
    with pytest.raises(ModelError, match=r"line 19: The 3-gram begins with words that are no 2-gram"):
        load(path)


def test_a_compressed_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.arpa.gz"
    path.write_bytes(gzip.compress(ARPA.read_bytes())[:-800])
    with pytest.raises(InputError, match="cut short"):
        load(path)


def test_a_file_without_unknown_words_gives_them_next_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "closed.arpa"
    path.write_text(_changed(_changed(SMALL, "-1\t<unk>\n", ""), "ngram 1=5", "ngram 1=4"))
    with pytest.warns(PolysemeWarning, match="has no <unk>"):
        model = read_arpa(path)
    assert log_probs_of(model, "c")[0] == pytest.approx((-100 - 0.5) * math.log(10))


def test_words_that_cannot_stand_in_a_file_are_refused(tmp_path: Path) -> None:
    model = read_arpa(ARPA)
    vocabulary = model.tokenizer.backend.get_vocab()
    renamed = {("two words" if word == "dog" else word): id for word, id in vocabulary.items()}
    model.tokenizer.backend.model = type(model.tokenizer.backend.model)(renamed, "<unk>")
    with pytest.raises(ModelError, match="'two words' has a blank"):
        write_arpa(model, tmp_path / "no.arpa")
    assert not (tmp_path / "no.arpa").exists()
    assert isinstance(model.tables, NGramTables)
