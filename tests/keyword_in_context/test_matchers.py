"""What a concordance finds: words by form, runs of words, patterns in a process that can be stopped."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme.errors import InputError, OptionError
from polyseme.files.rows import Place, Row
from polyseme.keyword_in_context.keyword_lines import Sample
from polyseme.keyword_in_context.limited_pattern import LimitedPattern
from polyseme.keyword_in_context.matchers import matcher_of
from polyseme.text.word_forms import form
from polyseme.text.words import split_words
from text.samples import texts

RUNAWAY = "(a|aa)+$"
SLOW = "a" * 60 + "b"


def rows(*contents: str) -> list[Row]:
    return [Row(text, str(number), Place("texts.txt", number)) for number, text in enumerate(contents, start=1)]


def found(match: str, query: str, *contents: str, **options: bool) -> list[str]:
    with matcher_of(match, query, **options) as matcher:  # type: ignore[arg-type]
        return [each.document.text[start:end] for each in matcher.search(rows(*contents)) for start, end in each.spans]


def test_a_word_is_found_by_its_form_and_not_inside_others() -> None:
    assert found("word", "broke", "Dawn Broke.", "Brokers broke", "BROKE!") == ["Broke", "broke", "BROKE"]
    assert found("word", "broke", "Dawn Broke.", "he broke", match_case=True) == ["broke"]
    assert found("word", "Cafe\u0301", "the café", "CAFÉ") == ["café", "CAFÉ"]
    assert found("word", "straße", "STRASSE") == ["STRASSE"]
    assert found("word", "cooperate", "we co\u00adoperate", "so Cooperate\u200b!") == [
        "co\u00adoperate",
        "Cooperate\u200b",
    ]


def test_several_words_are_found_one_after_another() -> None:
    assert found("word", "broke even", "We broke even. Even broke, we broke  even") == ["broke even", "broke  even"]
    assert found("word", "the the", "the the the") == ["the the", "the the"]


def test_a_word_of_invisible_characters_alone_is_found() -> None:
    assert found("word", "\u00ad", "a \u00ad b") == ["\u00ad"]


@given(texts, st.data())
def test_every_word_of_a_text_is_found_where_it_is(text: str, data: st.DataObject) -> None:
    words = [word for word in split_words(text) if len(split_words(str(word))) == 1]
    if not words:
        return
    word = data.draw(st.sampled_from(words))
    with matcher_of("word", str(word)) as matcher:
        [matched] = matcher.search(rows(text))
    assert (word.start, word.end) in matched.spans
    assert {form(matched.document.text[start:end]) for start, end in matched.spans} == {form(word)}


def test_a_pattern_is_found_anywhere_without_empty_matches() -> None:
    assert found("pattern", "br(eak|oke)", "Break, broke; unbroken") == ["Break", "broke", "broke"]
    assert found("pattern", "x*", "axxb", "none") == ["xx"]
    assert found("pattern", r"(?<=the )\w+\b", "the naïve ☃ one", match_case=True) == ["naïve"]


@pytest.mark.parametrize(
    "pattern", ["(", "[z-a]", "a**", "(?P<x>a)(?P<x>b)", "(" * 5000 + ")" * 5000, "a{99999999999}"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(OptionError, match="is no regular expression"):
        LimitedPattern(pattern)


def test_a_pattern_that_does_not_end_is_stopped_and_its_text_named() -> None:
    places = [Place("texts.txt", number) for number in (1, 2)]
    with LimitedPattern(RUNAWAY, seconds=0.3) as pattern:
        with pytest.raises(InputError, match=r"takes more than .* on texts.txt, line 2: it tries too many"):
            pattern.matches(["aaa", SLOW], places)
        pattern.seconds = 60
        assert pattern.matches(["aaa"], places[:1]) == [[(0, 3)]]


def test_a_pattern_can_be_stopped_from_any_thread() -> None:
    errors: list[BaseException] = []

    def match() -> None:
        with LimitedPattern(RUNAWAY, seconds=0.2) as pattern:
            try:
                pattern.matches([SLOW], ["a text"])
            except InputError as error:
                errors.append(error)

    thread = threading.Thread(target=match)
    thread.start()
    thread.join()
    assert len(errors) == 1


def test_a_sample_is_drawn_evenly_and_stays_in_order() -> None:
    counts = [0] * 20
    for seed in range(400):
        sample = Sample(5, seed)
        for number in range(20):
            sample.add(lambda: number)  # noqa: B023
        drawn = sample.items()
        assert sample.n_seen == 20
        assert drawn == sorted(set(drawn))
        assert len(drawn) == 5
        for number in drawn:
            counts[number] += 1
    assert max(abs(count - 100) for count in counts) < 45  # 5 standard deviations
