"""`load` and `Model`: what goes in, what comes out, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

import polyseme
from conformance.cases import REFERENCED
from convert.comparing import PAIR, row
from polyseme.api import Model
from polyseme.convert.families import FAMILIES
from polyseme.errors import InputError, ModelError, OptionError, PolysemeWarning
from polyseme.types import Batch, Document, Word
from references import assert_close
from tiny_models import tiny_model

SENTENCES = ["Dawn broke.", "Sandy broke the world record."]


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert")


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "bert"
    model.save(place)
    return place


def one_row(ids: NDArray[np.int64]) -> Batch:
    return Batch(torch.from_numpy(ids)[None])


# --- load -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path])
def test_a_model_is_loaded_from_its_path(model: Model, folder: Path, kind: Callable[[Path], Any]) -> None:
    loaded = polyseme.load(kind(folder), device="cpu")
    assert loaded.path == str(folder)
    np.testing.assert_array_equal(loaded.pieces(SENTENCES[0]).states, model.pieces(SENTENCES[0]).states)


def test_without_a_name_the_default_model_is_loaded() -> None:
    default, named = polyseme.load(), polyseme.load("minilm")
    assert default.path == named.path
    card = default.show()
    assert (card.family, card.layers, card.width, card.outputs) == ("bert", 6, 384, ("pooled",))


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("gpu", "There is no device 'gpu'. Did you mean 'cpu'?"),
        ("", "There is no device ''. There are: auto, cpu"),
        ("cuda:64", "torch sees"),
        ("meta", "The device 'meta' cannot be used here. Use cpu."),
    ],
)
def test_a_device_that_is_not_there_is_refused(folder: Path, device: str, said: str) -> None:
    with pytest.raises(OptionError) as refusal:
        polyseme.load(folder, device=device)
    assert said in str(refusal.value)


def test_a_device_is_refused_before_the_model_is_looked_for() -> None:
    with pytest.raises(OptionError, match="There is no device"):
        polyseme.load("no/such/folder", device="gpu")


@pytest.mark.parametrize(("dtype", "meant"), [("float32", "fp32"), ("bf61", "bf16"), ("int4", "int8")])
def test_an_unknown_dtype_is_refused(folder: Path, dtype: Any, meant: str) -> None:
    with pytest.raises(OptionError) as refusal:
        polyseme.load(folder, dtype=dtype)
    assert f"There is no dtype {dtype!r}." in str(refusal.value)
    assert meant in str(refusal.value)


# --- embed: what may be given ----------------------------------------------------------------------------------------


def test_a_list_of_strings_is_texts(model: Model) -> None:
    found = model.embed(SENTENCES)
    assert [list(each.words) for each in found] == [["Dawn", "broke", "."], [*SENTENCES[1][:-1].split(), "."]]
    assert [each.id for each in found] == ["0", "1"]
    assert [each.text for each in found] == SENTENCES
    assert [each.vectors.shape for each in found] == [(3, 32), (6, 32)]
    assert found[0].vectors.dtype == np.float32
    assert found[0].offsets.tolist() == [[0, 4], [5, 10], [10, 11]]


def test_a_text_may_have_one_vector(model: Model) -> None:
    words, texts = model.embed(SENTENCES), model.embed(SENTENCES, per="text")
    assert [(each.id, each.text, list(each.words), each.offsets.shape) for each in texts] == [
        (each.id, each.text, [], (0, 2)) for each in words
    ]
    for text, its in zip(texts, words, strict=True):
        np.testing.assert_allclose(text.vectors, its.vectors.mean(axis=0, keepdims=True), rtol=1e-6, atol=1e-6)
    with pytest.warns(PolysemeWarning, match="1 text has no words"):
        assert not model.embed([" "], per="text")[0].vectors.any()
    with pytest.raises(OptionError, match=r"There is no per 'txt'.*'text'"):
        model.embed(SENTENCES, per="txt")  # type: ignore[arg-type]


def test_one_string_is_one_text(model: Model) -> None:
    [found] = model.embed(SENTENCES[0])
    np.testing.assert_array_equal(found.vectors, model.embed(SENTENCES)[0].vectors)


@pytest.mark.parametrize(
    "given", [[["Dawn", "broke."]], [("Dawn", "broke.")], (["Dawn", "broke."],), iter([np.array(["Dawn", "broke."])])]
)
def test_a_list_of_lists_is_words(model: Model, given: Any) -> None:
    """The words are kept as they are; their text is them, with blanks between."""
    [found] = model.embed(given)
    assert list(found.words) == ["Dawn", "broke."]
    assert found.text == "Dawn broke."
    assert found.pretokenized
    assert found.offsets.tolist() == [[0, 4], [5, 11]]
    assert len(found.vectors) == 2


def test_texts_and_word_lists_may_come_together_and_from_anywhere(model: Model) -> None:
    def stream() -> Iterator[Any]:
        yield SENTENCES[0]
        yield ["Dawn", "broke", "."]

    raw, given = model.embed(stream())  # type: ignore[arg-type]
    assert (raw.pretokenized, given.pretokenized) == (False, True)
    np.testing.assert_allclose(raw.vectors, given.vectors, rtol=0, atol=1e-5 * np.abs(raw.vectors).max())


def test_a_document_keeps_its_id_fields_and_words(model: Model) -> None:
    text = "Dawn broke even."
    given = Document(text=text, words=[Word("broke even", 5, 15)], id="d7", fields={"year": 1998})
    found = model.embed([given])[0]
    assert (found.id, found.fields, found.text) == ("d7", {"year": 1998}, text)
    assert found.offsets.tolist() == [[5, 15]]
    in_context = model.embed(text)[0].vectors
    pieces = model.pieces(text)
    inside = (pieces.spans[:, 0] >= 5) & (pieces.spans[:, 1] <= 15) & (pieces.spans[:, 1] > 0)
    np.testing.assert_allclose(found.vectors[0], pieces.states[-1][inside].mean(axis=0), atol=1e-5)
    assert not np.allclose(found.vectors[0], in_context[1], atol=1e-3)
    np.testing.assert_array_equal(model.embed(given)[0].vectors, found.vectors)


def test_nothing_in_nothing_out(model: Model) -> None:
    assert model.embed([]) == []
    empty, blank, no_words = model.embed(["", " \n", []])
    for found in (empty, blank, no_words):
        assert found.vectors.shape == (0, 32)
        assert found.offsets.shape == (0, 2)
    assert model.embed([""], layer="all")[0].vectors.shape == (0, 4, 32)
    assert model.embed([""], layer="concat:0:1")[0].vectors.shape == (0, 64)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (7, "What is embedded must be texts. Got a int instead."),
        (None, "What is embedded must be texts. Got a NoneType instead."),
        (["Dawn", 7], "Text 1 must be a string or a list of words. Got a int instead."),
        (["Dawn", None], "Text 1 must be a string or a list of words. Got a NoneType instead."),
        ([["Dawn"], ["broke", 7]], "Text 1: Word 1 of the list (counted from 0) must be a string. Got 7, a int."),
        ([["Dawn", ""]], "Text 0: Word 1 of the list (counted from 0) is empty"),
        ([["Dawn"], [" \t"]], "Text 1: Word 0 of the list (counted from 0) is blank"),
        ([b"Dawn"], "Text 0 must be a string or a list of words. Got bytes instead: decode them first."),
        (b"Dawn", "Got a bytes instead. Decode them first."),
        ({"a": "Dawn"}, "Got a dict instead. Give its values."),
        (pd.DataFrame({"t": ["Dawn"]}), "Got a DataFrame instead. Choose one column, as in frame['text']."),
    ],
    ids=repr,
)
def test_what_is_no_text_is_refused_with_its_position(model: Model, given: Any, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        model.embed(given)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    "words",
    [
        [Word("broke", 5, 10), Word("Dawn", 0, 4)],
        [Word("Dawn broke", 0, 10), Word("Dawn", 0, 4)],
        [Word("broke even", 5, 15)],
        [Word("", 4, 4)],
        [Word("D", -1, 1)],
    ],
    ids=["not in order", "one inside another", "beyond the text", "empty", "before the text"],
)
def test_a_document_whose_words_are_not_in_its_text_is_refused(model: Model, words: list[Word]) -> None:
    with pytest.raises(InputError, match="Text 1: its words must be in its text, in order"):
        model.embed(["Dawn broke.", Document(text="Dawn broke.", words=words)])


def test_lone_surrogates_are_read_as_the_replacement_character_and_said(model: Model) -> None:
    with pytest.warns(PolysemeWarning) as said:
        [found] = model.embed(["Dawn \ud83d broke"])
    assert ["lone surrogates" in str(each.message) for each in said].count(True) == 1
    assert found.text == "Dawn \ufffd broke"


@pytest.mark.filterwarnings("ignore:The model's tokenizer has no pieces:polyseme.errors.PolysemeWarning")
def test_a_literal_special_is_text(model: Model) -> None:
    """What spells `[MASK]` or `[SEP]` is embedded as any other text."""
    for literal in ("[MASK]", "[SEP]", "[CLS]"):
        found = model.pieces(f"Dawn {literal} broke")
        assert literal not in found.pieces[1:-1]
        [embedded] = model.embed([f"Dawn {literal} broke"])
        assert "".join(embedded.words) == f"Dawn{literal}broke"


def test_given_words_may_be_cut_otherwise_than_text() -> None:
    """RoBERTa's pieces take in the blank before a word, and a given first word has none; later ones have one."""
    model = tiny_model("roberta")
    raw = model.pieces("broke,broke")
    given = model.pieces(["broke", ",", "broke"])
    assert raw.pieces[1:-1] == ["broke", ",", "broke"]
    assert given.pieces[1:-1] == ["broke", "Ġ", ",", "Ġbroke"]


