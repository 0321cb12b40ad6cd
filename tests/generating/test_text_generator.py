"""Texts to texts: `Model.generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

import polyseme
from polyseme.api import Model
from polyseme.errors import InputError, ModelError, OptionError, PolysemeWarning
from polyseme.generating.decoding_loop import write_on
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.sequences import first_stop, n_final
from polyseme.text.documents import make_document
from tiny_models import tiny_model

PROMPTS = ["The vase broke", "Dawn", "We broke even. A crane picked"]


@pytest.fixture(scope="module")
def model() -> Model:
    found = tiny_model("gpt2")
    found.bundle.double()
    return found


@pytest.fixture(scope="module")
def letters() -> Model:
    """One whose pieces are letters and words, so that any of them make a text; it has no piece that ends one."""
    found = tiny_model("openai-gpt")
    found.bundle.double()
    return found


def drawn(model: Model, **settings: Any) -> list[str]:
    found = model.generate(PROMPTS, **{"max_new": 12, "temperature": 1.0, **settings})
    assert all(isinstance(text, str) for text in found)
    return found  # type: ignore[return-value]


def test_a_string_a_prompt_or_a_list_of_them(model: Model) -> None:
    one = model.generate("The vase broke", max_new=5)
    assert len(one) == 1
    assert isinstance(one[0], str)
    several = model.generate(PROMPTS, max_new=5, n=2)
    assert [len(texts) for texts in several] == [2, 2, 2]
    assert several[0][0] != several[0][1]
    assert model.generate([], max_new=5) == []


def test_what_is_added_reads_on_from_the_prompt(model: Model) -> None:
    tokenizer: Any = model.bundle.tokenizer
    for prompt, text in zip(PROMPTS, model.generate(PROMPTS, max_new=12, greedy=True), strict=True):
        generator = model.generator(Decoding(max_new=12))
        [[same]] = generator([prompt])
        assert same.text == text
        assert tokenizer.decode(tokenizer.encode(make_document(prompt)).ids.tolist()) == prompt
        assert same.n_pieces == 12


@pytest.mark.parametrize("family", ["openai-gpt", "gpt2"])
def test_blanks_between_words_are_kept(family: str) -> None:
    """Put together, prompt and text decode as all pieces do."""
    model = tiny_model(family)
    tokenizer: Any = model.bundle.tokenizer
    prompt = "the vase broke"
    [text] = model.generate([prompt], max_new=8, greedy=True)
    pieces = tokenizer.encode(make_document(prompt)).ids.tolist()
    generator = model.generator(Decoding(max_new=8))
    [[written]] = write_on(generator.model, [pieces], generator.decoding)
    assert tokenizer.decode([*pieces, *written.pieces]) == tokenizer.decode(pieces) + str(text)


def test_batches_do_not_matter(model: Model) -> None:
    prompts = [f"{'crane ' * (number % 5)}the vase" for number in range(11)]
    for settings in ({"max_new": 9}, {"max_new": 9, "n": 2, "top_p": 0.9}, {"max_new": 9, "beam": 2}):
        expected = model.generate(prompts, **settings, batch_size=1)  # type: ignore[arg-type]
        for batch_size in (3, 4, 64):
            assert model.generate(prompts, **settings, batch_size=batch_size) == expected  # type: ignore[arg-type]


def test_weights_that_are_laid_out_change_nothing() -> None:
    texts = [tiny_model("gpt2").generate(PROMPTS, max_new=22, batch_size=batch_size) for batch_size in (1, 16)]
    assert texts[0] == texts[1]


# --- stop strings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"temperature": None, "beam": 3}], ids=["drawn", "beam"])
@pytest.mark.filterwarnings("ignore:The model has no piece that ends")
def test_a_stop_string_cuts_the_text_before_it(letters: Model, settings: dict[str, Any]) -> None:
    """Stretches of a text as stop strings: most begin in one piece and end in another."""
    whole = drawn(letters, **settings)[0]
    assert len(whole) > 12
    for place in range(1, len(whole) - 3, 2):
        stop = whole[place : place + 3]
        [found] = letters.generate(PROMPTS[:1], **{"max_new": 12, "temperature": 1.0, **settings, "stop": stop})
        assert stop not in found
        if not settings:  # a beam may find a better text instead
            assert found == whole[: whole.index(stop)]


def test_the_first_of_several_stop_strings_counts(letters: Model) -> None:
    whole = drawn(letters, max_new=12)[2]
    stops = [whole[6:8], whole[2:5]]
    found = drawn(letters, stop=stops)[2]
    assert found == whole[: min(whole.index(stop) for stop in stops)]
    [[text]] = letters.generator(Decoding(max_new=12, temperature=1.0, stop=stops))([PROMPTS[2]], first=2)
    assert text.ending == "stop"
    assert text.n_pieces < 12


def test_a_stop_string_in_the_prompt_does_not_count(letters: Model) -> None:
    assert drawn(letters, stop=["vase broke"]) == drawn(letters)


@given(st.text("ab", max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_what_is_settled_stays_whatever_comes(text: str, stops: list[str]) -> None:
    kept = n_final(text, stops)
    for more in ("", "a", "b", "ab", "ba", "aaa", "bbb", "abab"):
        if first_stop(text, stops) is None:
            end = first_stop(text + more, stops)
            assert end is None or end >= kept


# --- streaming -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{}, {"n": 2}, {"stop": ["ne"]}, {"temperature": None, "beam": 2}],
    ids=["one", "several", "stop string", "beam"],
)
def test_what_is_told_adds_up_to_the_texts(model: Model, settings: dict[str, Any]) -> None:
    told: dict[tuple[int, int], list[str]] = {}

    def on_text(place: int, number: int, text: str) -> None:
        told.setdefault((place, number), []).append(text)

    given = {"max_new": 12, "temperature": 1.0, **settings}
    found = model.generate(PROMPTS, on_text=on_text, **given)
    assert found == model.generate(PROMPTS, **given)
    texts = [[text] if isinstance(text, str) else text for text in found]
    for place, each in enumerate(texts):
        for number, text in enumerate(each):
            assert "".join(told.get((place, number), [])) == text
    if "beam" not in settings:
        assert max(map(len, told.values())) > 3


# --- masked models ---------------------------------------------------------------------------------------------------


def test_a_masked_model_writes_on_with_a_warning() -> None:
    masked = tiny_model("bert")
    with pytest.warns(PolysemeWarning, match="has learned to fill masks"):
        texts = masked.generate(PROMPTS, max_new=4, greedy=True)
    singly = [masked.generate([prompt], max_new=4, greedy=True)[0] for prompt in PROMPTS]
    assert texts == singly
    assert "[MASK]" not in "".join(map(str, texts))
    [first] = masked.fill(f"{PROMPTS[0]} [MASK]", top=1)
    assert str(texts[0]).split()[0].startswith(first.pieces[0].removeprefix("##")[:1])


# --- what is refused -------------------------------------------------------------------------------------------------


def test_an_empty_prompt_begins_with_the_start_piece(model: Model) -> None:
    [text] = model.generate([""], max_new=5, greedy=True)
    tokenizer: Any = model.bundle.tokenizer
    generator = model.generator(Decoding(max_new=5))
    [[written]] = write_on(generator.model, [[tokenizer.specials["start"]]], generator.decoding)
    assert text == tokenizer.decode(written.pieces)


def test_an_empty_prompt_without_a_start_piece() -> None:
    with pytest.raises(InputError, match="Prompt 1 is empty, and the model has no piece to start a text with"):
        tiny_model("openai-gpt").generate(["the", ""], max_new=5)


def test_a_prompt_longer_than_the_positions(model: Model) -> None:
    long = "crane " * 60
    with pytest.raises(InputError, match=r"Prompt 1 has \d+ pieces, and with 5 more that is over the 40"):
        model.generate(["the", long], max_new=5)
    assert len(model.generate(["the", long], max_new=5, stride=10)) == 2


def test_positions_are_used_to_the_last(model: Model) -> None:
    tokenizer: Any = model.bundle.tokenizer
    n_prompt = len(tokenizer.encode(make_document("the vase")).ids)
    model.generate(["the vase"], max_new=40 - n_prompt + 1)
    with pytest.raises(InputError, match="over the 40"):
        model.generate(["the vase"], max_new=40 - n_prompt + 2)


def test_strides_that_cannot_be(model: Model) -> None:
    with pytest.raises(OptionError, match="A stride of 40 leaves nothing of the 40 pieces"):
        model.generate(["the"], stride=40)


def test_rows_that_cannot_be(model: Model) -> None:
    with pytest.raises(OptionError, match="rows in a batch must be at least 1"):
        model.generate(["the"], batch_size=0)


def test_a_beam_that_nothing_can_finish() -> None:
    """Its texts all run to the bound, which is said."""
    model = tiny_model("openai-gpt")
    with pytest.warns(PolysemeWarning, match="no text of the beam ends before 4 pieces"):
        [text] = model.generate(["the vase"], max_new=4, beam=2)
    assert text
    with pytest.raises(OptionError, match="'min_new' means nothing"):
        model.generate(["the vase"], min_new=2)


def test_a_text_that_every_piece_would_repeat(letters: Model) -> None:
    n_pieces = letters.bundle.config.n_pieces
    with pytest.warns(PolysemeWarning, match="every further piece would have repeated"):
        letters.generate(["a"], max_new=n_pieces + 5, no_repeat_ngram=1, stride=20)


def test_prompts_that_are_none(model: Model) -> None:
    with pytest.raises(InputError, match="must be a string"):
        model.generate(["the", 3])  # type: ignore[list-item]


def test_a_model_that_cannot_generate() -> None:
    model = tiny_model("electra")
    del model.bundle.outputs["masked"]
    with pytest.raises(ModelError, match="The model cannot generate"):
        model.generate(["the"])


def test_a_model_without_a_cache_writes_in_its_own_precision() -> None:
    with pytest.raises(OptionError, match="cannot generate in int8"):
        Model(tiny_model("transfo-xl").bundle, precision="int8").generate(["the"])


def test_the_tally(model: Model) -> None:
    generator = model.generator(Decoding(max_new=7, n=2, min_new=7))
    generator(["the vase", "dawn"])
    assert generator.tally.documents == 4
    assert generator.tally.flops > 0
    n_prompts = sum(len(model.pieces(text).ids) for text in ("the vase", "dawn"))
    assert generator.tally.pieces == n_prompts + 28


# --- what is chosen where nothing is said -----------------------------------------------------------------------------


def test_texts_are_sampled_unless_options_say_otherwise() -> None:
    model = tiny_model("gpt2")
    sampled = model.generate(PROMPTS, max_new=6)
    assert sampled == model.generate(PROMPTS, max_new=6, temperature=0.8, top_p=0.95, seed=0)
    assert sampled != model.generate(PROMPTS, max_new=6, seed=1)
    greedy = model.generate(PROMPTS, max_new=6, greedy=True)
    assert greedy == model.generate(PROMPTS, max_new=6, temperature=0)
    assert greedy != sampled
    assert greedy == model.generate(PROMPTS, max_new=6, greedy=True, seed=1)
    assert model.generate(PROMPTS, max_new=6, top_k=5) == model.generate(PROMPTS, max_new=6, top_k=5, temperature=1.0)
    with pytest.raises(OptionError, match="no use for 'top_p'"):
        model.generate("Dawn", greedy=True, top_p=0.9)
    with pytest.raises(OptionError, match="several texts, nor a beam"):
        model.generate("Dawn", greedy=True, n=2)


def test_a_model_that_reads_sources_does_not_sample_by_itself() -> None:
    model = tiny_model("t5")
    assert model.generate(["The vase"], max_new=4) == model.generate(["The vase"], max_new=4, greedy=True)


def test_a_template_of_the_folder_frames_prompts_and_scored_texts(tmp_path: Path) -> None:
    """A GPT-2 whose tokenizer.json puts the start piece before every text."""
    tmp_path /= "gpt2"
    tiny_model("gpt2").save(tmp_path)
    (tmp_path / "polyseme.json").unlink()
    file = tmp_path / "tokenizer.json"
    backend = Tokenizer.from_file(str(file))
    start = "<|endoftext|>"
    id = backend.token_to_id(start)
    backend.post_processor = TemplateProcessing(single=f"{start} $A", special_tokens=[(start, id)])
    backend.save(str(file))
    model = polyseme.load(tmp_path, device="cpu")
    reference = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    row = transformers.AutoTokenizer.from_pretrained(tmp_path)("The vase broke.", return_tensors="pt")
    with torch.no_grad():
        theirs = reference(**row, output_hidden_states=True)
        written = reference.generate(**row, max_new_tokens=5, do_sample=False, pad_token_id=id)[0]
    [scored] = model.score(["The vase broke."])
    assert scored.ids.tolist() == row["input_ids"][0, 1:].tolist()
    expected = theirs.logits[0, :-1].log_softmax(-1).gather(1, row["input_ids"][0, 1:, None])[:, 0]
    np.testing.assert_allclose(scored.piece_log_probs, expected.numpy(), atol=1e-4)
    [found] = model.embed(["The vase broke."], layer=-1, pool="last")
    places = model.tokenizer.encode(make_document("The vase broke.")).words[:, 1] + 1
    np.testing.assert_allclose(found.vectors, theirs.hidden_states[-1][0, places].numpy(), atol=1e-4)
    [text] = model.generate(["The vase broke."], max_new=5, greedy=True)
    assert text == model.tokenizer.decode(written[row["input_ids"].shape[1] :].tolist())