# --- pieces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_have_ids_spans_and_states_of_every_layer(family: str) -> None:
    model = tiny_model(family)
    text = "Sandy broke the law."
    found = model.pieces(text)
    n, config = len(found.ids), model.bundle.config
    assert len(found.pieces) == n
    assert found.spans.shape == (n, 2)
    assert [layer.shape for layer in found.states] == [(n, width) for width in config.widths]
    assert isinstance(found.states, list) == (len(set(config.widths)) > 1)
    assert found.attentions is None
    assert model.bundle.tokenizer is not None
    before = model.bundle.tokenizer.frame(found.ids[:0]).offset
    inner = slice(before, n - model.bundle.tokenizer.n_specials + before)
    around = np.setdiff1d(np.arange(n), np.arange(n)[inner])
    assert len(around) == model.bundle.tokenizer.n_specials
    assert not found.spans[around].any()
    for piece, (start, end) in zip(found.pieces[inner], found.spans[inner], strict=True):
        bare = piece.removeprefix("##").removeprefix("▁").removeprefix("Ġ").removesuffix("</w>")
        if not piece.startswith("bucket "):  # of n-grams, which many have in common
            assert text[start:end].strip().lower() == bare.strip().lower()
    with torch.no_grad():
        states = model.bundle.encoder(row(model, text))
    for number in range(config.depth + 1):
        assert_close(torch.from_numpy(found.states[number]), states[number][0], 1e-5)


def test_attentions_come_on_request(model: Model) -> None:
    found = model.pieces("Sandy broke the law.", attentions=True)
    n = len(found.ids)
    assert found.attentions is not None
    assert found.attentions.shape == (3, 4, n, n)
    np.testing.assert_allclose(found.attentions.sum(axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(found.states, model.pieces("Sandy broke the law.").states, atol=1e-5)


def test_pieces_of_given_words(model: Model) -> None:
    assert model.pieces(["broke", "the"]).pieces == ["[CLS]", "broke", "the", "[SEP]"]


def test_pieces_of_nothing_are_the_specials(model: Model) -> None:
    found = model.pieces("")
    assert found.pieces == ["[CLS]", "[SEP]"]
    assert found.states.shape == (4, 2, 32)


def test_what_does_not_fit_the_model_at_once_is_refused(model: Model) -> None:
    assert len(model.pieces("the " * 38).ids) == 40
    long = "the " * 39
    for call in (lambda: model.pieces(long), lambda: model.fill(f"{long}[MASK]"), lambda: model.next(long, "the")):
        with pytest.raises(InputError, match=r"makes 4\d pieces, specials included.* reads 40 at once"):
            call()


# --- fill -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if "masked" in family.outputs])
@pytest.mark.parametrize("n_masks", [1, 3])
def test_masks_are_filled_by_the_output_ranked(family: str, n_masks: int) -> None:
    model = tiny_model(family)
    text = "The " + "[MASK] broke the " * n_masks + "law."
    found = model.fill(text, top=7)
    assert len(found) == n_masks
    tokenizer = model.bundle.tokenizer
    assert tokenizer is not None
    framed = tokenizer.frame(tokenizer.encode_with_masks(text).ids)
    places = np.flatnonzero(framed.ids == tokenizer.specials["mask"])
    assert len(places) == n_masks
    with torch.no_grad():
        states = model.bundle.encoder(one_row(framed.ids), layers=[-1])[-1][0]
        logits = model.bundle.outputs["masked"].logits(states[places]).double()
    for filled, probabilities in zip(found, logits.softmax(-1), strict=True):
        assert text[filled.start : filled.end].strip() == "[MASK]"
        best = probabilities.argsort(descending=True)[:7].tolist()
        assert filled.pieces == tokenizer.pieces(best)
        assert filled.probabilities == sorted(filled.probabilities, reverse=True)
        np.testing.assert_allclose(filled.probabilities, probabilities[best], rtol=1e-4)


def test_all_probabilities_of_a_mask_add_up_to_one(model: Model) -> None:
    [found] = model.fill("Dawn [MASK].", top=10**6)
    assert len(found.pieces) == len(set(found.pieces)) == model.bundle.config.n_pieces
    assert sum(found.probabilities) == pytest.approx(1, abs=1e-5)


def test_a_mask_may_be_written_as_the_model_writes_it() -> None:
    model = tiny_model("roberta")
    [one], [other] = model.fill("Dawn [MASK]."), model.fill("Dawn <mask>.")
    assert (one.pieces, one.probabilities) == (other.pieces, other.probabilities)


@pytest.mark.parametrize(
    ("text", "top", "error", "said"),
    [
        ("Dawn broke.", 5, InputError, r"no mask to fill in the text. Write \[MASK\]"),
        ("", 5, InputError, "no mask to fill"),
        ("Dawn [MASK].", 0, OptionError, "must be at least 1. Got 0"),
        (None, 5, InputError, "must be a string. Got None"),
        (["Dawn", "[MASK]"], 5, InputError, r"must be a string. Got \["),
    ],
)
def test_what_cannot_be_filled_is_refused(model: Model, text: Any, top: int, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        model.fill(text, top=top)


def test_lone_surrogates_beside_a_mask_are_repaired_too(model: Model) -> None:
    with pytest.warns(PolysemeWarning, match="lone surrogates"):
        [found] = model.fill("\ud83d [MASK]")
    assert (found.start, found.end) == (2, 8)


def test_a_model_without_a_masked_output_says_so() -> None:
    minilm = polyseme.load("minilm")
    with pytest.raises(ModelError, match=r"cannot fill masks: it has no 'masked' output \(it has: pooled\)"):
        minilm.fill("Dawn [MASK].")
    with pytest.raises(ModelError, match="it has no 'next' output"):
        minilm.next("Dawn broke.", "We broke even.")


def test_what_fills_masks_may_stand_beside(tmp_path: Path) -> None:
    """A run of replaced pieces keeps its generator, which has the output that the model lacks."""
    for name, kept in (("model", "replaced"), ("generator", "masked")):
        saved = tiny_model("electra")
        for output in set(saved.bundle.outputs) - {kept}:
            del saved.bundle.outputs[output]
        saved.save(tmp_path / "run" / name)
    for path in (tmp_path / "run", tmp_path / "run" / "model"):
        with pytest.raises(ModelError, match=r"no 'masked' output .* Take .*generator, beside it, which has one\."):
            polyseme.load(path, device="cpu").fill("Dawn [MASK].")
    with pytest.raises(ModelError, match="a checkpoint that was saved with it"):
        polyseme.load(tmp_path / "run", device="cpu").next("Dawn broke.", "We broke even.")


# --- next -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_next_is_the_probability_of_label_0(family: str) -> None:
    model = tiny_model(family)
    found = model.next(*PAIR)
    with torch.no_grad():
        first = model.bundle.encoder(row(model), layers=[-1])[-1][:, 0]
        pooled = torch.tanh(model.bundle.outputs["pooled"].dense(first))
        logits = model.bundle.outputs["next"].dense(pooled)[0]
    assert found == pytest.approx(float(logits.softmax(-1)[0]), rel=1e-5)
    assert 0 < found < 1
    assert found != pytest.approx(model.next(*reversed(PAIR)), rel=1e-3)


def test_next_reads_strings(model: Model) -> None:
    with pytest.raises(InputError, match=r"must be a string\. Got a int"):
        model.next("Dawn broke.", 7)  # type: ignore[arg-type]


# --- save and show ----------------------------------------------------------------------------------------------------


def test_a_saved_model_embeds_as_before(model: Model, folder: Path) -> None:
    for before, after in zip(model.embed(SENTENCES), polyseme.load(folder).embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(before.vectors, after.vectors)


@pytest.mark.parametrize("family", REFERENCED)
def test_show_says_what_a_model_is_and_can(family: str) -> None:
    model = tiny_model(family)
    card = model.show()
    config = model.bundle.config
    assert card.family == family
    assert card.direction == {"openai-gpt": "causal", "gpt2": "causal", "xlnet": "any-order"}.get(family, "both")
    assert (card.layers, card.width, card.window) == (config.depth, 32, 40)
    assert card.vocabulary == config.n_pieces
    assert card.parameters == sum(each.numel() for each in set(model.bundle.parameters()))
    assert card.outputs == tuple(FAMILIES[family].outputs)
    assert ("next" in card.can) == ("next" in card.outputs)
    assert ("fill" in card.can) == ("masked" in card.outputs or "causal" in card.outputs)
    assert card.settings == config.to_json()


def test_what_show_says_a_model_can_works(model: Model) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "embed": lambda: model.embed("Dawn broke."),
        "pieces": lambda: model.pieces("Dawn broke."),
        "fill": lambda: model.fill("Dawn [MASK]."),
        "next": lambda: model.next(*SENTENCES),
        "generate": lambda: model.generate("Dawn", max_new=2),
        "score": lambda: model.score(["Dawn broke."]),
        "attention": lambda: polyseme.attention("Dawn broke.", model=model).maps,
        "lens": lambda: polyseme.lens("Dawn [MASK]." if "masked" in model.bundle.outputs else "Dawn", model=model),
        "patch": lambda: polyseme.patch("The vase [broke]", "The news [is]", model=model),
    }
    calls["cells"] = lambda: polyseme.cells("Dawn broke.", model=model, cell=0, value="output").values
    of_files = {"convert", "similar", "senses", "concordance", "compare", "evaluate", "finetune", "benchmark", "heads"}
    of_files |= {"probe", "geometry", "uses"}
    for verb in set(model.show().can) - of_files:
        assert calls[verb]()


def test_a_model_that_scores_given_a_source_is_not_evaluated_on_texts_alone(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("good\tbad\nDawn broke.\tDawn break.\n", encoding="utf-8")
    model = tiny_model("seq2seq")
    assert "score" in model.show().can
    assert "evaluate" not in model.show().can
    with pytest.raises(ModelError, match="texts by themselves"):
        polyseme.evaluate(pairs, model=model)
    assert "evaluate" in tiny_model("bart").show().can


def test_a_loaded_model_goes_wherever_one_is_named(tmp_path: Path) -> None:
    model = tiny_model("bert")
    text = tmp_path / "text.txt"
    text.write_text("Dawn broke.\nThe news broke.\n", encoding="utf-8")
    assert polyseme.load(model) is model
    assert len(polyseme.senses("broke", source=text, model=model).uses) == 2
    assert len(polyseme.similar("We [broke].", source=text, model=model).near.same or ()) == 2
    assert polyseme.show(model=model) == model.show()
    with pytest.raises(OptionError, match="loaded already"):
        polyseme.senses("broke", source=text, model=model, dtype="bf16")


@pytest.mark.filterwarnings("ignore:.*no pieces for")
def test_a_text_that_is_the_name_of_a_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.txt").write_text("A great film\n")
    model = tiny_model("bert")
    with pytest.warns(PolysemeWarning, match=r"'reviews.txt' is the name of a file.*polyseme.embed\('reviews.txt', …"):
        [document] = model.embed("reviews.txt")
    assert document.text == "reviews.txt"
    model.embed(["reviews", "other.txt", "A film. reviews.txt", ""])
